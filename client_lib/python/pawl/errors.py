"""Exceptions: pawl.Error, and for each code a subclass that is also one of Python's own."""

from __future__ import annotations


class Error(Exception):
    """A call has failed. `code` is the name of the status code, such as "NOT_FOUND"."""

    code = "UNKNOWN"


class InvalidArgumentError(Error, ValueError):
    """An argument is wrong; nothing was sent, or a server refused the content."""

    code = "INVALID_ARGUMENT"


class OutOfRangeError(Error, IndexError):
    """A rank outside the job, or a key outside a dense table."""

    code = "OUT_OF_RANGE"


class NotFoundError(Error, KeyError):
    """There is no such table or rank."""

    code = "NOT_FOUND"

    # KeyError shows the repr of its argument.
    __str__ = Exception.__str__


class AlreadyExistsError(Error, ValueError):
    """A table of this name has another spec, or the rank is open."""

    code = "ALREADY_EXISTS"


class DeadlineExceededError(Error, TimeoutError):
    """Not done in time. A push may have been applied or not."""

    code = "DEADLINE_EXCEEDED"


class PermissionDeniedError(Error, PermissionError):
    """The role of this process's certificate may not do this."""

    code = "PERMISSION_DENIED"


class UnauthenticatedError(Error, PermissionError):
    """This process has no valid certificate, token or ticket."""

    code = "UNAUTHENTICATED"


class UnavailableError(Error, ConnectionError):
    """The scheduler or a server cannot be reached."""

    code = "UNAVAILABLE"


class ResourceExhaustedError(Error):
    """A limit is reached; the message names it."""

    code = "RESOURCE_EXHAUSTED"


class FailedPreconditionError(Error, RuntimeError):
    """The job has failed or was stopped, or the call does not fit the present state."""

    code = "FAILED_PRECONDITION"


class AbortedError(Error, RuntimeError):
    """Another process has taken over: this one must stop, or take the rank over again."""

    code = "ABORTED"


class CancelledError(Error, RuntimeError):
    """The client has been closed."""

    code = "CANCELLED"


class DataLossError(Error, RuntimeError):
    """The partitions contradict each other."""

    code = "DATA_LOSS"


class UnimplementedError(Error, NotImplementedError):
    """The other side does not know the call."""

    code = "UNIMPLEMENTED"


class InternalError(Error, RuntimeError):
    """A defect of Pawl."""

    code = "INTERNAL"


# By pawl_code (client_lib/c/pawl.h).
_CLASSES: dict[int, type[Error]] = {
    1: CancelledError,
    2: Error,
    3: InvalidArgumentError,
    4: DeadlineExceededError,
    5: NotFoundError,
    6: AlreadyExistsError,
    7: PermissionDeniedError,
    8: ResourceExhaustedError,
    9: FailedPreconditionError,
    10: AbortedError,
    11: OutOfRangeError,
    12: UnimplementedError,
    13: InternalError,
    14: UnavailableError,
    15: DataLossError,
    16: UnauthenticatedError,
}


def error_of(code: int, text: str) -> Error:
    """The exception for a pawl_code."""
    return _CLASSES.get(code, Error)(text)
