"""Trains DeepFM with TorchRec: one table per field, sharded, with Adagrad fused into the backward
pass (FBGEMM's exact_adagrad).

--variant=torchrec    one process
--variant=torchrec2   two processes over Gloo; the planner distributes the tables

The linear weight of a category is column DIM of its embedding, whose width FBGEMM requires to be a
multiple of four. With two processes, each computes half of each batch."""

import os
import sys
import tempfile

import torch
import torch.distributed
import torch.multiprocessing
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

import peer_common
import peer_torch

WIDTH = peer_common.DIM + 4


def init_rows(weights: torch.Tensor) -> torch.Tensor:
    """Normal embeddings; zero linear weights and padding. A shard may be flat or empty."""
    with torch.no_grad():
        weights.normal_(0, peer_common.INIT_STDDEV)
        weights.view(-1, WIDTH)[:, peer_common.DIM :] = 0
    return weights


class DeepFm(torch.nn.Module):
    """The tables and the layers."""

    def __init__(self, field_rows: list[int]):
        super().__init__()
        self.fields = len(field_rows)
        self.tables = EmbeddingBagCollection(
            tables=[
                EmbeddingBagConfig(
                    name="table_%d" % field,
                    embedding_dim=WIDTH,
                    num_embeddings=rows,
                    feature_names=["field_%d" % field],
                    init_fn=init_rows,
                )
                for field, rows in enumerate(field_rows)
            ]
        )
        self.layers = peer_torch.make_layers(self.fields * peer_common.DIM)

    def forward(self, rows: KeyedJaggedTensor) -> torch.Tensor:
        """The logits of samples with one row of each field."""
        looked_up = self.tables(rows).values()
        return peer_torch.logits_of(looked_up.view(len(looked_up), self.fields, WIDTH), self.layers)


class Batches:
    """Makes the input of the tables from samples."""

    def __init__(self, problem: peer_common.Problem):
        self.keys = ["field_%d" % field for field in range(len(problem.field_rows))]
        self.ones = torch.ones(len(self.keys) * problem.batch_size, dtype=torch.int32)

    def make(self, rows: torch.Tensor) -> KeyedJaggedTensor:
        """The rows [samples, fields], each numbered from 0 within its field, field by field."""
        return KeyedJaggedTensor(
            keys=self.keys,
            values=rows.t().reshape(-1),
            lengths=self.ones[: rows.numel()],
            stride=len(rows),
        )


def train_process(rank: int, processes: int, meeting_file: str) -> None:
    """Trains and evaluates; the first process prints the result."""
    problem = peer_common.read_problem()
    torch.set_num_threads(max(1, problem.threads // processes))
    torch.manual_seed(peer_common.SEED)
    torch.distributed.init_process_group(
        "gloo", init_method="file://" + meeting_file, rank=rank, world_size=processes
    )
    device = torch.device("cpu")
    sharder = EmbeddingBagCollectionSharder(
        fused_params={
            "optimizer": EmbOptimType.EXACT_ADAGRAD,
            "learning_rate": problem.learning_rate,
            "eps": peer_common.ADAGRAD_EPSILON,
        }
    )
    plain = DeepFm(problem.field_rows)
    planner = EmbeddingShardingPlanner(
        topology=Topology(world_size=processes, compute_device="cpu", local_world_size=processes),
        # A table that every process holds would have no fused optimizer.
        constraints={
            "table_%d" % field: ParameterConstraints(sharding_types=["table_wise", "row_wise"])
            for field in range(len(problem.field_rows))
        },
    )
    plan = planner.collective_plan(plain, [sharder], torch.distributed.group.WORLD)
    model = DistributedModelParallel(plain, device=device, plan=plan, sharders=[sharder])
    optimizer = torch.optim.Adam(
        [value for name, value in model.named_parameters() if "layers" in name],
        lr=problem.dense_learning_rate,
        fused=True,
    )
    first_rows = torch.from_numpy(problem.first_rows)
    rows = torch.from_numpy(problem.train.rows) - first_rows
    labels = torch.from_numpy(problem.train.labels)
    batches = Batches(problem)
    generator = torch.Generator().manual_seed(peer_common.SEED)
    torch.distributed.barrier()
    begin = peer_common.now()
    for _ in range(problem.epochs):
        order = torch.randperm(len(labels), generator=generator)
        for batch in order.split(problem.batch_size):
            mine = peer_torch.share(batch, rank, processes)
            optimizer.zero_grad(set_to_none=True)
            logits = model(batches.make(rows[mine]))
            torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[mine]).backward()
            optimizer.step()
    torch.distributed.barrier()
    end = peer_common.now()
    # Every process looks up rows of the others, so all evaluate together.
    model.eval()
    test_rows = torch.from_numpy(problem.test.rows) - first_rows
    logits_of_test = torch.zeros(len(test_rows))
    with torch.no_grad():
        for part in torch.arange(len(test_rows)).split(problem.batch_size):
            mine = peer_torch.share(part, rank, processes)
            logits_of_test[mine] = model(batches.make(test_rows[mine]))
    torch.distributed.all_reduce(logits_of_test)
    if rank == 0:
        peer_common.print_result(problem, begin, end, logits_of_test.numpy())
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def main() -> int:
    """Starts the processes of the variant."""
    processes = 2 if "--variant=torchrec2" in sys.argv else 1
    with tempfile.TemporaryDirectory() as folder:
        meeting_file = os.path.join(folder, "meeting")
        if processes == 1:
            train_process(0, 1, meeting_file)
        else:
            torch.multiprocessing.spawn(
                train_process, args=(processes, meeting_file), nprocs=processes
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
