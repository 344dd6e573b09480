"""The C interface (client_lib/c/pawl.h) by ctypes. No other module knows it.

ctypes releases the interpreter's lock during a call. The library never calls Python.
"""

from __future__ import annotations

import ctypes
import os
import pathlib

from pawl import errors

PENDING = -1
OK = 0

KEYS_ARE_DISTINCT = 1
BFLOAT16 = 2
FLOAT16 = 4
KEEP_SLOTS = 8

_u32, _u64, _i64, _int = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64, ctypes.c_int
_size, _text, _handle = ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p
_call = ctypes.POINTER(_handle)


class Options(ctypes.Structure):
    """pawl_options."""

    _fields_ = [
        ("size", _size),
        ("scheduler", _text),
        ("tls_dir", _text),
        ("insecure", _int),
        ("is_worker", _int),
        ("follows_assignment", _int),
        ("node", _text),
        ("node_job_id", _u64),
        ("node_start_count", _u32),
        ("description", _text),
        ("connect_timeout_ms", _i64),
        ("call_timeout_ms", _i64),
        ("tune_process", _int),
        ("token", _text),
        ("token_file", _text),
        ("authorities_file", _text),
    ]


class Item(ctypes.Structure):
    """pawl_item."""

    _fields_ = [
        ("table", _u32),
        ("flags", _u32),
        ("keys", _handle),
        ("key_count", _size),
        ("values", _handle),
        ("value_count", _size),
        ("slots", _handle),
        ("slot_count", _size),
    ]


class Bags(ctypes.Structure):
    """pawl_bags."""

    _fields_ = [
        ("size", _size),
        ("places", _handle),
        ("place_count", _size),
        ("offsets", _handle),
        ("features", _size),
        ("samples", _size),
        ("row_count", _size),
        ("width", _size),
        ("stride", _size),
        ("padding_row", _i64),
        ("takes_means", _int),
    ]


# The functions: what they return, and their parameters.
_FUNCTIONS = {
    "pawl_version": (_text, ()),
    "pawl_error": (_text, ()),
    "pawl_connect": (_int, (ctypes.POINTER(Options), ctypes.POINTER(_handle), _call)),
    "pawl_disconnect": (None, (_handle,)),
    "pawl_describe": (_int, (_handle, ctypes.POINTER(_text))),
    "pawl_wait_for_end": (_int, (_handle, _i64)),
    "pawl_wait": (_int, (_handle, _i64)),
    "pawl_call_fd": (_int, (_handle,)),
    "pawl_result": (_text, (_handle,)),
    "pawl_release": (None, (_handle,)),
    "pawl_create_table": (_int, (_handle, _text, _i64, _call)),
    "pawl_open_table": (_int, (_handle, _text, _i64, _call)),
    "pawl_list_tables": (_int, (_handle, _i64, _call)),
    "pawl_free_running": (_handle, (_handle,)),
    "pawl_pull": (_int, (_handle, ctypes.POINTER(Item), _size, _i64, _i64, _call)),
    "pawl_push": (_int, (_handle, ctypes.POINTER(Item), _size, _i64, _call)),
    "pawl_assign": (_int, (_handle, ctypes.POINTER(Item), _size, _i64, _call)),
    "pawl_slot_count": (_size, (_handle, _u32)),
    "pawl_scan": (_int, (_handle, _u32, _u32, _u64, _handle, _handle, _handle, _size, _i64, _call)),
    "pawl_assignment": (_int, (_handle, _u64, _i64, _call)),
    "pawl_take_over": (_int, (_handle, _u32, _i64, _call)),
    "pawl_rank": (_handle, (_handle, _u32)),
    "pawl_step": (_u64, (_handle,)),
    "pawl_set_learning_rates": (_int, (_handle, ctypes.POINTER(_u32),
                                       ctypes.POINTER(ctypes.c_float), _size, _i64, _call)),
    "pawl_end_step": (_int, (_handle, _i64, _call)),
    "pawl_close_rank": (None, (_handle, _u32)),
    "pawl_give_up_ranks": (_int, (_handle, ctypes.POINTER(_u32), _size, _i64, _call)),
    "pawl_finish_rank": (_int, (_handle, _u32, _text, _i64, _call)),
    "pawl_report_progress": (_int, (_handle, _text)),
    "pawl_log_metric": (_int, (_handle, _text, _u64, ctypes.c_double)),
    "pawl_barrier": (_int, (_handle, _text, _u32, _u32, _i64, _call)),
    "pawl_report_evaluation": (_int, (_handle, _text, _i64, _call)),
    "pawl_status": (_int, (_handle, _i64, _call)),
    "pawl_unique_items": (_int, (_handle, ctypes.POINTER(Item), _size, _handle, _handle)),
    "pawl_pool": (_int, (ctypes.POINTER(Bags), _handle, _handle)),
    "pawl_pool_gradient": (_int, (ctypes.POINTER(Bags), _handle, _handle)),
    "pawl_hash64": (None, (_handle, _handle, _size, _u64, _handle)),
}

