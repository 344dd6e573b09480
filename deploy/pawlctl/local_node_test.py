"""Runs `pawlctl node` beside a scheduler, as a launcher does on each machine."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PAWLCTL, SCHEDULER = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
LIMIT_S = 60
JOB = 'name: "node" partitions: 8 elastic: true replicas: %d'
# A worker of its own: says where it is, and stays.
PROGRAM = 'echo "at $PAWL_SCHEDULER in $PAWL_WORKER_DIR on $PAWL_DEVICE"; exec sleep 1000'

# A worker that leaves as pawl's Python programs do, with this code.
PYTHON_PROGRAM = """exec python3 -c '
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("waiting", flush=True)
signal.sigwait([signal.SIGTERM])
sys.exit(143)
'"""

# A worker behind a shell, which needs a while to leave.
WRAPPED_PROGRAM = """python3 -c '
import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("waiting", flush=True)
signal.sigwait([signal.SIGTERM])
time.sleep(0.5)
print("left", flush=True)
'; true"""


class LocalNodeTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.processes = []

    def tearDown(self):
        for process in self.processes:
            process.kill()
            process.wait()

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def start(self, name, *command):
        log = open(self.path(name + ".out"), "wb")
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder)
        log.close()
        self.processes.append(process)
        return process

    def start_scheduler(self, servers):
        with open(self.path("job.pbtxt"), "w", encoding="ascii") as file:
            file.write(JOB % min(servers, 2))
        self.start(
            "scheduler",
            SCHEDULER,
            "--listen=127.0.0.1:0",
            "--data_dir=" + self.path("scheduler"),
            "--job=" + self.path("job.pbtxt"),
            "--servers=%d" % servers,
            "--workers=0",
            "--address_file=" + self.path("address"),
            "--lease_ms=3000",
        )
        self.eventually(lambda: os.path.exists(self.path("address")))
        self.address = self.text("address").strip()

    def start_node(self, name, *flags):
        return self.start(
            name,
            PAWLCTL,
            "node",
            "--scheduler=" + self.address,
            "--data_dir=" + self.path(name),
            *flags,
        )

    def text(self, *parts):
        with open(self.path(*parts), encoding="utf-8", errors="replace") as file:
            return file.read()

    def eventually(self, holds):
        end = time.monotonic() + LIMIT_S
        while not holds():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    def servers(self):
        done = subprocess.run(
            [PAWLCTL, "nodes", "--scheduler=" + self.address, "--json"],
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            return []
        return [n for n in json.loads(done.stdout) if n["role"] == "server" and not n["gone"]]

    def pid_of(self, name):
        """The pid of the process with that data folder."""
        found = subprocess.run(
            ["pgrep", "-f", "data_dir=" + self.path(name)], capture_output=True, check=False
        )
        pids = [int(pid) for pid in found.stdout.split()]
        return pids[0] if pids else 0

    def stop_job(self):
        stop = [PAWLCTL, "stop", "--scheduler=" + self.address]
        subprocess.run(stop, check=True, stdout=subprocess.DEVNULL)

    def test_servers_of_two_machines_serve_until_the_job_ends(self):
        self.start_scheduler(servers=3)
        nodes = [
            self.start_node("one", "--servers=2"),
            self.start_node("two", "--servers=1"),
        ]
        self.eventually(lambda: len(self.servers()) == 3)
        self.stop_job()
        for node in nodes:
            self.assertEqual(node.wait(LIMIT_S), 0)
        self.assertIn("server-1", self.text("one.out"))
        self.assertTrue(os.path.getsize(self.path("one", "logs", "server-1.log")) > 0)

    def test_killed_server_returns_as_the_same_one(self):
        self.start_scheduler(servers=2)
        node = self.start_node("one", "--servers=2")
        self.eventually(lambda: len(self.servers()) == 2)
        victim = self.pid_of("one/server-0")
        os.kill(victim, signal.SIGKILL)
        self.eventually(lambda: self.pid_of("one/server-0") not in (0, victim))
        self.eventually(lambda: "restarting it" in self.text("one.out"))
        self.eventually(lambda: len(self.servers()) == 2)
        self.assertEqual(sorted(n["node"] for n in self.servers()), ["server-0", "server-1"])
        self.stop_job()
        self.assertEqual(node.wait(LIMIT_S), 0)

    def test_sigterm_lets_its_servers_hand_over(self):
        self.start_scheduler(servers=2)
        self.start_node("stays", "--servers=2")
        self.eventually(lambda: len(self.servers()) == 2)
        leaving = self.start_node("leaves", "--servers=1")
        self.eventually(lambda: len(self.servers()) == 3)
        leaving.send_signal(signal.SIGTERM)
        self.assertEqual(leaving.wait(LIMIT_S), 0)
        self.eventually(lambda: len(self.servers()) == 2)
        self.assertEqual(self.pid_of("leaves/server-0"), 0)

    def test_sigterm_lets_a_program_behind_a_shell_leave(self):
        self.start_scheduler(servers=1)
        node = self.start_node("one", "--workers=1", "--", "sh", "-c", WRAPPED_PROGRAM)
        log = ("one", "logs", "worker-0.log")
        self.eventually(lambda: os.path.exists(self.path(*log)) and "waiting" in self.text(*log))
        node.send_signal(signal.SIGTERM)
        # Sooner than the default of --leave_timeout.
        self.assertEqual(node.wait(LIMIT_S), 0)
        self.assertIn("left", self.text(*log))
        self.assertNotIn("killing", self.text("one.out"))

    def test_program_that_exits_with_143_on_sigterm_has_left(self):
        self.start_scheduler(servers=1)
        node = self.start_node("one", "--workers=1", "--", "sh", "-c", PYTHON_PROGRAM)
        log = ("one", "logs", "worker-0.log")
        self.eventually(lambda: os.path.exists(self.path(*log)) and "waiting" in self.text(*log))
        node.send_signal(signal.SIGTERM)
        self.assertEqual(node.wait(LIMIT_S), 0)

    def test_program_that_fails_on_sigterm_has_failed(self):
        self.start_scheduler(servers=1)
        program = PYTHON_PROGRAM.replace("143", "5")
        node = self.start_node("one", "--workers=1", "--", "sh", "-c", program)
        log = ("one", "logs", "worker-0.log")
        self.eventually(lambda: os.path.exists(self.path(*log)) and "waiting" in self.text(*log))
        node.send_signal(signal.SIGTERM)
        self.assertEqual(node.wait(LIMIT_S), 1)

    def test_restarts_are_limited(self):
        self.start_scheduler(servers=1)
        node = self.start_node(
            "one", "--workers=1", "--max_restarts=2", "--", "sh", "-c", "echo here; exit 7"
        )
        self.assertEqual(node.wait(LIMIT_S), 1)
        self.assertEqual(self.text("one", "logs", "worker-0.log").count("here"), 3)
        self.assertIn("exited with code 7, and all 2 restarts", self.text("one.out"))

    def test_program_gets_its_place_and_no_process_outlives_the_node(self):
        self.start_scheduler(servers=1)
        node = self.start_node(
            "one", "--workers=2", "--device=cuda:0,cuda:1", "--", "sh", "-c", PROGRAM
        )
        place = "at %s in %s on cuda:1\n" % (self.address, self.path("one", "worker-1"))
        self.eventually(
            lambda: os.path.exists(self.path("one", "logs", "worker-1.log"))
            and place in self.text("one", "logs", "worker-1.log")
        )
        node.kill()
        node.wait()
        children = ["pgrep", "-P", str(node.pid)]
        self.eventually(lambda: subprocess.run(children, check=False).returncode == 1)

    def test_wrong_command_lines_exit_with_2(self):
        for flags, part in (
            (["--servers=1"], "--scheduler=HOST:PORT is missing"),
            (["--scheduler=127.0.0.1:1"], "--servers=0 --workers=0 is not possible"),
            (["--scheduler=127.0.0.1:1", "--servers=65"], "up to 64"),
            (["--scheduler=127.0.0.1:1", "--servers=1", "--insecure", "--tls_dir=x"], "exclude"),
            (["--scheduler=127.0.0.1:1", "--workers=1", "--", "/nowhere"], "not executable"),
            (["--scheduler=127.0.0.1:1", "--workers=1", "--device=gpu"], "--device=gpu"),
        ):
            with self.subTest(flags=flags):
                done = subprocess.run(
                    [PAWLCTL, "node", *flags],
                    capture_output=True,
                    text=True,
                    check=False,
                    env={k: v for k, v in os.environ.items() if k != "PAWL_SCHEDULER"},
                )
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(part, done.stderr)


if __name__ == "__main__":
    unittest.main()
