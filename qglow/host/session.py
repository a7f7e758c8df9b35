"""Small models in onnxruntime, each the opaque nodes of a graph that belong together.

A model is text: base64 of a serialized ModelProto, so that graphs and programs print it and read it back.
Models from files are untrusted: they bring no code, because libraries of custom operators are those that the
user names (`host.libraries`), and they read no files, because data outside of the model is refused.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from qglow.core.errors import DataError, ModelError, UsageError
from qglow.core.types import Array, ElementType
from qglow.host.libraries import loaded_libraries, register_libraries

HostFunction = Callable[[Sequence[Array]], list[Array]]
"""Runs a model: one array for every input, in order, to one for every output."""

ELEMENTS: dict[str, ElementType] = {
    "tensor(float)": ElementType.FLOAT,
    "tensor(double)": ElementType.DOUBLE,
    "tensor(float16)": ElementType.FLOAT16,
    "tensor(bfloat16)": ElementType.BFLOAT16,
    "tensor(int8)": ElementType.INT8,
    "tensor(int16)": ElementType.INT16,
    "tensor(int32)": ElementType.INT32,
    "tensor(int64)": ElementType.INT64,
    "tensor(uint8)": ElementType.UINT8,
    "tensor(uint16)": ElementType.UINT16,
    "tensor(uint32)": ElementType.UINT32,
    "tensor(uint64)": ElementType.UINT64,
    "tensor(bool)": ElementType.BOOL,
}
"""Elements by onnxruntime's names of types."""

OWN_DOMAINS = frozenset({"ai.onnx", "ai.onnx.ml", "com.microsoft"})
"""Domains whose operators no library brings."""

_SESSIONS = 256
"""Models that are kept ready."""

_LOCATION = b"\n\x08location"
"""The key of an entry that names a file, as protobuf writes it."""

_BRANCH = b'"\x02If'
"""The operator of an If, as protobuf writes it."""

_LONGEST = 200

_UNKNOWN = re.compile(r"([\w.-]+):(\w+)\(-?\d+\) is not a registered function/op")
"""What onnxruntime says of an operator that it does not have: its domain and its name."""


def encode(model: bytes) -> str:
    """A serialized model as text."""
    return base64.b64encode(model).decode("ascii")


def decode(text: str) -> bytes:
    """The serialized model of a text. Raises ModelError for a text that is none."""
    try:
        model = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ModelError("an opaque node holds no model; quantize the model again") from error
    if _LOCATION in model:
        raise ModelError("an opaque node reads its data from another file; refused")
    return model


def require_host(names: Sequence[str]) -> None:
    """Raise UsageError, which lists the nodes of these names, where onnxruntime is missing."""
    try:
        import onnxruntime  # noqa: F401
    except ImportError as error:
        listed = ", ".join(f"'{name}'" for name in names[:4]) + (", ..." if len(names) > 4 else "")
        raise UsageError(f"{listed} run in onnxruntime, which is missing: pip install onnxruntime") from error


def result_types(model: bytes) -> list[tuple[ElementType | None, tuple[int | None, ...]]]:
    """Elements and shapes of the outputs as onnxruntime infers them; None for what it cannot tell.

    The shape of an output that is no tensor is empty, its element None. Raises ModelError for a model that
    onnxruntime refuses.
    """
    found: list[tuple[ElementType | None, tuple[int | None, ...]]] = []
    for value in _session(model, 1).get_outputs():
        is_tensor = value.type.startswith("tensor(")
        shape = tuple(d if isinstance(d, int) else None for d in value.shape) if is_tensor else ()
        found.append((ELEMENTS.get(value.type), shape))
    return found


def tried_shapes(model: bytes) -> list[tuple[int, ...] | None]:
    """Shapes of the outputs where several runs give the same: on zeros, and on random reals twice.

    Integers are zeros in all of them, because they may be places. None where shapes differ; all None for a
    model that refuses such inputs. Raises ModelError for a model that onnxruntime cannot load.
    """
    session = _session(model, 1)
    shapes: list[list[tuple[int, ...]]] = []
    for seed in (None, 1, 2):
        feeds = {value.name: _sample(value, seed) for value in session.get_inputs()}
        try:
            shapes.append([np.shape(result) for result in session.run(None, feeds)])
        except Exception:  # onnxruntime's errors have no common base of their own
            return [None] * len(session.get_outputs())
    return [each[0] if len(set(each)) == 1 else None for each in zip(*shapes, strict=True)]


def _sample(value: Any, seed: int | None) -> Array:
    """An array for an input of static shape: zeros, or random reals."""
    element = ELEMENTS[value.type]
    if seed is None or element.is_integer or element is ElementType.BOOL:
        return np.zeros(value.shape, element.dtype)
    return np.asarray(np.random.default_rng(seed).standard_normal(value.shape), element.dtype)


@functools.lru_cache(_SESSIONS)
def prepare(model: str, threads: int = 1) -> HostFunction:
    """Make a model ready to be called, by any number of threads at once.

    threads: the most that one call runs on. Raises ModelError for a model that onnxruntime refuses. The
    function raises DataError for inputs that it refuses.
    """
    session = _session(decode(model), threads)
    names = [value.name for value in session.get_inputs()]

    def run(arrays: Sequence[Array]) -> list[Array]:
        try:
            results = session.run(None, dict(zip(names, arrays, strict=True)))
        except Exception as error:  # onnxruntime's errors have no common base of their own
            raise DataError(f"onnxruntime cannot run it on these inputs: {_one_line(error)}") from error
        return [np.asarray(result) for result in results]

    return run


def onnxruntime_silent() -> Any:
    """The module, which writes nothing of its own to standard error: what fails is an error that it raises.

    Options of a session say nothing about messages from outside of it, such as those of its allocators, which
    come in colours.
    """
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    return onnxruntime


def _session(model: bytes, threads: int) -> Any:
    require_host(["nodes of the model"])
    onnxruntime = onnxruntime_silent()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Threads that spin on after a call would take the time of the program's own.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.log_severity_level = 4
    register_libraries(options)
    # onnxruntime takes the branch of a constant condition in place of an If while it folds constants, and
    # some branches that hold an If themselves bring the process down there.
    disabled = ["ConstantFolding"] if _BRANCH in model else []
    try:
        return onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled
        )
    except Exception as error:  # onnxruntime's errors have no common base of their own
        raise ModelError(refusal(error)) from error


def refusal(error: BaseException) -> str:
    """Message for an error that onnxruntime raised for a model: one line, with a remedy if there is one."""
    unknown = _UNKNOWN.search(str(error))
    if unknown is None or unknown[1] in OWN_DOMAINS:
        return f"onnxruntime cannot load it: {_one_line(error)}"
    operator = f"{unknown[1]}.{unknown[2]}"
    named = ", ".join(loaded_libraries())
    if named:
        return f"neither onnxruntime nor {named} has {operator}; name its library too with `custom_ops`"
    return f"onnxruntime has no {operator}; name the library that has it with `custom_ops`"


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."
