"""Pawl for PyTorch: embeddings and optimizers whose state is on the servers.

client_lib/python/README.md is the manual.
"""

from pawl.torch.embedding import (
    Embedding,
    EmbeddingBag,
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    EmbeddingConfig,
    JaggedTensor,
    KeyedJaggedTensor,
    KeyedTensor,
)
from pawl.torch.optimizer import Optimizer, SparseOptimizer, state_dict
from pawl.torch.random_state import RandomState
