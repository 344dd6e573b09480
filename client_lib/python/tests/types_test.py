"""The type hints of the package, which py.typed promises, are those that mypy derives."""

import importlib.util
import os
import subprocess
import sys
import unittest

_HAS_MYPY = importlib.util.find_spec("mypy") is not None
if not _HAS_MYPY:
    print("mypy cannot be imported: these tests are skipped")


@unittest.skipIf(not _HAS_MYPY, "no mypy")
class TypesTest(unittest.TestCase):
    def check(self, *paths):
        return subprocess.run(
            [sys.executable, "-m", "mypy", "--ignore-missing-imports"]
            + ["--cache-dir=" + os.path.join(os.environ["TEST_TMPDIR"], "mypy"), *paths],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=250,
        )

    def test_package_has_no_errors(self):
        checked = self.check(os.path.join(os.environ["PYTHONPATH"], "pawl"))
        self.assertEqual(checked.returncode, 0, checked.stdout)

    def test_wrong_argument_of_a_caller_is_found(self):
        path = os.path.join(os.environ["TEST_TMPDIR"], "caller.py")
        with open(path, "w") as file:
            file.write("import pawl\n\npawl.SGD(lr='fast')\n")
        checked = self.check(path)
        self.assertEqual(checked.returncode, 1, checked.stdout)
        self.assertIn('expected "float"', checked.stdout)


if __name__ == "__main__":
    unittest.main()
