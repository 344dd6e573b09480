#!/usr/bin/env python3
"""Tests of pawlctl with fake daemons (testing/fake_daemon.cc) instead of Pawl's.

Usage: pawlctl_test.py PAWLCTL FAKE_DAEMON
"""

import base64
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from testing.program import LIMIT_S, run
import uuid

PAWLCTL = ""
FAKE_DAEMON = ""
# Far longer than any command takes. Only a hang reaches it.
LIMIT_S = 60

JOB = """name: "fake"
data { train: "data.libsvm" eval: "data.libsvm" format: LIBSVM }
model { logistic_regression {} }
optimizer { sgd { learning_rate: 0.1 } }
batch_size: 64
"""


class PawlctlTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.out = os.path.join(self.folder, "out")
        self.job = os.path.join(self.folder, "job.pbtxt")
        with open(self.job, "w", encoding="utf-8") as file:
            file.write(JOB)
        with open(os.path.join(self.folder, "data.libsvm"), "w", encoding="utf-8") as file:
            file.write("1 1:1\n")
        bin_folder = os.path.join(self.folder, "bin")
        os.mkdir(bin_folder)
        for name in ("pawl-scheduler", "pawl-server", "pawl-worker"):
            os.symlink(FAKE_DAEMON, os.path.join(bin_folder, name))
        # The mark in their environment finds the test's processes that are left over.
        self.mark = "PAWL_TEST_MARK=" + uuid.uuid4().hex
        name, value = self.mark.split("=")
        self.environment = dict(os.environ, PAWL_BIN_DIR=bin_folder, **{name: value})
        for name in ("PAWL_SCHEDULER", "PAWL_TLS_DIR", "PAWL_TOKEN"):
            self.environment.pop(name, None)
        self.addCleanup(self.kill_left_over)

    def left_over(self):
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open("/proc/%s/environ" % entry, "rb") as file:
                    if self.mark.encode() in file.read().split(b"\0"):
                        found.append(int(entry))
            except OSError:
                pass
        return found

    def kill_left_over(self):
        for pid in self.left_over():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass

    def wait_for(self, condition, what):
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.01)

    def pawlctl(self, *arguments, fake=""):
        return run(PAWLCTL, arguments, dict(self.environment, PAWL_FAKE=fake))

    def run_job(self, *arguments, fake=""):
        code, out, err = self.pawlctl(
            "run",
            "--job=" + self.job,
            "--servers=2",
            "--workers=2",
            "--out=" + self.out,
            *arguments,
            fake=fake
        )
        self.assertEqual(self.left_over(), [], out + err)
        return code, out, err

    def start(self, fake="runs-forever", **more):
        """Starts a run and waits until it trains. `more` are settings of subprocess."""
        process = subprocess.Popen(
            [
                PAWLCTL,
                "run",
                "--job=" + self.job,
                "--servers=2",
                "--workers=2",
                "--out=" + self.out,
            ],
            env=dict(self.environment, PAWL_FAKE=fake),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            **more
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        log = os.path.join(self.out, "logs", "worker-1.log")
        self.wait_for(
            lambda: os.path.exists(log) or process.poll() is not None,
            "the workers did not register",
        )
        self.assertIsNone(process.poll())
        return process

    def address(self):
        with open(os.path.join(self.out, "scheduler.addr"), encoding="utf-8") as file:
            return file.read().strip()

    def metrics(self):
        with open(os.path.join(self.out, "metrics.json"), encoding="utf-8") as file:
            return json.load(file)

    # The end of a run.

    def test_completed_job_leaves_its_result_and_exits_with_0(self):
        code, out, err = self.run_job()
        self.assertEqual((code, err), (0, ""))
        self.assertIn("auc 0.7216", out)
        self.assertIn("digest 000000ab", out)
        self.assertEqual(self.metrics()["digest"], "000000ab")
        self.assertRegex(self.address(), r"^127\.0\.0\.1:[0-9]+$")
        self.assertEqual(
            sorted(os.listdir(os.path.join(self.out, "logs"))),
            ["scheduler.log", "server-0.log", "server-1.log", "worker-0.log", "worker-1.log"],
        )

    def test_job_is_run_with_its_settings_and_absolute_paths(self):
        self.assertEqual(self.run_job("--set=batch_size=77", "--set", "seed=5")[0], 0)
        with open(os.path.join(self.out, "job.pbtxt"), encoding="utf-8") as file:
            job = file.read()
        self.assertIn("batch_size: 77", job)
        self.assertIn(os.path.join(self.folder, "data.libsvm"), job)
        self.assertIn("seed: 5", job)

    def test_empty_value_clears_a_field(self):
        self.assertEqual(self.run_job("--set=data.eval=")[0], 0)
        with open(os.path.join(self.out, "job.pbtxt"), encoding="utf-8") as file:
            self.assertNotIn("eval:", file.read())

    def test_earlier_result_is_removed(self):
        self.assertEqual(self.run_job()[0], 0)
        self.assertEqual(self.run_job(fake="scheduler-exits")[0], 1)
        self.assertFalse(os.path.exists(os.path.join(self.out, "metrics.json")))

    def test_completed_job_whose_progress_is_lost_exits_with_0(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run(
                [PAWLCTL, "run", "--job=" + self.job, "--out=" + self.out],
                env=self.environment,
                text=True,
                stdout=full,
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                timeout=LIMIT_S,
                check=False,
            )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("could not be written", done.stderr)

    def test_failed_job_exits_with_1_and_the_reason(self):
        code, _, err = self.run_job(fake="job-fails")
        self.assertEqual(code, 1)
        self.assertIn("flights.csv:7:3 is not a number", err)
        self.assertEqual(self.metrics()["state"], "FAILED")

    def test_scheduler_that_cannot_start_is_reported_with_its_log(self):
        code, _, err = self.run_job(fake="scheduler-exits")
        self.assertEqual(code, 1)
        self.assertRegex(err, r"the scheduler \(pid [0-9]+\) exited with code 3 before it listened")
        self.assertIn("| the port is taken", err)

    def test_scheduler_that_is_not_restarted_ends_the_run(self):
        started = time.monotonic()
        code, _, err = self.run_job("--max_restarts=0", fake="scheduler-dies")
        self.assertEqual(code, 1)
        self.assertRegex(
            err, r"the scheduler \(pid [0-9]+\) was killed by signal 9 .*--max_restarts=0"
        )
        self.assertIn("| the disk is on fire", err)
        self.assertLess(time.monotonic() - started, 10)

    # Restarts.

    def test_dead_scheduler_is_restarted_at_its_port(self):
        code, _, err = self.run_job(fake="scheduler-dies-once")
        self.assertEqual(code, 0, err)
        self.assertRegex(
            err, r"the scheduler \(pid [0-9]+\) was killed by signal 9 .*restarting it"
        )
        self.assertEqual(
            self.metrics()["restarts"],
            {"scheduler": 1, "server-0": 0, "server-1": 0, "worker-0": 0, "worker-1": 0},
        )

    def test_restarted_node_keeps_its_name_log_and_data(self):
        code, out, err = self.run_job(fake="worker-dies-once")
        self.assertEqual(code, 0, err)
        self.assertRegex(
            err, r"worker-0 \(pid [0-9]+\) was killed by signal 9 .*restart 1 of at most 10"
        )
        self.assertEqual(
            self.metrics()["restarts"],
            {"scheduler": 0, "server-0": 0, "server-1": 0, "worker-0": 1, "worker-1": 0},
        )
        self.assertEqual(self.metrics()["digest"], "000000ab")
        with open(os.path.join(self.out, "logs", "worker-0.log"), encoding="utf-8") as file:
            self.assertEqual(
                file.read().splitlines(),
                ["the fake WORKER_ROLE begins", "out of luck", "the fake WORKER_ROLE begins"],
            )

    def test_node_beyond_the_restart_limit_is_named(self):
        code, _, err = self.run_job("--max_restarts=2", fake="worker-dies")
        self.assertEqual(code, 1)
        self.assertIn("restart 2 of at most 2", err)
        self.assertRegex(err, r"worker-0 \(pid [0-9]+\) was killed by signal 9 .*all 2 restarts")
        self.assertIn("| out of luck", err)
        self.assertRegex(err, r"job fake was stopped before its end: worker-0")
        self.assertEqual(self.metrics()["restarts"]["worker-0"], 2)

    def test_replicated_server_may_stay_dead(self):
        # The fake scheduler fails the job because of the server's silence.
        code, _, err = self.run_job("--max_restarts=1", "--replicas=2", fake="server-dies-unknown")
        self.assertEqual(code, 1)
        self.assertRegex(err, r"server-0 \(pid [0-9]+\) was killed by signal 9 .*all 1 restarts")
        self.assertRegex(err, r"job fake failed: server-0 has not been heard of")

    def test_node_that_leaves_is_not_restarted(self):
        code, _, err = self.run_job(fake="worker-leaves")
        self.assertEqual(code, 1)
        self.assertRegex(err, r"worker-0 \(pid [0-9]+\) exited with code 0: it has left the job")
        self.assertNotIn("restarting it", err)
        self.assertIn("worker-0 has not been heard of", err)

    def test_replicas_and_durability_go_into_the_job(self):
        self.assertEqual(self.run_job("--replicas=2", "--durability=FSYNC")[0], 0)
        with open(os.path.join(self.out, "job.pbtxt"), encoding="utf-8") as file:
            job = file.read()
        self.assertIn("replicas: 2", job)
        self.assertIn("durability: FSYNC", job)

    def test_node_that_dies_before_it_registers_ends_the_run(self):
        code, _, err = self.run_job(fake="server-exits")
        self.assertEqual(code, 1)
        self.assertIn("exited with code 3", err)
        self.assertIn("| no memory left", err)

    def test_node_that_fails_after_the_end_is_a_warning(self):
        code, _, err = self.run_job(fake="worker-leaves-badly")
        self.assertEqual(code, 0)
        self.assertIn("exited with code 5 after the job had completed", err)

    def test_completed_job_without_a_result_is_a_failure(self):
        code, _, err = self.run_job(fake="no-result")
        self.assertEqual(code, 1)
        self.assertIn("left no result", err)

    def test_nodes_that_do_not_leave_are_killed(self):
        code, _, err = self.run_job(fake="nodes-stay")
        self.assertEqual(code, 0)
        self.assertIn("4 processes did not end", err)

    # Signals.

    def interrupt(self, number, fake="runs-forever", times=1):
        process = self.start(fake)
        started = time.monotonic()
        for _ in range(times):
            process.send_signal(number)
            time.sleep(0.2 if times > 1 else 0)
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(self.left_over(), [], out + err)
        return process.returncode, err, time.monotonic() - started

    def test_ctrl_c_stops_the_job_and_leaves_no_process(self):
        code, err, seconds = self.interrupt(signal.SIGINT)
        self.assertEqual(code, 130, err)
        self.assertIn("no process is left", err)
        self.assertLess(seconds, 5)
        with open(os.path.join(self.out, "logs", "scheduler.log"), encoding="utf-8") as file:
            self.assertIn("stopped: interrupted by its user", file.read())

    def test_sigterm_stops_the_job_too(self):
        self.assertEqual(self.interrupt(signal.SIGTERM)[0], 143)

    def test_ctrl_c_works_if_the_scheduler_refuses(self):
        code, _, seconds = self.interrupt(signal.SIGINT, fake="scheduler-refuses-stop")
        self.assertEqual(code, 130)
        self.assertLess(seconds, 10)

    def test_second_ctrl_c_kills(self):
        code, err, seconds = self.interrupt(signal.SIGINT, fake="nodes-stay", times=2)
        self.assertEqual(code, 130)
        self.assertIn("killing all processes", err)
        self.assertLess(seconds, 4)

    def test_ctrl_c_before_the_scheduler_listens(self):
        process = subprocess.Popen(
            [PAWLCTL, "run", "--job=" + self.job, "--out=" + self.out],
            env=dict(self.environment, PAWL_FAKE="scheduler-never-listens"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        log = os.path.join(self.out, "logs", "scheduler.log")
        self.wait_for(
            lambda: os.path.exists(log) and os.path.getsize(log) > 0, "the scheduler did not start"
        )
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(self.left_over(), [])

    def test_kill_9_of_pawlctl_leaves_no_process(self):
        process = self.start(fake="nodes-stay")
        self.assertEqual(len(self.left_over()), 6)
        process.kill()
        process.communicate(timeout=LIMIT_S)
        self.wait_for(lambda: not self.left_over(), "processes outlived pawlctl")

    def test_processes_that_the_program_started_end_with_the_job(self):
        process = subprocess.Popen(
            [PAWLCTL, "run", "--out=" + self.out, "--", "bash", "-c", "sleep 1000; true"],
            env=dict(self.environment, PAWL_FAKE="runs-forever"),
            stdin=subprocess.DEVNULL,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        # pawlctl, the scheduler, the server, bash and sleep.
        self.wait_for(lambda: len(self.left_over()) == 5, "the program did not start")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(LIMIT_S), 143)
        self.wait_for(lambda: not self.left_over(), "processes outlived pawlctl")

    def seen_by_program(self, text, *flags, **environment):
        """What a shell that runs as the worker makes of the text."""
        seen = os.path.join(self.folder, "seen")
        program = 'echo "%s" > "$0.new"; mv "$0.new" "$0"; sleep 9' % text
        process = subprocess.Popen(
            [PAWLCTL, "run", "--out=" + self.out, *flags, "--", "bash", "-c", program, seen],
            env=dict(self.environment, PAWL_FAKE="runs-forever", **environment),
            stdin=subprocess.DEVNULL,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.wait_for(lambda: os.path.exists(seen), "the program did not start")
        with open(seen, encoding="utf-8") as file:
            return file.read()

    def test_program_gets_no_certificate_or_token_of_the_shell(self):
        text = "dir=$PAWL_TLS_DIR token=$PAWL_TOKEN"
        seen = self.seen_by_program(text, PAWL_TLS_DIR="/here", PAWL_TOKEN="x")
        self.assertEqual(seen, "dir= token=\n")

    def test_program_finds_its_device_in_its_environment(self):
        self.assertEqual(self.seen_by_program("$PAWL_DEVICE", "--device=cuda:1"), "cuda:1\n")

    def test_nohup_keeps_the_run_through_a_hangup(self):
        process = self.start(
            fake="", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
        )
        process.send_signal(signal.SIGHUP)
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual((process.returncode, err), (0, ""), out)

    def test_run_that_starts_with_sigchld_ignored_ends(self):
        process = self.start(
            fake="", preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        )
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual((process.returncode, err), (0, ""), out)

    def test_run_whose_output_is_no_longer_read_stops_its_job(self):
        process = self.start()
        process.stdout.close()
        process.stderr.close()
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(LIMIT_S), 130)
        self.assertEqual(self.left_over(), [])
        with open(os.path.join(self.out, "logs", "scheduler.log"), encoding="utf-8") as file:
            self.assertIn("stopped: interrupted by its user", file.read())

    def test_job_that_only_serves_tables_runs_without_workers(self):
        with open(self.job, "w", encoding="utf-8") as file:
            file.write('name: "serve"\noptimizer { sgd { learning_rate: 0.1 } }\n')
        code, out, err = self.pawlctl(
            "run", "--job=" + self.job, "--workers=1", "--out=" + self.out
        )
        self.assertEqual(code, 2, out)
        self.assertIn("--workers", err)
        code, out, err = self.pawlctl("run", "--job=" + self.job, "--out=" + self.out)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("0 workers", out)

    # Output.

    def run_on_terminal(self, columns):
        """Returns the terminal output of a whole run."""
        try:
            leader, follower = pty.openpty()
        except OSError as problem:
            self.skipTest("this machine gives no terminal (is /dev/pts mounted?): %s" % problem)
        import fcntl
        import struct
        import termios

        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen(
            [PAWLCTL, "run", "--job=" + self.job, "--out=" + self.out],
            env=dict(self.environment, PAWL_FAKE=""),
            stdout=follower,
            stderr=follower,
        )
        os.close(follower)
        text = b""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            if not select.select([leader], [], [], 1)[0]:
                continue
            try:
                part = os.read(leader, 65536)
            except OSError:
                break
            if not part:
                break
            text += part
        os.close(leader)
        self.assertEqual(process.wait(timeout=LIMIT_S), 0, text)
        return text.decode()

    def test_progress_line_fits_the_terminal(self):
        for columns in (60, 200):
            with self.subTest(columns=columns):
                text = self.run_on_terminal(columns)
                drawn = [line.split("\x1b[K")[0] for line in text.split("\r") if "step " in line]
                self.assertGreaterEqual(len(drawn), 1, text)
                self.assertLess(max(len(line) for line in drawn), columns)
                self.assertIn("auc 0.7216", drawn[-1])
                if columns == 200:
                    for part in ("epoch 1/2", "%", "loss 0.5000", "staleness 0"):
                        self.assertIn(part, drawn[-1])

    def test_pipe_gets_whole_lines_every_few_seconds(self):
        process = self.start()
        pipe = process.stdout.fileno()
        os.set_blocking(pipe, False)
        read = []

        def has_a_line():
            try:
                read.append(os.read(pipe, 65536).decode())
            except BlockingIOError:
                pass
            return re.search(
                r"\n\[[0-9]+s\] epoch 1/2  step [0-9]+/100000 .* samples/s .*left\n", "".join(read)
            )

        self.wait_for(has_a_line, "no line of progress")
        process.send_signal(signal.SIGINT)
        os.set_blocking(pipe, True)
        self.assertNotIn("\r", "".join(read) + process.communicate(timeout=LIMIT_S)[0])

    # The other commands.

    def test_commands_control_a_running_job(self):
        process = self.start()
        self.environment["PAWL_SCHEDULER"] = self.address()
        code, out, err = self.pawlctl("status")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("RUNNING", out)
        self.assertEqual(json.loads(self.pawlctl("status", "--json")[1])["state"], "RUNNING")
        self.assertEqual(
            [node["node"] for node in json.loads(self.pawlctl("nodes", "--json")[1])],
            [node.split()[0] for node in self.pawlctl("nodes")[1].splitlines()[1:]],
        )
        self.assertEqual(json.loads(self.pawlctl("tables", "--json")[1])[0]["row_width"], 9)
        self.assertIn("embeddings", self.pawlctl("tables", "--scheduler=" + self.address())[1])
        self.assertEqual(self.pawlctl("stop", "--reason=auc=")[0], 0)
        _, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 1)
        self.assertIn("was stopped", err)
        self.assertEqual(self.left_over(), [])

    def watch(self, *arguments):
        """Watches a run from its middle until it is stopped: exit code, output."""
        self.start()
        process = subprocess.Popen(
            [PAWLCTL, "watch", "--scheduler=" + self.address(), "--interval=50ms", *arguments],
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
        self.addCleanup(process.kill)
        lines = [process.stdout.readline() for _ in range(3)]
        self.assertEqual(self.pawlctl("stop", "--scheduler=" + self.address())[0], 0)
        rest, _ = process.communicate(timeout=LIMIT_S)
        return process.returncode, "".join(lines) + rest

    def test_watch_shows_progress_and_evaluations_until_the_end(self):
        code, out = self.watch()
        self.assertEqual(code, 1, out)
        self.assertRegex(out, r"(?m)^evaluation  auc 0\.7216  \(after step [0-9]+\)$")
        self.assertRegex(out, r"(?m)^metrics     val/ctr 0\.2500 \(step 40\)$")
        self.assertRegex(out, r"(?m)^epoch 1/2  step [0-9]+/100000 ")
        self.assertRegex(out, r"(?m)^job fake: STOPPED after [0-9]+ steps")
        self.assertEqual(out.count("evaluation "), 1, "each evaluation is shown once")

    def test_watch_prints_the_curve_as_json_lines(self):
        code, out = self.watch("--json")
        self.assertEqual(code, 1, out)
        points = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([p["auc"] for p in points if p["kind"] == "eval"], [0.7216])
        own = [(p["step"], p["metrics"]) for p in points if p["kind"] == "metrics"]
        self.assertEqual(own, [(40, {"val/ctr": 0.25})], "new values are shown once")
        steps = [p["step"] for p in points if p["kind"] == "train"]
        self.assertEqual(steps, sorted(set(steps)))
        self.assertGreaterEqual(len(steps), 1)

    def test_unreachable_scheduler_exits_with_3(self):
        for command in ("status", "nodes", "tables", "stop", "verify", "watch"):
            with self.subTest(command=command):
                code, out, err = self.pawlctl(command, "--scheduler=127.0.0.1:1", "--timeout=2s")
                self.assertEqual((code, out), (3, ""))
                self.assertIn("127.0.0.1:1 does not answer", err)
                self.assertIn("PAWL_SCHEDULER", err)

    # Wrong usage.

    def assert_usage_error(self, arguments, *parts):
        code, out, err = self.pawlctl(*arguments)
        self.assertEqual((code, out), (2, ""), err)
        for part in parts:
            self.assertIn(part, err)
        self.assertFalse(os.path.exists(self.out))

    def test_wrong_command_line_exits_with_2(self):
        run = ["run", "--out=" + self.out]
        self.assert_usage_error([], "Usage: pawlctl")
        self.assert_usage_error(["dance"], "'dance'", "--help")
        self.assert_usage_error(run + ["--sevrers=2"], "--sevrers", "--servers")
        self.assert_usage_error(run + ["--servers=two"], "--servers=two")
        self.assert_usage_error(run, "--job")
        for flag in ("--dir=" + self.out, "--wait=5s"):
            stop = ["stop", "--scheduler=127.0.0.1:1", flag]
            self.assert_usage_error(stop, "--with_checkpoint")
            self.assert_usage_error(stop + ["--with_checkpoint=false"], "--with_checkpoint")
        job = run + ["--job=" + self.job]
        self.assert_usage_error(job + ["--servers=0"], "--servers=0", "1 to 64")
        self.assert_usage_error(job + ["--workers=65"], "--workers=65", "1 to 64")
        self.assert_usage_error(job + ["--replicas=2"], "--replicas=2", "--servers=1")
        self.assert_usage_error(job + ["--durability=DISK"], "--durability=DISK", "FSYNC")
        for device in ("gpu", "cuda:", "cuda:x", ""):
            self.assert_usage_error(
                job + ["--device=cuda:0," + device], "--device=" + device, "cuda:0"
            )
        self.assert_usage_error(job + ["--straggler=slow"], "--straggler=slow", "pareto")
        self.assert_usage_error(
            job + ["--collectives=mpi"], "--collectives=mpi", "auto, gloo, nccl"
        )
        for flag in (
            "--straggler=constant:ms=1",
            "--collectives=gloo",
            "--cuda_graphs",
            "--index_dir=/indexes",
        ):
            self.assert_usage_error(run + [flag, "--", "true"], flag + " is", "'true' runs instead")
        self.assert_usage_error(job + ["--max_restarts=-1"], "--max_restarts=-1")
        self.assert_usage_error(job + ["--set=no_such_field=1"], "no_such_field")
        self.assert_usage_error(run + ["--job=" + self.job + "x"], self.job + "x")
        self.assert_usage_error(["status"], "--scheduler", "PAWL_SCHEDULER")
        self.assert_usage_error(["status", "--scheduler=localhost"], "HOST:PORT")
        self.assert_usage_error(
            ["status", "--scheduler=localhost:1", "--timeout=-1s"], "--timeout=-1s"
        )

    def token_key(self):
        key = os.path.join(self.folder, "team.key.pem")
        subprocess.run(
            ["openssl", "genpkey", "-algorithm", "ED25519", "-out", key],
            capture_output=True,
            timeout=LIMIT_S,
            check=True,
        )
        os.chmod(key, 0o600)
        return key

    def test_token_is_a_json_web_token_that_openssl_verifies(self):
        key = self.token_key()
        begin = int(time.time())
        code, out, err = self.pawlctl(
            "token",
            "--role=reader",
            "--for=alice",
            "--hours=3",
            "--key=" + key,
            "--job=flights",
            "--trust_domain=example.org",
        )
        self.assertEqual(code, 0, err)
        header, payload, signature = out.strip().split(".")

        def decode(part):
            return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))

        self.assertEqual(
            json.loads(decode(header)), {"alg": "EdDSA", "kid": "team", "typ": "JWT"}
        )
        claims = json.loads(decode(payload))
        self.assertEqual(claims["sub"], "spiffe://example.org/pawl/flights/reader/alice")
        self.assertIn(claims["nbf"], range(begin, begin + LIMIT_S))
        self.assertEqual(claims["exp"], claims["nbf"] + 3 * 3600)
        self.assertIn("token %s for alice, role reader, until 20" % claims["jti"], err)
        for name, data in (("text", (header + "." + payload).encode()), ("sig", decode(signature))):
            with open(os.path.join(self.folder, name), "wb") as file:
                file.write(data)
        subprocess.run(
            ["openssl", "pkeyutl", "-verify", "-rawin", "-inkey", key]
            + ["-in", os.path.join(self.folder, "text")]
            + ["-sigfile", os.path.join(self.folder, "sig")],
            capture_output=True,
            timeout=LIMIT_S,
            check=True,
        )
        flags = ("--role=client", "--for=ci", "--key=" + key, "--job=flights", "--json")
        code, out, err = self.pawlctl("token", *flags)
        self.assertEqual((code, err), (0, ""))
        made = json.loads(out)
        self.assertEqual(made["subject"], "spiffe://pawl.local/pawl/flights/client/ci")
        self.assertEqual(made["id"], json.loads(decode(made["token"].split(".")[1]))["jti"])

    def test_wrong_token_exits_with_2(self):
        key = self.token_key()
        good = {"role": "reader", "for": "alice", "key": key, "job": "flights"}
        other = os.path.join(self.folder, "other.pem")
        shutil.copy(key, other)
        loose = os.path.join(self.folder, "loose.key.pem")
        shutil.copy(key, loose)
        os.chmod(loose, 0o644)
        wrong = os.path.join(self.folder, "wrong.key.pem")
        with open(wrong, "w", encoding="ascii") as file:
            os.chmod(wrong, 0o600)
            file.write("nonsense")
        for changes, part in (
            ({"role": "worker"}, "must be client or reader or operator"),
            ({"role": "admin"}, "--role=admin must be client or reader or operator"),
            ({"role": None}, "--role"),
            ({"for": None}, "--for"),
            ({"for": "a b"}, "--for=a b: only letters"),
            ({"for": "a/b"}, "--for=a/b: only letters"),
            ({"hours": "25"}, "--hours=25 must be 1 to 24"),
            ({"hours": "0"}, "--hours=0 must be 1 to 24"),
            ({"job": None}, "--tls_dir=FOLDER is needed"),
            ({"job": "a/b"}, "must have the form"),
            ({"key": None}, "--tls_dir=FOLDER is needed"),
            ({"key": other}, "the file's name must be NAME.key.pem"),
            ({"key": loose}, "chmod 600"),
            ({"key": wrong}, "no private Ed25519 key"),
            ({"key": "/nowhere/a.key.pem"}, "/nowhere/a.key.pem"),
            ({"tls_dir": self.folder}, "omit it"),
            ({"tls_dir": self.folder, "job": None, "key": None}, "has no files *.key.pem"),
        ):
            flags = {name: text for name, text in dict(good, **changes).items() if text}
            with self.subTest(changes=changes):
                code, out, err = self.pawlctl(
                    "token", *("--%s=%s" % (name, text) for name, text in flags.items())
                )
                self.assertEqual((code, out), (2, ""), err)
                self.assertIn(part, err)

    def test_token_flags_that_contradict_each_other_exit_with_2(self):
        self.environment["PAWL_TOKEN"] = "x.y.z"
        scheduler = "--scheduler=127.0.0.1:1"
        for flags, part in (
            ([], "set --ca=FILE"),
            (["--insecure"], "contradict each other"),
            (["--ca=/nowhere/ca.pem"], "/nowhere/ca.pem"),
            (["--ca=" + self.job], "has no certificate"),
        ):
            with self.subTest(flags=flags):
                code, _, err = self.pawlctl("status", scheduler, *flags)
                self.assertEqual(code, 2, err)
                self.assertIn(part, err)

    def test_empty_value_of_a_required_flag_exits_with_2(self):
        at = "--scheduler=127.0.0.1:1"
        for arguments in (
            ["restore", "--job=" + self.job, "--out=" + self.out, "--restore="],
            ["restore", "--restore=" + self.folder, "--out=" + self.out, "--job="],
            ["export", "--out=" + self.out, "--checkpoint="],
            ["export", "--checkpoint=" + self.folder, "--out="],
            ["checkpoints", "--dir="],
            ["pull", at, "--keys=1", "--table="],
            ["push", at, "--values=1", "--table="],
            ["assign", at, "--values=v.npy", "--table="],
            ["assign", at, "--table=t", "--values="],
            ["drain", at, "--node="],
            ["release", at, "--node="],
            ["status", "--scheduler="],
        ):
            with self.subTest(arguments=arguments):
                self.assert_usage_error(arguments, arguments[-1], "is missing")
        for command in ("drain", "release"):
            self.assert_usage_error([command, at, ""], "--node=NODE is missing")

    def test_environment_replaces_an_empty_scheduler(self):
        self.environment["PAWL_SCHEDULER"] = "127.0.0.1:1"
        code, _, err = self.pawlctl("status", "--scheduler=", "--timeout=2s")
        self.assertEqual(code, 3, err)
        self.assertIn("127.0.0.1:1 does not answer", err)

    def test_missing_daemons_are_named(self):
        self.environment["PAWL_BIN_DIR"] = self.folder
        self.assert_usage_error(
            ["run", "--job=" + self.job, "--out=" + self.out], "pawl-scheduler", self.folder
        )

    def test_version_is_printed(self):
        code, out, _ = self.pawlctl("--version")
        self.assertEqual(code, 0)
        self.assertRegex(out, r"^pawlctl [0-9]+\.[0-9]+\.[0-9]+(-dev)?\n$")

    def test_every_command_has_help_with_an_example(self):
        code, out, _ = self.pawlctl("--help")
        self.assertEqual(code, 0)
        commands = [
            line.split()[0] for line in out.split("Commands:\n")[1].split("\n\n")[0].splitlines()
        ]
        self.assertIn("run", commands)
        for command in commands:
            with self.subTest(command=command):
                code, out, _ = self.pawlctl(command, "--help")
                self.assertEqual(code, 0)
                self.assertIn("  pawlctl " + command, out)
                self.assertIn("Exit codes:", out)


if __name__ == "__main__":
    PAWLCTL, FAKE_DAEMON = (os.path.realpath(path) for path in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
