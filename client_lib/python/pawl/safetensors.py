"""Files in the safetensors format, with NumPy alone.

    file   = length:u64 header data
    header = a JSON object, padded with spaces to a multiple of 8 bytes:
             {"__metadata__": {text: text, ...},
              NAME: {"dtype": "F32", "shape": [3, 2], "data_offsets": [begin, end]}, ...}
    data   = the tensors one after the other, without gaps, little-endian, in C order;
             data_offsets count from its begin

Tensors are written in the order of their element size, largest first, so that each is aligned. The
package `safetensors` of PyPI reads these files and writes files that this module reads.
"""

from __future__ import annotations

import json
import math
import os
from typing import Any, Mapping, Optional

import numpy as np

from pawl import errors

_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
}
_NAMES = {np.dtype(code): name for name, code in _TYPES.items()}
# The package refuses longer headers.
_MAX_HEADER_BYTES = 100_000_000
_CHUNK_BYTES = 16 << 20


def write(
    path: str,
    arrays: Mapping[str, np.ndarray],
    metadata: Optional[Mapping[str, str]] = None,
) -> None:
    """Writes a file and makes it durable."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    at = 0
    for name, array in ordered:
        if array.dtype not in _NAMES:
            raise errors.InvalidArgumentError(
                "tensor %r has the type %s, which safetensors files do not have here"
                % (name, array.dtype)
            )
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for _, array in ordered:
            flat = np.ascontiguousarray(array).reshape(-1)
            elements = max(1, _CHUNK_BYTES // array.dtype.itemsize)
            for begin in range(0, flat.size, elements):
                file.write(flat[begin : begin + elements].data)
        file.flush()
        os.fsync(file.fileno())


def read(path: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays of a file, which are mapped and read-only, and its metadata.

    Raises DataLossError, naming the file, if it is damaged.
    """

    def wrong(what: str) -> errors.DataLossError:
        return errors.DataLossError("%s: %s" % (path, what))

    size = os.path.getsize(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _MAX_HEADER_BYTES):
            raise wrong("is no safetensors file: its header has %d bytes" % length)
        try:
            header = json.loads(file.read(length))
        except ValueError as error:
            raise wrong("its header is no JSON: %s" % error) from None
    if not isinstance(header, dict):
        raise wrong("its header is no JSON object")
    metadata = header.pop("__metadata__", {})
    begin = 8 + length
    data = np.empty(0, np.uint8)
    if size > begin:
        data = np.memmap(path, np.uint8, "r", begin)
    arrays = {}
    for name, entry in header.items():
        try:
            kind, shape = entry["dtype"], tuple(int(extent) for extent in entry["shape"])
            first, end = entry["data_offsets"]
        except (KeyError, TypeError, ValueError):
            raise wrong("tensor %r has no type, shape and offsets" % name) from None
        if kind not in _TYPES:
            raise wrong("tensor %r has the unknown type %s" % (name, kind))
        dtype = np.dtype(_TYPES[kind])
        if not 0 <= first <= end <= data.size or end - first != math.prod(shape) * dtype.itemsize:
            raise wrong("tensor %r does not fit the file of %d bytes" % (name, size))
        arrays[name] = data[first:end].view(dtype).reshape(shape)
    return arrays, metadata
