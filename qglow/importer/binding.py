"""Binding the symbolic dimensions of a model's inputs to numbers."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx

from qglow.core.batch import may_be_batch
from qglow.core.errors import UnboundError, UsageError
from qglow.core.types import Dimension, Shape

_LENGTH = 128
"""Length in an example of a shape: of a text, or steps of a sequence."""
_SIGNAL = 16000
"""Length in an example of a shape of sound: a second, as speech is sampled. Convolutions with strides leave
nothing of 128 samples."""
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
_OF_SAMPLES = ("Unsqueeze", "Reshape", "Transpose", "Pad", "Cast", "Identity", "Add", "Sub", "Mul", "Div")
"""Operators between an input of sound and the first convolution, by its kernel: they keep it sound."""


@dataclass(frozen=True)
class BoundInputs:
    """Static shapes of the inputs, and sentences on what was bound without being asked for."""

    shapes: dict[str, Shape]
    notes: tuple[str, ...]


def bind_inputs(
    inputs: Sequence[onnx.ValueInfoProto],
    shapes: Mapping[str, Sequence[int]],
    default_batch: int,
    nodes: Sequence[onnx.NodeProto] = (),
) -> BoundInputs:
    """Give every input a static shape.

    A shape given for an input binds its symbols in the other inputs too. A symbolic first
    dimension that is still free and may be a batch becomes `default_batch`. Raises UsageError for shapes
    that do not fit the model, UnboundError for dimensions that nobody has bound, with an example that goes by
    what the nodes of the model read.
    """
    declared = {value.name: tensor_shape(value) for value in inputs}
    check_names("shape", shapes, list(declared))
    symbols: dict[str, int] = {}
    binders: dict[str, str] = {}
    for name, shape in shapes.items():
        _bind_given(name, declared[name], shape, symbols, binders)
    notes: list[str] = []
    bound: dict[str, Shape] = {}
    for name, dims in declared.items():
        given = tuple(int(d) for d in shapes[name]) if name in shapes else None
        if given is None:
            given = _default(name, dims, symbols, default_batch, notes)
        if given is None:
            assert dims is not None
            value = next(value for value in inputs if value.name == name)
            length = _SIGNAL if _is_signal(value, dims, nodes) else _LENGTH
            raise UnboundError(
                f"input '{name}' has shape {_show(dims)}; bind its dimensions, as in "
                f"`shapes={name}={_suggestion(dims, default_batch, length)}`"
            )
        bound[name] = given
    return BoundInputs(bound, tuple(notes))


def check_names(kind: str, names: Iterable[str], inputs: list[str]) -> None:
    """Raise UsageError for a name that no input has; `kind` is what is given for it."""
    for name in names:
        if name in inputs:
            continue
        nearest = difflib.get_close_matches(name, inputs, 1, cutoff=0.0)
        hint = f"; did you mean '{nearest[0]}'?" if nearest else ""
        raise UsageError(f"a {kind} is given for '{name}', but the model's inputs are {_list(inputs)}{hint}")


def _bind_given(
    name: str,
    dims: Sequence[Dimension] | None,
    shape: Sequence[int],
    symbols: dict[str, int],
    binders: dict[str, str],
) -> None:
    """Bind the symbols of one input; `binders` says which input bound a symbol."""
    text = ",".join(map(str, shape))
    if any(int(d) < 0 for d in shape):
        raise UsageError(f"shape {name}={text} has a negative dimension")
    if dims is None:
        return
    if len(dims) != len(shape):
        raise UsageError(f"shape {name}={text} has {len(shape)} dimensions; the model has {_show(dims)}")
    for dim, size in zip(dims, shape, strict=True):
        if isinstance(dim, int) and dim != size:
            raise UsageError(f"shape {name}={text} contradicts the model, which has {_show(dims)}")
        if isinstance(dim, str):
            binder, known = binders.setdefault(dim, name), symbols.setdefault(dim, int(size))
            if known != size:
                raise UsageError(f"shape {name}={text} binds {dim} to {size}, that of '{binder}' to {known}")


def _default(
    name: str, dims: Sequence[Dimension] | None, symbols: dict[str, int], batch: int, notes: list[str]
) -> Shape | None:
    """The shape of an input that none is given for; None where a dimension stays free."""
    if dims is None:
        raise UnboundError(f"input '{name}' declares no shape; give one, as in `shapes={name}=1,3,224,224`")
    bound: list[int] = []
    for position, dim in enumerate(dims):
        if isinstance(dim, int):
            bound.append(dim)
        elif isinstance(dim, str) and dim in symbols:
            bound.append(symbols[dim])
        elif position == 0 and may_be_batch(dims):
            bound.append(batch)
            if isinstance(dim, str):
                symbols[dim] = batch
            notes.append(f"input '{name}' of shape {_show(dims)}: first dimension bound to {batch}")
        else:
            return None
    return tuple(bound)


def _is_signal(
    value: onnx.ValueInfoProto, dims: Sequence[Dimension], nodes: Sequence[onnx.NodeProto]
) -> bool:
    """Whether an input is floats [batch, length] or [batch, 1, length] that a convolution reads, as of sound.

    The nodes are in the order in which they run.
    """
    shaped = len(dims) == 2 or (len(dims) == 3 and dims[1] == 1)
    if not shaped or value.type.tensor_type.elem_type not in _FLOATS:
        return False
    samples = {value.name}
    for node in nodes:
        if not node.input or node.input[0] not in samples:
            continue
        if any(attribute.name == "kernel_shape" for attribute in node.attribute):
            return True
        if node.op_type in _OF_SAMPLES:
            samples.update(node.output)
    return False


def _suggestion(dims: Sequence[Dimension], batch: int, length: int) -> str:
    """An example that fits: numbers stay, the batch is bound, images have their usual size."""
    example = [batch, 3, 224, 224] if len(dims) == 4 else [batch] + [length] * (len(dims) - 1)
    if not may_be_batch(dims):
        example = [batch if isinstance(d, str) and "batch" in d.lower() else length for d in dims]
    return ",".join(str(d if isinstance(d, int) else e) for d, e in zip(dims, example, strict=True))


def _show(dims: Sequence[Dimension]) -> str:
    return "[" + ", ".join("?" if d is None else str(d) for d in dims) + "]"


def _list(names: Sequence[str]) -> str:
    return ", ".join(f"'{n}'" for n in names) if names else "none"


def real_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Inputs that a caller feeds: those that no initializer gives."""
    given = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in given]


def tensor_shape(value: onnx.ValueInfoProto) -> list[int | str | None] | None:
    """Declared dimensions: a number, a symbol's name or None; None if no shape is declared.

    A symbol that is written as a number, as transformers' exporter does, is that number. -1 counts as
    unknown, and so does another symbol without letters, or "None": exporters write "?" for several dimensions
    that have nothing to do with one another.
    """
    if not value.type.tensor_type.HasField("shape"):
        return None
    dims: list[int | str | None] = []
    for dim in value.type.tensor_type.shape.dim:
        kind = dim.WhichOneof("value")
        if kind == "dim_value" and dim.dim_value >= 0:
            dims.append(int(dim.dim_value))
        else:
            dims.append(_symbol(dim.dim_param) if kind == "dim_param" else None)
    return dims


def _symbol(text: str) -> int | str | None:
    if text.isascii() and text.isdecimal() and int(text):
        return int(text)
    return text if any(map(str.isalpha, text)) and text != "None" else None
