"""TorchRec's DLRM, unchanged, with its tables on Pawl's servers.

    pawl run --servers=2 --workers=2 dlrm.py [--samples=N] [--epochs=N] [--cross_layers=N]

Trains on generated clicks. Kill any process while it runs: the parameters end up the same.
"""

import argparse

import numpy as np
import torch
from torchrec.datasets.utils import Batch
from torchrec.models.dlrm import DLRM, DLRM_DCN, DLRMTrain
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

import pawl
import pawl.torch as pt

CATEGORIES = ["c%d" % i for i in range(8)]


def to_batch(dense: torch.Tensor, keys: torch.Tensor, labels: torch.Tensor) -> Batch:
    """Each category has one key for each sample."""
    lengths = torch.ones(keys.numel(), dtype=torch.int32)
    features = KeyedJaggedTensor.from_lengths_sync(CATEGORIES, keys.T.reshape(-1), lengths)
    return Batch(dense, features, labels)


def clicks(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Numbers, keys and labels that a model can learn."""
    generator = np.random.default_rng(1)
    dense = generator.normal(size=(count, 13)).astype(np.float32)
    keys = generator.zipf(1.2, (count, len(CATEGORIES))) % 10_000
    logit = dense[:, 0] + np.sin(keys).sum(1)
    labels = generator.random(count) < 1 / (1 + np.exp(-logit))
    return torch.from_numpy(dense), torch.from_numpy(keys), torch.from_numpy(labels * 1)


def main() -> None:
    """Trains as one of the job's workers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--cross_layers", type=int, default=0, help="above 0: DLRM_DCN")
    options = parser.parse_args()

    torch.manual_seed(0)
    job = pawl.init()
    ebc = pt.EmbeddingBagCollection(
        tables=[pt.EmbeddingBagConfig(c, embedding_dim=16, feature_names=[c]) for c in CATEGORIES],
        optimizer=pawl.RowWiseAdagrad(lr=0.02),
    )
    if options.cross_layers > 0:
        model = DLRMTrain(DLRM_DCN(ebc, 13, [64, 16], [64, 1], options.cross_layers, 8))
    else:
        model = DLRMTrain(DLRM(ebc, 13, [64, 16], [64, 1]))
    optimizer = pt.Optimizer(model, dense=pawl.Adam(1e-3))
    data = pawl.data.Arrays(
        *clicks(options.samples), batch_size=2048, epochs=options.epochs, collate=to_batch
    )
    for batch in job.steps(data, prefetch=lambda b: {ebc: b.sparse_features}):
        optimizer.zero_grad()
        loss, _ = model(batch)
        loss.backward()
        optimizer.step()
        job.report_loss(loss.item())
        if job.rank == 0 and job.step % 20 == 0:
            print("step", job.step, "loss", round(loss.item(), 4))


if __name__ == "__main__":
    main()
