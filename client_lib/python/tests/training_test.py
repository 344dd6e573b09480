"""Training programs under `pawl run`: the same bits whatever dies, and the numbers of torch."""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np
import torch
import training_program

import pawl

PROGRAM = training_program.__file__
TIMEOUT_S = 240


class Run:
    """One `pawl run` of training_program.py in a folder of its own."""

    def __init__(self, *arguments, servers=2, workers=1, ranks=4, settings=(), step_timeout=600):
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.result = os.path.join(self.folder, "result.npz")
        self.out = os.path.join(self.folder, "out")
        self.log = os.path.join(self.folder, "out-of-pawlctl")
        environment = {**os.environ, "PAWL_STEP_TIMEOUT_S": "%g" % step_timeout}
        command = [sys.executable, "-m", "pawl", "run", "--servers=%d" % servers]
        command += ["--workers=%d" % workers, "--set=logical_workers=%d" % ranks]
        command += ["--set=partitions=8", "--out=" + self.out]
        command += ["--set=" + setting for setting in settings]
        command += [PROGRAM, "--result=" + self.result, *arguments]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=environment
            )

    def describe(self) -> str:
        """The output of all processes."""
        logs = sorted(pathlib.Path(self.out, "logs").glob("*.log"))
        return "\n".join(
            "%s:\n%s" % (path, path.read_text("utf-8", "replace")[-3000:])
            for path in [pathlib.Path(self.log), *logs]
        )

    def finish(self) -> str:
        """Waits for the end and returns the digest."""
        try:
            code = self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = "timeout"
        if code != 0:
            raise AssertionError("%s\n%s" % (code, self.describe()))
        return self.metrics()["digest"]

    def metrics(self) -> dict:
        """Returns the files that the job has left."""
        with open(os.path.join(self.out, "metrics.json"), encoding="utf-8") as file:
            return json.load(file)

    def wait_for_log(self, pattern: str, text: str) -> None:
        """Waits until a log whose name matches the pattern has the text."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.process.poll() is None and time.monotonic() < deadline:
            logs = pathlib.Path(self.out, "logs").glob(pattern)
            if any(text in log.read_text("utf-8") for log in logs):
                return
            time.sleep(0.02)
        raise AssertionError("no %s says '%s'\n%s" % (pattern, text, self.describe()))

    def wait_for_step(self, step: int) -> None:
        """Waits until a worker has ended it."""
        self.wait_for_log("*worker-*.log", "ended step %d " % step)

    def address(self) -> str:
        """The scheduler's host:port."""
        return pathlib.Path(self.out, "scheduler.addr").read_text("utf-8").strip()

    def wait_for_status(self, pattern: str) -> None:
        """Waits until the output of `pawl status` has the pattern."""
        command = [sys.executable, "-m", "pawl", "status", "--scheduler=" + self.address()]
        deadline = time.monotonic() + TIMEOUT_S
        text = ""
        while self.process.poll() is None and time.monotonic() < deadline:
            text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            if re.search(pattern, text):
                return
            time.sleep(0.1)
        raise AssertionError("no %r in\n%s\n%s" % (pattern, text, self.describe()))

    def scale(self, workers: int) -> None:
        """Changes the number of workers while the job runs."""
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pawl",
                "scale",
                "--scheduler=" + self.address(),
                "--workers=%d" % workers,
            ],
            check=True,
            timeout=60,
            stdout=subprocess.DEVNULL,
        )

    def kill(self, node: str) -> None:
        """kill -9 of the process with this name."""
        if node == "scheduler":
            children = pathlib.Path(
                "/proc/%d/task/%d/children" % (self.process.pid, self.process.pid)
            )
            for pid in map(int, children.read_text("ascii").split()):
                name = pathlib.Path("/proc/%d/comm" % pid).read_text("ascii").strip()
                if name == "pawl-scheduler":
                    os.kill(pid, signal.SIGKILL)
                    return
            raise AssertionError("there is no scheduler")
        with pawl.Client(self.address()) as client:
            for status in client.status()["nodes"]:
                if status["node"] == node:
                    os.kill(int(status["description"].rsplit(":", 1)[1]), signal.SIGKILL)
                    return
        raise AssertionError("there is no %s" % node)

    def parameters(self) -> dict:
        """Returns the program's last output."""
        with np.load(self.result) as archive:
            return dict(archive)


