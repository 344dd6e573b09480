"""pawl.JobSettings: in a process of its own, under `pawl run`, and against a job that runs."""

import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import pawl
from pawl import _abi

PROGRAM = """
import json, pathlib, sys
import numpy as np
import pawl

print("before init")
job = pawl.init(job=pawl.JobSettings(
    mode="BOUNDED", staleness=2, seed=9, durability="MEMORY", logical_workers=2,
    others={"partitions": 8}))
table = job.client.table("t", dim=1, optimizer=pawl.SGD(1.0))
for batch in job.steps(pawl.data.Arrays(np.arange(40), batch_size=10)):
    job.end_step([])
pathlib.Path(sys.argv[1]).write_text(json.dumps(job.client.job))
"""


class SettingsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.program = os.path.join(self.folder.name, "program.py")
        self.result = os.path.join(self.folder.name, "result.json")
        pathlib.Path(self.program).write_text(PROGRAM, encoding="utf-8")

    def run_program(self, *command):
        environment = {k: v for k, v in os.environ.items() if k != "PAWL_SCHEDULER"}
        ended = subprocess.run(
            [sys.executable, *command, self.program, self.result],
            cwd=self.folder.name,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)

    def assert_has_settings(self):
        job = json.loads(pathlib.Path(self.result).read_text(encoding="utf-8"))
        self.assertEqual(job["consistency"], {"mode": "BOUNDED", "staleness": 2})
        self.assertEqual(
            [job[name] for name in ("seed", "durability", "logical_workers", "partitions")],
            ["9", "MEMORY", 2, 8],
        )

    def test_program_without_a_scheduler_starts_the_job(self):
        self.run_program()
        self.assert_has_settings()

    def test_pawl_run_starts_the_job_that_the_program_wants(self):
        self.run_program("-m", "pawl", "run", "--servers=1", "--workers=2")
        self.assert_has_settings()

    def test_job_with_other_settings_is_refused_by_field(self):
        with pawl.LocalCluster(job={"seed": 3, "consistency.mode": "ASYNC"}) as cluster:
            with self.assertRaises(pawl.FailedPreconditionError) as raised:
                pawl.init(cluster.scheduler, job=pawl.JobSettings(seed=4, mode="SYNC", replicas=1))
            text = str(raised.exception)
            self.assertIn("seed is 3, not 4", text)
            self.assertIn("consistency.mode is ASYNC, not SYNC", text)
            self.assertNotIn("replicas is", text)
            settings = pawl.JobSettings(seed=3, mode="ASYNC", elastic=False, others={"replicas": 1})
            with pawl.init(cluster.scheduler, job=settings) as job:
                self.assertEqual(job.mode, "ASYNC")

    def test_job_takes_the_program_that_has_started_it(self):
        back = os.getcwd()
        os.chdir(self.folder.name)
        self.addCleanup(os.chdir, back)
        others = {"checkpoint.dir": "checkpoints/", "clip_global_norm": 1.0}
        settings = pawl.JobSettings(seed=2**60 + 1, others=others)
        with pawl.LocalCluster(job=settings.by_path()) as cluster:
            with pawl.init(cluster.scheduler, job=settings) as job:
                self.assertEqual(job.seed, 2**60 + 1)
            differing = {"checkpoint.dir": "other", "clip_global_norm": 1.5}
            with self.assertRaises(pawl.FailedPreconditionError) as raised:
                pawl.init(cluster.scheduler, job=pawl.JobSettings(seed=2**60, others=differing))
        for text in ("seed is", "checkpoint.dir is /", "clip_global_norm is 1, not 1.5"):
            self.assertIn(text, str(raised.exception))

    def test_setting_that_only_built_in_models_have_is_refused(self):
        with self.assertRaisesRegex(pawl.FailedPreconditionError, "max_steps is set"):
            pawl.LocalCluster(job={"max_steps": 5})

    def test_fractions_of_a_job_have_32_bits(self):
        settings = pawl.JobSettings(others={"clip_global_norm": 1 / 3})
        settings.check({"clip_global_norm": 0.33333334})
        narrow = pawl.JobSettings(others={"clip_global_norm": np.float32(0.25)})
        narrow.check({"clip_global_norm": 0.25})
        with self.assertRaises(pawl.FailedPreconditionError):
            settings.check({"clip_global_norm": 0.3333334})

    def test_setting_that_is_given_twice_is_refused(self):
        with self.assertRaisesRegex(ValueError, "seed twice"):
            pawl.JobSettings(seed=1, others={"seed": 2}).by_path()


class WrapperTest(unittest.TestCase):
    """What `pawl` passes to pawlctl."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.program = os.path.join(folder.name, "program.py")
        # Only the text counts: a node's program is not run for its settings.
        pathlib.Path(self.program).write_text("raise SystemExit('JobSettings(')", encoding="utf-8")
        self.bin = os.path.join(folder.name, "bin")
        os.mkdir(self.bin)
        stub = pathlib.Path(self.bin, "pawlctl")
        shown = subprocess.run(
            [_abi.program("pawlctl"), "run", "--help"], stdout=subprocess.PIPE, check=True
        )
        pathlib.Path(self.bin, "help").write_bytes(shown.stdout)
        stub.write_text(
            '#!/bin/sh\ntest "$2" = --help && exec cat "${0%/*}/help"\nprintf "%s\\n" "$@"\n',
            encoding="utf-8",
        )
        stub.chmod(stub.stat().st_mode | stat.S_IXUSR)

    def words(self, *arguments):
        """The arguments of pawlctl."""
        ended = subprocess.run(
            [sys.executable, "-m", "pawl", *arguments],
            env={**os.environ, "PAWL_BIN_DIR": self.bin},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return ended.stdout.splitlines()

    def test_node_without_a_program_is_that_command_of_pawlctl(self):
        flags = ["--scheduler=10.0.0.1:7000", "--servers=1"]
        self.assertEqual(self.words("node", *flags), ["node", *flags])

    def test_node_with_a_program_is_that_command_of_pawlctl(self):
        words = self.words("node", "--scheduler=10.0.0.1:7000", self.program, "--epochs=2")
        python = [sys.executable, "-u", self.program, "--epochs=2"]
        self.assertEqual(words, ["node", "--scheduler=10.0.0.1:7000", "--", *python])

    def test_run_without_settings_is_that_command_of_pawlctl(self):
        pathlib.Path(self.program).write_text("print()", encoding="utf-8")
        words = self.words("run", "--workers=2", self.program)
        self.assertEqual(words, ["run", "--workers=2", "--", sys.executable, "-u", self.program])

    def test_value_of_a_flag_is_not_the_program(self):
        pathlib.Path(self.program).write_text("print()", encoding="utf-8")
        python = ["--", sys.executable, "-u", self.program]
        # A program on PATH, and a switch, which has no value.
        for flags in (["--out", "test", "--workers", "2"], ["--tls"], ["--out", "train.py"]):
            self.assertEqual(self.words("run", *flags, self.program), ["run", *flags, *python])
        words = self.words("run", "--tls", "test", "-f")
        self.assertEqual(words, ["run", "--tls", "--", "test", "-f"])


if __name__ == "__main__":
    unittest.main()
