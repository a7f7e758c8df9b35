"""Changes of GGUF files: bytes of the header, metadata, and what is told of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.mutators import raw
from tests.fuzz.mutators.raw import Random
from tests.fuzz.mutators.texts import HOSTILE
from tests.unit.gguf.writer import SIZES, Stored, drawn, gguf, llama

VALUES: tuple[Any, ...] = (
    *(0, 1, 2, 3, 7, 255, 256, 1 << 20, (1 << 31) - 1, (1 << 32) - 1),
    *(0.0, -1.0, float("nan"), float("inf"), 1e-45, 3.4e38),
    *(True, False, "", [], ["a"] * 3, np.zeros(3, np.float32), np.full(5, -1, np.int32)),
)
TOKENIZER: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": ["a", "b", "ab", "c", "abc"],
    "tokenizer.ggml.merges": ["a b", "ab c"],
    "tokenizer.ggml.scores": -np.arange(5, dtype=np.float32),
    "tokenizer.ggml.token_type": np.ones(5, np.int32),
    "tokenizer.ggml.bos_token_id": 1,
}


def mutated(rng: Random) -> bytes:
    """A file of a drawn format that is changed in one way or another."""
    kind = list(SIZES)[int(rng.integers(len(SIZES)))]
    metadata, tensors = llama(kind, tied=bool(rng.random() < 0.3), seed=int(rng.integers(4)))
    metadata |= TOKENIZER
    if rng.random() < 0.4:
        metadata["tokenizer.ggml.model"] = "llama"
    draw = rng.random()
    if draw < 0.35:
        for _ in range(int(rng.integers(1, 3))):
            metadata[_one(rng, list(metadata))] = _one(rng, [*VALUES, *HOSTILE])
    elif draw < 0.45:
        del metadata[_one(rng, list(metadata))]
    elif draw < 0.65:
        _change_tensor(rng, tensors)
    data = gguf(metadata, tensors)
    if draw < 0.65:
        return data if rng.random() < 0.9 else raw.mutated(rng, data)
    head = len(data) - sum(len(stored[2]) for stored in tensors.values())
    return raw.mutated(rng, data[:head]) + data[head:]


def _change_tensor(rng: Random, tensors: dict[str, Stored]) -> None:
    """Let one tensor have another name, format, shape or number of axes, or none."""
    name = _one(rng, list(tensors))
    kind, shape, data = tensors.pop(name)
    draw = int(rng.integers(5))
    if draw == 0:
        tensors[_one(rng, [text for text in HOSTILE if text] + ["rope_freqs.weight"])] = kind, shape, data
    elif draw == 1:
        other = _one(rng, list(SIZES))
        tensors[name] = drawn(other, shape, rng) if rng.random() < 0.5 else (other, shape, data)
    elif draw == 2:
        tensors[name] = kind, shape[::-1], data
    elif draw == 3:
        most = (1 << 64) - 1
        extents = (
            (shape[0], *shape[1:], 1) if rng.random() < 0.3 else (_one(rng, [0, 1, 1 << 40, most]), shape[-1])
        )
        tensors[name] = kind, extents, data


def _one(rng: Random, choices: list[Any]) -> Any:
    return choices[int(rng.integers(len(choices)))]
