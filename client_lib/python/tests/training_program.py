"""A small model of embeddings and layers, trained as the arguments say, on Pawl or by torch alone.

Usage: training_program.py [--optimizer=NAME] [--epochs=N] [--decay] [--die_at_step=N]
                           [--slow_s=S] [--late_start] [--skip_step=N] [--keep] [--evaluate]
                           [--samples=N] [--hang_at_step=N] [--batch_after_death=N]
                           [--seed_after_death=N]
                           [--pretrained] [--frozen] [--state=FILE] [--die_after_assign]
                           [--die_after_push=N] [--scores=N]
                           [--log] [--scale=S] [--overflow_at_step=N] [--result=FILE]

With --result, writes the parameters of the end to FILE, and pawl.torch's state to FILE.state; with
--state, which begins with a state, also that of the first batch to FILE.begin.
"""

import argparse
import os
import random
import signal
import time

import numpy as np
import torch
from torch.nn import functional

import pawl
import pawl.torch as pt
from pawl.session import Session
from pawl.torch import lookup

FIELDS, ROWS, DIM, SAMPLES, BATCH = 3, 60, 4, 1000, 96
OPTIMIZERS = {
    "sgd": pawl.SGD(0.5),
    "adagrad": pawl.Adagrad(0.1),
    "rowwise_adagrad": pawl.RowWiseAdagrad(0.1),
}


class Net(torch.nn.Module):
    """Embeddings of three fields, their mean, and two layers."""

    def __init__(self, rows: torch.nn.Module):
        super().__init__()
        self.rows = rows
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(DIM, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        )

    def forward(self, keys: torch.Tensor) -> torch.Tensor:
        """The logit of each sample."""
        return self.layers(self.rows(keys)).squeeze(1)


class Average:
    """A moving average of the loss, which each rank keeps for itself."""

    def __init__(self):
        self.value = torch.zeros(())

    def add(self, loss: torch.Tensor) -> None:
        """Changes it by a tenth."""
        self.value = 0.9 * self.value + 0.1 * loss

    def state_dict(self) -> dict[str, torch.Tensor]:
        """For Job.keep."""
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """For Job.keep."""
        self.value = state["value"]


class PlainRowWiseAdagrad(torch.optim.Optimizer):
    """Adagrad with one accumulator a row: the mean of the squares of its gradient."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        """Updates rows whose gradient is not 0."""
        del closure
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state.setdefault(weight, {})
                total = state.setdefault("sum", torch.zeros(len(weight)))
                total += (weight.grad**2).mean(1)
                touched = total > 0
                rate = group["lr"] / (total[touched].sqrt() + 1e-10)
                weight[touched] -= rate.unsqueeze(1) * weight.grad[touched]


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and labels."""
    generator = np.random.default_rng(3)
    keys = generator.integers(0, ROWS, (SAMPLES, FIELDS))
    effect = generator.normal(size=ROWS)
    labels = generator.random(SAMPLES) < 1 / (1 + np.exp(-effect[keys].sum(1)))
    return torch.from_numpy(keys), torch.from_numpy(labels.astype(np.float32))


def initial_rows() -> pawl.Uniform:
    """Not 0, so that the layers' first gradients are not."""
    return pawl.Uniform(-0.5, 0.5)


def pretrained_rows() -> np.ndarray:
    """Rows from elsewhere."""
    return np.random.default_rng(4).normal(size=(ROWS, DIM)).astype(np.float32)


def decay(step: int) -> float:
    """The learning rate of a step over that of the first."""
    return 1 / (1 + step / 5)


def write(path: str, net: torch.nn.Module, rows: np.ndarray, losses: list[float]) -> None:
    """Writes all parameters and losses as a NumPy archive, at once."""
    state = {name: value.detach().numpy() for name, value in net.layers.state_dict().items()}
    new = "%s.%d" % (path, os.getpid())
    with open(new, "wb") as file:
        np.savez(file, rows=rows, losses=np.array(losses), **state)
    os.replace(new, path)


