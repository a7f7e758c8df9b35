"""Runners of the reports: anything that takes named arrays of fixed shapes and gives named arrays."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import numpy as np

from qglow.core.batch import batch_of, common_batch
from qglow.core.errors import UsageError
from qglow.core.types import Array, TensorType, float_type
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.numerics.quantize import as_signed, as_unsigned, dequantize_by, quantize_by
from qglow.profiling.samples import Batch


class Runner(Protocol):
    """A program or a session. `Executable` is one, `OnnxruntimeModel` another."""

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        """Names and types of the inputs; the first dimension of each is the batch."""

    def __call__(self, inputs: Mapping[str, Array], /) -> Mapping[str, Array]:
        """Run once."""


def batch_size(runner: Runner) -> int:
    """The batch that a runner takes; 1 if its inputs do not agree on one."""
    return batch_of({name: kind.shape for name, kind in runner.inputs.items()})


def run_samples(runner: Runner, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs for any number of samples, whatever the runner's batch.

    Samples go through in batches; the last one is filled up with copies of its last sample,
    whose results are dropped. Raises UsageError for an output that cannot be cut into samples.
    """
    batch = batch_size(runner)
    count = len(next(iter(inputs.values())))
    pieces: dict[str, list[Array]] = {}
    for start in range(0, count, batch):
        size = min(batch, count - start)
        part = {name: filled(array[start : start + size], batch) for name, array in inputs.items()}
        for name, result in runner(part).items():
            pieces.setdefault(name, []).append(_first(name, result, size, batch))
    return {name: _joined(parts) for name, parts in pieces.items()}


def run_batch(runner: Runner, batch: Batch) -> dict[str, Array]:
    """Outputs for samples, which lie along the first axis even where the model has no batch axis."""
    outputs = run_samples(runner, batch.inputs)
    if not batch.whole and common_batch({name: kind.shape for name, kind in runner.inputs.items()}):
        return outputs
    return {name: a if a.shape[:1] == (1,) else a[None] for name, a in outputs.items()}


def _joined(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate([np.atleast_1d(part) for part in parts])


def filled(array: Array, batch: int) -> Array:
    """Samples along the first axis, with copies of the last one up to a whole batch."""
    missing = batch - len(array)
    return array if not missing else np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])


def _first(name: str, result: Array, size: int, batch: int) -> Array:
    """The part of an output that belongs to the first `size` of `batch` samples."""
    if size == batch:
        return result
    if not result.ndim or result.shape[0] % batch:
        raise UsageError(
            f"output '{name}' of shape {list(result.shape)} has no batch axis first; "
            "compare with a number of samples that the batch divides"
        )
    return result[: result.shape[0] // batch * size]


class InterpretedGraph:
    """A graph run by the numpy interpreter: slow, and the reference for what compiled code gives."""

    def __init__(self, graph: Graph) -> None:
        self._interpreter = Interpreter(graph)
        self._inputs = {value.name: value.type for value in graph.inputs}

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Names and types of the inputs."""
        return dict(self._inputs)

    def __call__(self, inputs: Mapping[str, Array], /) -> dict[str, Array]:
        """Run once."""
        return self._interpreter.run(inputs)


class RealInterface:
    """A runner with int8 inputs or outputs, seen as one of reals: it quantizes and dequantizes.

    `inputs` and `outputs` are the types of the int8 graph; outputs without one are reals. unsigned: names of
    inputs that the runner takes as uint8, `q + 128`, as an exported model does; outputs may be such by
    themselves.
    """

    def __init__(
        self,
        runner: Runner,
        inputs: Mapping[str, TensorType],
        outputs: Mapping[str, TensorType],
        *,
        unsigned: Collection[str] = (),
    ) -> None:
        self._runner = runner
        self._inputs, self._outputs = dict(inputs), dict(outputs)
        self._unsigned = unsigned

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Names and types of the inputs, float in place of int8."""
        return real_types(self._inputs)

    def __call__(self, inputs: Mapping[str, Array], /) -> dict[str, Array]:
        """Run once, reals in and out."""
        given = {
            name: stored(array, self._inputs[name], name in self._unsigned) for name, array in inputs.items()
        }
        found = self._runner(given)
        return {name: self._real(array, self._outputs.get(name)) for name, array in found.items()}

    def _real(self, array: Array, kind: TensorType | None) -> Array:
        if kind is None or kind.quantization is None:
            return array
        signed = as_signed(array) if array.dtype == np.uint8 else array
        return dequantize_by(signed, kind.quantization)


def stored(array: Array, kind: TensorType, unsigned: bool = False) -> Array:
    """Reals as integers where the type is quantized: int8, or uint8 that hold `q + 128`."""
    if kind.quantization is None:
        return array
    integers = quantize_by(array, kind.quantization)
    return as_unsigned(integers) if unsigned else integers


def real_types(kinds: Mapping[str, TensorType]) -> dict[str, TensorType]:
    """Types of the reals that values of these types stand for."""
    return {name: float_type(*kind.shape) if kind.is_quantized else kind for name, kind in kinds.items()}
