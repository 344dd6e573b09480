"""The package with Debian 12's torch, python3-torch 1.13: the tests of the other versions pass.

Skipped where that torch is not installed. To try it without installing it, unpack python3-torch and
what it needs (`apt-get download`, `dpkg -x`) into a folder, and name that in PAWL_DEBIAN_ROOT.
"""

import os
import pathlib
import subprocess
import unittest

PYTHON = "/usr/bin/python3"
FIND = "import torch; print(torch.__version__)"
# Trains on ranks: training_test. The others are of modules, states and files.
TESTS = {
    "export": [],
    "job": [],
    "kept": [],
    "pooling": [],
    "rules": [],
    "state": [],
    "torch": [],
    "training": [
        "TrainingTest.test_adagrad_is_that_of_torch",
        "TrainingTest.test_evaluation_covers_all_ranks_at_one_version",
        "TrainingTest.test_kept_objects_survive_deaths_and_moves",
    ],
}


def debian_environment():
    """The environment in which PYTHON finds Debian's packages."""
    environment = dict(os.environ)
    root = os.environ.get("PAWL_DEBIAN_ROOT")
    if not root:
        return environment
    libraries = ["usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/blas",
                 "usr/lib/x86_64-linux-gnu/lapack", "usr/lib", "lib/x86_64-linux-gnu"]
    paths = {
        "LD_LIBRARY_PATH": [os.path.join(root, library) for library in libraries],
        "PYTHONPATH": [os.environ.get("PYTHONPATH", ""),
                       os.path.join(root, "usr/lib/python3/dist-packages")],
    }
    return {**environment, **{name: ":".join(entries) for name, entries in paths.items()}}


def debian_torch():
    """Its version, or why it cannot be tested."""
    try:
        found = subprocess.run(
            [PYTHON, "-c", FIND], env=debian_environment(), capture_output=True, text=True
        )
    except OSError as error:
        return None, str(error)
    if found.returncode != 0:
        return None, found.stderr.strip().rsplit("\n", 1)[-1]
    version = found.stdout.strip()
    return (version, "") if version.startswith("1.13.") else (None, "it is torch " + version)


VERSION, REASON = debian_torch()
if VERSION is None:
    print("Debian's python3-torch 1.13 is not installed (%s): these tests are skipped" % REASON)


@unittest.skipIf(VERSION is None, "no python3-torch 1.13")
class DebianTorchTest(unittest.TestCase):
    def test_tests_of_the_package_pass(self):
        folder = pathlib.Path(__file__).absolute().parent
        for name, cases in TESTS.items():
            with self.subTest(name):
                ended = subprocess.run(
                    [PYTHON, str(folder / ("%s_test.py" % name)), *cases],
                    env=debian_environment(),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                self.assertEqual(ended.returncode, 0, ended.stdout)


if __name__ == "__main__":
    unittest.main()
