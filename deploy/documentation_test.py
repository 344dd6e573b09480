#!/usr/bin/env python3
"""Tests of the documents: checks their names and flags, and runs their sessions ("$ ...").

Usage: documentation_test.py BIN_FOLDER [unittest's arguments]
  BIN_FOLDER   Bazel's output folder with the programs
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
import documentation  # noqa: E402

ROOT = os.path.dirname(HERE)
BIN_FOLDER = ""
# Far longer than a session takes.
SESSION_LIMIT_S = 240
# Lines that a session prints only on a fast machine.
DEPENDS_ON_TIME = ("evaluation",)
TREE = documentation.Tree(ROOT)


def problems_of(text, path="README.md"):
    checker = documentation.Checker(TREE)
    checker.check(documentation.Document(path, text))
    return checker.problems


class CheckerTest(unittest.TestCase):
    """Tests of the checker itself."""

    def test_correct_document_passes(self):
        self.assertEqual(
            problems_of(
                """
`pawlctl scale --servers=5 --wait`, `deploy/chaos --minutes=15 --faults=server-kill`,
`server/storage/wal/log_format.md`, `--zone`, `//server/shard:partition_test`,
`kMaxFollowerSilence`, `bazel run -c opt //tests/perf:bench -- --rows=safety`.

    PAWL=1 pawlctl status | tail -n 3
    for i in 0 1; do pawl-server --data_dir=a > b 2>&1 & done   # a --comment

    $ pawlctl events --follow
    42  what it --printed
