"""Trains DeepFM with PyTorch.

--variant=dense    one process, dense gradients of the table
--variant=sparse   one process, sparse gradients
--variant=ddp      two processes of DistributedDataParallel over Gloo, sparse gradients

The linear weight of a category is the last column of its embedding, so that a step looks up one
table. A process of ddp computes half of each batch."""

import os
import sys
import tempfile

import torch
import torch.distributed
import torch.multiprocessing

import peer_common

DDP_PROCESSES = 2


class DeepFm(torch.nn.Module):
    """A table of all fields' rows, a factorization machine and two hidden layers."""

    def __init__(self, rows: int, fields: int, sparse: bool):
        super().__init__()
        self.table = torch.nn.Embedding(rows, peer_common.DIM + 1, sparse=sparse)
        with torch.no_grad():
            self.table.weight.normal_(0, peer_common.INIT_STDDEV)
            self.table.weight[:, peer_common.DIM] = 0
        self.layers = make_layers(fields * peer_common.DIM)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The logits of samples whose rows are [samples, fields]."""
        return logits_of(self.table(rows), self.layers)


def make_layers(inputs: int) -> torch.nn.Sequential:
    """The fully connected layers, with Pawl's initializers."""
    layers: list[torch.nn.Module] = []
    for outputs in peer_common.HIDDEN:
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
        inputs = outputs
    layers.append(torch.nn.Linear(inputs, 1))
    for layer in layers:
        if isinstance(layer, torch.nn.Linear):
            torch.nn.init.xavier_uniform_(layer.weight)
            torch.nn.init.zeros_(layer.bias)
    return torch.nn.Sequential(*layers)


def logits_of(looked_up: torch.Tensor, layers: torch.nn.Module) -> torch.Tensor:
    """The logits for rows [samples, fields, at least DIM + 1], with the linear weight at DIM."""
    vectors = looked_up[:, :, : peer_common.DIM]
    linear = looked_up[:, :, peer_common.DIM].sum(1)
    total = vectors.sum(1)
    products = 0.5 * ((total * total).sum(1) - (vectors * vectors).sum((1, 2)))
    return linear + products + layers(vectors.reshape(len(vectors), -1)).squeeze(1)


def share(indices: torch.Tensor, rank: int, processes: int) -> torch.Tensor:
    """The part of a batch that a process computes."""
    return indices.tensor_split(processes)[rank]


def train_process(rank: int, processes: int, meeting_file: str) -> None:
    """Trains and evaluates; the first process prints the result."""
    problem = peer_common.read_problem()
    torch.set_num_threads(max(1, problem.threads // processes))
    torch.manual_seed(peer_common.SEED)
    sparse = problem.variant != "dense"
    plain = DeepFm(problem.rows, len(problem.field_rows), sparse)
    model: torch.nn.Module = plain
    if processes > 1:
        torch.distributed.init_process_group(
            "gloo", init_method="file://" + meeting_file, rank=rank, world_size=processes
        )
        model = torch.nn.parallel.DistributedDataParallel(plain)
    optimizers = [
        torch.optim.Adagrad(
            [plain.table.weight],
            lr=problem.learning_rate,
            eps=peer_common.ADAGRAD_EPSILON,
            fused=not sparse or None,
        ),
        torch.optim.Adam(plain.layers.parameters(), lr=problem.dense_learning_rate, fused=True),
    ]
    rows = torch.from_numpy(problem.train.rows)
    labels = torch.from_numpy(problem.train.labels)
    generator = torch.Generator().manual_seed(peer_common.SEED)
    if processes > 1:
        torch.distributed.barrier()
    begin = peer_common.now()
    for _ in range(problem.epochs):
        order = torch.randperm(len(labels), generator=generator)
        for batch in order.split(problem.batch_size):
            mine = share(batch, rank, processes)
            for optimizer in optimizers:
                optimizer.zero_grad(set_to_none=True)
            logits = model(rows[mine])
            torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[mine]).backward()
            for optimizer in optimizers:
                optimizer.step()
    if processes > 1:
        torch.distributed.barrier()
    end = peer_common.now()
    if rank == 0:
        plain.eval()
        with torch.no_grad():
            parts = [
                plain(part)
                for part in torch.from_numpy(problem.test.rows).split(problem.batch_size)
            ]
        peer_common.print_result(problem, begin, end, torch.cat(parts).numpy())
    if processes > 1:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def main() -> int:
    """Starts the processes of the variant."""
    if "--variant=ddp" not in sys.argv:
        train_process(0, 1, "")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(
            train_process,
            args=(DDP_PROCESSES, os.path.join(folder, "meeting")),
            nprocs=DDP_PROCESSES,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
