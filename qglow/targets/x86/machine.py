"""Costs on x86-64 servers, as measured; one model serves all levels."""

from __future__ import annotations

from qglow.kernels.emit.machine import (
    DepthwiseCosts,
    LoopCosts,
    MachineModel,
    MatrixCosts,
    MovementCosts,
    ThreadCosts,
)

SERVER = MachineModel(
    near_bytes=32 * 1024,
    far_bytes_a_cycle=32.0,
    tile_cycles=12.0,
    sum_cycles=1.8,
    pack_cycles=2.5,
    most_sums=21,
    variant_share=0.03,
    row_bytes=24 * 1024,
    products_a_cycle=2.0,
    loads_a_cycle=2.0,
    chain_cycles=4.0,
    enough_chains=12,
    chain_wait=0.1,
    pair_cycles=1.4,
    division_cycles=10.0,
    line_bytes=64,
    early_bytes=4 * 1024,
    constant_bytes_a_cycle=16.0,
    moved_bytes_a_cycle=4.0,
    loops=LoopCosts(
        elementwise_vector=6.0,
        affine_vector=5.0,
        reduced_vector=4.0,
        ranked_vector=6.0,
        softmax_vector=40.0,
        normalized_vector=40.0,
        neighbour_vector=1.5,
        pooled_vector=1.5,
        counted_element=3.0,
    ),
    movement=MovementCosts(
        copied_vector=2.0,
        copied_run=4.0,
        resized_vector=4.0,
        transposed_element=2.0,
        transposed_vector=6.0,
        transposed_row=8.0,
    ),
    depthwise=DepthwiseCosts(
        group_operations=12.0,
        end_operations=24.0,
        operations_a_cycle=3.0,
        float_taps_a_cycle=2.0,
        float_end_cycles=2.0,
    ),
    # A step costs a thread about 1000 cycles of waiting. Threads spin for about 20 microseconds in a step,
    # and between jobs for about 50, which is what lies between two calls in a busy loop.
    threads=ThreadCosts(
        part_cycles=3_000.0,
        team_parts=40,
        step_spin_cycles=50_000,
        job_spin_cycles=130_000,
    ),
    matrix=MatrixCosts(multiply_cycles=16.0, output_cycles=3.5, block_cycles=60.0),
)

JOINED_COST = 0.75
"""Relative cost of one of two joined steps: three multiplications instead of four."""
FLIPPED_COST = 0.88
"""Relative cost of one of two joined steps that change signs, and of a step that is not joined."""
MASKED_COST = 1.2
"""Relative cost of a step that changes signs alone."""
LOADED_COST = 0.15
"""Cycles to load a step of one pixel for products of bytes."""
FAR_COST = 0.5
"""The same where the activations of a tile take more than half of the first-level cache."""
TURN_COST = 2.5
"""Cycles of a step of bytes that do not depend on the size of its tile."""
TABLES_FROM = 8_000_000
"""Bytes of results from which on tables were measured to cost less in an epilogue, on Zen 5."""
FEW_ROWS = 4
"""Most rows whose products wait for weights from far memory rather than for multiplications."""
FAR_WEIGHTS = 1 << 20
"""Bytes of weights from which on they come from far memory."""
NARROW_COST = 0.6
"""Time of a product of few rows by far weights of bytes relative to one by words."""
