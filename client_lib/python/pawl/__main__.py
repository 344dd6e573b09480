"""`python -m pawl`: training programs, record files, a demonstration, commands of pawlctl."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from typing import NoReturn

from pawl import _abi
from pawl.job_settings import SETTINGS_FILE_VARIABLE

USAGE = """\
Usage: pawl run [--servers=N] [--workers=N] [--set=PATH=VALUE]... [FLAG...] PROGRAM.py [ARG...]
       pawl node --scheduler=HOST:PORT [--servers=N] [--workers=N] [FLAG...] [PROGRAM.py [ARG...]]
       pawl convert OUT (--parquet | --npy | --csv) FILE... [FLAG...]
       pawl demo
       pawl COMMAND [FLAG...]

  run      starts a scheduler, servers and workers on this machine; each worker runs the program
           with this Python, and pawl.init() in it joins the job. What dies is restarted.
           `pawl run --help` shows the flags. A program that passes pawl.JobSettings to
           pawl.init is first run up to there, for the job's settings.
  node     starts the servers and workers of this machine for a scheduler that may run elsewhere,
           and restarts those that die; for launchers that start one command on each machine.
  convert  writes a record file, which the built-in models read, from Parquet, .npy or CSV files;
           `pawl convert --help` shows the flags.
  demo     trains a small table on a cluster that it starts and ends.
  COMMAND  any other command of pawlctl, such as status, tables or checkpoint; `pawl help` lists
           them.
"""


def _exec(*arguments: str) -> NoReturn:
    program = _abi.program("pawlctl")
    os.execv(program, [program, *arguments])


@functools.lru_cache
def _flags_with_values(command: str) -> set[str]:
    """The command's flags whose value may be the next word, as in `--servers 2`."""
    shown = subprocess.run(
        [_abi.program("pawlctl"), command, "--help"], capture_output=True, text=True, check=False
    )
    return set(re.findall(r"^  (--\w+)=", shown.stdout, re.MULTILINE))


def _run(command: str, arguments: list[str]) -> NoReturn:
    """Puts `-- PYTHON` before the program."""
    is_value = False
    for place, word in enumerate(arguments):
        if is_value:
            is_value = False
            continue
        if word == "--":
            _exec(command, *arguments)
        if word.startswith("-"):
            is_value = "=" not in word and word in _flags_with_values(command)
            continue
        # A word that is no program is a mistake that pawlctl names.
        is_program = os.path.isfile(word) and os.access(word, os.X_OK) or shutil.which(word)
        if word.endswith(".py") or is_program:
            # Unbuffered: logs show lines as they are printed.
            python = [sys.executable, "-u"] if word.endswith(".py") else []
            program = [*python, *arguments[place:]]
            # The scheduler of a node has its job's settings.
            is_settled = command != "run" or not word.endswith(".py")
            flags = [] if is_settled else _settings_of(program)
            _exec(command, *flags, *arguments[:place], "--", *program)
    _exec(command, *arguments)


def _settings_of(program: list[str]) -> list[str]:
    """The flags for the job's settings, if the program has some: runs it up to pawl.init."""
    with open(program[2], encoding="utf-8", errors="replace") as file:
        if "JobSettings(" not in file.read():
            return []
    with tempfile.NamedTemporaryFile(prefix="pawl-settings-") as settings:
        environment = {**os.environ, SETTINGS_FILE_VARIABLE: settings.name}
        code = subprocess.run(program, env=environment, check=False).returncode
        text = settings.read().decode()
    if code != 0:
        sys.exit("pawl run: the program failed before pawl.init (exit code %d)" % code)
    return json.loads(text) if text else []


def _demo() -> int:
    import numpy as np

    import pawl

    print("starting a scheduler and two servers")
    with pawl.LocalCluster(servers=2) as cluster, cluster.client() as client:
        table = client.table("demo", dim=4, optimizer=pawl.SGD(0.5))
        keys = np.arange(1000, dtype=np.uint64)
        target = np.sin(np.arange(4000, dtype=np.float32)).reshape(1000, 4)
        for step in range(20):
            rows = table.pull(keys)
            if step % 5 == 0:
                print("step %2d  mean squared error %.6f" % (step, np.mean((rows - target) ** 2)))
            table.push(keys, rows - target)
        error = float(np.mean((table.pull(keys) - target) ** 2))
        print("after 20 steps the mean squared error is %.6f" % error)
    print("all processes have ended")
    return 0 if error < 1e-6 else 1


def main() -> int:
    """The command line of `pawl`."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if arguments else 2
    if arguments[0] == "demo":
        return _demo()
    if arguments[0] == "convert":
        from pawl.convert import command  # pylint: disable=import-outside-toplevel

        return command.main(arguments[1:])
    if arguments[0] in ("run", "node"):
        _run(arguments[0], arguments[1:])
    _exec(*arguments)


if __name__ == "__main__":
    sys.exit(main())
