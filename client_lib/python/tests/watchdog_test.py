"""The watchdog counts from step to step, and rests while it is paused."""

import os
import subprocess
import sys
import unittest

PROGRAM = """
import time
from pawl.watchdog import Watchdog

watchdog = Watchdog(2.0)
for _ in range(30):
    watchdog.watch()
    time.sleep(0.1)
print("steps")
watchdog.pause()
time.sleep(2.5)
print("paused", flush=True)
watchdog.watch()
time.sleep(60)
"""


class WatchdogTest(unittest.TestCase):
    def test_only_a_step_that_hangs_ends_the_process(self):
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PAWL_WORKER_DIR": "/nowhere"},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertEqual(ended.stdout, "steps\npaused\n")
        self.assertIn("Timeout (0:00:02)!", ended.stderr)
        self.assertIn('File "<string>", line 14', ended.stderr)


if __name__ == "__main__":
    unittest.main()
