"""onnxruntime as the program that others are measured against; it is imported where a model is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qglow.core.batch import as_taken
from qglow.core.errors import DataError, ModelError, UsageError
from qglow.core.model_place import IN_MEMORY
from qglow.core.types import Array, ElementType, TensorType
from qglow.host.libraries import register_libraries
from qglow.host.session import onnxruntime_silent

ELEMENTS = {
    "tensor(float)": ElementType.FLOAT,
    "tensor(double)": ElementType.DOUBLE,
    "tensor(float16)": ElementType.FLOAT16,
    "tensor(bfloat16)": ElementType.BFLOAT16,
    "tensor(int16)": ElementType.INT16,
    "tensor(uint16)": ElementType.UINT16,
    "tensor(uint32)": ElementType.UINT32,
    "tensor(uint64)": ElementType.UINT64,
    "tensor(int8)": ElementType.INT8,
    # In the models written here uint8 holds int8 plus 128.
    "tensor(uint8)": ElementType.INT8,
    "tensor(int32)": ElementType.INT32,
    "tensor(int64)": ElementType.INT64,
    "tensor(bool)": ElementType.BOOL,
}
"""Element types by onnxruntime's names."""

SIGMOID_ERROR = 1.2e-7
"""Error of onnxruntime's float Sigmoid (measured): for probabilities near 0 it is several per cent."""
_EXACT_SUMS = "session.x64quantprecision"
_BYTES = ("tensor(int8)", "tensor(uint8)")


class OnnxruntimeModel:
    """A session on the CPU with fixed input shapes.

    `model` is a file or a serialized model. `shapes` binds the inputs whose shapes are symbolic; symbols are
    bound for the optimiser too, unless `other_sizes` says that runs may have others. `optimize` False runs
    every node as the standard has it, which is slow and exact. `exact_sums` keeps onnxruntime from adding
    products of bytes in 16 bits that saturate, which it does on processors without VNNI because that is
    faster; a few of its integer operators saturate all the same. `profile` is a folder for times of its
    nodes. Raises ModelError if onnxruntime refuses the model, UsageError if a dimension stays unbound.
    """

    def __init__(
        self,
        model: Path | bytes,
        *,
        shapes: Mapping[str, Sequence[int]] | None = None,
        other_sizes: bool = False,
        threads: int = 1,
        optimize: bool = True,
        exact_sums: bool = False,
        profile: Path | None = None,
    ) -> None:
        self._where = where_of(model)
        fixed = {name: tuple(int(d) for d in shape) for name, shape in (shapes or {}).items()}
        declared = self._open(model, session_options(1, False)) if fixed else None
        symbols = {} if declared is None or other_sizes else _symbols(declared, fixed)
        self._open_axes = {} if declared is None else _open_output_axes(declared)

        def make_options() -> Any:
            options = session_options(threads, optimize, symbols)
            if profile is not None:
                options.enable_profiling, options.profile_file_prefix = True, str(profile / "nodes")
            return options

        self._session = self._exact(model, make_options) if exact_sums else self._open(model, make_options())
        self._inputs = {value.name: self._input_type(value, fixed) for value in self._session.get_inputs()}
        self._outputs = [value.name for value in self._session.get_outputs()]

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Names and types of the inputs."""
        return dict(self._inputs)

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs, in the model's order."""
        return list(self._outputs)

    @property
    def open_output_axes(self) -> dict[str, frozenset[int]]:
        """Axes of outputs whose size the data decides, by name, if the file leaves more than a batch open."""
        return dict(self._open_axes)

    @property
    def integers(self) -> dict[str, bool]:
        """Inputs and outputs of 8-bit integers by name; whether they are uint8."""
        values = [*self._session.get_inputs(), *self._session.get_outputs()]
        return {v.name: v.type == "tensor(uint8)" for v in values if v.type in _BYTES}

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once and give every output. Raises DataError for inputs that onnxruntime refuses."""
        from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

        try:
            taken = {name: as_taken(array, self._shape(name, array)) for name, array in inputs.items()}
            results = self._session.run(self._outputs, taken)
        except (Fail, InvalidArgument, RuntimeException) as error:
            reason = " ".join(str(error).split())[:300]
            raise DataError(f"onnxruntime cannot run {self._where} on these inputs: {reason}") from error
        return dict(zip(self._outputs, results, strict=True))

    def _shape(self, name: str, array: Array) -> tuple[int, ...]:
        return self._inputs[name].shape if name in self._inputs else array.shape

    def bind(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], Callable[[], None]]:
        """Output arrays, and a callable that fills them from these very inputs, which are contiguous.

        Outputs whose number of axes the file states wrong are not filled: onnxruntime only makes such arrays
        itself.
        """
        first = self(inputs)
        stated = {value.name: len(value.shape) for value in self._session.get_outputs()}
        targets = {name: np.array(array, order="C") for name, array in first.items()}
        binding = self._session.io_binding()
        for name, array in inputs.items():
            binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        wrong = [name for name, array in targets.items() if stated[name] not in (0, array.ndim)]
        for name in targets.keys() - set(wrong):
            array = targets[name]
            binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        session = self._session

        def run() -> None:
            for name in wrong:
                binding.bind_output(name, "cpu")
            session.run_with_iobinding(binding)

        run.__dict__["keep"] = (targets, dict(inputs))
        return targets, run

    def end_profile(self) -> Path:
        """onnxruntime's file with the times of all calls up to now; for a session with `profile`, once."""
        return Path(self._session.end_profiling())

    def _exact(self, model: Path | bytes, make_options: Callable[[], Any]) -> Any:
        """A session whose sums do not saturate, where onnxruntime can make one.

        Some integer operators have kernels without that only, and its rewriting of weights fails on one that
        two nodes read.
        """
        exact = make_options()
        exact.add_session_config_entry(_EXACT_SUMS, "1")
        exact.log_severity_level = 4  # what fails here is done in the other way
        try:
            return self._open(model, exact)
        except ModelError as error:
            if "NOT_IMPLEMENTED" not in str(error) and "AddInitializerWithOrtValue" not in str(error):
                raise
        return self._open(model, make_options())

    def _open(self, model: Path | bytes, options: Any) -> Any:
        return open_session(model, options, self._where)

    def _input_type(self, value: Any, shapes: Mapping[str, tuple[int, ...]]) -> TensorType:
        shape = shapes.get(value.name, tuple(value.shape))
        if any(not isinstance(size, int) for size in shape):
            raise UsageError(
                f"input '{value.name}' of {self._where} has shape {list(shape)}; give its shape to run it"
            )
        return TensorType(ELEMENTS[value.type], shape)


