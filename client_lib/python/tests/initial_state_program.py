"""Trains the model of training_program.py from given rows or a given state.

Usage: initial_state_program.py --result=FILE [--pretrained] [--frozen] [--state=FILE]
                                [--die_after_assign] [--epochs=N]

Writes the parameters of the end to the result, and pawl.torch's state to RESULT.state; with --state
also that of the first batch to RESULT.begin.
"""

import argparse
import os
import signal

import numpy as np
import torch
import training_program
from torch.nn import functional

import pawl
import pawl.torch as pt


def pretrained_rows() -> np.ndarray:
    """Rows from elsewhere."""
    size = (training_program.ROWS, training_program.DIM)
    return np.random.default_rng(4).normal(size=size).astype(np.float32)


def bag(pretrained: bool) -> pt.EmbeddingBag:
    """The model's table."""
    settings = {
        "mode": "mean",
        "optimizer": training_program.OPTIMIZERS["adagrad"],
        "init": training_program.initial_rows(),
    }
    if pretrained:
        return pt.EmbeddingBag.from_pretrained("rows", pretrained_rows(), **settings)
    return pt.EmbeddingBag("rows", training_program.DIM, **settings)


def train(options: argparse.Namespace) -> None:
    """Trains as a worker of the job."""
    torch.manual_seed(5)
    job = pawl.init()
    net = training_program.Net(bag(options.pretrained))
    if options.frozen:
        net.layers.requires_grad_(False)
    if options.state:
        pt.load_state_dict(net, torch.load(options.state))
    optimizer = pt.Optimizer(net, dense=None if options.frozen else pawl.Adam(0.01))
    if options.die_after_assign and not os.path.exists(options.result + ".died"):
        assigns = optimizer._dense.assign

        def assign_and_die(session):
            assigns(session)
            with open(options.result + ".died", "w", encoding="ascii"):
                os.kill(os.getpid(), signal.SIGKILL)

        optimizer._dense.assign = assign_and_die
    data = pawl.data.Arrays(
        *training_program.samples(),
        batch_size=training_program.BATCH,
        seed=1,
        epochs=options.epochs,
    )
    losses = []
    for keys, labels in job.steps(data, prefetch=lambda batch: {net.rows: batch[0]}):
        if options.state and job.step == 0 and job.rank == 0:
            # No push of this step is applied before all ranks have ended it.
            torch.save(pt.state_dict(net, tables=True, slots=True), options.result + ".begin")
        optimizer.zero_grad()
        loss = functional.binary_cross_entropy_with_logits(net(keys), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    rows = net.rows.handles[0].table(job.client).pull(np.arange(training_program.ROWS))
    net.load_state_dict(pt.state_dict(net))
    torch.save(pt.state_dict(net, tables=True, slots=True), options.result + ".state")
    training_program.write(options.result, net, rows, losses)


def main() -> None:
    """Parses the arguments."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--result", required=True)
    parser.add_argument("--pretrained", action="store_true")
    parser.add_argument("--frozen", action="store_true")
    parser.add_argument("--state", default="")
    parser.add_argument("--die_after_assign", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    torch.set_num_threads(1)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