def train_plain(options: argparse.Namespace, rows: np.ndarray) -> None:
    """Trains in this process, by torch alone, from the same initial rows."""
    torch.manual_seed(5)
    bag = torch.nn.EmbeddingBag.from_pretrained(torch.from_numpy(rows), freeze=False, mode="mean")
    net = Net(bag)
    sparse = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.5),
        "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
        "rowwise_adagrad": lambda p: PlainRowWiseAdagrad(p, lr=0.1),
    }[options.optimizer](bag.parameters())
    dense = torch.optim.Adam(net.layers.parameters(), lr=0.01)
    schedulers = []
    if options.decay:
        schedulers = [torch.optim.lr_scheduler.LambdaLR(o, decay) for o in (sparse, dense)]
    keys, labels = samples()
    sampler = pawl.data.Sampler(SAMPLES, BATCH, seed=1, epochs=options.epochs)
    losses = []
    for step in range(sampler.step_count()):
        places = sampler.positions(step, 0, 1)
        net.zero_grad()
        loss = functional.binary_cross_entropy_with_logits(net(keys[places]), labels[places])
        loss.backward()
        sparse.step()
        dense.step()
        for scheduler in schedulers:
            scheduler.step()
        losses.append(loss.item())
    write(options.result, net, bag.weight.detach().numpy(), losses)


def train(options: argparse.Namespace) -> None:
    """Trains as a worker of the job."""
    seed = os.getpid() if options.late_start else 5
    for seed_generator in (torch.manual_seed, np.random.seed, random.seed):
        seed_generator(seed)
    with pawl.init() as job:
        train_in(job, options)


