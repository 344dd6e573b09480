"""Mistakes and special cases that other systems handle badly: the manual's "Rules"."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

import torch

import pawl
import pawl.torch as pt

# Long enough for a call to a loaded machine.
CALL_TIMEOUT_S = 10

BEGIN = """
import gc, signal, sys, types, weakref
import numpy as np
import torch
import pawl
import pawl.torch as pt

def rows(module, keys):
    return module.handles[0].table(job.client).pull(np.arange(keys)).ravel()

torch.set_num_threads(1)
settings = pawl.JobSettings(mode="SYNC", logical_workers=RANKS, others={"partitions": 4})
with pawl.init(job=settings) as job:
"""


class RulesTest(unittest.TestCase):
    def run_program(self, body, ranks=1):
        """Runs the body of a job in a process of its own, and returns its output."""
        environment = {k: v for k, v in os.environ.items() if k != "PAWL_SCHEDULER"}
        text = textwrap.dedent(body).strip("\n")
        program = BEGIN.replace("RANKS", str(ranks)) + textwrap.indent(text, "    ")
        ended = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertEqual(ended.returncode, 0, ended.stdout)
        return ended.stdout

    def test_forgotten_steps_change_nothing_and_leak_nothing(self):
        output = self.run_program(
            """
            net = pt.Embedding("t", 2, optimizer=pawl.SGD(1.0), init=pawl.Constant(0.0))
            optimizer = pt.Optimizer(net)
            recorded = []
            for (keys,) in job.steps(pawl.data.Arrays(np.arange(400), batch_size=10)):
                net(torch.from_numpy(keys)).sum().backward()
                recorded.append(weakref.ref(net._recorded[-1]))
                assert len(net._recorded) == 1
            gc.collect()
            print("alive", sum(one() is not None for one in recorded), "of", len(recorded))
            print("sum", np.abs(rows(net, 400)).sum())
            """
        )
        self.assertIn("alive 0 of 40\n", output)
        self.assertIn("sum 0.0\n", output)
        self.assertEqual(output.count("without the optimizer's step()"), 1, output)

    def test_gradients_of_a_forgotten_step_are_not_those_of_the_next(self):
        output = self.run_program(
            """
            rows = pt.Embedding("t", 1, optimizer=pawl.SGD(1.0), init=pawl.Constant(1.0))
            net = torch.nn.Sequential(rows, torch.nn.Linear(1, 1, bias=False))
            torch.nn.init.ones_(net[1].weight)
            optimizer = pt.Optimizer(net, dense=pawl.SGD(1.0))
            data = pawl.data.Arrays(torch.arange(2), batch_size=1, shuffle=False)
            for (keys,) in job.steps(data):
                net(keys).sum().backward()
                if job.step == 1:
                    optimizer.step()
            print("rows", net[0].eval()(torch.arange(2)).tolist(), pt.state_dict(net)["1.weight"])
            """
        )
        self.assertIn("rows [[1.0], [0.0]] tensor([[0.]])", output)

    def test_late_gradient_belongs_to_the_rank_of_its_forward(self):
        for drops in (False, True):
            output = self.run_program(
                """
                net = pt.Embedding("t", 1, optimizer=pawl.SGD(1.0), init=pawl.Constant(0.0))
                optimizer = pt.Optimizer(net)
                for _ in job.steps(pawl.data.Arrays(np.arange(6), batch_size=2)):
                    print("rank", job.rank, "step", job.step, net.eval()(torch.tensor([7])).item())
                    if job.rank == 1 and DROPS:
                        optimizer.zero_grad()
                    loss = net.train()(torch.tensor([7])).sum()
                    if job.rank == job.step == 0:
                        loss.backward(retain_graph=True)
                    optimizer.step()
                    if job.rank == job.step == 0:
                        loss.backward()
                """.replace("DROPS", str(drops)),
                ranks=2,
            )
            # The servers divide by the number of ranks.
            for step, value in enumerate((0.0, -0.5, -1.0)):
                self.assertIn("rank 1 step %d %s\n" % (step, value), output)

    def test_bar_counts_the_steps_of_the_rank_that_is_ahead(self):
        output = self.run_program(
            """
            bars = []
            class Bar:
                def __init__(self, total, unit):
                    self.n, self.total, self.closed = 0, total, False
                    bars.append(self)
                def update(self, more): self.n += more
                def close(self): self.closed = True
            sys.modules["tqdm.auto"] = types.SimpleNamespace(tqdm=Bar)
            # The parameters have a step of their own before the first batch.
            rows = pt.Embedding("t", 1, optimizer=pawl.SGD(1.0), init=pawl.Constant(0.0))
            net = torch.nn.Sequential(rows, torch.nn.Linear(1, 1))
            optimizer = pt.Optimizer(net, dense=pawl.SGD(1.0))
            data = pawl.data.Arrays(np.arange(60), batch_size=10)
            for (keys,) in job.steps(data, progress=True):
                net(torch.from_numpy(keys)).sum().backward()
                optimizer.step()
            print("bar", bars[0].n, "of", bars[0].total, bars[0].closed)
            """,
            ranks=2,
        )
        self.assertIn("bar 6 of 6 True", output)

    def test_parameters_of_different_names_are_different_tensors(self):
        output = self.run_program(
            """
            names = ["a b", "a_b", "\\u5e74\\u9f84", "\\u6027\\u522b", "plain"]
            net = torch.nn.ParameterDict(
                {name: torch.nn.Parameter(torch.zeros(2)) for name in names})
            optimizer = pt.Optimizer(net, dense=pawl.SGD(1.0))
            for _ in job.steps(pawl.data.Arrays(np.arange(20), batch_size=10)):
                optimizer.zero_grad()
                sum((1 + place) * net[name].sum() for place, name in enumerate(names)).backward()
                optimizer.step()
            state = pt.state_dict(net)
            print("values", [state[name].tolist() for name in names])
            print("plain", [table.name for table in job.client.tables() if "plain" in table.name])
            """
        )
        self.assertIn("values %s\n" % [[-2.0 * factor] * 2 for factor in range(1, 6)], output)
        self.assertIn("plain ['dense/plain']", output)

    def test_rank_without_keys_of_a_table_pushes_nothing_for_it(self):
        output = self.run_program(
            """
            tables = [pt.EmbeddingBag(n, 1, optimizer=pawl.SGD(1.0), init=pawl.Constant(0.0))
                      for n in ("first", "second")]
            net = torch.nn.ModuleList(tables)
            optimizer = pt.Optimizer(net)
            for (keys,) in job.steps(pawl.data.Arrays(np.arange(60), batch_size=10)):
                optimizer.zero_grad()
                # Rank 1 has empty bags of the first table, and rank 0 no lookup of the second.
                own = torch.zeros(5 if job.rank == 0 else 0, dtype=torch.int64)
                result = net[0](own, torch.zeros(5, dtype=torch.int64)).sum()
                if job.rank == 1:
                    result = result + 2 * net[1](torch.ones(5, 1, dtype=torch.int64)).sum()
                result.backward()
                optimizer.step()
            print("first", rows(net[0], 2), "second", rows(net[1], 2))
            """,
            ranks=2,
        )
        # 6 steps; the mean over the ranks of 5, and of 10.
        self.assertIn("first [-15.   0.] second [  0. -30.]", output)

    def test_closed_jobs_keep_no_models(self):
        output = self.run_program(
            """
            job.close()
            jobs, models = [], []
            for _ in range(2):
                with pawl.init(job=settings) as job:
                    net = torch.nn.Linear(1, 1)
                    optimizer = pt.Optimizer(net, dense=pawl.SGD(1.0))
                    for _ in job.steps(pawl.data.Arrays(np.arange(20), batch_size=10)):
                        optimizer.step()
                jobs.append(weakref.ref(job))
                models.append(weakref.ref(net))
            job = net = optimizer = None
            gc.collect()
            # pawl.job.current() is the last.
            print("jobs", [one() is not None for one in jobs])
            print("models", [one() is not None for one in models])
            print("hook", sys.excepthook is sys.__excepthook__)
            print("signal", signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
            """
        )
        self.assertIn("jobs [False, True]\nmodels [False, False]\nhook True\nsignal True\n", output)

    def test_workers_of_a_data_loader_may_fork(self):
        output = self.run_program(
            """
            net = pt.Embedding("t", 1, optimizer=pawl.SGD(1.0), init=pawl.Constant(0.0))
            optimizer = pt.Optimizer(net)
            sampler = pawl.data.Sampler(40, 10, seed=1)
            loader = torch.utils.data.DataLoader(
                torch.arange(40), batch_sampler=sampler, num_workers=2,
                multiprocessing_context="fork")
            for keys in job.steps(loader):
                optimizer.zero_grad()
                net(keys).sum().backward()
                optimizer.step()
            print("rows", set(rows(net, 40).tolist()))

            class Pulls(torch.utils.data.Dataset):
                def __len__(self):
                    return 4
                def __getitem__(self, place):
                    return rows(net, 1)

            loader = torch.utils.data.DataLoader(
                Pulls(), num_workers=1, multiprocessing_context="fork")
            try:
                next(iter(loader))
            except Exception as error:
                print(type(error).__name__, error)
            """
        )
        self.assertIn("rows {-1.0}", output)
        self.assertRegex(output, r"FailedPreconditionError(.|\n)*Pawl cannot be used in a process "
                         r"made by fork\(\)")


class StartedJobTest(unittest.TestCase):
    def train(self, cluster, net, steps, rate=lambda step: 1.0):
        """Some more steps of the job, by a new worker."""
        with pawl.init(cluster.scheduler) as job:
            optimizer = pt.Optimizer(net, dense=pawl.SGD(0.5))
            data = pawl.data.Arrays(torch.ones(9, 1), batch_size=1)
            schedulers = [torch.optim.lr_scheduler.LambdaLR(optimizer, rate)]
            for _, (values,) in zip(steps, job.steps(data, schedulers=schedulers)):
                optimizer.zero_grad()
                net(values).sum().backward()
                optimizer.step()

    def test_rank_waits_for_others_beyond_the_timeout_of_a_call(self):
        rows = pt.Embedding("t", 1, optimizer=pawl.SGD(1.0))
        net = torch.nn.Sequential(rows, torch.nn.Linear(1, 1))
        with pawl.LocalCluster(job={"logical_workers": 2, "partitions": 4}) as cluster:
            with pawl.init(cluster.scheduler, call_timeout=CALL_TIMEOUT_S) as job:
                optimizer = pt.Optimizer(net, dense=pawl.SGD(0.5))
                batches = []

                def prefetch(batch):
                    # Not for the second step, whose pull is that of optimizer.step().
                    batches.append(batch)
                    return {rows: batch[0]} if len(batches) > 2 else {}

                data = pawl.data.Arrays(torch.arange(12), batch_size=4)
                for (keys,) in job.steps(data, prefetch=prefetch):
                    if job.rank == 1 and job.step < 2:
                        # Rank 0 waits for the parameters of its next step.
                        self.assertFalse(optimizer._dense._coming.pull.done(CALL_TIMEOUT_S + 2))
                    optimizer.zero_grad()
                    net(keys).sum().backward()
                    optimizer.step()
        self.assertEqual(len(batches), 4)

    def test_samples_of_an_iterable_are_those_of_its_batches(self):
        settings = {"logical_workers": 2, "partitions": 4, "consistency.mode": "ASYNC"}
        with pawl.LocalCluster(job=settings) as cluster:
            with pawl.init(cluster.scheduler) as job:
                for _ in job.steps([torch.ones(length, 2) for length in (5, 5, 7)]):
                    job.end_step([])
                self.assertEqual(int(job.status()["samples"]), 17)

    def test_job_that_is_not_joined_entirely_is_left(self):
        with pawl.LocalCluster(job={"logical_workers": 1, "partitions": 4}) as cluster:
            with mock.patch("pawl.joining._Exit", side_effect=OSError("failed")):
                with self.assertRaisesRegex(OSError, "failed"):
                    pawl.init(cluster.scheduler)
            with pawl.init(cluster.scheduler) as job:
                self.assertIs(pawl.job.current(), job)

    def test_new_parameter_of_a_started_job_is_refused_by_name(self):
        net = torch.nn.Sequential(torch.nn.Linear(1, 1))
        with pawl.LocalCluster(job={"logical_workers": 1, "partitions": 4}) as cluster:
            self.train(cluster, net, range(2))
            larger = torch.nn.Sequential(net[0], torch.nn.Linear(1, 1))
            for _ in range(2):
                words = "the job has no parameter '1.weight'"
                with self.assertRaisesRegex(pawl.FailedPreconditionError, words):
                    self.train(cluster, larger, range(2))
            self.train(cluster, net, range(2))

    def test_other_rates_of_steps_that_are_done_are_refused(self):
        net = torch.nn.Linear(1, 1)
        for was, others in ([1.0] * 9, [2.0] * 9), ([1.0, 0.5, 0.25] * 3, [1.0] * 9):
            with pawl.LocalCluster(job={"logical_workers": 1, "partitions": 4}) as cluster:
                # The loop leaves before the third step ends.
                self.train(cluster, net, range(3), was.__getitem__)
                words = r"those of step 1 were \[%s\], and are \[%s\] here" % (
                    0.5 * was[1], 0.5 * others[1]
                )
                with self.assertRaisesRegex(pawl.FailedPreconditionError, words):
                    self.train(cluster, net, range(2), others.__getitem__)
                self.train(cluster, net, range(2), (was[:3] + others[3:]).__getitem__)
                # The next step's rate is sent, since it differs from the one before.
                halving = [8.0 * 0.5**step for step in range(16)]
                self.train(cluster, net, range(2), halving.__getitem__)


class ManualTest(unittest.TestCase):
    def test_first_program_of_the_manual_trains(self):
        manual = pathlib.Path(pawl.__file__).parents[1].joinpath("README.md").read_text("utf-8")
        section = re.search(r"^## PyTorch$(.*?)^## ", manual, re.M | re.S).group(1)
        block = re.search(r"(?:^    .*\n|^\n(?=    ))+", section, re.M).group(0)
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "train.py").write_text(textwrap.dedent(block), encoding="utf-8")
            command = [sys.executable, "-m", "pawl", "run", "--servers=2", "--workers=4"]
            ended = subprocess.run(
                [*command, "train.py"],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=200,
                check=False,
            )
            self.assertEqual(ended.returncode, 0, ended.stdout)
            text = pathlib.Path(folder, "out", "train", "metrics.json").read_text("utf-8")
            self.assertEqual(json.loads(text)["samples"], 200_000)


if __name__ == "__main__":
    unittest.main()
