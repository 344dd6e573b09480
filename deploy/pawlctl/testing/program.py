"""Runs pawlctl in its tests."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest

# Far longer than any command takes. Only a hang reaches it.
LIMIT_S = 120


def run(program, arguments, environment, folder=None):
    """Runs a program to its end without input: exit code, standard output, standard error."""
    done = subprocess.run(
        [program, *arguments],
        env=environment,
        text=True,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
        stdin=subprocess.DEVNULL,
        cwd=folder,
    )
    return done.returncode, done.stdout, done.stderr


class TrainingTest(unittest.TestCase):
    """Trains jobs in a folder of the test's own, by the command line."""

    # The program pawlctl.
    PAWLCTL = ""

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.environment = dict(os.environ)
        self.environment.pop("PAWL_BIN_DIR", None)
        self.environment.pop("PAWL_SCHEDULER", None)
        self.job = self.path("job.pbtxt")
        self.checkpoints = self.path("checkpoints")

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def pawlctl(self, *arguments):
        return run(self.PAWLCTL, arguments, self.environment, self.folder)

    def train(self, *more):
        """Trains to the end and returns the metrics."""
        code, text, err = self.pawlctl(
            "run",
            "--job=" + self.job,
            "--servers=2",
            "--workers=2",
            "--out=" + self.path("out"),
            "--set=checkpoint.dir=" + self.checkpoints,
            *more
        )
        self.assertEqual((code, err), (0, ""), text)
        self.assertIn("final checkpoint in " + self.checkpoints, text)
        with open(self.path("out/metrics.json"), encoding="utf-8") as file:
            return json.load(file)
