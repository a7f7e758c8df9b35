"""GGUF files for tests: drawn bytes of every format, and what each weight is, one by one in float64."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qglow.core.types import Array

SIZES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22),
         "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176),
         "Q6_K": (14, 256, 210), "BF16": (30, 1, 2)}  # fmt: skip
"""Number of each format, elements of a block, and its bytes."""
HALVES = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q4_K": (0, 2),
          "Q5_K": (0, 2), "Q6_K": (208,)}  # fmt: skip
"""Places of float16 numbers in a block."""
Stored = tuple[str, tuple[int, ...], bytes]


def drawn(kind: str, shape: tuple[int, ...], random: np.random.Generator, size: float = 0.02) -> Stored:
    """A tensor of drawn bytes, whose parameters are finite and of about this size."""
    _, block, length = SIZES[kind]
    count = int(np.prod(shape))
    if kind in ("F32", "F16", "BF16"):
        values = (size * random.standard_normal(count)).astype(np.float32)
        if kind == "BF16":
            return kind, shape, (values.view(np.uint32) >> 16).astype("<u2").tobytes()
        return kind, shape, values.astype("<f4" if kind == "F32" else "<f2").tobytes()
    raw = random.integers(0, 256, (count // block, length), np.uint8)
    for place in HALVES[kind]:
        numbers = (size * random.standard_normal(len(raw))).astype("<f2")
        raw[:, place : place + 2] = numbers.view(np.uint8).reshape(-1, 2)
    return kind, shape, raw.tobytes()


def weights(stored: Stored) -> Array:
    """float32 of the exact weights of a tensor, by the loops of the format's description."""
    kind, shape, data = stored
    if kind == "F32":
        return np.frombuffer(data, "<f4").reshape(shape)
    if kind == "F16":
        return np.frombuffer(data, "<f2").astype(np.float32).reshape(shape)
    if kind == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    length = SIZES[kind][2]
    found = [w for at in range(0, len(data), length) for w in _block(kind, data[at : at + length])]
    return np.array(found, np.float64).astype(np.float32).reshape(shape)


def _block(kind: str, b: bytes) -> Iterator[float]:
    halves = [float(np.frombuffer(b[p : p + 2], "<f2")[0]) for p in HALVES[kind]]
    d, m = halves[0], halves[-1]
    if kind == "Q8_0":
        yield from (d * (q - 256 if q > 127 else q) for q in b[2:])
    elif kind in ("Q4_K", "Q5_K"):
        yield from _super(kind, b, d, m)
    elif kind == "Q6_K":
        yield from _six(b, d)
    else:
        offset = {"Q4_0": -8, "Q5_0": -16}.get(kind)
        begin = {"Q4_0": 2, "Q4_1": 4, "Q5_0": 6, "Q5_1": 8}[kind]
        fifth = int.from_bytes(b[begin - 4 : begin], "little") if kind.startswith("Q5") else 0
        for j in range(32):
            q = b[begin + j % 16] >> (4 if j >= 16 else 0) & 15 | (fifth >> j & 1) << 4
            yield d * q + m if offset is None else d * (q + offset)


