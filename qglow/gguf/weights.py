"""Weights of a GGUF file as nodes of ONNX: products and look-ups that read the file's own integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from qglow.core.errors import ModelError
from qglow.core.memory import require_more_memory
from qglow.core.types import Array, Shape
from qglow.gguf.file import GgufFile, GgufTensor
from qglow.gguf.formats import StoredBlocks
from qglow.gguf.nodes import CONTRIBUTED, NodeWriter
from qglow.numerics.blocks import pack
from qglow.numerics.half import widen

_LARGER = 10
"""Bytes of memory for each element while a tensor is taken apart."""


class DecoderWeights:
    """Tensors of a file, which become constants and nodes of a model. forms: what each one became."""

    def __init__(self, file: GgufFile, out: NodeWriter) -> None:
        self._path: Path = file.path
        self._left = dict(file.tensors)
        self._taken: dict[str, GgufTensor] = {}
        self._tables: set[str] = set()
        self._sums: dict[tuple[str, int], str] = {}
        self._out = out
        self.forms: dict[str, str] = {}

    @property
    def left(self) -> list[str]:
        """Names of tensors that nothing reads."""
        return list(self._left)

    def has(self, name: str) -> bool:
        """Whether there is such a tensor."""
        return name in self._left or name in self._taken

    def extents(self, name: str) -> Shape:
        """Extents of a tensor. Raises ModelError where there is none."""
        return self._tensor(name, None).shape

    def vector(self, name: str, size: int) -> Array:
        """A vector of floats."""
        tensor = self._tensor(name, (size,))
        self.forms[name] = f"{tensor.format.name}: float32"
        return self._floats(tensor)

    def table(self, name: str, shape: Shape, rows: str) -> str:
        """Rows of a table [count, width] for integers [batch, length], in float32."""
        tensor = self._tensor(name, shape)
        if tensor.format.blocks is None:
            return self._out.node("Gather", self._matrix(tensor, name), rows)
        found = self._blocks(tensor)
        sizes: dict[str, Any] = {"bits": found.bits, "block_size": found.block, "quantize_axis": 1}
        stored = [
            self._codes(name, found),
            rows,
            *self._parameters(name, found),
        ]
        chosen = self._out.node("GatherBlockQuantized", *stored, domain=CONTRIBUTED, gather_axis=0, **sizes)
        if found.offsets is None:
            return chosen
        own = self._out.node("Gather", self._out.constant(found.offsets, f"{name}.offsets"), rows)
        wide = self._out.node("Unsqueeze", own, self._out.integers(-1))
        apart = self._out.node("Reshape", chosen, self._out.integers(0, 0, -1, found.block))
        return self._out.node(
            "Reshape", self._out.node("Add", apart, wide), self._out.integers(0, 0, shape[1])
        )

    def product(self, name: str, shape: Shape, x: str, order: Array | None = None, result: str = "") -> str:
        """x [batch, length, K] times the transposed matrix [N, K]; order: of its rows, as the file's else."""
        tensor, out = self._tensor(name, shape), self._out
        if tensor.format.blocks is None:
            if order is None and name in self._tables:
                across = out.node("Transpose", name, perm=[1, 0])  # a table that products read too
            else:
                across = self._matrix(tensor, f"{name}.transposed", order)
            return out.node("MatMul", x, across, result=result)
        found = self._blocks(tensor)
        found = found if order is None else found.rows(order)
        bytes_of_block = found.block * found.bits // 8
        apart = out.integers(shape[0], shape[1] // found.block, bytes_of_block)
        codes = out.node("Reshape", self._codes(name, found), apart)
        sizes = {"K": shape[1], "N": shape[0], "bits": found.bits, "block_size": found.block}
        last = "" if found.offsets is not None else result
        whole = out.node(
            "MatMulNBits", x, codes, *self._parameters(name, found), result=last, domain=CONTRIBUTED, **sizes
        )
        if found.offsets is None:
            return whole
        across = out.constant(np.ascontiguousarray(found.offsets.T), f"{name}.offsets.transposed")
        return out.node("Add", whole, out.node("MatMul", self._sum(x, found.block), across), result=result)

    def _matrix(self, tensor: GgufTensor, name: str, order: Array | None = None) -> str:
        """Name of a matrix of floats, as a table has it or, under another name, transposed.

        Numbers of 16 bits stay so in the model, and are widened by a node.
        """
        half = tensor.format.half
        self.forms[tensor.name] = f"{tensor.format.name}: {'float32' if half is None else half.name.lower()}"
        matrix = self._floats(tensor) if half is None else self._halves(tensor)
        if order is not None:
            matrix = matrix[order]
        if name == tensor.name:
            self._tables.add(name)
        else:
            matrix = np.ascontiguousarray(matrix.T)
        return self._out.constant(matrix, name) if half is None else self._out.half(matrix, half, name)

    def _sum(self, x: str, block: int) -> str:
        """Sums of blocks of x, which several products share."""
        out = self._out
        if (x, block) not in self._sums:
            parts = out.node("Reshape", x, out.integers(0, 0, -1, block))
            self._sums[x, block] = out.node("ReduceSum", parts, out.integers(-1), keepdims=0)
        return self._sums[x, block]

    def _codes(self, name: str, found: StoredBlocks) -> str:
        """Codes as bytes [N, K * bits / 8]."""
        packed = found.codes if found.bits == 8 else pack(found.codes.T, found.bits).T
        return self._out.constant(np.ascontiguousarray(packed), f"{name}.codes")

    def _parameters(self, name: str, found: StoredBlocks) -> list[str]:
        """Scales, and zero points where they are not in the middle."""
        scales = self._out.constant(found.scales, f"{name}.scales")
        if found.zero_points is None:
            return [scales]
        packed = np.ascontiguousarray(pack(found.zero_points.T, found.bits).T)
        return [scales, self._out.constant(packed, f"{name}.zero_points")]

    def _blocks(self, tensor: GgufTensor) -> StoredBlocks:
        """Blocks of a matrix. Raises ModelError for parameters that are no numbers."""
        rows, width = tensor.shape
        require_more_memory(rows * width * _LARGER, f"tensor '{tensor.name}'")
        found = tensor.format.read_blocks(tensor.data, rows)
        self._check(tensor, (found.scales, found.offsets))
        whole = "" if found.offsets is None else ", and sums of inputs times an offset for each block"
        self.forms[tensor.name] = f"{tensor.format.name}: int{found.bits} in blocks of {found.block}{whole}"
        return found

    def _floats(self, tensor: GgufTensor) -> Array:
        """float32 elements of a tensor."""
        form = tensor.format
        require_more_memory(len(tensor.data) // form.size * form.block * _LARGER, f"tensor '{tensor.name}'")
        values = form.read_floats(tensor.data).reshape(tensor.shape)
        self._check(tensor, (values,))
        return values

    def _halves(self, tensor: GgufTensor) -> Array:
        """Elements of a tensor of 16 bits."""
        require_more_memory(len(tensor.data) // 2 * _LARGER, f"tensor '{tensor.name}'")
        values = tensor.format.read_halves(tensor.data).reshape(tensor.shape)
        self._check(tensor, (widen(values),))
        return values

    def _check(self, tensor: GgufTensor, parts: tuple[Array | None, ...]) -> None:
        if not all(part is None or np.all(np.isfinite(part)) for part in parts):
            raise ModelError(f"{self._path}: tensor '{tensor.name}' has numbers that are not finite")

    def _tensor(self, name: str, shape: Shape | None) -> GgufTensor:
        """A tensor of this shape; with None of any. Raises ModelError where there is none."""
        known = self._taken.get(name) or self._left.get(name)
        if known is None:
            raise ModelError(f"{self._path} has no tensor '{name}', which its decoder needs")
        if shape is not None and known.shape != shape:
            raise ModelError(
                f"{self._path}: tensor '{name}' is {list(known.shape)}, its metadata wants {list(shape)}"
            )
        self._taken[name] = known
        self._left.pop(name, None)
        return known
