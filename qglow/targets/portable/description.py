"""Parts of a description that any processor can share: portable products, a cost model, rounding."""

from __future__ import annotations

from dataclasses import replace

from qglow.kernels.emit.builder import I32, Builder, Value, scalar, vec
from qglow.kernels.emit.machine import DepthwiseCosts, LoopCosts, MachineModel, MovementCosts, ThreadCosts
from qglow.kernels.emit.target import multiply_pairs, multiply_words
from qglow.kernels.emit.tiles import Tile, lane_products

PAIRS = Tile("pairs", 1, 4, 2, "s16", "s16", lane_products, multiply_pairs)
"""Products of 16 bits in pairs, in plain LLVM IR."""
WORDS = Tile("words", 1, 4, 1, "s16", "s16", lane_products, multiply_words)
"""Products of 16 bits, one for each lane, in plain LLVM IR, of a vector and a number."""
ELEMENT_WORDS = replace(WORDS, by_element=True)
"""The same where the number is an element of a register."""
SHIFT = 1.5 * 2.0**23
"""Numbers up to 2^22 in magnitude, added to it, keep no bit below the units."""
SMALL = float(2**22)

EMBEDDED = MachineModel(
    near_bytes=16 * 1024,
    far_bytes_a_cycle=8.0,
    tile_cycles=20.0,
    sum_cycles=3.0,
    pack_cycles=6.0,
    most_sums=12,
    variant_share=0.05,
    row_bytes=8 * 1024,
    products_a_cycle=1.0,
    loads_a_cycle=1.0,
    chain_cycles=4.0,
    enough_chains=8,
    chain_wait=0.2,
    pair_cycles=6.0,
    division_cycles=1.0,
    line_bytes=64,
    early_bytes=4 * 1024,
    constant_bytes_a_cycle=8.0,
    moved_bytes_a_cycle=2.0,
    loops=LoopCosts(
        elementwise_vector=9.0,
        affine_vector=8.0,
        reduced_vector=6.0,
        ranked_vector=10.0,
        softmax_vector=90.0,
        normalized_vector=80.0,
        neighbour_vector=3.0,
        pooled_vector=2.5,
        counted_element=5.0,
    ),
    movement=MovementCosts(
        copied_vector=3.0,
        copied_run=6.0,
        resized_vector=7.0,
        transposed_element=3.0,
        transposed_vector=10.0,
        transposed_row=12.0,
    ),
    depthwise=DepthwiseCosts(
        group_operations=16.0,
        end_operations=32.0,
        operations_a_cycle=2.0,
        float_taps_a_cycle=1.0,
        float_end_cycles=3.0,
    ),
    threads=ThreadCosts(
        part_cycles=5_000.0,
        team_parts=30,
        step_spin_cycles=20_000,
        job_spin_cycles=60_000,
    ),
)
"""Costs by counts of instructions, of a small core that does one or two a cycle."""


MANY_REGISTERS = replace(EMBEDDED, most_sums=16)
"""Costs of a core with 32 vector registers."""
GROUPED = replace(EMBEDDED, pair_cycles=24.0)
"""Costs of vectors of 512 bits that four registers of 128 bits make up: pairs are hard to take apart."""
HELIUM = replace(
    EMBEDDED,
    most_sums=4,
    chain_cycles=1.0,
    enough_chains=1,
    tile_cycles=8.0,
    sum_cycles=6.0,
    pair_cycles=16.0,
)
"""Costs of a core whose vectors do one thing after the other."""
SCALAR = replace(
    EMBEDDED,
    most_sums=1,
    products_a_cycle=0.125,
    loads_a_cycle=0.25,
    chain_cycles=1.0,
    enough_chains=1,
    sum_cycles=60.0,
)
"""Costs of a core without vectors: a vector is four numbers in registers of their own."""


def round_by_shift(e: Builder, value: Value) -> Value:
    """Round float32 half to even to int32 by an addition that leaves no room for fractions.

    For processors whose vectors have no instruction for it. Numbers beyond 2^22 become 2^22 before: their
    sign is all that is needed. NaN becomes some integer.
    """
    kind = value.type
    for name, bound in (("<", -SMALL), (">", SMALL)):
        limit = scalar(kind, bound)
        value = e.b.select(e.b.fcmp_ordered(name, value, limit), limit, value)
    shifted = e.b.fadd(value, scalar(kind, SHIFT))
    whole = vec(I32, kind.count)
    bits = e.b.bitcast(shifted, whole)
    return e.b.sub(bits, scalar(whole, SHIFT_BITS))


def round_by_instruction(e: Builder, value: Value) -> Value:
    """Round float32 half to even to int32 where rounding keeps floats: numbers beyond int32 saturate."""
    rounded = e.intrinsic("llvm.roundeven", value)
    lanes = value.type.count
    return e.call(f"llvm.fptosi.sat.v{lanes}i32.v{lanes}f32", vec(I32, lanes), [rounded])


SHIFT_BITS = 0x4B400000
"""The bits of `SHIFT` as float32."""
