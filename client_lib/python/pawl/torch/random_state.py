"""Random number generators as an object for Job.keep."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


class RandomState:
    """The process's generators: torch's (also of its GPUs), NumPy's global one and Python's."""

    def state_dict(self) -> dict[str, Any]:
        """Their states."""
        state: dict[str, Any] = {
            "torch": torch.get_rng_state(),
            "numpy": np.random.get_state(),
            "python": random.getstate(),
        }
        if torch.cuda.is_initialized():
            state["cuda"] = torch.cuda.get_rng_state_all()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues where state_dict was called."""
        torch.set_rng_state(state["torch"])
        np.random.set_state(state["numpy"])
        random.setstate(state["python"])
        if "cuda" in state:
            torch.cuda.set_rng_state_all(state["cuda"])
