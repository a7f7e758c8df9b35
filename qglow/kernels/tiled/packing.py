"""Packing of the constants of implicit matrix products, in the order in which micro-kernels read them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qglow.core.types import Array
from qglow.instructions.ops.linear import FullyConnected
from qglow.instructions.program import Instruction
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.tiled.blocking import divide
from qglow.kernels.tiled.geometry import Geometry
from qglow.kernels.tiles.tile import PackedTile
from qglow.numerics.requantize import needs_float_clamp, worst_accumulator


def product_constants(
    instruction: Instruction,
    filters: Array,
    geometry: Geometry,
    tile: PackedTile,
    most_vectors: int,
    target: VectorTarget,
    pack: Callable[[Array, Geometry, int], Array] | None = None,
) -> dict[str, Array]:
    """Pack filter and bias, for int8 also multipliers and addends, if any; returns arrays by operand name.

    `filters` has output channels as its first axis. `most_vectors`: vectors of channels in a block. `pack`
    packs weights instead of `pack_filters`, with the same arguments except the tile.
    """
    bias = instruction.optional("bias")
    values = np.zeros(len(filters), np.float32) if bias is None else bias.data
    assert values is not None
    rows = filters.reshape(len(filters), -1)
    weights = pack(rows, geometry, most_vectors) if pack else pack_filters(rows, geometry, tile, most_vectors)
    packed = {"filter": weights}
    if tile.is_float:
        return packed | {"bias": pack_channels(values.astype(np.float32), geometry, tile.lanes)}
    folded = fold_zero_point(rows, values, source_zero_point(instruction) + target.activation_bias)
    packed["bias"] = pack_channels(folded, geometry, tile.lanes)
    multiplier = instruction.optional("multiplier")
    if multiplier is not None and multiplier.data is not None:
        packed["multiplier"] = pack_channels(multiplier.data.astype(np.float32), geometry, tile.lanes)
    addend = instruction.optional("addend") if isinstance(instruction.operation, FullyConnected) else None
    if addend is not None and addend.data is not None:
        packed["addend"] = pack_channels(addend.data.astype(np.float32), geometry, tile.lanes)
    return packed


def source_zero_point(instruction: Instruction) -> int:
    """Zero point of an int8 `src` as in its type, without the activation bias."""
    quantization = instruction.operand("src").type.quantization
    assert quantization is not None
    return quantization.zero_point


def fold_zero_point(rows: Array, bias: Array, zero_point: int) -> Array:
    """Subtract zero_point * (sum of the row) from each int32 bias; `rows` is [channels, weights].

    sum(w * (x - zp)) is sum(w * x) - zp * sum(w), whose second term is known when weights are packed. So zero
    points, and the activation bias that is part of them, cost nothing at run time. The folded bias may wrap
    around modulo 2^32, as sums may on the way; their final value fits int32.
    """
    folded = bias.astype(np.int64) - zero_point * rows.astype(np.int64).sum(axis=1)
    return np.asarray(folded & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def pack_channels(values: Array, geometry: Geometry, lanes: int) -> Array:
    """Pad one value a channel with zeros, so that each group fills whole vectors of `lanes`."""
    groups = values.reshape(geometry.groups, geometry.filters)
    return np.pad(groups, ((0, 0), (0, -geometry.filters % lanes))).reshape(-1)


def pack_filters(rows: Array, geometry: Geometry, tile: PackedTile, most_vectors: int) -> Array:
    """Pack weights in the order group, block of vectors, step, vector, and within a vector as the tile does.

    `rows` is one row of weights a channel in ascending (kh, kw, c). In this order every tile of a block reads
    its weights as one ascending stream.
    """
    runs = geometry.runs
    parts = []
    for group in filter_steps(rows, geometry, tile):
        packed = tile.pack(group)
        for piece in divide(len(group), most_vectors):
            end = piece.start + piece.size * piece.count
            blocks = packed[piece.start : end].reshape(piece.count, piece.size, runs.total_steps, -1)
            parts.append(blocks.transpose(0, 2, 1, 3).reshape(-1))
    return np.concatenate(parts)


def filter_steps(rows: Array, geometry: Geometry, tile: PackedTile) -> Array:
    """Pad weights with zeros and reorder them to [groups, vectors, steps, lanes, elements a step]."""
    runs, lanes = geometry.runs, tile.lanes
    per_step = runs.step // (4 if tile.is_float else 1)
    stretches = rows.reshape(geometry.groups, geometry.filters, runs.rows * runs.columns, -1)
    missing = runs.steps * per_step - stretches.shape[-1]
    channels = -geometry.filters % lanes
    # The last step of a run may read activations past its end: weights of zero cancel them.
    filled = np.pad(stretches, ((0, 0), (0, channels), (0, 0), (0, missing)))
    vectors = filled.shape[1] // lanes
    steps = filled.reshape(geometry.groups, vectors, lanes, runs.total_steps, per_step)
    return steps.transpose(0, 1, 3, 2, 4)


def must_clamp_first(instruction: Instruction, filters: Array) -> bool:
    """Whether rescaled sums may exceed int32, so that rule 5 takes a clamp of floats before the rounding."""
    if not instruction.operand("dest").type.is_quantized:
        return False
    bias, multiplier = instruction.operand("bias").data, instruction.operand("multiplier").data
    assert bias is not None
    return needs_float_clamp(worst_accumulator(filters, bias, source_zero_point(instruction)), multiplier)
