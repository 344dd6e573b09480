#!/usr/bin/env python3
"""Tests of pawlctl with Pawl's daemons: small jobs that complete, are stopped or fail.

Usage: local_cluster_test.py PAWLCTL
"""

import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from testing.program import LIMIT_S, run

PAWLCTL = ""

JOB = """name: "small"
seed: 7
data { train: "train.libsvm" eval: "eval.libsvm" format: LIBSVM }
model { fm { dim: 4 } }
optimizer { adagrad { learning_rate: 0.1 } }
consistency { mode: SYNC }
batch_size: 64
epochs: 2
logical_workers: 4
"""


def write_data(path, lines, generator):
    """Writes two fields of ten categories each. The label depends on the first, with noise."""
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(lines):
            first, second = generator.randrange(10), generator.randrange(10)
            label = int((first < 5) != (generator.random() < 0.1))
            file.write("%d %d:1 %d:1\n" % (label, first + 1, second + 11))


class LocalClusterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        generator = random.Random(7)
        write_data(os.path.join(cls.folder, "train.libsvm"), 4000, generator)
        write_data(os.path.join(cls.folder, "eval.libsvm"), 1000, generator)
        cls.job = os.path.join(cls.folder, "job.pbtxt")
        with open(cls.job, "w", encoding="utf-8") as file:
            file.write(JOB)
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)

    def setUp(self):
        self.out = os.path.join(self.folder, self.id().split(".")[-1])
        self.environment = dict(os.environ)
        self.environment.pop("PAWL_BIN_DIR", None)
        self.environment.pop("PAWL_SCHEDULER", None)

    def pawlctl(self, *arguments):
        return run(PAWLCTL, arguments, self.environment)

    def metrics(self, out):
        with open(os.path.join(out, "metrics.json"), encoding="utf-8") as file:
            return json.load(file)

    def start(self, *arguments):
        """Starts a run, and waits until its scheduler has an address."""
        address_file = os.path.join(self.out, "scheduler.addr")
        if os.path.exists(address_file):
            os.remove(address_file)  # of an earlier run
        process = subprocess.Popen(
            [
                PAWLCTL,
                "run",
                "--job=" + self.job,
                "--servers=2",
                "--workers=2",
                "--out=" + self.out,
                *arguments,
            ],
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + LIMIT_S
        while process.poll() is None and time.monotonic() < deadline:
            if os.path.exists(address_file):
                with open(address_file, encoding="utf-8") as file:
                    self.environment["PAWL_SCHEDULER"] = file.read().strip()
                return process
            time.sleep(0.01)
        process.kill()
        return self.fail("there is no scheduler: %s" % (process.communicate(),))

    def start_endless(self, *arguments):
        """Starts a run that does not end by itself, and waits until it trains."""
        process = self.start("--set=epochs=100000", "--set=consistency.mode=ASYNC", *arguments)
        deadline = time.monotonic() + LIMIT_S
        while process.poll() is None and time.monotonic() < deadline:
            code, out, _ = self.pawlctl("status", "--json")
            if code == 0 and json.loads(out)["steps"] > 0:
                return process
            time.sleep(0.05)
        process.kill()
        return self.fail("no step was done: %s" % (process.communicate(),))

    def test_watch_sees_the_end_of_the_job(self):
        process = self.start()
        code, out, err = self.pawlctl("watch", "--interval=5s")
        self.assertEqual(code, 0, out + err)
        self.assertIn("job small: COMPLETED after 126 steps", out)
        self.assertEqual(out.count("evaluation "), 2, out)
        process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 0)

    def pid_of(self, node):
        """Returns the process of a node, which describes itself as host:pid."""
        for entry in json.loads(self.pawlctl("nodes", "--json")[1]):
            if entry["node"] == node:
                return int(entry["description"].rsplit(":", 1)[1])
        return self.fail("there is no " + node)

    def child_of(self, process, program):
        """Returns the child of `process` that runs `program`, or None."""
        with open(
            "/proc/%d/task/%d/children" % (process.pid, process.pid), encoding="utf-8"
        ) as file:
            pids = [int(pid) for pid in file.read().split()]
        for pid in pids:
            try:
                if os.path.basename(os.readlink("/proc/%d/exe" % pid)) == program:
                    return pid
            except OSError:
                pass  # It has just ended.
        return None

    def steps(self):
        """Returns the steps that all ranks have completed; -1 if they are unknown."""
        code, out, _ = self.pawlctl("status", "--json", "--timeout=1s")
        return json.loads(out)["steps"] if code == 0 else -1

    def wait_for(self, condition, what):
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.05)

    def assert_all_gone(self, pids):
        for pid in pids:
            with self.assertRaises(ProcessLookupError):
                os.kill(pid, 0)

    def test_digest_does_not_depend_on_number_of_servers(self):
        digests = []
        for servers, workers in ((1, 1), (2, 2)):
            out = "%s-%d" % (self.out, servers)
            code, text, err = self.pawlctl(
                "run",
                "--job=" + self.job,
                "--servers=%d" % servers,
                "--workers=%d" % workers,
                "--out=" + out,
            )
            self.assertEqual((code, err), (0, ""), text)
            metrics = self.metrics(out)
            self.assertEqual(metrics["state"], "COMPLETED")
            self.assertEqual((metrics["servers"], metrics["workers"]), (servers, workers))
            self.assertEqual(metrics["samples"], 8000)
            # Also a job of a second has the nodes' names for its logs.
            nodes = ["server-%d" % i for i in range(servers)]
            nodes += ["worker-%d" % i for i in range(workers)]
            logs = sorted(os.listdir(os.path.join(out, "logs")))
            self.assertEqual(logs, sorted(node + ".log" for node in ["scheduler"] + nodes))
            self.assertGreater(metrics["eval"]["auc"], 0.85)
            self.assertIn(metrics["digest"], text)
            digests.append(metrics["digest"])
        self.assertEqual(digests[0], digests[1])

    def test_commands_control_a_running_job(self):
        process = self.start_endless()
        pids = [self.pid_of(node) for node in ("server-0", "server-1", "worker-0", "worker-1")]
        tables = {table["name"]: table for table in json.loads(self.pawlctl("tables", "--json")[1])}
        name = next(name for name, table in tables.items() if table["kind"] == "SPARSE")
        width = tables[name]["row_width"]

        # A row without samples. Only this test changes it.
        key = str(2**63 + 5)
        pull = ("pull", "--table=" + name, "--keys=" + key, "--json")
        code, out, err = self.pawlctl(*pull)
        self.assertEqual((code, err), (0, ""))
        before = json.loads(out)["rows"][0]
        self.assertEqual((before["key"], len(before["values"])), (int(key), width))
        code, _, err = self.pawlctl(
            "push", "--table=" + name, "--key=" + key, "--values=" + ",".join(["1"] * width)
        )
        self.assertEqual((code, err), (0, ""))
        after = json.loads(self.pawlctl(*pull)[1])["rows"][0]
        for old, new in zip(before["values"], after["values"]):
            self.assertLess(new, old)
        self.assign_rows(name, width)
        code, out, err = self.pawlctl("digest", "--json")
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(json.loads(out)["digest"], r"^[0-9a-f]{8}$")

        # Errors are reported and change nothing.
        for arguments, part, expected in (
            (("pull", "--table=nope", "--keys=1"), "nope", 1),
            (("pull", "--table=" + name), "--keys", 2),
            (("pull", "--table=" + name, "--keys=x"), "'x'", 2),
            (("push", "--table=" + name, "--key=1", "--values=inf"), "'inf'", 2),
            (
                ("push", "--table=" + name, "--key=1", "--values=" + ",".join(["1"] * (width + 1))),
                "--values",
                2,
            ),
        ):
            with self.subTest(arguments=arguments):
                code, _, err = self.pawlctl(*arguments)
                self.assertEqual(code, expected, err)
                self.assertIn(part, err)

        self.assertEqual(self.pawlctl("stop", "--reason=seen enough")[0], 0)
        _, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 1)
        self.assertIn("seen enough", err)
        self.assert_all_gone(pids)

    def assign_rows(self, name, width):
        """Assigns two rows without samples, which only this test changes."""

        def save(file, shape, kind, code, numbers):
            header = "{'descr': '<%s', 'fortran_order': False, 'shape': (%s), }" % (
                kind,
                "".join("%d, " % extent for extent in shape),
            )
            header = header.ljust(117) + "\n"
            path = os.path.join(self.out, file)
            with open(path, "wb") as out:
                out.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)))
                out.write(header.encode() + struct.pack("<%d%s" % (len(numbers), code), *numbers))
            return path

        rows = [[i + j / 4 for j in range(width)] for i in (1, 100)]
        keys = [2**63 + 6, 2**63 + 7]
        keys_file = save("keys.npy", [2], "u8", "Q", keys)
        values_file = save("values.npy", [2, width], "f4", "f", sum(rows, []))
        assign = ("assign", "--table=" + name, "--values=" + values_file, "--keys=" + keys_file)
        code, out, err = self.pawlctl(*assign)
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(out, "2 rows have been assigned\n")
        pulled = self.pawlctl("pull", "--table=" + name, "--keys=%d,%d" % tuple(keys), "--json")[1]
        self.assertEqual([row["values"] for row in json.loads(pulled)["rows"]], rows)
        twice = save("twice.npy", [2], "u8", "Q", [5, 5])
        for arguments, part, expected in (
            (assign[:3], "--keys", 2),
            (assign[:3] + ("--keys=" + twice,), "key 5 is repeated", 2),
            (assign[:3] + ("--keys=" + values_file,), "<f4", 2),
            (assign[:2] + ("--values=" + keys_file, assign[3]), "<u8", 2),
            (assign[:2] + ("--values=nope.npy", assign[3]), "nope.npy", 1),
            (assign + ("--slots=" + keys_file, "--keep_slots"), "--keep_slots", 2),
            (assign + ("--slots=" + save("s.npy", [1], "f4", "f", [1]),), "--slots", 2),
            (assign[:2] + ("--values=" + save("v.npy", [1], "f4", "f", [1]), assign[3]), "(1)", 2),
        ):
            with self.subTest(arguments=arguments):
                code, _, err = self.pawlctl(*arguments)
                self.assertEqual(code, expected, err)
                self.assertIn(part, err)

    def test_certificates_of_the_shell_are_not_for_a_run_without_tls(self):
        self.environment["PAWL_TLS_DIR"] = "/nowhere"
        process = self.start()
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 0, out + err)

    def test_all_connections_use_tls(self):
        tls = os.path.join(self.out, "tls")
        self.environment["PAWL_TLS_DIR"] = os.path.join(tls, "operator")
        process = self.start_endless("--tls")
        scheduler = self.environment["PAWL_SCHEDULER"]
        nodes = {node["node"]: node for node in json.loads(self.pawlctl("nodes", "--json")[1])}
        addresses = (scheduler, nodes["server-0"]["address"], nodes["server-1"]["address"])
        for address in addresses:
            self.assertEqual(
                self.pawlctl("health", "--address=" + address), (0, "SERVING\n", "")
            )
        # Each role can ask, but only operators change the job.
        for role in ("server", "worker", "reader"):
            self.environment["PAWL_TLS_DIR"] = os.path.join(tls, role)
            for address in addresses:
                self.assertEqual(self.pawlctl("health", "--address=" + address)[0], 0)
            self.assertEqual(self.pawlctl("stop")[0], 1)
        del self.environment["PAWL_TLS_DIR"]
        for address in addresses:
            self.assertEqual(self.pawlctl("health", "--address=" + address, "--timeout=2s")[0], 3)
        make_certificates = os.path.join(os.path.dirname(PAWLCTL), "../tls/certificates")
        subprocess.run(
            [make_certificates, "--out=" + self.out + "/strangers", "--job=small"], check=True
        )
        code, out, err = self.pawlctl("status", "--tls_dir=" + self.out + "/strangers/operator")
        self.assertEqual((code, out), (3, ""))
        self.assertIn("gRPC: ", err)
        code, _, err = self.pawlctl("stop", "--tls_dir=" + os.path.join(tls, "operator"))
        self.assertEqual((code, err), (0, ""))
        process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 1)

    def test_replicas_of_a_running_job_are_equal(self):
        process = self.start_endless(
            "--replicas=2", "--set=consistency.mode=SYNC", "--set=partitions=256"
        )
        code, out, err = self.pawlctl("verify", "--json", "--timeout=60s")
        self.assertEqual((code, err), (0, ""), out)
        partitions = json.loads(out)["partitions"]
        self.assertEqual(len(partitions), 256)
        for partition in partitions:
            self.assertEqual(partition["result"], "equal")
            self.assertEqual(
                sorted(replica["node"] for replica in partition["replicas"]),
                ["server-0", "server-1"],
            )
            self.assertEqual(
                [replica["primary"] for replica in partition["replicas"]], [True, False]
            )
        servers = [
            node
            for node in json.loads(self.pawlctl("nodes", "--json")[1])
            if node["role"] == "server"
        ]
        self.assertEqual(
            [(server["primary"], server["backup"], server["learner"]) for server in servers],
            [(128, 128, 0), (128, 128, 0)],
        )
        self.assertIn("2 of each of 256 partitions", self.pawlctl("status")[1])
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)

    def test_servers_are_added_and_removed_while_the_job_runs(self):
        process = self.start_endless("--replicas=2", "--set=partitions=256")
        code, out, err = self.pawlctl("scale", "--servers=4", "--wait=60s")
        self.assertEqual((code, err), (0, ""), out)
        servers = [
            node
            for node in json.loads(self.pawlctl("nodes", "--json")[1])
            if node["role"] == "server"
        ]
        self.assertEqual([server["primary"] + server["backup"] for server in servers], [128] * 4)
        status = json.loads(self.pawlctl("status", "--json")[1])
        # The second new server may join while replicas move to the first.
        self.assertGreaterEqual(status["moves"]["replicas_moved"], 256)
        self.assertLessEqual(status["moves"]["replicas_moved"], 1.1 * 256)
        # The loads measured on four servers may then move a few more partitions.
        deadline = time.monotonic() + LIMIT_S
        while not status["moves"]["settled"] and time.monotonic() < deadline:
            time.sleep(0.1)
            status = json.loads(self.pawlctl("status", "--json")[1])
        self.assertTrue(status["moves"]["settled"])

        victim = self.pid_of("server-0")
        code, out, err = self.pawlctl("drain", "server-0", "--wait")
        self.assertEqual((code, err), (0, ""), out)
        code, out, err = self.pawlctl("scale", "--servers=2", "--wait")
        self.assertEqual((code, err), (0, ""), out)
        self.assert_all_gone([victim])
        left = [
            node["node"]
            for node in json.loads(self.pawlctl("nodes", "--json")[1])
            if node["role"] == "server" and not node["gone"]
        ]
        self.assertEqual(left, ["server-1", "server-2"])
        code, _, err = self.pawlctl("drain", "server-1")
        self.assertEqual(code, 1)
        self.assertIn("2 replicas", err)

        events = [json.loads(line) for line in self.pawlctl("events", "--json")[1].splitlines()]
        kinds = [event["kind"] for event in events]
        self.assertEqual(kinds.count("NODE_JOINED"), 6)
        self.assertEqual(kinds.count("NODE_LEFT"), 2)
        self.assertGreaterEqual(kinds.count("REPLICA_MOVED"), 256)
        pauses = [event["pause_ms"] for event in events if event["kind"] == "PRIMARY_MOVED"]
        self.assertGreater(len(pauses), 0)
        before = self.steps()
        self.wait_for(
            lambda: process.poll() is not None or self.steps() > before, "the job does not continue"
        )
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)

    def ranks(self):
        """Returns the number of ranks of each present worker."""
        return [
            len(node["logical_workers"])
            for node in json.loads(self.pawlctl("nodes", "--json")[1])
            if node["role"] == "worker" and not node["gone"]
        ]

    def test_workers_are_added_and_removed_while_the_job_runs(self):
        process = self.start_endless("--set=logical_workers=4")
        self.assertEqual(self.ranks(), [2, 2])
        for workers, ranks in ((4, [1, 1, 1, 1]), (1, [4])):
            code, out, err = self.pawlctl("scale", "--workers=%d" % workers, "--wait=60s")
            self.assertEqual((code, err), (0, ""), out)
            self.wait_for(
                lambda: self.ranks() == ranks, "the ranks are not with %d workers" % workers
            )
            before = self.steps()
            self.wait_for(
                lambda: self.steps() > before, "the job does not continue with %d workers" % workers
            )
        code, _, err = self.pawlctl("drain", "worker-0")
        self.assertEqual(code, 1)
        self.assertIn("the last worker", err)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)

    def test_killed_processes_are_restarted_and_the_job_continues(self):
        process = self.start_endless()
        for node in ("server-1", "worker-0", "scheduler"):
            with self.subTest(node=node):
                before = self.steps()
                os.kill(
                    self.child_of(process, "pawl-scheduler")
                    if node == "scheduler"
                    else self.pid_of(node),
                    signal.SIGKILL,
                )
                # Further than the steps that were in progress.
                self.wait_for(
                    lambda: process.poll() is not None or self.steps() > before + 1000,
                    "the job does not continue after the death of " + node,
                )
                self.assertIsNone(process.poll())
        self.assertEqual(self.pawlctl("stop", "--reason=seen enough")[0], 0)
        _, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 1)
        for node in ("server-1", "worker-0", "the scheduler"):
            self.assertRegex(err, node + r" \(pid [0-9]+\) was killed by signal 9 .*restarting it")
        self.assertEqual(
            self.metrics(self.out)["restarts"],
            {"scheduler": 1, "server-0": 0, "server-1": 1, "worker-0": 1, "worker-1": 0},
        )

    def test_job_without_restarts_ends_within_10_s(self):
        for node in ("server-1", "worker-0"):
            with self.subTest(node=node):
                process = self.start_endless("--max_restarts=0")
                pids = [
                    self.pid_of(name) for name in ("server-0", "server-1", "worker-0", "worker-1")
                ]
                victim = self.pid_of(node)
                started = time.monotonic()
                os.kill(victim, signal.SIGKILL)
                _, err = process.communicate(timeout=LIMIT_S)
                self.assertLess(time.monotonic() - started, 10)
                self.assertEqual(process.returncode, 1)
                self.assertRegex(err, r"%s \(pid %d\) was killed by signal 9" % (node, victim))
                self.assertRegex(err, r"job small was stopped before its end: %s" % node)
                self.assertEqual(self.metrics(self.out)["state"], "STOPPED")
                self.assert_all_gone(pids)

    def test_scheduler_that_refuses_its_job_is_not_restarted(self):
        checkpoints = self.out + "-kept"
        run = ("run", "--job=" + self.job, "--set=checkpoint.dir=" + checkpoints)
        code, _, err = self.pawlctl(*run, "--out=" + self.out)
        self.assertEqual(code, 0, err)
        code, _, err = self.pawlctl(*run, "--out=" + self.out + "-again")
        self.assertEqual(code, 1, err)
        self.assertIn(
            "exited with code 2: its flags, files or job are wrong, or its state is outdated", err
        )
        self.assertIn("holds checkpoints of an earlier run", err)
        self.assertNotIn("restarting it", err)

    def test_stop_with_checkpoint_continues_without_one(self):
        process = self.start_endless()
        code, _, err = self.pawlctl("stop", "--with_checkpoint")
        self.assertEqual(code, 1, err)
        self.assertIn("checkpoint.dir is empty", err)
        self.assertIn("the job was not stopped", err)
        self.assertIsNone(process.poll())
        checkpoints = self.out + "-checkpoints"
        code, text, err = self.pawlctl(
            "stop", "--with_checkpoint", "--dir=" + checkpoints, "--reason=seen enough", "--json"
        )
        self.assertEqual((code, err), (0, ""), text)
        told = json.loads(text)
        self.assertTrue(told["stopped"])
        self.assertTrue(told["checkpoint"]["folder"].startswith(checkpoints), text)
        _, err = process.communicate(timeout=LIMIT_S)
        self.assertIn("was stopped before its end: seen enough", err)
        code, text, err = self.pawlctl("checkpoints", "--dir=" + checkpoints)
        self.assertEqual((code, err), (0, ""), text)
        self.assertIn("whole", text)

    def test_ctrl_c_ends_everything(self):
        process = self.start_endless()
        pids = [self.pid_of(name) for name in ("server-0", "server-1", "worker-0", "worker-1")]
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 130, err)
        self.assertLess(time.monotonic() - started, 10)
        self.assert_all_gone(pids)

    def test_malformed_data_fails_the_job_with_its_position(self):
        bad = os.path.join(self.folder, "bad.libsvm")
        with open(bad, "w", encoding="utf-8") as file:
            file.write("1 1:1\n0 2:x\n")
        code, _, err = self.pawlctl(
            "run", "--job=" + self.job, "--set=data.train=" + bad, "--out=" + self.out
        )
        self.assertEqual(code, 1)
        self.assertIn("bad.libsvm:2:", err)


if __name__ == "__main__":
    PAWLCTL = os.path.realpath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
