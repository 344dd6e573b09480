"""Optimizers, initial values and tables: thin forms of the messages in proto/types.proto."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Optional

from pawl import errors


class _Message:
    """A dataclass whose fields are those of a message of the same kind."""

    _kind: ClassVar[str]

    def _fields(self) -> dict[str, Any]:
        return {
            field.metadata.get("name", field.name): getattr(self, field.name)
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if getattr(self, field.name) is not None
        }


@dataclasses.dataclass(frozen=True)
class Initializer(_Message):
    """The values of rows and blocks before their first update."""

    def to_json(self) -> dict[str, Any]:
        """pawl.Initializer."""
        return {self._kind: self._fields()}


@dataclasses.dataclass(frozen=True)
class Constant(Initializer):
    """Every element is `value`."""

    _kind = "constant"
    value: float = 0.0


@dataclasses.dataclass(frozen=True)
class Uniform(Initializer):
    """Uniform in [low, high)."""

    _kind = "uniform"
    low: float = -0.05
    high: float = 0.05


@dataclasses.dataclass(frozen=True)
class Normal(Initializer):
    """Normal with this mean and standard deviation."""

    _kind = "normal"
    mean: float = 0.0
    stddev: float = 0.01


@dataclasses.dataclass(frozen=True)
class TruncatedNormal(Initializer):
    """Normal, restricted to mean +- 2 stddev."""

    _kind = "truncated_normal"
    mean: float = 0.0
    stddev: float = 0.01


@dataclasses.dataclass(frozen=True)
class Xavier(Initializer):
    """Uniform in +- gain * sqrt(6 / (fan_in + fan_out)); a row of width n has fans 1 and n."""

    _kind = "xavier"
    gain: float = 1.0


@dataclasses.dataclass(frozen=True)
class ZeroFrom(Initializer):
    """The values of `init`, but 0 from a column of the row on: one above 0.

    Raises InvalidArgumentError for another column, and if `init` is a ZeroFrom.
    """

    init: Initializer
    column: int

    def __post_init__(self) -> None:
        if self.column < 1 or isinstance(self.init, ZeroFrom):
            raise errors.InvalidArgumentError(
                "%r: the column must be above 0 (Constant(0.0) is 0 everywhere), and given once"
                % (self,)
            )

    def to_json(self) -> dict[str, Any]:
        return {**self.init.to_json(), "zero_from": self.column}


def _rate() -> Any:
    return dataclasses.field(default=0.01, metadata={"name": "learning_rate"})


@dataclasses.dataclass(frozen=True)
class Optimizer(_Message):
    """How servers change a table by gradients; defaults are PyTorch's where it has the optimizer.

    Args:
      lr: the learning rate.
    """

    lr: float = _rate()

    def to_json(self) -> dict[str, Any]:
        """pawl.Optimizer."""
        return {self._kind: self._fields()}


@dataclasses.dataclass(frozen=True)
class SGD(Optimizer):
    """w -= lr * g"""

    _kind = "sgd"
    lr: float = _rate()


@dataclasses.dataclass(frozen=True)
class Momentum(Optimizer):
    """v = momentum * v + g; w -= lr * v (or with Nesterov's look-ahead)."""

    _kind = "momentum"
    lr: float = _rate()
    momentum: float = 0.9
    nesterov: bool = False


@dataclasses.dataclass(frozen=True)
class Adagrad(Optimizer):
    """a += g * g; w -= lr * g / (sqrt(a) + eps). torch.optim.Adagrad's defaults."""

    _kind = "adagrad"
    lr: float = _rate()
    initial_accumulator: float = 0.0
    eps: float = dataclasses.field(default=1e-10, metadata={"name": "epsilon"})


@dataclasses.dataclass(frozen=True)
class RowWiseAdagrad(Optimizer):
    """Adagrad with one accumulator a row: the mean of the squares of the row's gradient."""

    _kind = "rowwise_adagrad"
    lr: float = _rate()
    initial_accumulator: float = 0.0
    eps: float = dataclasses.field(default=1e-10, metadata={"name": "epsilon"})


@dataclasses.dataclass(frozen=True)
class RMSprop(Optimizer):
    """torch.optim.RMSprop without momentum."""

    _kind = "rmsprop"
    lr: float = _rate()
    alpha: float = dataclasses.field(default=0.99, metadata={"name": "rho"})
    eps: float = dataclasses.field(default=1e-8, metadata={"name": "epsilon"})


@dataclasses.dataclass(frozen=True)
class Adam(Optimizer):
    """torch.optim.Adam's defaults. A sparse row corrects its bias by its own number of updates."""

    _kind = "adam"
    lr: float = dataclasses.field(default=1e-3, metadata={"name": "learning_rate"})
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = dataclasses.field(default=1e-8, metadata={"name": "epsilon"})


@dataclasses.dataclass(frozen=True)
class AdamW(Optimizer):
    """Adam with decoupled weight decay; torch.optim.AdamW's defaults."""

    _kind = "adamw"
    lr: float = dataclasses.field(default=1e-3, metadata={"name": "learning_rate"})
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = dataclasses.field(default=1e-8, metadata={"name": "epsilon"})
    weight_decay: float = 0.01


@dataclasses.dataclass(frozen=True)
class FTRL(Optimizer):
    """FTRL-proximal."""

    _kind = "ftrl"
    lr: float = _rate()
    beta: float = 1.0
    l1: float = 0.0
    l2: float = 0.0


@dataclasses.dataclass(frozen=True)
class Replace(Optimizer):
    """A push replaces the values: for state that is stored but not trained by servers."""

    _kind = "assign"
    # None: it has no rate.
    lr: Optional[float] = dataclasses.field(  # type: ignore[assignment]
        default=None, metadata={"name": "learning_rate"}
    )


@dataclasses.dataclass(frozen=True, init=False)
class Clipped(Optimizer):
    """Another optimizer; the servers clip a step's gradient first.

    Args:
      optimizer: what is done with the clipped gradient.
      norm: the largest Euclidean norm of a row's gradient, or of a block of a dense table; 0: any.
      value: the largest absolute value of an element; 0: any.

    Raises InvalidArgumentError if `optimizer` is a Clipped that has the same limit already.
    """

    optimizer: Optimizer = SGD()
    norm: float = 0.0
    value: float = 0.0

    def __init__(self, optimizer: Optimizer, *, norm: float = 0.0, value: float = 0.0):
        fields = {"lr": optimizer.lr, "optimizer": optimizer, "norm": norm, "value": value}
        for name, field in fields.items():
            object.__setattr__(self, name, field)
        twice = sorted(set(self._limits()) & set(optimizer.to_json()))
        if twice:
            raise errors.InvalidArgumentError("%r has %s twice" % (self, ", ".join(twice)))

    def _limits(self) -> dict[str, float]:
        limits = {"clip_norm": self.norm, "clip_value": self.value}
        return {name: limit for name, limit in limits.items() if limit != 0}

    def to_json(self) -> dict[str, Any]:
        """pawl.Optimizer."""
        return {**self.optimizer.to_json(), **self._limits()}


def sparse_spec(name: str, dim: int, optimizer: Optimizer, init: Initializer) -> dict[str, Any]:
    """pawl.TableSpec of a table of rows."""
    return {
        "name": name,
        "kind": "SPARSE",
        "row_width": dim,
        "optimizer": optimizer.to_json(),
        "initializer": init.to_json(),
    }


def dense_spec(
    name: str, shape: tuple[int, ...], optimizer: Optimizer, init: Initializer
) -> dict[str, Any]:
    """pawl.TableSpec of a tensor. A scalar has the shape (1,)."""
    return {
        "name": name,
        "kind": "DENSE",
        "shape": list(shape) or [1],
        "optimizer": optimizer.to_json(),
        "initializer": init.to_json(),
    }
