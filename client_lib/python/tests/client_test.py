"""pawl.Client and pawl.LocalCluster against real daemons."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import numpy as np

import pawl
from pawl import _abi, futures
from pawl.job import Job


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # before, or between open and read
        return False


def wait_until(condition, what: str, timeout: float = 30.0) -> None:
    """Polls until the condition holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("not within %g s: %s" % (timeout, what))
        time.sleep(0.02)


class ClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = pawl.LocalCluster(servers=2, job={"partitions": 8})
        cls.client = cls.cluster.client()

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.cluster.close()

    def table(self, dim=2, **options):
        options.setdefault("optimizer", pawl.SGD(1.0))
        return self.client.table(self.id().rsplit(".", 1)[1], dim=dim, **options)

    def test_push_changes_what_pull_reads(self):
        table = self.table()
        table.push([7, 42, 7], np.array([[1, 2], [3, 4], [5, 6]], np.float32))
        rows = table.pull([[7, 42], [1, 7]])
        self.assertEqual(rows.shape, (2, 2, 2))
        np.testing.assert_array_equal(rows, [[[-6, -8], [-3, -4]], [[0, 0], [-6, -8]]])

    def test_every_64_bit_key_has_a_row(self):
        table = self.table(dim=1)
        table.push(np.array([2**64 - 1, 0], np.uint64), np.ones((2, 1)))
        np.testing.assert_array_equal(table.pull(np.array([-1, 0, 1])), [[-1], [-1], [0]])
        np.testing.assert_array_equal(table.pull(np.array([-1], np.int32)), [[-1]])

    def test_figure_that_is_logged_before_close_is_not_lost(self):
        # Before the next heartbeat.
        job = Job(pawl.Client(self.cluster.scheduler, worker=True))
        job.log("last", 0.5, step=3)
        job.close()
        (figure,) = self.client.status()["metrics"]
        self.assertEqual((figure["name"], figure["value"]), ("last", 0.5))

    def test_keys_of_lists_have_64_bits(self):
        table = self.table(dim=1)
        rows = [[1.0], [2.0]]
        table.assign([2**64 - 1, 5], rows)
        np.testing.assert_array_equal(table.pull([2**64 - 1, 5]), rows)
        np.testing.assert_array_equal(table.pull([-1, 5]), rows)
        np.testing.assert_array_equal(table.pull([[5, 2**64 - 1]]), [rows[::-1]])
        table.push([2**63, 1], rows)
        self.assertEqual(table.pull(np.array([2**63, 1], np.uint64)).ravel().tolist(), [-1, -2])
        for wrong in ([2**64, 1], [2**63, 0.5], [-(2**63) - 1], [0.0]):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, "at most 64 bits"):
                table.pull(wrong)

    def test_no_keys_are_a_call_without_effect(self):
        table = self.table()
        self.assertEqual(table.pull([]).shape, (0, 2))
        table.push([], np.empty((0, 2), np.float32))

    def test_arrays_need_not_be_contiguous_or_float32(self):
        table = self.table()
        keys = np.arange(20)[::2]
        gradients = np.arange(40, dtype=np.float64).reshape(2, 20).T[::2]
        table.push(keys, gradients)
        np.testing.assert_array_equal(table.pull(keys), -gradients)

    def test_wrong_arguments_are_named(self):
        table = self.table()
        for call, words in (
            (lambda: table.pull([1.5]), "float64"),
            (lambda: table.pull(["a"]), "integers"),
            (lambda: table.pull(), "keys are missing"),
            (lambda: table.push([1, 2, 3], np.ones((2, 3))), "the shape (2, 3) instead of (3, 2)"),
            (lambda: table.push([1], [[1, 2, 3]]), "the shape (1, 3) instead of (1, 2)"),
            (lambda: table.push([1], [["a", "b"]]), "numbers"),
            (lambda: table.push([1], [[1, 2]], element_type="int8"), "int8"),
            (lambda: table.push([1], [[np.nan, 2]]), "NaN"),
            (lambda: table.pull([1], out=np.empty((1, 2))), "float64"),
            (lambda: self.table(dim=3), "is different"),
            (lambda: pawl.Client(""), "PAWL_SCHEDULER"),
        ):
            with self.subTest(words), self.assertRaises(ValueError) as raised:
                call()
            self.assertIn(words, str(raised.exception))
        with self.assertRaises(KeyError) as raised:
            self.client.open("absent")
        self.assertIn("absent", str(raised.exception))

    def test_dense_table_is_one_tensor(self):
        table = self.client.dense(
            "tensor", (3, 4), optimizer=pawl.SGD(0.5), init=pawl.Constant(1.0)
        )
        table.push(None, np.full((3, 4), 2.0))
        np.testing.assert_array_equal(table.pull(), np.zeros((3, 4)))
        self.assertIn("tensor", [found.name for found in self.client.tables()])
        with self.assertRaises(ValueError):
            table.pull([1])

    def test_gradients_of_16_bits_are_applied(self):
        table = self.table()
        table.push([1], [[1.0, 0.5]], element_type="bfloat16")
        table.push([1], [[1.0, 0.5]], element_type="float16")
        np.testing.assert_array_equal(table.pull([1]), [[-2.0, -1.0]])

    def test_futures_end_while_others_run(self):
        table = self.table()
        pushes = [table.push_async([key], [[1, key]]) for key in range(100)]
        for push in pushes:
            push.wait(timeout=30)
        self.assertTrue(pushes[0].done())
        out = np.empty((100, 2), np.float32)
        pull = table.pull_async(np.arange(100), out=out)
        self.assertIs(pull.wait(), out)
        np.testing.assert_array_equal(out[:, 1], -np.arange(100))

    def test_coroutines_await_futures(self):
        table = self.table()

        async def push_and_pull():
            await asyncio.gather(*(table.push_async([key], [[1, 1]]) for key in range(20)))
            return await table.pull_async([3])

        np.testing.assert_array_equal(asyncio.run(push_and_pull()), [[-1, -1]])

    def test_several_coroutines_may_await_one_future(self):
        table = self.table()

        async def both():
            future = table.pull_async([1])
            return await asyncio.wait_for(asyncio.gather(wait(future), wait(future)), 30)

        async def wait(future):
            return await future

        first, second = asyncio.run(both())
        np.testing.assert_array_equal(first, second)

    def test_threads_may_describe_at_once(self):
        failed = []

        def describe():
            try:
                for _ in range(500):
                    self.client.describe()
            except ValueError as error:
                failed.append(error)

        threads = [threading.Thread(target=describe) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])

    def test_read_only_arrays_are_not_written(self):
        out = np.zeros((1, 2), np.float32)
        out.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "out is a read-only"):
            self.table().pull([1], out=out)

    def test_dropped_future_keeps_its_arrays_until_the_call_ends(self):
        table = self.table()
        for _ in range(50):
            table.push_async(np.arange(1000), np.ones((1000, 2), np.float32))
            gc.collect()
        wait_until(
            lambda: table.pull([999])[0, 0] == -50, "the pushes of dropped futures are applied"
        )
        futures._release_ended()
        self.assertEqual([kept for _, kept in futures._abandoned if kept is not None], [])

    def test_deadline_is_a_timeout_error(self):
        future = self.client.call("pawl_barrier", b"never", 2, 0, 0)
        with self.assertRaises(TimeoutError):
            future.wait(timeout=0.05)
        self.assertFalse(future.done())
        with self.assertRaises(TimeoutError):
            self.client.barrier("never too", 2, 0, timeout=0.05)

    def test_status_shows_itself(self):
        status = self.client.status()
        self.assertEqual(status["job"]["name"], "local")
        self.assertIn("server-1", str(status))
        self.assertIn("<td>local</td>", status._repr_html_())
        self.assertIn("server-0", self.cluster._repr_html_())
        self.assertEqual(self.client.describe()["code"], 0)
        own = pawl.client.Status({"metrics": [{"name": "ctr", "step": "7", "value": 0.25}]})
        self.assertIn("ctr           0.25 at step 7", str(own))

    def test_closed_client_says_so(self):
        client = self.cluster.client()
        table = client.table("closed", dim=1, optimizer=pawl.SGD(1.0))
        client.close()
        client.close()
        with self.assertRaises(pawl.CancelledError):
            client.status()
        for call in (
            lambda: table.pull([1]),
            lambda: table.push([1], [[1]]),
            lambda: table.assign([1], [[1]]),
            lambda: table.slot_count,
        ):
            with self.assertRaises(pawl.CancelledError):
                call()

    def test_client_of_a_local_cluster_ignores_the_environment(self):
        for name in ("PAWL_TOKEN", "PAWL_TLS_DIR"):
            with self.subTest(name), mock.patch.dict(os.environ, {name: "/of/another/cluster"}):
                with self.assertRaises(pawl.Error):
                    pawl.Client(self.cluster.scheduler)
                with self.cluster.client() as client:
                    self.assertEqual(client.status()["state"], "RUNNING")

    def test_session_without_a_rank_has_no_step(self):
        with self.assertRaisesRegex(pawl.FailedPreconditionError, "own session has no steps"):
            _ = self.client.free_running.step

    def test_gradients_of_rows_are_clipped(self):
        for name, clipped in (
            ("norm", pawl.Clipped(pawl.SGD(2.0), norm=1.0)),
            ("value", pawl.Clipped(pawl.SGD(1.0), value=1.5)),
        ):
            table = self.client.table("clipped/" + name, dim=2, optimizer=clipped)
            table.push([1], np.array([[3, 4]], np.float32))
            expected = [[-1.2, -1.6]] if name == "norm" else [[-1.5, -1.5]]
            np.testing.assert_allclose(table.pull([1]), expected, rtol=1e-6)

    def test_limits_of_nested_clippings_hold_together(self):
        by_norm = pawl.Clipped(pawl.SGD(1.0), norm=4.0)
        both = pawl.Clipped(by_norm, value=3.0)
        self.assertEqual(
            both.to_json(), {**pawl.SGD(1.0).to_json(), "clip_norm": 4.0, "clip_value": 3.0}
        )
        with self.assertRaisesRegex(pawl.InvalidArgumentError, "has clip_norm twice"):
            pawl.Clipped(both, norm=1.0)
        begin = pawl.ZeroFrom(pawl.Constant(1.0), 1)
        table = self.client.table("clipped/both", dim=2, optimizer=both, init=begin)
        # The value's limit makes it (3, 3), the norm's then (sqrt(8), sqrt(8)).
        table.push([1], np.array([[6, 8]], np.float32))
        np.testing.assert_allclose(table.pull([1]), [[1 - 8**0.5, -(8**0.5)]], rtol=1e-6)
        for init, column in (begin, 2), (pawl.Constant(1.0), 0):
            with self.assertRaisesRegex(pawl.InvalidArgumentError, "above 0 .* given once"):
                pawl.ZeroFrom(init, column)

    def test_assign_sets_rows_and_their_slots(self):
        table = self.table(optimizer=pawl.Adagrad(1.0))
        table.push([1, 2], np.full((2, 2), 3.0))
        values, slots = table.pull_slots([1, 2])
        self.assertEqual(table.slot_count, 2)
        np.testing.assert_array_equal(slots, np.full((2, 2), 9.0))
        table.assign([1], [[5, 6]])
        table.assign([2], [[5, 6]], keep_slots=True)
        table.assign([3], values[:1], slots=slots[:1])
        rows, slots = table.pull_slots([1, 2, 3])
        np.testing.assert_array_equal(rows, [[5, 6], [5, 6], values[0]])
        np.testing.assert_array_equal(slots, [[0, 0], [9, 9], [9, 9]])
        with self.assertRaises(ValueError) as raised:
            table.assign([4, 4], np.ones((2, 2)))
        self.assertIn("4", str(raised.exception))

    def scanned(self, table, **options):
        """All rows of a scan in the order of their keys. Fails if a key comes twice."""
        pages = list(table.scan(**options))
        self.assertTrue(all(len(page[0]) for page in pages))
        arrays = [np.concatenate(parts) for parts in zip(*pages)]
        self.assertEqual(len(set(arrays[0].tolist())), len(arrays[0]))
        order = np.argsort(arrays[0])
        return [array[order] for array in arrays]

    def test_scan_reads_each_row_once(self):
        table = self.table(dim=3)
        self.assertEqual(list(table.scan()), [])
        keys = np.unique(np.random.default_rng(1).integers(0, 2**64, 500, np.uint64))
        keys = np.append(keys, np.array([2**64 - 1], np.uint64))
        values = np.random.default_rng(2).normal(size=(keys.size, 3)).astype(np.float32)
        table.assign(keys, values)
        for page_rows in (1, 7, None):
            found, rows = self.scanned(table, page_rows=page_rows)
            np.testing.assert_array_equal(found, keys)
            np.testing.assert_array_equal(rows, values)

    def test_scan_reads_slots(self):
        table = self.table(optimizer=pawl.Adam(0.1))
        keys = np.arange(100, dtype=np.uint64)
        table.push(keys, np.random.default_rng(1).normal(size=(100, 2)))
        table.push(keys[:10], np.ones((10, 2)))
        values, slots = table.pull_slots(keys)
        found, rows, states = self.scanned(table, slots=True, page_rows=3)
        np.testing.assert_array_equal(found, keys)
        np.testing.assert_array_equal(rows, values)
        np.testing.assert_array_equal(states, slots)
        np.testing.assert_array_equal(states[[5, 50], -1], [2, 1])
        self.assertEqual([page.shape[1] for page in self.scanned(table)[1:]], [2])

    def test_scan_of_a_table_without_slots_gives_none(self):
        table = self.table(optimizer=pawl.SGD(0.1))
        table.push([1, 2], np.ones((2, 2)))
        self.assertEqual([part.shape for part in self.scanned(table, slots=True)],
                         [(2,), (2, 2), (2, 0)])

    def test_scan_names_what_is_wrong(self):
        dense = self.client.dense("scan_dense", (3,), optimizer=pawl.SGD(1.0))
        for call, words in (
            (lambda: dense.scan(), "pull reads it"),
            (lambda: self.table().scan(page_rows=0), "page_rows"),
        ):
            with self.subTest(words), self.assertRaises(ValueError) as raised:
                call()
            self.assertIn(words, str(raised.exception))

    def test_forked_child_is_told_what_to_do(self):
        table = self.table()
        pid = os.fork()
        if pid == 0:
            try:
                table.pull([1])
            except pawl.FailedPreconditionError as error:
                os._exit(42 if "fork()" in str(error) else 1)
            os._exit(2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 42)
        self.assertEqual(table.pull([1]).shape, (1, 2))

    def test_ctrl_c_ends_a_wait(self):
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            self.client.barrier("interrupted", 2, 0)
        timer.join()


