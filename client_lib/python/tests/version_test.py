"""pt.export while ranks train: what it writes is of one step, or it is refused."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

import pawl
import pawl.torch as pt
from pawl import safetensors

TIMEOUT_S = 120
ROWS = 100

# Two ranks in one process. The servers hear late that rank 1 has ended a step, when rank 0 is in
# the next one.
PROGRAM = """
import pathlib, sys, threading, time
import numpy as np
import torch
import pawl
import pawl.torch as pt
from pawl.items import push_item
from pawl.session import Session

class Late:
    def __init__(self, end):
        self._sent, self._future = threading.Event(), None
        threading.Timer(0.5, self._send, (end,)).start()
    def _send(self, end):
        self._future = end()
        self._sent.set()
    def done(self, timeout=0.0):
        return self._sent.wait(timeout) and self._future.done(timeout)
    def wait(self):
        self._sent.wait()
        return self._future.wait()

mode, folder = sys.argv[1], pathlib.Path(sys.argv[2])
settings = pawl.JobSettings(mode=mode, logical_workers=2, others={"partitions": 8})
with pawl.init(job=settings) as job:
    net = pt.Embedding("t", 1, optimizer=pawl.SGD(1.0), init=pawl.Constant(0.0))
    table = net.handles[0].table(job.client)
    end = Session.end_step
    Session.end_step = lambda session: Late(lambda: end(session)) if session.rank else end(session)
    for _ in job.steps(pawl.data.Arrays(np.arange(40), batch_size=10)):
        if job.step == 2 and job.rank == 0:
            (folder / "address.tmp").write_text(job.client.scheduler)
            (folder / "address.tmp").rename(folder / "address")
            while not (folder / "observed").exists():
                time.sleep(0.02)
        if job.rank == 0:
            rows = net.eval()(torch.arange(%d))
            print("evaluated", job.step, sorted(set(rows.ravel().tolist())))
            try:
                pt.export(net, str(folder / str(job.step)))
            except pawl.FailedPreconditionError as error:
                print("refused:", error)
        job.end_step([push_item(table, np.arange(%d), np.ones((%d, 1), np.float32))])
    pt.export(net, str(folder / "end"))
""" % (ROWS, ROWS, ROWS)


class VersionTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, mode):
        environment = {k: v for k, v in os.environ.items() if k != "PAWL_SCHEDULER"}
        self.program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, mode, str(self.folder)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.addCleanup(self.program.stdout.close)
        self.addCleanup(self.program.kill)

    def wait_for_address(self):
        deadline = time.monotonic() + TIMEOUT_S
        while not (self.folder / "address").exists():
            self.assertIsNone(self.program.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        return (self.folder / "address").read_text("utf-8")

    def finish(self):
        (self.folder / "observed").touch()
        output = self.program.communicate(timeout=TIMEOUT_S)[0]
        self.assertEqual(self.program.returncode, 0, output)
        return output

    def rows(self, name):
        arrays, _ = safetensors.read(str(self.folder / name / "t.safetensors"))
        return arrays["rows"].ravel().tolist()

    def test_evaluation_in_the_loop_reads_the_version_of_its_step(self):
        self.start("SYNC")
        output = self.finish()
        # Each step subtracts the mean of the ranks' gradients, 1, from each row.
        for step in range(4):
            self.assertIn("evaluated %d [%s]\n" % (step, 0.0 - step), output)

    def test_export_in_the_loop_has_the_version_of_its_step(self):
        self.start("SYNC")
        self.finish()
        # Each step subtracts the mean of the ranks' gradients, 1, from each row.
        self.assertEqual(self.rows("0"), [])
        for step in (1, 2, 3):
            self.assertEqual(self.rows(str(step)), [-step] * ROWS)
        self.assertEqual(self.rows("end"), [-4] * ROWS)

    def test_export_in_the_loop_of_an_asynchronous_job_is_refused(self):
        self.start("ASYNC")
        output = self.finish()
        self.assertEqual(output.count("refused: the job is being trained"), 4, output)
        self.assertIn("pawlctl checkpoint", output)
        self.assertEqual(
            sorted(path.name for path in self.folder.iterdir()), ["address", "end", "observed"]
        )
        # Both ranks push in each of the 4 steps.
        self.assertEqual(self.rows("end"), [-8] * ROWS)

    def test_export_beside_a_job_is_refused_while_ranks_train(self):
        self.start("SYNC")
        with pawl.Client(self.wait_for_address()) as client:
            net = pt.Embedding("t", 1, optimizer=pawl.SGD(1.0), init=pawl.Constant(0.0))
            with self.assertRaisesRegex(pawl.FailedPreconditionError, "is being trained"):
                pt.export(net, str(self.folder / "refused"), client=client)
            self.assertFalse((self.folder / "refused").exists())
            pt.export(net, str(self.folder / "any"), client=client, consistent=False)
            self.assertEqual(len(self.rows("any")), ROWS)
        self.finish()

    def test_each_partition_has_its_key(self):
        for partitions in (8, 7):
            with pawl.LocalCluster(servers=2, job={"partitions": partitions}) as cluster:
                with cluster.client() as client:
                    client.table("first", dim=1, optimizer=pawl.SGD(1.0))
                    table = client.table("second", dim=1, optimizer=pawl.SGD(1.0))
                    keys = table.key_of_each_partition()
                    table.push(keys, np.ones((partitions, 1), np.float32))
                    # A scan gives the partitions in their order.
                    self.assertEqual(
                        [page[0].tolist() for page in table.scan()], [[key] for key in keys]
                    )


if __name__ == "__main__":
    unittest.main()
