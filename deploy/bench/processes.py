"""Runs a program, measures the processor time of all its processes, and leaves none of them."""

import dataclasses
import os
import signal
import subprocess
import threading
import time

# Reading /proc takes milliseconds, which is little at this interval.
SAMPLE_INTERVAL_S = 0.2
# How long a program may take to end after SIGTERM.
TERMINATE_S = 10.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
TAIL_LINES = 15


class ProgramFailed(Exception):
    """A program failed, did not end in time, or did not say what it should."""


@dataclasses.dataclass
class Finished:
    """The output of a program, and the processor time of its processes over time."""

    output: str
    # (Unix time, processor-seconds of all processes so far), in order.
    usage: list[tuple[float, float]]

    def processor_seconds(self, begin_unix_s: float, end_unix_s: float) -> float:
        """The processor time used between two times, interpolated between the samples."""
        return self._used_until(end_unix_s) - self._used_until(begin_unix_s)

    def _used_until(self, unix_s: float) -> float:
        before = (unix_s, 0.0)
        for sample in self.usage:
            if sample[0] >= unix_s:
                span = sample[0] - before[0]
                share = (unix_s - before[0]) / span if span > 0 else 0.0
                return before[1] + share * (sample[1] - before[1])
            before = sample
        return before[1]


class _Processes:
    """The processes that descend from one, also those whose parents have ended."""

    def __init__(self, root: int):
        self._members = {root}
        self._ticks: dict[tuple[int, str], int] = {}

    def look(self) -> float:
        """Returns the processor-seconds of all of them so far, including ended ones."""
        parents: dict[int, int] = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                with open("/proc/%s/stat" % name, encoding="utf-8", errors="replace") as file:
                    # The name in parentheses may contain anything.
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            pid, parent = int(name), int(fields[1])
            parents[pid] = parent
            if pid in self._members or parent in self._members:
                self._members.add(pid)
                self._ticks[pid, fields[19]] = int(fields[11]) + int(fields[12])
        # The number of a process that has ended may be reused.
        self._members &= set(parents)
        return sum(self._ticks.values()) / TICKS_PER_S

    def members(self) -> set[int]:
        """The process numbers at the last look."""
        return set(self._members)


def run(
    command: list[str],
    folder: str,
    log: str,
    timeout_s: float,
    environment: dict[str, str] | None = None,
) -> Finished:
    """Runs a command to its end, with its standard error in `log` and its output in LOG.out.

    `environment` holds defaults, which variables of this process override. Raises ProgramFailed if
    the command fails. Ends all its processes, even when interrupted.
    """
    with open(log, "wb") as errors, open(log + ".out", "w+b") as output:
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={**(environment or {}), **os.environ},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            raise ProgramFailed("cannot be started: %s" % error) from error
        processes = _Processes(process.pid)
        usage = [(time.time(), 0.0)]
        ended = threading.Event()

        def sample() -> None:
            while not ended.wait(SAMPLE_INTERVAL_S):
                usage.append((time.time(), processes.look()))

        sampler = threading.Thread(target=sample)
        sampler.start()
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            ended.set()
            sampler.join()
            _end(process, processes)
        output.seek(0)
        text = output.read().decode("utf-8", errors="replace")
    if code is None:
        raise ProgramFailed("did not end within %d s; its log is %s" % (timeout_s, log))
    if code != 0:
        raise ProgramFailed(
            "failed with exit code %d; its log %s ends with\n%s" % (code, log, _tail(log))
        )
    return Finished(text, usage)


def _tail(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return "".join("  | " + line for line in file.readlines()[-TAIL_LINES:])


def _end(process: subprocess.Popen[bytes], processes: _Processes) -> None:
    """Ends the program, gently at first, and kills what remains of it. Runs on the main thread."""
    # A second Ctrl-C must not interrupt this.
    handlers = {one: signal.signal(one, signal.SIG_IGN) for one in (signal.SIGINT, signal.SIGTERM)}
    processes.look()
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(TERMINATE_S)
        except subprocess.TimeoutExpired:
            pass
    # Its members may have started others meanwhile.
    processes.look()
    for pid in processes.members():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()
    for one, handler in handlers.items():
        signal.signal(one, handler)