class ClusterTest(unittest.TestCase):
    def test_killed_server_keeps_what_it_acknowledged(self):
        with pawl.LocalCluster(servers=1, job={"partitions": 4}) as cluster:
            with cluster.client() as client:
                table = client.table("t", dim=1, optimizer=pawl.SGD(1.0))
                table.push(np.arange(100), np.ones((100, 1)))
                server = next(
                    node for node in client.status()["nodes"] if node["node"] == "server-0"
                )
                os.kill(int(server["description"].rsplit(":", 1)[1]), signal.SIGKILL)
                table.push(np.arange(100), np.ones((100, 1)))
                np.testing.assert_array_equal(table.pull(np.arange(100)), np.full((100, 1), -2))

    def test_clusters_may_use_a_folder_one_after_the_other(self):
        folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        schedulers = []
        for _ in range(2):
            with pawl.LocalCluster(folder=folder) as cluster, cluster.client() as client:
                schedulers.append(cluster.scheduler)
                table = client.table("t", dim=1, optimizer=pawl.SGD(1.0))
                # The rows of the earlier cluster are removed.
                np.testing.assert_array_equal(table.pull([1]), [[0]])
                table.push([1], [[1.0]])
        self.assertEqual(len(set(schedulers)), 2)

    def test_children_keep_the_files_of_a_process_with_a_closed_cluster(self):
        with pawl.LocalCluster():
            pass
        pipes = [os.pipe() for _ in range(10)]
        child = os.fork()
        if child == 0:
            for pipe in pipes:
                os.fstat(pipe[0]), os.fstat(pipe[1])
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        for pipe in pipes:
            os.close(pipe[0]), os.close(pipe[1])

    def test_scan_continues_where_servers_are_killed_and_moved(self):
        settings = {"partitions": 8, "replicas": 2, "consistency.mode": "ASYNC"}
        with pawl.LocalCluster(servers=3, job=settings) as cluster, cluster.client() as client:
            table = client.table("t", dim=2, optimizer=pawl.SGD(1.0))
            keys = np.arange(2000, dtype=np.uint64)
            table.assign(keys, np.stack([keys, keys * 2], axis=1).astype(np.float32))
            victims = [
                int(node["description"].rsplit(":", 1)[1])
                for node in client.status()["nodes"]
                if node["node"].startswith("server-")
            ]
            routing = client.describe()["counters"].get("routing_changes", 0)
            found = {}
            created = 2000
            for number, (some, rows) in enumerate(table.scan(page_rows=50)):
                for key, row in zip(some.tolist(), rows):
                    self.assertNotIn(key, found)
                    found[key] = row
                # Rows that are created meanwhile may be in the scan, once.
                table.assign([created], [[created, 2 * created]])
                created += 1
                if number in (2, 20):
                    os.kill(victims.pop(), signal.SIGKILL)
            self.assertLessEqual(set(range(2000)), set(found))
            for key, row in found.items():
                np.testing.assert_array_equal(row, [key, 2 * key])
            self.assertGreater(client.describe()["counters"]["routing_changes"], routing)

    def test_processes_end_when_their_parent_is_killed(self):
        script = (
            "import pawl, time\n"
            "cluster = pawl.LocalCluster()\n"
            "print(cluster._process.pid, flush=True)\n"
            "time.sleep(1000)\n"
        )
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
            pawlctl = int(parent.stdout.readline())
            with open("/proc/%d/task/%d/children" % (pawlctl, pawlctl), encoding="ascii") as file:
                daemons = [int(pid) for pid in file.read().split()]
            self.assertGreaterEqual(len(daemons), 1)
            parent.kill()
            parent.wait()
        wait_until(
            lambda: not any(is_running(pid) for pid in [pawlctl] + daemons), "all have ended"
        )

    def test_run_fails_when_no_worker_is_left(self):
        folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        command = [sys.executable, "-m", "pawl", "run", "--workers=1", "--out=" + folder, "true"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertIn("before the job ended, and no worker is left", run.stderr)

    def test_token_stands_for_a_certificate(self):
        with pawl.LocalCluster(tls=True) as cluster:
            operator = os.path.join(cluster.tls_dir, "operator")
            ca = os.path.join(operator, "ca.pem")
            with cluster.client() as client:
                client.table("rows", dim=2, optimizer=pawl.SGD(1.0)).push([1], np.ones((1, 2)))
            command = [_abi.program("pawlctl"), "token", "--role=reader", "--for=alice"]
            command += ["--tls_dir=" + operator]
            token = subprocess.run(
                command, check=True, capture_output=True, text=True
            ).stdout.strip()
            file = os.path.join(cluster.folder, "token")
            with open(file, "w", encoding="ascii") as out:
                out.write(token)
            os.chmod(file, 0o600)
            for how in ({"token": token}, {"token_file": file}):
                with pawl.Client(cluster.scheduler, ca=ca, **how) as client:
                    self.assertTrue(np.all(client.open("rows").pull([1]) == -1))
                    with self.assertRaises(PermissionError):
                        client.open("rows").push([1], np.ones((1, 2)))
            with self.assertRaises(pawl.UnauthenticatedError):
                pawl.Client(cluster.scheduler, ca=ca, token=token[:-3] + "AAA")

    def test_settings_that_are_wrong_are_shown(self):
        with self.assertRaises(pawl.FailedPreconditionError) as raised:
            pawl.LocalCluster(job={"replicas": 7})
        self.assertIn("replicas", str(raised.exception))

    def test_unreachable_scheduler_is_named(self):
        with self.assertRaises(pawl.Error) as raised:
            pawl.Client("127.0.0.1:1", connect_timeout=0.3)
        self.assertIn("127.0.0.1:1", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
