"""Products of two int8 activations: constants, scratch memory and blocking for `packed_product`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from qglow.core.types import Array, Quantization
from qglow.instructions.operation import Operation
from qglow.instructions.ops.linear import MatMul
from qglow.instructions.program import Instruction
from qglow.kernels.emit.kernel import Kernel, Site, candidates_for, kernel
from qglow.kernels.emit.operand import Memory, dense_strides
from qglow.kernels.emit.sweep import nested_widths, outer_loops
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.products.matmul import is_stack, matrix_steps
from qglow.kernels.products.packed_product import STEP, Blocks, PackedProduct, block_bytes, is_centred
from qglow.kernels.tiles.output import OutputStage
from qglow.kernels.tiles.tile import select_tile
from qglow.numerics.linear import worst_product
from qglow.numerics.requantize import multiplier, needs_float_clamp


@kernel
@dataclass(frozen=True)
class PackedMatMul(Kernel):
    """int8 matrix product in tiles of `rows` x `vectors` accumulators, which packs its right operand first.

    `clamp_first`: rescaled sums may exceed int32, so they are clamped as floats before they are rounded.
    `room`: bytes of scratch memory, which depend on the ISA.
    """

    name: ClassVar[str] = "packedmatmul"
    uses_scales: ClassVar[bool] = False
    limits_live: ClassVar[bool] = True

    rows: int = 1
    vectors: int = 1
    clamp_first: bool = False
    room: int = 0

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Multiplier in all lanes, a step of zero points, and packed weights of 1 that sum up left rows.

        `ones` has the weights of a whole step, then those of the last step, which are 0 beyond K.
        """
        tile = select_tile(target, False)
        depth = instruction.operand("lhs").type.shape[-1]
        ones = np.ones((1, 2, tile.lanes, STEP), np.int8)
        ones[:, 1, :, depth % STEP :] = 0
        zero = _parameters(instruction, "lhs").zero_point + target.activation_bias
        return {
            "factor": np.full(tile.lanes, _multiplier(instruction), np.float32),
            "zero": np.full(STEP, zero % 256, np.uint8),
            "ones": tile.pack(ones).reshape(-1),
        }

    def reads_parameters(self, instruction: Instruction, target: VectorTarget) -> bool:
        """Zero points are read, so that layers that differ in nothing else share code."""
        return True

    def decided(self, operation: Operation, memories: Mapping[str, Memory]) -> tuple[object, ...]:
        """Whether the right operand has a zero point other than 0, for which left rows are summed up."""
        return (is_centred(memories["rhs"].type),)

    def scratch_bytes(self, instruction: Instruction) -> int:
        """Bytes of all packed right matrices."""
        return self.room

    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Estimated cycles of the tiles' steps; packing counts as much as one more row of tiles."""
        tile = select_tile(target, False)
        depth = instruction.operand("lhs").type.shape[-1]
        *leading, rows, columns = instruction.operand("dest").type.shape
        tiles = (-(-rows // self.rows) + 1) * -(-columns // (tile.lanes * self.vectors))
        return float(np.prod(leading)) * tiles * -(-depth // STEP) * tile.step_cycles(self.rows, self.vectors)

    def emit(self, site: Site) -> None:
        """Emit loops over the leading axes; an operand has stride 0 along axes that it is broadcast over."""
        e, dest, lhs, rhs = site.e, site["dest"], site["lhs"], site["rhs"]
        if 0 in dest.shape:
            return
        assert site.scratch is not None
        leading = dest.shape[:-2]
        product = self._product(site, not is_stack(leading))
        steps = [matrix_steps(memory, leading) for memory in (dest, lhs, rhs)]
        each = product.blocks.count * block_bytes(product.tile, product.depth, self.vectors)
        steps.append(tuple(each * stride for stride in dense_strides(leading)))
        outer = tuple(zip(leading, zip(*steps, strict=True), strict=True))
        pointers = [dest.pointer, lhs.pointer, rhs.pointer, site.scratch]
        widths = nested_widths(outer, dest.shape[-2] * dest.shape[-1])
        with outer_loops(e, pointers, outer, is_stack(leading), widths) as moved:
            product.emit(*moved)

    def _product(self, site: Site, shared: bool) -> PackedProduct:
        tile, dest, lhs, rhs = select_tile(site.target, False), site["dest"], site["lhs"], site["rhs"]
        output = OutputStage(tile.lanes, False, False, float("-inf"), float("inf"))
        if not dest.is_float:
            low, high = site.target.smallest_byte, site.target.largest_byte
            output = OutputStage(tile.lanes, False, True, low, high, dest.zero_point, self.clamp_first)
            output = replace(output, fixed_point=dest.in_fixed_point)
        return PackedProduct(
            site.e,
            tile,
            output,
            rows=dest.shape[-2],
            depth=lhs.shape[-1],
            blocks=Blocks(dest.shape[-1], tile.lanes, self.vectors),
            zero_a=lhs.zero_point,
            zero_b=0 if is_centred(rhs.type) else rhs.zero_point - rhs.bias,
            most_rows=self.rows,
            zero_step=site.constants["zero"],
            ones=site.constants["ones"],
            factor=site.constants["factor"],
            shared=shared,
        )


def _parameters(instruction: Instruction, name: str) -> Quantization:
    quantization = instruction.operand(name).type.quantization
    assert quantization is not None
    return quantization


def _multiplier(instruction: Instruction) -> float:
    """Factor of sums in float32: (s_lhs * s_rhs) / s_dest, or s_lhs * s_rhs for a float result."""
    scales = [_parameters(instruction, name).scale for name in ("lhs", "rhs")]
    if instruction.operand("dest").type.is_float:
        return float(np.float32(scales[0]) * np.float32(scales[1]))
    return float(multiplier(scales[0], scales[1], _parameters(instruction, "dest").scale))


def _clamps_first(instruction: Instruction, depth: int) -> bool:
    if instruction.operand("dest").type.is_float:
        return False
    zeros = [_parameters(instruction, name).zero_point for name in ("lhs", "rhs")]
    return needs_float_clamp(np.array(worst_product(depth, *zeros)), _multiplier(instruction))


@candidates_for(MatMul)
def packed_products(instruction: Instruction, target: VectorTarget) -> list[Kernel]:
    """Return the kernel for int8 operands, none for float.

    Rows fill the registers beside the vectors of one step. One more vector counts where the zero point of
    `rhs` is not 0, for the sums of the left rows.
    """
    if instruction.operand("lhs").type.is_float:
        return []
    tile = select_tile(target, False)
    dest, depth = instruction.operand("dest").type.shape, instruction.operand("lhs").type.shape[-1]
    vectors = max(1, min(-(-dest[-1] // tile.lanes), target.registers // 8))
    summing = 1 if _parameters(instruction, "rhs").zero_point else 0
    rows = max(1, min(dest[-2], tile.most_pixels(vectors + summing)))
    blocks = Blocks(dest[-1], tile.lanes, vectors).count
    room = int(np.prod(dest[:-2])) * blocks * block_bytes(tile, depth, vectors)
    return [PackedMatMul(rows, vectors, _clamps_first(instruction, depth), room)]