def train_in(job: pawl.Job, options: argparse.Namespace) -> None:
    """Trains the job's ranks that this process gets."""
    settings = {
        "mode": "mean", "optimizer": OPTIMIZERS[options.optimizer], "init": initial_rows()
    }
    if options.pretrained:
        net = Net(pt.EmbeddingBag.from_pretrained("rows", pretrained_rows(), **settings))
    else:
        net = Net(pt.EmbeddingBag("rows", DIM, **settings))
    if options.frozen:
        net.layers.requires_grad_(False)
    if options.state:
        pt.load_state_dict(net, torch.load(options.state))
    dense = pawl.SGD(1e-30) if options.late_start else pawl.Adam(0.01)
    optimizer = pt.Optimizer(net, dense=None if options.frozen else dense)
    if options.late_start:
        # Only rank 0 assigns: the others have a second to begin too early.
        assign = optimizer._dense.assign
        optimizer._dense.assign = lambda *given: (time.sleep(1), assign(*given))
    if options.die_after_assign and not os.path.exists(options.result + ".died"):
        assigns = optimizer._dense.assign

        def assign_and_die(*given):
            assigns(*given)
            with open(options.result + ".died", "w", encoding="ascii"):
                os.kill(os.getpid(), signal.SIGKILL)

        optimizer._dense.assign = assign_and_die
    if options.die_after_push >= 0 and not os.path.exists(options.result + ".died"):
        push = Session.push

        def push_and_die(session, items):
            pushing = push(session, items)
            # The job's first step sets the parameters.
            if session.step == options.die_after_push + 1:
                pushing.wait()
                with open(options.result + ".died", "w", encoding="ascii"):
                    os.kill(os.getpid(), signal.SIGKILL)
            return pushing

        Session.push = push_and_die
    batch = options.batch_after_death if os.path.exists(options.result + ".died") else BATCH
    fetches = []
    begin_fetch = lookup.Fetch.__init__
    lookup.Fetch.__init__ = lambda *arguments: fetches.append(1) or begin_fetch(*arguments)
    parts = (part[: options.samples] for part in samples())
    seed = options.seed_after_death if os.path.exists(options.result + ".died") else 1
    data = pawl.data.Arrays(*parts, batch_size=batch, seed=seed, epochs=options.epochs)
    if options.plain_list:
        data = list(zip(*(part.split(BATCH) for part in samples())))
        if options.unequal:
            try:
                with open(options.result + ".short", "x", encoding="ascii"):
                    data = data[:2]
            except FileExistsError:
                pass
    average = Average()
    if options.keep:
        job.keep(average=average, random=pt.RandomState())
    if options.scale:
        scaler = torch.amp.GradScaler("cpu", init_scale=options.scale, growth_interval=3)
        job.keep(scaler=scaler)
    schedulers = [torch.optim.lr_scheduler.LambdaLR(optimizer, decay)] if options.decay else []
    losses = []
    for keys, labels in job.steps(
        data, prefetch=lambda batch: {net.rows: batch[0]}, schedulers=schedulers
    ):
        if options.die_at_step == job.step and not os.path.exists(options.result + ".died"):
            with open(options.result + ".died", "w", encoding="ascii"):
                os.kill(os.getpid(), signal.SIGKILL)
        if options.hang_at_step == job.step and not os.path.exists(options.result + ".hung"):
            with open(options.result + ".hung", "w", encoding="ascii"):
                print("hangs in rank", job.rank, flush=True)
                time.sleep(10000)
        time.sleep(options.slow_s)
        if options.late_start:
            print("begins with", float(sum(p.detach().sum() for p in net.parameters())), flush=True)
        if options.evaluate and job.step % 5 == 0:
            # On the samples of training: all ranks together have each once.
            part = job.part_of(SAMPLES)
            net.eval()
            with torch.no_grad():
                everything = [values[part] for values in samples()]
                evaluated = job.evaluate(net(everything[0]), everything[1])
            net.train()
        if options.scores and job.step == 3:
            print("rank", job.rank, "evaluates", flush=True)
            while job.rank == 1 and not os.path.exists(options.result + ".go"):
                time.sleep(0.02)
            evaluated = job.evaluate(np.arange(options.scores), np.ones(options.scores))
        if options.state and job.step == 0 and job.rank == 0:
            # No push of this step is applied before all ranks have ended it.
            torch.save(pt.state_dict(net, tables=True, slots=True), options.result + ".begin")
        if options.skip_step == job.step:
            functional.binary_cross_entropy_with_logits(net(keys), labels).backward()
            continue
        optimizer.zero_grad()
        logits = net(keys)
        if options.keep:
            logits = functional.dropout(logits, 0.2) + average.value
        loss = functional.binary_cross_entropy_with_logits(logits, labels)
        if options.scale:
            is_too_large = options.overflow_at_step == job.step and job.rank == 1
            scaler.scale(loss * float("inf") if is_too_large else loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        if options.log and job.rank == 0:
            job.log({"own/loss": loss, "own/square": job.step**2})
        average.add(loss.detach())
        losses.append(loss.item())
        print("rank", job.rank, "ended step", job.step, "loss", losses[-1], flush=True)
    print("fetches", len(fetches), "steps", len(losses), flush=True)
    if options.log:
        job.log("own/steps", len(losses), step=0)
    if options.evaluate or options.scores:
        print("the last evaluation is", evaluated.wait(), flush=True)
    if options.result:
        # The parameters after the last step, as the servers have them.
        rows = net.rows.handles[0].table(job.client).pull(np.arange(ROWS))
        net.load_state_dict(pt.state_dict(net))
        write(options.result, net, rows, losses)
        torch.save(pt.state_dict(net, tables=True, slots=True), options.result + ".state")


def main() -> None:
    """Parses the arguments."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--optimizer", choices=list(OPTIMIZERS), default="adagrad")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--decay", action="store_true")
    parser.add_argument("--die_at_step", type=int, default=-1)
    parser.add_argument("--hang_at_step", type=int, default=-1)
    parser.add_argument("--late_start", action="store_true")
    parser.add_argument("--skip_step", type=int, default=-1)
    parser.add_argument("--slow_s", type=float, default=0.0)
    parser.add_argument("--batch_after_death", type=int, default=BATCH)
    parser.add_argument("--seed_after_death", type=int, default=1)
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--log", action="store_true")
    parser.add_argument("--scores", type=int, default=0)
    parser.add_argument("--scale", type=float, default=0.0)
    parser.add_argument("--overflow_at_step", type=int, default=-1)
    parser.add_argument("--result", default="")
    parser.add_argument("--pretrained", action="store_true")
    parser.add_argument("--frozen", action="store_true")
    parser.add_argument("--state", default="")
    parser.add_argument("--die_after_assign", action="store_true")
    parser.add_argument("--die_after_push", type=int, default=-1)
    parser.add_argument("--plain_list", action="store_true")
    # The first process that starts has a list of two batches.
    parser.add_argument("--unequal", action="store_true")
    torch.set_num_threads(1)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
