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
from pawl.torch.export import Exported, export, load_export
from pawl.torch.optimizer import Optimizer, SparseOptimizer
from pawl.torch.random_state import RandomState
from pawl.torch.state import load_state_dict, state_dict