def _super(kind: str, b: bytes, d: float, m: float) -> Iterator[float]:
    s, codes = b[4:16], b[16:] if kind == "Q4_K" else b[48:]
    for j in range(8):
        scale = s[j] & 63 if j < 4 else s[j + 4] & 15 | (s[j - 4] >> 6) << 4
        least = s[j + 4] & 63 if j < 4 else s[j + 4] >> 4 | (s[j] >> 6) << 4
        for i in range(32):
            q = codes[j // 2 * 32 + i] >> (4 * (j % 2)) & 15
            if kind == "Q5_K":
                q += 16 * (b[16 + i] >> j & 1)
            yield d * scale * q - m * least


def _six(b: bytes, d: float) -> Iterator[float]:
    for place in range(256):
        half, part, i = place // 128, place % 128 // 32, place % 32
        low = b[64 * half + 32 * (part % 2) + i] >> (4 * (part // 2)) & 15
        high = b[128 + 32 * half + i] >> (2 * part) & 3
        scale = b[192 + place // 16]
        yield d * (scale - 256 if scale > 127 else scale) * ((low | high << 4) - 32)


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _entry(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, np.ndarray):
        kind = {"f": 6, "i": 5}[value.dtype.kind]
        numbers = value.astype("<f4" if kind == 6 else "<i4")
        return struct.pack("<IIQ", 9, kind, len(value)) + numbers.tobytes()
    if isinstance(value, list):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    return struct.pack("<II", 4, value)


def gguf(metadata: Mapping[str, Any], tensors: Mapping[str, Stored], version: int = 3) -> bytes:
    """The bytes of a file; tensors are aligned as `general.alignment` says."""
    alignment = metadata.get("general.alignment", 32)
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(text(key) + _entry(value) for key, value in metadata.items())
    body = b""
    for name, (kind, shape, data) in tensors.items():
        body += bytes(-len(body) % alignment)
        extents = struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        head += text(name) + extents + struct.pack("<IQ", SIZES[kind][0], len(body))
        body += data
    return head + bytes(-len(head) % alignment) + body


WIDTH, INNER, WORDS, HEADS, GROUPS, LAYERS = 256, 512, 40, 4, 2, 2
DEPTH = WIDTH // HEADS


def llama(kind: str, tied: bool = False, seed: int = 5) -> tuple[dict[str, Any], dict[str, Stored]]:
    """Metadata and tensors of a small Llama whose matrices have this format."""
    random = np.random.default_rng(seed)
    metadata: dict[str, Any] = {"general.architecture": "llama", "llama.block_count": LAYERS,
        "llama.embedding_length": WIDTH, "llama.feed_forward_length": INNER,
        "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": GROUPS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "tokenizer.ggml.tokens": ["a", "b"]}  # fmt: skip
    size = {"F32": 0.05, "F16": 0.05, "BF16": 0.05, "Q8_0": 0.001}.get(
        kind, 0.01 if "K" not in kind else 3e-4
    )
    shapes = {"attn_q": (WIDTH, WIDTH), "attn_k": (GROUPS * DEPTH, WIDTH), "attn_v": (GROUPS * DEPTH, WIDTH),
              "attn_output": (WIDTH, WIDTH), "ffn_gate": (INNER, WIDTH), "ffn_up": (INNER, WIDTH),
              "ffn_down": (WIDTH, INNER)}  # fmt: skip
    tensors = {"token_embd.weight": drawn(kind, (WORDS, WIDTH), random, size)}
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            tensors[f"blk.{layer}.{name}.weight"] = drawn(kind, shape, random, size)
        for name in ("attn_norm", "ffn_norm"):
            tensors[f"blk.{layer}.{name}.weight"] = drawn("F32", (WIDTH,), random, 1.0)
    tensors["output_norm.weight"] = drawn("F32", (WIDTH,), random, 1.0)
    if not tied:
        tensors["output.weight"] = drawn(kind, (WORDS, WIDTH), random, size)
    return metadata, tensors


def qwen() -> tuple[dict[str, Any], dict[str, Stored]]:
    """The same for one with biases and norms of heads, halves that turn together, and its own angles."""
    random = np.random.default_rng(6)
    metadata, tensors = llama("Q4_0")
    metadata = {key.replace("llama.", "qwen3."): value for key, value in metadata.items()}
    metadata |= {"general.architecture": "qwen3", "qwen3.rope.freq_base": 500.0,
                 "qwen3.rope.scaling.type": "linear", "qwen3.rope.scaling.factor": 4.0}  # fmt: skip
    for layer in range(LAYERS):
        for name, count in (("q", HEADS), ("k", GROUPS), ("v", GROUPS)):
            tensors[f"blk.{layer}.attn_{name}.bias"] = drawn("F32", (count * DEPTH,), random, 0.5)
        for name in "qk":
            tensors[f"blk.{layer}.attn_{name}_norm.weight"] = drawn("F32", (DEPTH,), random, 1.0)
    tensors["rope_freqs.weight"] = "F32", (DEPTH // 2,), np.linspace(1, 8, DEPTH // 2, dtype="<f4").tobytes()
    return metadata, tensors


def logits(
    tensors: Mapping[str, Stored],
    tokens: list[int],
    base: float = 10000.0,
    slower: float = 1.0,
    near: bool = True,
) -> Array:
    """Scores of all tokens in float64. near: neighbours of a head turn together, not one of each half."""
    w = {name: weights(stored).astype(np.float64) for name, stored in tensors.items()}
    x = w["token_embd.weight"][tokens]
    angle = np.arange(len(tokens))[:, None] * base ** (-np.arange(0, DEPTH, 2) / DEPTH) / slower
    angle = angle / w.get("rope_freqs.weight", 1.0)

    def norm(v: Array, name: str) -> Array:
        return np.asarray(v / np.sqrt(np.mean(v * v, -1, keepdims=True) + np.float32(1e-5)) * w[name])

    def heads(v: Array, name: str, count: int) -> Array:
        own = name.removesuffix(".weight")
        rows = v @ w[name].T + w.get(f"{own}.bias", 0.0)
        h = rows.reshape(len(tokens), count, DEPTH).transpose(1, 0, 2)
        if f"{own}_norm.weight" in w:
            h = norm(h, f"{own}_norm.weight")
        if "attn_v" not in name:
            a, b = (h[..., ::2], h[..., 1::2]) if near else np.split(h, 2, -1)
            turned = a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)
            h = np.stack(turned, -1).reshape(h.shape) if near else np.concatenate(turned, -1)
        return np.asarray(np.repeat(h, HEADS // count, 0))

    hidden = np.triu(np.full((len(tokens), len(tokens)), -np.inf), 1)
    for layer in range(LAYERS):
        own = f"blk.{layer}."
        v = norm(x, f"{own}attn_norm.weight")
        q, k, u = (
            heads(v, f"{own}attn_{n}.weight", c) for n, c in (("q", HEADS), ("k", GROUPS), ("v", GROUPS))
        )
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(DEPTH) + hidden
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (shares / shares.sum(-1, keepdims=True)) @ u
        x = x + mixed.transpose(1, 0, 2).reshape(len(tokens), WIDTH) @ w[f"{own}attn_output.weight"].T
        v = norm(x, f"{own}ffn_norm.weight")
        gate = v @ w[f"{own}ffn_gate.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (v @ w[f"{own}ffn_up.weight"].T)) @ w[f"{own}ffn_down.weight"].T
    return np.asarray(norm(x, "output_norm.weight") @ w.get("output.weight", w["token_embd.weight"]).T)


def write(path: Path, kind: str, tied: bool = False) -> dict[str, Stored]:
    metadata, tensors = llama(kind, tied)
    path.write_bytes(gguf(metadata, tensors))
    return tensors
