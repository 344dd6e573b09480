"""Runs pawlctl in its tests."""

import subprocess

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
