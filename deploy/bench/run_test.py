#!/usr/bin/env python3
"""Tests of deploy/bench/run, without network and peers.

Usage: run_test.py BIN_FOLDER [unittest's arguments]
  BIN_FOLDER   Bazel's output folder with the programs
"""

import filecmp
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
import contestants  # noqa: E402
import processes  # noqa: E402
import report  # noqa: E402

RUN = os.path.join(HERE, "run")
BIN_FOLDER = ""
# Far longer than a call takes. Only a hang reaches it.
LIMIT_S = 240


def processes_of(folder: str) -> list[str]:
    """The command lines of the running processes that name the folder."""
    found = []
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        try:
            with open("/proc/%s/cmdline" % pid, encoding="utf-8", errors="replace") as file:
                line = file.read().replace("\0", " ")
        except OSError:
            continue
        if folder in line:
            found.append(line)
    return found


class FolderTest(unittest.TestCase):
    """Each test has a folder of its own."""

    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name: str) -> str:
        """A path in the folder."""
        return os.path.join(self.folder, name)

    def command(self, *arguments: str) -> list[str]:
        """The command line of a quick run."""
        return [
            RUN,
            "--quick",
            "--out=" + self.path("out"),
            "--bin_folder=" + BIN_FOLDER,
            *arguments,
        ]


class RunTest(FolderTest):
    """Calls of the script."""

    def test_pawl_and_limit_program_reach_the_same_score(self) -> None:
        done = subprocess.run(
            self.command("--json=" + self.path("report.json")),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(self.path("report.json"), encoding="utf-8") as file:
            (data_set,) = json.load(file)["data_sets"]
        names = [row["name"] for row in data_set["contestants"]]
        self.assertEqual(names, ["pawl", "pawl-tls", "limit"])
        for row in data_set["contestants"]:
            with self.subTest(row=row["name"]):
                self.assertGreater(row["samples_per_s"][0], 0)
                # The limit program may end before the system has counted any processor time.
                at_least = 0.001 if row["name"] == "pawl" else 0
                self.assertGreaterEqual(row["processor_s_per_million_samples"][0], at_least)
                # The categories say something about the label.
                self.assertGreater(row["auc"][0], 0.65)
                self.assertIn(row["title"], done.stdout)

    def test_peer_that_cannot_be_installed_has_a_row(self) -> None:
        with open(self.path("file"), "w", encoding="ascii"):
            pass
        done = subprocess.run(
            self.command("--peers=ddp", "--venv=" + self.path("file/venv")),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, "DDP.* cannot be installed")
        self.assertIn("no virtual environment", done.stderr)

    def test_interrupt_leaves_no_process(self) -> None:
        with subprocess.Popen(
            self.command("--epochs=1000"), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
        ) as process:
            deadline = time.monotonic() + LIMIT_S
            while not any("pawl-worker" in line for line in processes_of(self.folder)):
                self.assertIsNone(process.poll())
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 130, said)
        self.assertEqual(processes_of(self.folder), [])

    def test_wrong_argument_exits_with_2(self) -> None:
        for argument in ("--peers=nonsense", "--data=nonsense", "--picture=nonsense", "nonsense"):
            with self.subTest(argument=argument):
                done = subprocess.run(
                    [RUN, argument], capture_output=True, text=True, timeout=60, check=False
                )
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("nonsense", done.stderr)


class DataTest(FolderTest):
    """The generated samples."""

    def test_samples_depend_on_flags_only(self) -> None:
        for name, seed in (("a", 1), ("b", 1), ("c", 2)):
            os.mkdir(self.path(name))
            subprocess.run(
                [
                    os.path.join(BIN_FOLDER, "tests/perf/bench_data"),
                    "--shape=criteo",
                    "--rows=20000",
                    "--train_samples=100",
                    "--test_samples=10",
                    "--seed=%d" % seed,
                    "--out=" + self.path(name),
                ],
                check=True,
                timeout=60,
            )
        for file in ("train.rows", "train.labels", "train.libsvm", "test.rows", "data.json"):
            self.assertTrue(filecmp.cmp(self.path("a/" + file), self.path("b/" + file), False))
        self.assertFalse(filecmp.cmp(self.path("a/train.rows"), self.path("c/train.rows"), False))
        with open(self.path("a/train.libsvm"), encoding="ascii") as text:
            self.assertRegex(text.readline(), r"^[01]( \d+:1){26}\n$")


class ProcessesTest(FolderTest):
    """The module processes."""

    def test_descendants_of_a_hanging_program_end(self) -> None:
        script = "sleep 1000 %s & bash -c 'sleep 1000; true' %s" % (self.folder, self.folder)
        with self.assertRaisesRegex(processes.ProgramFailed, "did not end"):
            processes.run(["bash", "-c", script], self.folder, self.path("log"), 1)
        # The system removes killed orphans a moment later.
        deadline = time.monotonic() + 30
        while processes_of(self.folder) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(processes_of(self.folder), [])

    def test_processor_time_of_children_counts(self) -> None:
        spin = "import time\nwhile time.process_time() < 1: pass"
        finished = processes.run(
            ["bash", "-c", '%s -c "%s"; true' % (sys.executable, spin)],
            self.folder,
            self.path("log"),
            60,
        )
        begin, end = finished.usage[0][0], finished.usage[-1][0]
        self.assertGreater(finished.processor_seconds(begin, end), 0.5)
        middle = (begin + end) / 2
        self.assertAlmostEqual(
            finished.processor_seconds(begin, middle) + finished.processor_seconds(middle, end),
            finished.processor_seconds(begin, end),
        )

    def test_failure_shows_the_end_of_the_log(self) -> None:
        with self.assertRaisesRegex(processes.ProgramFailed, "code 3(.|\n)*the reason"):
            processes.run(
                ["bash", "-c", "echo the reason >&2; exit 3"], self.folder, self.path("log"), 60
            )


class ReportTest(unittest.TestCase):
    """The table."""

    def test_other_score_is_marked(self) -> None:
        data = contestants.DataSet("d", "", "", "", "", 2, 10, 100, 50, 10, 1, 0.1)
        rows = [
            report.Row(name, name, [contestants.Result(100, 2.0, 3.0, auc, 0.5)])
            for name, auc in (("pawl", 0.7), ("near", 0.702), ("far", 0.69))
        ]
        rows.append(report.Row("absent", "absent", note="cannot be installed"))
        table = report.Report(data, rows)
        self.assertEqual([row.name for row in table.disagreeing()], ["far"])
        lines = {line.split()[0]: line for line in table.text().splitlines()[2:]}
        self.assertIn("differs", lines["far"])
        self.assertNotIn("differs", lines["near"])
        self.assertIn("cannot be installed", lines["absent"])
        self.assertIn("30000.00", lines["pawl"])


if __name__ == "__main__":
    BIN_FOLDER = sys.argv.pop(1)
    unittest.main()
