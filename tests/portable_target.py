"""A target without a processor of its own: plain LLVM vectors, activations without a bias.

It proves the seam below kernels: beside numbers it has one emitter, the float environment of glibc, whose
default LLVM does not know. LLVM makes code of it for any processor; here it runs on the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import binding, ir

from qglow.kernels.emit.builder import I8, I32, I64, PTR, Builder
from qglow.kernels.emit.machine import DepthwiseCosts, LoopCosts, MachineModel, MovementCosts, ThreadCosts
from qglow.kernels.emit.target import VectorTarget, multiply_pairs
from qglow.kernels.emit.tiles import Tile, lane_products

FENV_BYTES = 64
"""Room for glibc's fenv_t on any processor."""
FE_DFL_ENV = -1
"""The address that stands for the default environment in glibc."""


MODEL = MachineModel(
    near_bytes=16 * 1024,
    far_bytes_a_cycle=8.0,
    tile_cycles=20.0,
    sum_cycles=3.0,
    pack_cycles=6.0,
    most_sums=12,
    variant_share=0.05,
    row_bytes=8 * 1024,
    products_a_cycle=2.0,
    loads_a_cycle=2.0,
    chain_cycles=4.0,
    enough_chains=8,
    chain_wait=0.2,
    pair_cycles=6.0,
    division_cycles=10.0,
    line_bytes=32,
    early_bytes=2 * 1024,
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
"""Of a small processor that nobody measured, so that choices differ from those for x86."""


@dataclass(frozen=True)
class PortableTarget(VectorTarget):
    """Plain LLVM and the C library."""

    def enter_float_environment(self, e: Builder) -> Any:
        """Keep the caller's environment and set the default one."""
        saved = e.b.alloca(ir.ArrayType(I8, FENV_BYTES))
        saved.align = 16
        # llvmlite makes a typed pointer of it, which fits no opaque one.
        saved.type = PTR
        e.call("fegetenv", I32, [saved])
        e.call("fesetenv", I32, [e.b.inttoptr(ir.Constant(I64, FE_DFL_ENV), PTR)])
        return saved

    def leave_float_environment(self, e: Builder, saved: Any) -> None:
        """Set the caller's environment."""
        e.call("fesetenv", I32, [saved])


PORTABLE = PortableTarget(
    name="portable",
    triple=binding.get_process_triple(),
    cpu="",
    features="",
    register_bits=128,
    registers=16,
    has_fma=False,
    activation_bias=0,
    tiles=(Tile("pairs", 1, 4, 2, "s16", "s16", lane_products, multiply_pairs),),
    model=MODEL,
    loop_lanes=8,
    table_lanes=32,
)
