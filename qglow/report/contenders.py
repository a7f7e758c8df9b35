"""Programs made ready for timing: fixed arrays in and out, nothing checked and nothing copied."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from qglow.core.types import Array, TensorType
from qglow.host.tail import HostedTail
from qglow.kernels.emit.operand import physical_dtype, to_physical
from qglow.report.bench import Contender
from qglow.report.openvino_model import Precision, openvino_request
from qglow.report.oracle import OnnxruntimeModel

Inputs = Mapping[str, Array]


class Bindable(Protocol):
    """A compiled program: `Executable` is one."""

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        """Names and types of the inputs."""

    @property
    def outputs(self) -> Mapping[str, TensorType]:
        """Names and types of the outputs."""

    @property
    def threads(self) -> int:
        """Number of threads that a call may run on."""

    @property
    def activation_bias(self) -> int:
        """Bias of int8 inputs and outputs: the bytes that are bound hold `q + activation_bias`."""

    def bind(self, inputs: Inputs, outputs: Inputs) -> Contender:
        """A callable that reads and fills these arrays."""


def random_inputs(inputs: Mapping[str, TensorType], seed: int = 0) -> dict[str, Array]:
    """Standard normal inputs of these types, and integers 0 or 1, the same for the same seed.

    Integers are mostly rows of a table, such as tokens or types of tokens, or masks: 0 and 1 are in them all.
    """
    generator = np.random.default_rng(seed)

    def drawn(kind: TensorType) -> Array:
        dtype = kind.element.dtype
        if np.issubdtype(dtype, np.integer):
            return generator.integers(0, 2, kind.shape).astype(dtype)
        return np.asarray(generator.standard_normal(kind.shape, np.float32).astype(dtype))

    return {name: drawn(kind) for name, kind in inputs.items()}


def of_executable(program: Bindable, inputs: Inputs, tail: HostedTail | None = None) -> Contender:
    """A compiled qglow program, int8 or float, on inputs of its types, brought to its target's form.

    tail: nodes that run behind it, on what it takes and gives.
    """
    bias = program.activation_bias
    given = {name: to_physical(inputs[name], kind, bias) for name, kind in program.inputs.items()}
    outputs = {
        name: np.zeros(kind.shape, physical_dtype(kind, bias)) for name, kind in program.outputs.items()
    }
    run = program.bind(given, outputs)
    if tail is None:
        return run

    def run_all() -> None:
        run()
        tail.completed(given, outputs, program.threads)

    return run_all


def of_onnxruntime(model: Path | bytes, inputs: Inputs, threads: int = 1) -> Contender:
    """onnxruntime with all optimisations on a model file or a serialized model."""
    shapes = {name: array.shape for name, array in inputs.items()}
    _, run = OnnxruntimeModel(model, shapes=shapes, threads=threads).bind(inputs)
    return run


def of_openvino(
    model: Path | bytes, inputs: Inputs, threads: int = 1, precision: Precision = "f32"
) -> Contender:
    """OpenVINO, tuned for latency, floats kept in float32 or computed in bfloat16.

    Raises UsageError if OpenVINO is not installed, ModelError if it refuses the model or crashes on it.
    """
    shapes = {name: array.shape for name, array in inputs.items()}
    request = openvino_request(model, shapes, threads, precision)
    import openvino

    for name, array in inputs.items():
        request.set_tensor(name, openvino.Tensor(array, shared_memory=True))

    def run() -> None:
        request.infer()

    run.__dict__["keep"] = dict(inputs)
    return run