"""
            ),
            [],
        )

    def test_wrong_name_is_found_with_its_line(self):
        for text, problem in (
            ("`pawlctl scale --server=5`", "pawlctl scale has no flag --server"),
            ("`pawlctl scal --servers=5`", "pawlctl has no command scal"),
            ("`pawl-server --data_dri=x`", "pawl-server has no flag --data_dri"),
            ("`--data_dri`", "no program has the flag --data_dri"),
            ("`deploy/chaos --minuts=1`", "chaos has no flag --minuts"),
            ("`deploy/kaos --minutes=1`", "there is no deploy/kaos"),
            ("`bazel test --config=assan //...`", ".bazelrc has no --config=assan"),
            ("`bazel run //tests/perf:bench -- --row=safety`", "bench has no flag --row"),
            ("see //server/shard:partition_tst", "there is no target //server/shard:partition_tst"),
            ("`partition_tst_test`", "there is no test partition_tst_test"),
            ("`server/storage/log_fromat.md`", "there is no server/storage/log_fromat.md"),
            ("`log_fromat.md`", "there is no file log_fromat.md"),
            ("`kSilentTooLon`", "no code has the name kSilentTooLon"),
            ("`TrainingModell`", "no code has the name TrainingModell"),
            ("`durabilty: LOG`", "no code has the name durabilty"),
            ("    checkpont { dir: \"x\" }", "a job has no field checkpont"),
            (
                "    a=$(echo 1)\n    sbatch --wrap=\"pawl-server --data_dri=x\"",
                "pawl-server has no flag --data_dri",
            ),
            ("PartitionTest.DoesNotExist", "there is no test PartitionTest.DoesNotExist"),
            ("`rate(pawl_server_cpu)`", "there is no metric pawl_server_cpu"),
            ("    pawlctl status --jason", "pawlctl status has no flag --jason"),
            ("    pawlctl status \\\n        --jason", "pawlctl status has no flag --jason"),
            ("    pawlct status --json", "what is pawlct?"),
            ("    pawlctl status | pawlct status", "what is pawlct?"),
            ("    $ pawlct status", "what is pawlct?"),
            (
                "    $ for i in 0 1; do pawl-server --data_dri=$i & done",
                "pawl-server has no flag --data_dri",
            ),
            (
                "    $ bazel-bin/client_lib/exampel/example",
                "Bazel builds no bazel-bin/client_lib/exampel/example",
            ),
            ("```\npawl-worker --devise=cpu\n```", "pawl-worker has no flag --devise"),
            (
                "    pawlctl run --job=deploy/jobs/flights.pbtxt",
                "there is no deploy/jobs/flights.pbtxt",
            ),
        ):
            with self.subTest(text=text):
                found = problems_of("one\n\n" + text)
                self.assertTrue(any(problem in one for one in found), found)
                self.assertRegex(found[0], r"^README.md:\d+: ")

    def test_jobs_are_found(self):
        checker = documentation.Checker(TREE)
        checker.check(
            documentation.Document(
                "README.md",
                '''`durability: LOG` and

    name: "a"
    epochs: 2

    more of it

text

    checkpoint { dir: "x" }
''',
            )
        )
        self.assertEqual(
            [text for _, text in checker.parts], ['checkpoint { dir: "x" }', "durability: LOG"]
        )
        self.assertEqual([where for where, _ in checker.jobs], ["README.md:3"])


class DocumentsTest(unittest.TestCase):
    """The project's documents."""

    def setUp(self):
        self.checker = documentation.Checker(TREE)
        for path in TREE.documents:
            self.checker.check(documentation.Document(path, TREE.read(path)))

    def test_every_name_exists(self):
        self.assertIn("README.md", TREE.documents)
        self.assertGreater(len(TREE.documents), 10)
        self.assertEqual(self.checker.problems, [], "\n" + "\n".join(self.checker.problems))

    def test_every_job_is_valid(self):
        self.assertGreater(len(self.checker.jobs), 0)
        self.assertGreater(len(self.checker.parts), 5)
        folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(shutil.rmtree, folder)

        def write(place, text):
            path = os.path.join(folder, place.replace("/", "_"))
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            return path

        calls = [[write(where, text)] for where, text in self.checker.jobs]
        calls.append(
            [os.path.join(HERE, "jobs/clicks.pbtxt")]
            + [
                write("%s-%d" % (where, i), text)
                for i, (where, text) in enumerate(self.checker.parts)
            ]
        )
        for call in calls:
            done = subprocess.run(
                [os.path.join(BIN_FOLDER, "deploy/check_job")] + call,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class SecurityPageTest(unittest.TestCase):
    """The table of rpcs and roles in deploy/security.md, and that of the gate."""

    def test_table_is_that_of_the_gate(self):
        code = TREE.read("client_lib/security/method_roles.cc")
        page = TREE.read("deploy/security.md")
        header = re.search(r"^\| rpc \|(.*)\|$", page, re.M).group(1)
        roles = [word.strip() for word in header.split("|")]
        sets = {"kAllRoles": set(roles)}

        def roles_of(expression):
            names = re.findall(r"PeerRole::k(\w+)", expression)
            return {name.lower() for name in names} if names else sets[expression]

        for name, text in re.findall(r"constexpr RoleSet (k\w+)\(([^;]*)\);", code):
            sets[name] = roles_of(text)
        expected = {
            path.rpartition(".")[2].replace("/", "."): roles_of(text)
            for path, text in re.findall(r'\{"(/[\w./]+)",\s*(RoleSet\([^)]*\)|k\w+)\}', code)
        }
        self.assertEqual(len(expected), code.count('{"/'))
        rows = re.findall(r"^\| `(\w+\.\w+)` \|((?: yes \|| \|)+)$", page, re.M)
        found = {
            rpc: {role for role, cell in zip(roles, cells.split("|")) if cell.strip() == "yes"}
            for rpc, cells in rows
        }
        self.assertEqual(found, expected)


def shape(line):
    """Returns a line of output without words with digits, paths and spaces, which differ."""
    words = ["#" if re.search(r"[\d/]", word) else word for word in line.split()]
    return " ".join(
        word for i, word in enumerate(words) if word != "#" or i == 0 or words[i - 1] != "#"
    )


class SessionsTest(unittest.TestCase):
    """Runs the sessions of the documents."""

    def type(self, document, heading):
        """Runs the commands under the heading but Bazel's, compares their output, returns it."""
        commands = [
            one
            for one in documentation.Document(document, TREE.read(document)).sessions()[heading]
            if not one[1].startswith("bazel ")
        ]
        self.assertGreater(len(commands), 5)
        folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        os.symlink(HERE, os.path.join(folder, "deploy"))
        os.symlink(BIN_FOLDER, os.path.join(folder, "bazel-bin"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % free.getsockname()[1]
        daemons = ":".join(
            "$PWD/bazel-bin/" + name for name in ("deploy/pawlctl", "scheduler", "server", "worker")
        )
        script = ["export PATH=$PATH:" + daemons]
        for number, (_, command, _) in enumerate(commands):
            if command == "pawlctl status":
                # A reader asks while the job trains.
                script.append(
                    "until pawlctl status 2> /dev/null | grep -q ^loss; do sleep 0.1; done"
                )
            script.append(
                "{\n%s\n} > %s/%d.out 2>&1 || exit"
                % (command.replace("127.0.0.1:7000", address), folder, number)
            )
        process = subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", "\n".join(script)],
            cwd=folder,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            said, _ = process.communicate(timeout=SESSION_LIMIT_S)
        except subprocess.TimeoutExpired:
            said = "it takes longer than %d s" % SESSION_LIMIT_S
        finally:
            # The session's process group.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        printed = []
        for number, (line, command, expected) in enumerate(commands):
            try:
                with open("%s/%d.out" % (folder, number), encoding="utf-8") as file:
                    output = file.read()
            except FileNotFoundError:
                break
            printed.append((line, command, expected, output))
        line, command, _, output = printed[-1]
        last = "%s:%d: $ %s\n%s\n%s" % (document, line, command, output, said)
        self.assertEqual((process.returncode, len(printed)), (0, len(commands)), last)
        for line, command, expected, output in printed:
            shapes = {shape(one) for one in output.splitlines()}
            for one in expected:
                if not one.startswith(DEPENDS_ON_TIME):
                    self.assertIn(
                        shape(one),
                        shapes,
                        "%s:%d: $ %s\nprinted:\n%s" % (document, line, command, output),
                    )
        return "".join(output for _, _, _, output in printed)

    def test_five_minutes_by_hand(self):
        output = self.type("deploy/tour.md", "A job on one machine")
        digests = re.findall(r"digest ([0-9a-f]{8})", output)
        self.assertEqual(len(digests), 2)
        self.assertEqual(digests[0], digests[1])

    def test_a_job_with_tls(self):
        self.type("deploy/security.md", "A job with TLS")

    def test_a_notebook_with_a_token(self):
        self.type("deploy/security.md", "A notebook with a token")

    def test_a_program_of_your_own(self):
        self.type("client_lib/README.md", "Writing a program")

    def test_every_session_is_run(self):
        headings = {
            heading
            for path in TREE.documents
            for heading in documentation.Document(path, TREE.read(path)).sessions()
        }
        self.assertEqual(
            headings,
            {
                "A job on one machine",
                "A job with TLS",
                "A notebook with a token",
                "Writing a program",
            },
        )


if __name__ == "__main__":
    BIN_FOLDER = os.path.abspath(sys.argv.pop(1))
    unittest.main()