_PACKAGE = pathlib.Path(__file__).resolve().parent
# Where Bazel puts the library, from a checkout.
_BUILT = _PACKAGE.parents[2] / "bazel-bin"


def _library_path() -> str:
    """The environment's PAWL_LIBRARY, or the library of the package or of the checkout."""
    named = os.environ.get("PAWL_LIBRARY")
    if named:
        return named
    candidates = (_PACKAGE / "lib" / "libpawl.so", _BUILT / "client_lib" / "c" / "libpawl.so")
    for candidate in candidates:
        if candidate.exists():
            return str(candidate)
    raise ImportError(
        "libpawl.so is neither %s; install the wheel, build it (bazel build "
        "//client_lib/c:libpawl.so), or set PAWL_LIBRARY to its path"
        % " nor ".join(str(candidate) for candidate in candidates)
    )


def program(name: str) -> str:
    """The path of a program of Pawl: in PAWL_BIN_DIR, in the package, or in the checkout's build.

    Raises FileNotFoundError, which says where it has looked.
    """
    folder = {"pawl-scheduler": "scheduler", "pawl-server": "server", "pawl-worker": "worker"}
    candidates = [_PACKAGE / "bin" / name, _BUILT / folder.get(name, "deploy/pawlctl") / name]
    if os.environ.get("PAWL_BIN_DIR"):
        candidates = [pathlib.Path(os.environ["PAWL_BIN_DIR"]) / name]
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return str(candidate)
    raise FileNotFoundError(
        "%s is not a program: install the wheel, build it, or set PAWL_BIN_DIR to its folder"
        % " and ".join(str(candidate) for candidate in candidates)
    )


# RTLD_DEEPBIND: the library uses its own protobuf and gRPC even if the process has loaded others.
_library = ctypes.CDLL(_library_path(), mode=os.RTLD_LOCAL | os.RTLD_NOW | os.RTLD_DEEPBIND)
for _name, (_result, _parameters) in _FUNCTIONS.items():
    _function = getattr(_library, _name)
    _function.restype, _function.argtypes = _result, _parameters

_forked = False


def _after_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_after_fork)


def is_forked() -> bool:
    """Whether this process is a child that fork() has made of one that had loaded the library."""
    return _forked


def invoke(name: str, *arguments):
    """Calls a function that returns no code."""
    if _forked:
        raise errors.FailedPreconditionError(
            "Pawl cannot be used in a process made by fork() (a worker of a DataLoader, or of "
            "multiprocessing): pull and push in the process that has connected, or start the "
            "child with the method 'spawn'"
        )
    return getattr(_library, name)(*arguments)


def hash64(*arguments) -> None:
    """pawl_hash64. Also after fork(): it has no state."""
    _library.pawl_hash64(*arguments)


def check(code: int) -> int:
    """Raises the error that a code stands for. Returns OK or PENDING."""
    if code in (OK, PENDING):
        return code
    raise errors.error_of(code, _library.pawl_error().decode("utf-8", "replace"))
