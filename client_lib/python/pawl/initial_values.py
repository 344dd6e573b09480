"""The values of rows before their first update, computed without a server.

server/shard/initializer.h specifies the bits. A model that has been exported reads rows that it
does not have with these values, as the servers do.
"""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np

_MASK = 2**64 - 1
_PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
# The normal CDF at -2.
_TAIL_BELOW_MINUS_TWO = 0.022750131948179209
_LOW_HALF = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
# Coefficients of AS 241, from the highest power down.
_CENTRAL = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
     4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
     1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
     2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
     4.2313330701600911252e1, 1.0),
)
_MIDDLE = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
     1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0,
     4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
     1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018384380940e0,
     2.05319162663775882187e0, 1.0),
)
_FAR = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
     2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0,
     5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
     7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
     5.99832206555887937690e-1, 1.0),
)


def xxh64(data: bytes, seed: int) -> int:
    """XXH64 of the data."""
    one, two, three, four, five = _PRIMES

    def rotate(value: int, bits: int) -> int:
        return (value << bits | value >> (64 - bits)) & _MASK

    def mix(lane: int, word: int) -> int:
        return rotate((lane + word * two) & _MASK, 31) * one & _MASK

    def word(at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size], "little")

    at = 0
    if len(data) >= 32:
        lanes = [(seed + one + two) & _MASK, (seed + two) & _MASK, seed, (seed - one) & _MASK]
        while at + 32 <= len(data):
            lanes = [mix(lane, word(at + 8 * i, 8)) for i, lane in enumerate(lanes)]
            at += 32
        value = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18))) & _MASK
        for lane in lanes:
            value = ((value ^ mix(0, lane)) * one + four) & _MASK
    else:
        value = (seed + five) & _MASK
    value = (value + len(data)) & _MASK
    while at + 8 <= len(data):
        value = (rotate(value ^ mix(0, word(at, 8)), 27) * one + four) & _MASK
        at += 8
    if at + 4 <= len(data):
        value = (rotate(value ^ (word(at, 4) * one & _MASK), 23) * two + three) & _MASK
        at += 4
    for byte in data[at:]:
        value = rotate(value ^ (byte * five & _MASK), 11) * one & _MASK
    value = (value ^ value >> 33) * two & _MASK
    value = (value ^ value >> 29) * three & _MASK
    return value ^ value >> 32