def where_of(model: Path | bytes) -> str:
    """Return what messages call the model."""
    return str(model) if isinstance(model, Path) else f"the {IN_MEMORY}"


def open_session(model: Path | bytes, options: Any, where: str) -> Any:
    """A session on the processor. Raises ModelError that names `where`."""
    onnxruntime = onnxruntime_silent()
    source = str(model) if isinstance(model, Path) else model
    register_libraries(options)
    try:
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common base of their own
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"onnxruntime cannot load {where}: {reason}") from error


def session_options(threads: int, optimize: bool = True, symbols: Mapping[str, int] | None = None) -> Any:
    """Options of a session whose threads do not spin on behind a run."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Threads that spin on after a run would take the time of whoever has the next turn.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.log_severity_level = 3
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for name, size in (symbols or {}).items():
        options.add_free_dimension_override_by_name(name, size)
    return options


def _symbols(session: Any, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Sizes of the symbolic dimensions, from the shapes of the inputs that have them."""
    symbols: dict[str, int] = {}
    for value in session.get_inputs():
        for declared, size in zip(value.shape, shapes.get(value.name, ()), strict=False):
            if isinstance(declared, str):
                symbols[declared] = size
    return symbols


def _open_output_axes(session: Any) -> dict[str, frozenset[int]]:
    """Axes of outputs that have no number, if inputs leave more than their batch open."""
    if all(isinstance(size, int) for value in session.get_inputs() for size in value.shape[1:]):
        return {}
    return {
        value.name: frozenset(axis for axis, size in enumerate(value.shape) if not isinstance(size, int))
        for value in session.get_outputs()
    }
