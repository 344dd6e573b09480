"""Trains DeepFM with PyTorch on Pawl's servers (pawl.torch), as a worker that pawlctl run starts.

One table per field, as for TorchRec. The linear weight of a category is the last column of its row.
Each worker reads all samples and computes its rank's share of every batch."""

import sys

import torch

import pawl
import pawl.torch as pt
import peer_common
import peer_torch

WIDTH = peer_common.DIM + 1


class DeepFm(torch.nn.Module):
    """The tables and the layers."""

    def __init__(self, fields: int, learning_rate: float):
        super().__init__()
        self.fields = fields
        self.tables = pt.EmbeddingBagCollection(
            [
                pt.EmbeddingBagConfig("table_%d" % field, WIDTH, ["field_%d" % field])
                for field in range(fields)
            ],
            optimizer=pawl.Adagrad(learning_rate, eps=peer_common.ADAGRAD_EPSILON),
            init=pawl.ZeroFrom(pawl.Normal(0, peer_common.INIT_STDDEV), peer_common.DIM),
        )
        self.layers = peer_torch.make_layers(fields * peer_common.DIM)

    def forward(self, features: pt.KeyedJaggedTensor) -> torch.Tensor:
        """The logits of samples with one row of each field."""
        looked_up = self.tables(features).values()
        return peer_torch.logits_of(looked_up.view(len(looked_up), self.fields, WIDTH), self.layers)


def main() -> int:
    """Trains; the process with rank 0 evaluates and prints the result."""
    problem = peer_common.read_problem()
    fields = len(problem.field_rows)
    keys = ["field_%d" % field for field in range(fields)]

    def features_of(rows: torch.Tensor) -> pt.KeyedJaggedTensor:
        lengths = torch.ones(rows.numel(), dtype=torch.int64)
        return pt.KeyedJaggedTensor(keys, rows.t().reshape(-1), lengths)

    torch.set_num_threads(1)
    torch.manual_seed(peer_common.SEED)
    job = pawl.init()
    model = DeepFm(fields, problem.learning_rate)
    optimizer = pt.Optimizer(model, dense=pawl.Adam(problem.dense_learning_rate))
    data = pawl.data.Arrays(
        torch.from_numpy(problem.train.rows),
        torch.from_numpy(problem.train.labels),
        batch_size=problem.batch_size,
        seed=peer_common.SEED,
        epochs=problem.epochs,
        collate=lambda rows, labels: (features_of(rows), labels),
    )
    begin, has_rank_0 = 0.0, False
    for features, labels in job.steps(data, prefetch=lambda batch: {model.tables: batch[0]}):
        begin = begin or peer_common.now()
        has_rank_0 = has_rank_0 or job.rank == 0
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(features), labels)
        loss.backward()
        optimizer.step()
    end = peer_common.now()
    if has_rank_0:
        model.load_state_dict(pt.state_dict(model))
        model.eval()
        test = torch.from_numpy(problem.test.rows)
        with torch.no_grad():
            parts = [model(features_of(part)) for part in test.split(problem.batch_size)]
        peer_common.print_result(problem, begin, end, torch.cat(parts).numpy())
    return 0


if __name__ == "__main__":
    sys.exit(main())
