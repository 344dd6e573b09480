"""Bags of rows, summed or averaged, as a function of autograd.

Like torch.nn.functional.embedding_bag, bit for bit, but for several features per call and without
sorting in the backward pass. Only for float32 rows on the CPU and keys without weights
(is_supported); callers use torch's own function for the rest.
"""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any, Optional, Sequence

import numpy as np
import torch
from torch.nn import functional

from pawl import _abi
from pawl.items import address_of
from pawl.torch.lookup import not_compiled


@dataclasses.dataclass
class Bags:
    """The keys of features that look up in one tensor of rows: bag after bag, int64, on the CPU.

    places: the row of each key.
    offsets: where each bag begins, and the end of the last; None: each bag has one key.
    rows: the index of the tensor of rows.
    column: the output column at which the first feature's vector begins.
    """

    places: np.ndarray
    offsets: Optional[np.ndarray]
    features: int
    samples: int
    mode: str = "sum"
    padding_row: int = -1
    rows: int = 0
    column: int = 0

    def to_c(self, row_count: int, width: int, stride: int) -> _abi.Bags:
        """The C struct pawl_bags. It points into the arrays, which must outlive it."""
        return _abi.Bags(
            ctypes.sizeof(_abi.Bags),
            address_of(self.places),
            self.places.size,
            None if self.offsets is None else address_of(self.offsets),
            self.features,
            self.samples,
            row_count,
            width,
            stride,
            self.padding_row,
            self.mode == "mean",
        )


@dataclasses.dataclass
class _Plan:
    """The arguments of a pooling that are not differentiated."""

    bags: Sequence[Bags]
    samples: int
    # By tensor of rows.
    shapes: list[torch.Size]

    def output_width(self) -> int:
        """The floats in one row of the output."""
        return sum(bags.features * self.shapes[bags.rows][1] for bags in self.bags)

    def run(self, function: str, pooled: torch.Tensor, rows: Sequence[torch.Tensor]) -> None:
        """Calls a function of the C interface for all bags."""
        stride = pooled.shape[1]
        for bags in self.bags:
            row_count, width = self.shapes[bags.rows]
            _abi.check(
                _abi.invoke(
                    function,
                    ctypes.byref(bags.to_c(row_count, width, stride)),
                    *(
                        (pooled.data_ptr() + 4 * bags.column, rows[bags.rows].data_ptr())
                        if function == "pawl_pool_gradient"
                        else (rows[bags.rows].data_ptr(), pooled.data_ptr() + 4 * bags.column)
                    ),
                )
            )


class _Pool(torch.autograd.Function):
    """(plan, rows...) -> the pooled vectors, one row per sample."""

    @staticmethod
    def forward(ctx: Any, plan: _Plan, *rows: torch.Tensor) -> torch.Tensor:
        ctx.plan = plan
        # The C function writes float32 to this memory, whatever the program's defaults are.
        pooled = torch.empty(
            (plan.samples, plan.output_width()), dtype=torch.float32, device="cpu"
        )
        plan.run("pawl_pool", pooled, [one.contiguous() for one in rows])
        return pooled

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        # Differentiable itself, for gradients of gradients.
        return (None, *_PoolGradient.apply(ctx.plan, gradient))


class _PoolGradient(torch.autograd.Function):
    """(plan, gradient of the vectors) -> the gradients of the rows."""

    @staticmethod
    def forward(ctx: Any, plan: _Plan, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.plan = plan
        rows = tuple(
            torch.zeros(shape, dtype=torch.float32, device="cpu") for shape in plan.shapes
        )
        plan.run("pawl_pool_gradient", gradient.contiguous(), rows)
        return rows

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        return None, _Pool.apply(ctx.plan, *gradients)


def is_supported(rows: Sequence[torch.Tensor], weights: Optional[torch.Tensor]) -> bool:
    """Whether pool_bags takes these."""
    return weights is None and all(
        one.device.type == "cpu" and one.dtype == torch.float32 for one in rows
    )


@not_compiled
def pool_bags(bags: Sequence[Bags], rows: Sequence[torch.Tensor], samples: int) -> torch.Tensor:
    """One row per sample: the pooled vectors of all features of all bags, concatenated."""
    return _Pool.apply(_Plan(bags, samples, [one.shape for one in rows]), *rows)


def pool(
    rows: torch.Tensor,
    places: torch.Tensor,
    offsets: torch.Tensor,
    weights: Optional[torch.Tensor],
    mode: str,
) -> torch.Tensor:
    """The sum or mean of the rows at the places, from one offset to the next, by torch."""
    if weights is not None and mode == "mean":
        # torch weights sums only: each key of a bag counts by its weight over the bag's size.
        sizes = (offsets[1:] - offsets[:-1]).clamp(min=1)
        weights = weights / torch.repeat_interleave(sizes, offsets[1:] - offsets[:-1])
        mode = "sum"
    return functional.embedding_bag(
        places, rows, offsets, mode=mode, per_sample_weights=weights, include_last_offset=True
    )
