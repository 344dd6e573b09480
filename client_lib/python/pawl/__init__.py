"""Pawl: a parameter server for tables larger than one machine.

    import numpy as np, pawl

    with pawl.LocalCluster(servers=2) as cluster:
        client = cluster.client()
        table = client.table("users", dim=16, optimizer=pawl.Adagrad(0.05))
        rows = table.pull([7, 42, 7])
        table.push([7, 42], np.ones((2, 16), np.float32))

pawl.torch has embeddings and an optimizer for PyTorch.
"""

from pawl import data
from pawl._abi import invoke as _invoke
from pawl.client import Client, Status
from pawl.cluster import LocalCluster
from pawl.errors import (
    AbortedError,
    AlreadyExistsError,
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    Error,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
)
from pawl.futures import Future
from pawl.job import Job
from pawl.job_settings import JobSettings
from pawl.joining import init
from pawl.session import Session
from pawl.specs import (
    FTRL,
    SGD,
    Adagrad,
    Adam,
    AdamW,
    Clipped,
    Constant,
    Momentum,
    Normal,
    Replace,
    RMSprop,
    RowWiseAdagrad,
    TruncatedNormal,
    Uniform,
    Xavier,
    ZeroFrom,
)
from pawl.table import Table
from pawl.training import Result, train

__version__: str = _invoke("pawl_version").decode()
