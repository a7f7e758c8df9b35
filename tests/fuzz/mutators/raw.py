"""Changes of bytes, whatever they mean."""

from __future__ import annotations

import numpy as np

Random = np.random.Generator

NUMBERS = (0, 1, 127, 128, 255, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF)


def pick(rng: Random, choices: object) -> object:
    """One of several things, each as likely."""
    found = list(choices)  # type: ignore[call-overload]
    return found[int(rng.integers(len(found)))]


def mutated(rng: Random, data: bytes) -> bytes:
    """Content with one to four small changes."""
    for _ in range(int(rng.integers(1, 5))):
        data = CHANGES[int(rng.integers(len(CHANGES)))](rng, data)
    return data


def _flip(rng: Random, data: bytes) -> bytes:
    if not data:
        return b"\0"
    place = int(rng.integers(len(data)))
    return data[:place] + bytes([data[place] ^ int(rng.integers(1, 256))]) + data[place + 1 :]


def _cut(rng: Random, data: bytes) -> bytes:
    return data[: int(rng.integers(len(data) + 1))]


def _remove(rng: Random, data: bytes) -> bytes:
    start = int(rng.integers(len(data) + 1))
    return data[:start] + data[start + int(rng.integers(1, 64)) :]


def _insert(rng: Random, data: bytes) -> bytes:
    start = int(rng.integers(len(data) + 1))
    return data[:start] + rng.bytes(int(rng.integers(1, 32))) + data[start:]


def _number(rng: Random, data: bytes) -> bytes:
    """A number that is at the edge of what its bytes hold, over what is there."""
    size = int(rng.choice([1, 2, 4, 8]))
    value = NUMBERS[int(rng.integers(len(NUMBERS)))] & ((1 << 8 * size) - 1)
    start = int(rng.integers(max(len(data) - size, 0) + 1))
    return (
        data[:start] + value.to_bytes(size, "little" if rng.random() < 0.5 else "big") + data[start + size :]
    )


def _repeat(rng: Random, data: bytes) -> bytes:
    start = int(rng.integers(len(data) + 1))
    part = data[start : start + int(rng.integers(1, 256))]
    return data[:start] + part * int(rng.integers(2, 6)) + data[start:]


CHANGES = (_flip, _flip, _flip, _cut, _remove, _insert, _number, _number, _repeat)
