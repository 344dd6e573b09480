"""TorchRec's own DLRM and DLRM_DCN train on Pawl, with the same bits for any number of workers."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "examples" / "dlrm.py"
TIMEOUT_S = 240


def train(workers: int, *arguments: str) -> dict:
    """Runs the example, and returns the job's metrics."""
    out = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    command = [sys.executable, "-m", "pawl", "run", "--servers=2", "--workers=%d" % workers]
    command += ["--set=logical_workers=2", "--set=partitions=4", "--out=" + out]
    command += [str(PROGRAM), "--samples=20000", *arguments]
    run = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S
    )
    if run.returncode != 0:
        logs = pathlib.Path(out, "logs").glob("*.log")
        raise AssertionError("\n".join([run.stdout, *(log.read_text("utf-8") for log in logs)]))
    with open(os.path.join(out, "metrics.json"), encoding="utf-8") as file:
        return json.load(file)


@unittest.skipUnless(importlib.util.find_spec("torchrec"), "needs TorchRec")
class TorchRecModelsTest(unittest.TestCase):
    def check(self, *arguments: str) -> str:
        one, two = train(1, *arguments), train(2, *arguments)
        self.assertEqual(one["samples"], 20000)
        self.assertEqual(one["digest"], two["digest"])
        return one["digest"]

    def test_dlrm_and_dlrm_dcn_train_unchanged(self):
        self.assertNotEqual(self.check(), self.check("--cross_layers=2"))


if __name__ == "__main__":
    unittest.main()