class TrainingTest(unittest.TestCase):
    def test_bits_do_not_depend_on_processes_and_servers(self):
        runs = [
            Run(servers=servers, workers=workers)
            for servers, workers in ((1, 1), (3, 2), (2, 4))
        ]
        self.assertEqual(len({run.finish() for run in runs}), 1)

    def test_program_that_is_told_to_end_after_its_loop_leaves_the_job(self):
        program = (
            "import sys, numpy, pawl\n"
            "job = pawl.init()\n"
            "for _ in job.steps(pawl.data.Arrays(numpy.arange(4), batch_size=2)):\n"
            "    job.end_step([])\n"
            "print('trained', flush=True)\n"
            "sys.stdin.read()\n"
        )
        with pawl.LocalCluster(job={"logical_workers": 1, "partitions": 8}) as cluster:
            for is_told in (True, False):
                with subprocess.Popen(
                    [sys.executable, "-c", program],
                    env={**os.environ, "PAWL_SCHEDULER": cluster.scheduler},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                ) as process:
                    self.assertEqual(process.stdout.readline(), "trained\n")
                    if is_told:
                        process.terminate()
                        self.assertEqual(process.wait(TIMEOUT_S), 128 + signal.SIGTERM)
                        self.assertEqual(cluster.status()["state"], "RUNNING")
                self.assertEqual(process.returncode, 128 + signal.SIGTERM if is_told else 0)

    def test_output_of_a_program_whose_job_fails_at_its_end_is_complete(self):
        program = (
            "import numpy, pawl\n"
            "job = pawl.init()\n"
            "for _ in job.steps(pawl.data.Arrays(numpy.arange(4), batch_size=2)):\n"
            "    job.end_step([])\n"
            "job.fail('bad data')\n"
            "print('trained')\n"
        )
        with pawl.LocalCluster(job={"logical_workers": 1, "partitions": 8}) as cluster:
            ended = subprocess.run(
                [sys.executable, "-c", program],
                env={
                    **os.environ, "PAWL_SCHEDULER": cluster.scheduler, "PYTHONUNBUFFERED": ""
                },
                capture_output=True,
                check=False,
                text=True,
                timeout=TIMEOUT_S,
            )
        self.assertEqual((ended.returncode, ended.stdout), (1, "trained\n"), ended.stderr)
        self.assertIn("bad data", ended.stderr)

    def test_torchrun_starts_the_workers_of_a_cluster(self):
        run = Run()
        run.finish()
        settings = {"partitions": 8, "logical_workers": 4}
        with pawl.LocalCluster(servers=2, job=settings) as cluster:
            result = os.path.join(run.folder, "of-torchrun.npz")
            command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
            command += ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"]
            subprocess.run(
                [*command, PROGRAM, "--result=" + result],
                env={**os.environ, "PAWL_SCHEDULER": cluster.scheduler},
                check=True,
                timeout=TIMEOUT_S,
            )
        with np.load(result) as found:
            for name, array in run.parameters().items():
                np.testing.assert_array_equal(found[name], array, err_msg=name)

    def test_last_step_may_have_fewer_samples_than_ranks(self):
        runs = [Run("--samples=961", workers=workers) for workers in (1, 3)]
        self.assertEqual(len({run.finish() for run in runs}), 1)

    def test_prefetched_rows_are_used(self):
        run = Run(ranks=2)
        run.finish()
        log = pathlib.Path(run.out, "logs", "worker-0.log").read_text("utf-8")
        # One fetch for each step: none is thrown away.
        self.assertIn("fetches 44 steps 44", log)

    def test_bits_survive_kills_of_workers_servers_and_the_scheduler(self):
        calm = Run(workers=2, servers=2)
        digest = calm.finish()
        stormy = Run("--die_at_step=3", "--slow_s=0.02", workers=2, servers=2)
        stormy.wait_for_step(6)
        stormy.kill("server-0")
        stormy.wait_for_step(9)
        stormy.kill("scheduler")
        stormy.wait_for_step(12)
        stormy.kill("server-1")
        self.assertEqual(stormy.finish(), digest, stormy.describe())
        self.assertTrue(os.path.exists(stormy.result + ".died"))

    def test_worker_that_dies_between_push_and_end_of_a_step_is_replaced(self):
        digest = Run(ranks=1).finish()
        # Until its second step, a process pushes the whole state of its ranks.
        runs = [Run("--die_after_push=%d" % step, ranks=1) for step in (0, 1)]
        for run in runs:
            self.assertEqual(run.finish(), digest, run.describe())
            self.assertTrue(os.path.exists(run.result + ".died"))

    def test_clipped_norm_has_the_same_bits_everywhere(self):
        # Its steps close in a phase of their own; one process serves all ranks in turns.
        clips = ["clip_global_norm=0.05"]
        digest = Run(settings=clips, servers=1).finish()
        self.assertNotEqual(Run().finish(), digest)
        stormy = Run("--die_at_step=3", "--slow_s=0.02", workers=2, settings=clips)
        stormy.wait_for_step(6)
        stormy.kill("server-0")
        self.assertEqual(stormy.finish(), digest, stormy.describe())
        self.assertTrue(os.path.exists(stormy.result + ".died"))

    def test_bits_survive_workers_that_join_and_leave(self):
        digest = Run("--epochs=20").finish()
        scaled = Run("--slow_s=0.02", "--epochs=20", settings=["elastic=true"])
        scaled.wait_for_step(2)
        scaled.scale(2)
        scaled.wait_for_log("*worker-1.log", "ended step")
        scaled.scale(1)
        # One of the two is told to leave, and gives its ranks to the other.
        scaled.wait_for_log("../../out-of-pawlctl", "it has left the job")
        self.assertEqual(scaled.finish(), digest, scaled.describe())

    def test_kept_objects_survive_deaths_and_moves(self):
        digest = Run("--keep", "--epochs=4").finish()
        self.assertNotEqual(Run("--epochs=4").finish(), digest)
        died = Run("--keep", "--epochs=4", "--die_at_step=5", "--slow_s=0.02", workers=2)
        moved = Run("--keep", "--epochs=4", "--slow_s=0.05", settings=["elastic=true"])
        moved.wait_for_step(3)
        moved.scale(3)
        self.assertEqual(died.finish(), digest, died.describe())
        self.assertTrue(os.path.exists(died.result + ".died"))
        self.assertEqual(moved.finish(), digest, moved.describe())
        self.assertIn("is given to worker-1", moved.describe())

    def test_restart_with_other_settings_is_refused(self):
        run = Run("--die_at_step=5", "--batch_after_death=48", "--seed_after_death=2")
        self.assertNotEqual(run.process.wait(TIMEOUT_S), 0)
        log = run.describe()
        self.assertIn("batch_size was 96, is 48; ", log)
        self.assertIn("data's seed was 1, is 2; ", log)
        # The first process was killed; once two end alike, at one step, the job fails.
        self.assertIn("(restart 2 of", log)
        self.assertNotIn("(restart 5 of", log)
        self.assertRegex(log, r"failed: worker-0 .*FailedPreconditionError: .*\nTraceback")

    def test_data_that_sync_refuses_fails_the_job_at_once(self):
        run = Run("--plain_list", workers=2)
        self.assertNotEqual(run.process.wait(TIMEOUT_S), 0)
        log = run.describe()
        self.assertNotIn("restarting it", log)
        self.assertRegex(log, r"failed: worker-\d .*a SYNC job cannot train on list: ")
        # Where it is no mistake.
        Run("--plain_list", workers=2, settings=["consistency.mode=ASYNC"]).finish()

    def test_no_rank_waits_for_one_whose_list_has_ended(self):
        bounded = ["consistency.mode=BOUNDED", "consistency.staleness=1"]
        run = Run("--plain_list", "--unequal", ranks=2, workers=2, settings=bounded)
        run.finish()
        steps = [int(step) for step in re.findall(r"ended step (\d+) ", run.describe())]
        self.assertGreater(max(steps), 5)

    def test_worker_that_hangs_in_a_step_is_restarted(self):
        digest = Run(ranks=2, workers=2).finish()
        hung = Run("--hang_at_step=5", ranks=2, workers=2, step_timeout=20)
        hung.wait_for_log("*worker-*.log", "hangs in rank")
        rank = re.search(r"hangs in rank (\d)", hung.describe()).group(1)
        # The others wait for it.
        hung.wait_for_status(r"slowest +ranks? %s \(worker-\d\)" % rank)
        hung.wait_for_log("../../out-of-pawlctl", "restarting it")
        self.assertEqual(hung.finish(), digest, hung.describe())
        logs = [path.read_text("utf-8") for path in pathlib.Path(hung.out, "logs").glob("worker*")]
        stacks = [log for log in logs if "Timeout (0:00:20)!" in log]
        self.assertEqual(len(stacks), 1)
        self.assertRegex(stacks[0], r'training_program.py", line \d+ in train')

    def test_evaluation_covers_all_ranks_at_one_version(self):
        runs = [
            Run("--evaluate", workers=1, ranks=1),
            Run("--evaluate", "--die_at_step=5", workers=2, ranks=4),
        ]
        for run in runs:
            run.finish()
        one, four = (run.metrics()["evaluations"] for run in runs)
        self.assertEqual(len(one), 5)
        self.assertEqual([result["step"] for result in one], [1, 6, 11, 16, 21])
        self.assertEqual(len(four), 5)
        for result, other in zip(one, four):
            # Rows differ in their last bits, since ranks divide a step's gradient.
            self.assertEqual(result["samples"], training_program.SAMPLES)
            self.assertAlmostEqual(result["auc"], other["auc"], places=4)
            self.assertAlmostEqual(result["logloss"], other["logloss"], places=4)
        self.assertGreater(one[-1]["auc"], one[0]["auc"] + 0.01)
        self.assertLess(one[-1]["logloss"], one[0]["logloss"])
        self.assertIn("the last evaluation is {'evaluation': '5'", runs[0].describe())

    def test_evaluation_in_parts_survives_the_death_of_the_scheduler(self):
        # Two parts a rank.
        run = Run("--scores=70000", ranks=2)
        run.wait_for_log("worker-0.log", "rank 1 evaluates")
        # Rank 0 has sent its parts.
        run.kill("scheduler")
        run.wait_for_log("../../out-of-pawlctl", "restarting it")
        pathlib.Path(run.result + ".go").touch()
        run.finish()
        self.assertEqual(run.metrics()["evaluations"][0]["samples"], 140000)
        self.assertIn("'samples': '140000'", run.describe())
        output = pathlib.Path(run.log).read_text("utf-8")
        self.assertNotRegex(output, "worker-0 .*restarting it")

    def test_metrics_of_the_program_are_in_the_curve(self):
        run = Run(
            "--log", "--epochs=4", "--die_at_step=5", "--slow_s=0.1", workers=2, ranks=2
        )
        run.finish()
        self.assertTrue(os.path.exists(run.result + ".died"))
        last = run.metrics()["steps"] - 2
        metrics = run.metrics()["metrics"]
        self.assertEqual(sorted(metrics), ["own/loss", "own/square", "own/steps"])
        self.assertEqual(metrics["own/square"], {"step": last, "value": last**2})
        lines = pathlib.Path(run.out, "curve.jsonl").read_text("utf-8").splitlines()
        curve = [json.loads(line) for line in lines if line]
        own = [point for point in curve if point["kind"] == "metrics"]
        squares = [
            (p["step"], p["metrics"]["own/square"]) for p in own if "own/square" in p["metrics"]
        ]
        # Every two seconds, and at the end; steps ascend although some are computed twice.
        self.assertGreater(len(squares), 1, own)
        self.assertEqual(squares, [(step, step**2) for step, _ in sorted(set(squares))])
        self.assertEqual(squares[-1][0], last)
        events = b"".join(
            path.read_bytes() for path in pathlib.Path(run.out, "tensorboard").iterdir()
        )
        self.assertIn(b"metrics/own/loss", events)

    @unittest.skipUnless(hasattr(torch.amp, "GradScaler"), "needs torch 2.3")
    def test_scaled_gradients_give_the_same_bits(self):
        plain, scaled = Run(ranks=2), Run("--scale=1024", ranks=2)
        plain.finish()
        scaled.finish()
        expected, found = plain.parameters(), scaled.parameters()
        self.assertEqual(set(found), set(expected))
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array, err_msg=name)

    @unittest.skipUnless(hasattr(torch.amp, "GradScaler"), "needs torch 2.3")
    def test_overflow_of_one_rank_is_skipped_alike_by_any_processes(self):
        flags = ("--scale=1024", "--overflow_at_step=4")
        runs = [Run(*flags, workers=workers) for workers in (1, 4)]
        runs.append(Run(*flags, "--die_at_step=7", "--slow_s=0.02", workers=2))
        self.assertEqual(len({run.finish() for run in runs}), 1)
        self.assertTrue(os.path.exists(runs[2].result + ".died"))
        # Without the overflow the rank's gradients and its scale are others.
        other = Run("--scale=1024")
        self.assertNotEqual(other.finish(), runs[0].finish())
        self.assertNotEqual(
            other.parameters()["rows"].tolist(), runs[0].parameters()["rows"].tolist()
        )

    def test_forgotten_step_ends_without_gradients(self):
        run = Run("--skip_step=3", ranks=2)
        run.finish()
        log = pathlib.Path(run.out, "logs", "worker-0.log").read_text("utf-8")
        self.assertEqual(log.count("without the optimizer's step()"), 1, log)
        self.assertNotIn("ended step 3 ", log)
        self.assertIn("ended step 4 ", log)

    def test_ranks_wait_for_the_first_parameters_in_every_mode(self):
        for mode in ("SYNC", "BOUNDED", "ASYNC"):
            run = Run("--late_start", workers=2, ranks=2, settings=["consistency.mode=" + mode])
            run.finish()
            sums = set()
            for log in pathlib.Path(run.out, "logs").glob("worker-*.log"):
                lines = log.read_text("utf-8").splitlines()
                found = {line for line in lines if line.startswith("begins with")}
                self.assertTrue(found, log)
                sums |= found
            self.assertEqual(len(sums), 1, (mode, sums))

    def check_like_torch(self, optimizer, decay=False, rows=None):
        with pawl.LocalCluster(job={"partitions": 8}) as cluster, cluster.client() as client:
            initial = client.table(
                "rows",
                training_program.DIM,
                optimizer=training_program.OPTIMIZERS[optimizer],
                init=training_program.initial_rows(),
            ).pull(np.arange(training_program.ROWS))
        options = argparse.Namespace(
            optimizer=optimizer,
            decay=decay,
            epochs=2,
            result=os.path.join(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")), "plain.npz"),
        )
        torch.set_num_threads(1)
        training_program.train_plain(options, initial if rows is None else rows)
        with np.load(options.result) as archive:
            plain = dict(archive)
        for ranks in (1, 3):
            flags = ["--decay"] if decay else []
            flags += ["--pretrained"] if rows is not None else []
            run = Run("--optimizer=" + optimizer, *flags, ranks=ranks)
            run.finish()
            found = run.parameters()
            self.assertEqual(set(found), set(plain))
            for name, expected in plain.items():
                if name != "losses":
                    np.testing.assert_allclose(found[name], expected, rtol=2e-3, atol=2e-4)
            if ranks == 1:
                np.testing.assert_allclose(found["losses"], plain["losses"], rtol=1e-3)

    def test_sgd_is_that_of_torch(self):
        self.check_like_torch("sgd")

    def test_adagrad_is_that_of_torch(self):
        self.check_like_torch("adagrad")

    def test_row_wise_adagrad_is_its_formula(self):
        self.check_like_torch("rowwise_adagrad")

    def test_schedulers_set_the_rates_of_each_step(self):
        self.check_like_torch("adagrad", decay=True)

    def test_rates_survive_the_death_of_rank_0(self):
        digest = Run("--decay", ranks=1).finish()
        died = Run("--decay", "--die_at_step=7", ranks=1)
        self.assertEqual(died.finish(), digest)
        self.assertTrue(os.path.exists(died.result + ".died"))

    def test_asynchronous_job_learns(self):
        run = Run(workers=2, ranks=2, settings=["consistency.mode=ASYNC"])
        run.finish()
        losses = run.parameters()["losses"]
        self.assertLess(np.mean(losses[-5:]), np.mean(losses[:5]))


if __name__ == "__main__":
    unittest.main()