def _words(keys: np.ndarray, width: int, stream: int) -> np.ndarray:
    """The random word of each element: Philox4x32 with 10 rounds, shape (keys, width)."""
    groups = np.arange((width + 3) // 4, dtype=np.uint64)
    shape = (keys.size, groups.size)
    counter = [
        np.broadcast_to(part, shape).copy()
        for part in (
            (keys & _LOW_HALF)[:, None],
            (keys >> _32)[:, None],
            (groups & _LOW_HALF)[None, :],
            (groups >> _32)[None, :],
        )
    ]
    key = [stream & 0xFFFFFFFF, stream >> 32]
    for _ in range(10):
        first = counter[0] * np.uint64(0xD2511F53)
        second = counter[2] * np.uint64(0xCD9E8D57)
        counter = [
            (second >> _32) ^ counter[1] ^ np.uint64(key[0]),
            second & _LOW_HALF,
            (first >> _32) ^ counter[3] ^ np.uint64(key[1]),
            first & _LOW_HALF,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(counter, axis=2).reshape(keys.size, -1)[:, :width]


def _polynomial(coefficients: tuple[float, ...], x: np.ndarray) -> np.ndarray:
    value = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def _log(x: np.ndarray) -> np.ndarray:
    """DeterministicLog of server/optimizer/math/deterministic_math.h."""
    bits = x.view(np.uint64)
    exponent = (bits >> np.uint64(52)).astype(np.int64) - 1023
    fraction = bits & np.uint64(0x000FFFFFFFFFFFFF) | np.uint64(0x3FF0000000000000)
    m = fraction.view(np.float64)
    large = m >= 1.4142135623730951
    m = np.where(large, m * 0.5, m)
    e = (exponent + large).astype(np.float64)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    series = np.zeros_like(z)
    for odd in range(23, 1, -2):
        series = series * z + 1.0 / odd
    log_m = 2.0 * s + 2.0 * s * (z * series)
    low, high = float.fromhex("0x1.473de6af278edp-34"), float.fromhex("0x1.62e42fefp-1")
    return e * high + (log_m + e * low)


def _inverse_normal(p: np.ndarray) -> np.ndarray:
    """The quantile function of the standard normal distribution: AS 241."""
    q = p - 0.5
    r = 0.180625 - q * q
    z = q * _polynomial(_CENTRAL[0], r) / _polynomial(_CENTRAL[1], r)
    tails = np.abs(q) > 0.425
    if not tails.any():
        return z
    q = q[tails]
    r = np.sqrt(-_log(np.where(q < 0.0, p[tails], 1.0 - p[tails])))
    middle = _polynomial(_MIDDLE[0], r - 1.6) / _polynomial(_MIDDLE[1], r - 1.6)
    far = _polynomial(_FAR[0], r - 5.0) / _polynomial(_FAR[1], r - 5.0)
    tail = np.where(r <= 5.0, middle, far)
    z[tails] = np.where(q < 0.0, -tail, tail)
    return z


def _uniform(words: np.ndarray, low: float, high: float) -> np.ndarray:
    u = (words >> np.uint64(8)).astype(np.float64) * 2.0**-24
    values = (low + (high - low) * u).astype(np.float32)
    below = np.nextafter(np.float32(high), np.float32(low))
    return np.where(values >= np.float32(high), below, values)


def _normal(words: np.ndarray, mean: float, stddev: float, tail: float, most: float) -> np.ndarray:
    p = tail + (1.0 - 2.0 * tail) * ((words.astype(np.float64) + 0.5) * 2.0**-32)
    z = np.clip(_inverse_normal(p), -most, most)
    return (mean + stddev * z).astype(np.float32)


def is_constant(initializer: Mapping[str, Any]) -> bool:
    """Whether all rows have the same initial values."""
    return not set(initializer) & {"uniform", "normal", "truncated_normal", "xavier"}


def initial_rows(
    initializer: Mapping[str, Any], table: str, seed: int, keys: np.ndarray, dim: int
) -> np.ndarray:
    """The rows of a sparse table as they read before their first update, float32.

    Args:
      initializer: pawl.Initializer as a dictionary.
      table: its name.
      seed: the job's.
      keys: uint64.
      dim: numbers per row.
    """

    def field(kind: str, name: str) -> float:
        # Fields are floats on the servers.
        return float(np.float32(initializer[kind].get(name, 0.0)))

    words = np.empty((0, dim))
    if not is_constant(initializer):
        words = _words(keys, dim, xxh64(table.encode(), seed))
    if "uniform" in initializer:
        rows = _uniform(words, field("uniform", "low"), field("uniform", "high"))
    elif "normal" in initializer:
        rows = _normal(words, field("normal", "mean"), field("normal", "stddev"), 0.0, 7.0)
    elif "truncated_normal" in initializer:
        mean = field("truncated_normal", "mean")
        stddev = field("truncated_normal", "stddev")
        rows = _normal(words, mean, stddev, _TAIL_BELOW_MINUS_TWO, 2.0)
    elif "xavier" in initializer:
        fan_in = field("xavier", "fan_in") or 1.0
        fan_out = field("xavier", "fan_out") or float(dim)
        gain = field("xavier", "gain") or 1.0
        limit = float(np.float32(gain * float(np.sqrt(6.0 / (fan_in + fan_out)))))
        rows = _uniform(words, -limit, limit)
    else:
        value = field("constant", "value") if "constant" in initializer else 0.0
        rows = np.full((keys.size, dim), value, np.float32)
    zero_from = int(initializer.get("zero_from", 0))
    if zero_from:
        rows[:, zero_from:] = 0
    return rows
