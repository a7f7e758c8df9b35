"""Cost parameters of a processor, from which the costs of kernels and of threads are estimated."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LoopCosts:
    """Costs of loops that keep their results in vectors, in cycles of one core.

    A vector is a register of float32, except in reductions (the partial sums of a row), in rankings (the
    elements of one loop iteration) and in pooling (the elements that the kernel loads at once).

    elementwise_vector: a chain of arithmetic, from load to store. affine_vector: an affine map in a loop
        of its own.
    reduced_vector: combining a vector with a partial result. ranked_vector: comparing a vector, once for
        every element of the result.
    softmax_vector: exponentials and the division. normalized_vector, neighbour_vector: in normalization
        over neighbouring channels, the root and the division, and each neighbour.
    pooled_vector: one tap of a pooling window. counted_element: one element that profiling counts.
    """

    elementwise_vector: float
    affine_vector: float
    reduced_vector: float
    ranked_vector: float
    softmax_vector: float
    normalized_vector: float
    neighbour_vector: float
    pooled_vector: float
    counted_element: float


@dataclass(frozen=True)
class MovementCosts:
    """Costs of moving elements, in cycles of one core; a vector is a register of bytes.

    copied_vector: a load and a store. copied_run: overhead of a contiguous run.
    resized_vector: of one tap of an interpolation, for a register of float32.
    transposed_element: to move an element alone. transposed_vector: to transpose in registers.
    transposed_row: of one row, in one register, of a square that is transposed in registers.
    """

    copied_vector: float
    copied_run: float
    resized_vector: float
    transposed_element: float
    transposed_vector: float
    transposed_row: float


@dataclass(frozen=True)
class DepthwiseCosts:
    """Costs of depthwise convolutions, for a vector of channels at one position.

    group_operations: instructions for taps that are multiplied at once, interleaving included.
    end_operations: instructions to requantize and store. operations_a_cycle: how many execute at once.
    float_taps_a_cycle: multiply-adds of float32 a cycle where they are one instruction, else half as many.
    float_end_cycles: to store float32 results.
    """

    group_operations: float
    end_operations: float
    operations_a_cycle: float
    float_taps_a_cycle: float
    float_end_cycles: float


@dataclass(frozen=True)
class ThreadCosts:
    """Costs of threads that share a program.

    part_cycles: the least estimated work of a part, in cycles of a core.
    team_parts: parts of that size that a team has to save for a program to be worth waking it.
    step_spin_cycles: how long a thread looks for the end of a step before it sleeps, job_spin_cycles: for
        the next job, both in cycles of the target's counter.
    """

    part_cycles: float
    team_parts: int
    step_spin_cycles: int
    job_spin_cycles: int


@dataclass(frozen=True)
class MatrixCosts:
    """Costs of products on a unit that multiplies whole tiles, in cycles of one core.

    multiply_cycles: one multiplication of two tiles. output_cycles: finishing one vector of one pixel,
    including its transfer through memory. block_cycles: overhead of a block of tiles computed together.
    """

    multiply_cycles: float
    output_cycles: float
    block_cycles: float


@dataclass(frozen=True)
class MachineModel:
    """Costs of products computed tile by tile, in cycles of one core, and of other kernels and threads.

    near_bytes: most bytes of a block's weights that stay in the first-level cache.
    far_bytes_a_cycle: rate at which weights of larger blocks come from the second-level cache.
    tile_cycles: overhead of a tile. sum_cycles: to start and finish one accumulator. pack_cycles: to narrow
        and store up to four vectors.
    most_sums: with more accumulators the end of a tile overlaps less with the start of the next.
    variant_share: share of the whole time that another size of tile has to save to be worth its code.
    row_bytes: most bytes of a layer's weights that stay in the first-level cache while all of them are
        applied to one row of pixels.
    products_a_cycle, loads_a_cycle: how many vectors are multiplied, and loaded, at once.
    chain_cycles: latency from one product of an accumulator to its next; no step takes less.
    enough_chains: accumulators from which on products start at the full rate, whatever else a step does.
    chain_wait: cycles that a step loses for each accumulator below that number.
    pair_cycles: of multiplying a step of one pixel and vector in pairs of 16 bits.
    division_cycles: from one division of a register of floats to the next.
    line_bytes: size of a cache line. early_bytes: least size of a block of weights that is prefetched while
        the one before it is in use.
    constant_bytes_a_cycle, moved_bytes_a_cycle: rates at which a thread reads constants, and data that
        another thread has written.
    loops, movement, depthwise, threads: costs of kernels without tiled products, and of sharing work.
    matrix: costs of a unit that multiplies tiles, None where there is none.
    """

    near_bytes: int
    far_bytes_a_cycle: float
    tile_cycles: float
    sum_cycles: float
    pack_cycles: float
    most_sums: int
    variant_share: float
    row_bytes: int
    products_a_cycle: float
    loads_a_cycle: float
    chain_cycles: float
    enough_chains: int
    chain_wait: float
    pair_cycles: float
    division_cycles: float
    line_bytes: int
    early_bytes: int
    constant_bytes_a_cycle: float
    moved_bytes_a_cycle: float
    loops: LoopCosts
    movement: MovementCosts
    depthwise: DepthwiseCosts
    threads: ThreadCosts
    matrix: MatrixCosts | None = None
