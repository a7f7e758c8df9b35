"""Encoders, and what decoders keep of what they have read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qglow.api.model import Model
from qglow.api.own_integers import in_own_integers
from qglow.api.quantized import QuantizedModel
from qglow.core.errors import ModelError, UnsupportedError, UsageError
from qglow.generation import EncoderReader, Roles, ascending_bounds, find_branch, find_roles, like_named
from qglow.graph.graph import Graph
from qglow.report.parts import source_place
from qglow.runtime.executable import Executable
from qglow.toolchain import CompileOptions
from qglow.toolchain.bounded import bounded_executable
from qglow.toolchain.bounded_inputs import LEAST
from qglow.toolchain.bounded_program import BoundedExecutable
from qglow.toolchain.narrowing import with_outputs
from qglow.toolchain.opened import in_any_shape
from qglow.toolchain.undecided import open_model

LEAST_LENGTH = 64
"""Tokens of the shortest texts that an encoder has a program of their own for."""
_KEY_AXES = 4
"""Axes of keys and values: [batch, heads, places, width]."""


@dataclass(frozen=True)
class EncoderProgram:
    """An encoder, and the most places that it gives.

    refusal: why each length of a text is compiled when it comes, or "" where it need not be.
    """

    program: Executable
    places: int
    refusal: str = ""


def reading_cache(model: Model | QuantizedModel) -> Model | QuantizedModel:
    """The form of a decoder that reads its cache, where an input chooses between two; others as they are.

    A form that the caller has chosen stays.
    """
    if isinstance(model, QuantizedModel) or find_branch(model.dimensions) is None:
        return model
    return _form(model, reads_cache=True) or model


def branch_of(model: Model | QuantizedModel) -> str | None:
    """Name of the input that chooses between the forms of a decoder, given or not; None where none does."""
    if isinstance(model, QuantizedModel):
        return find_branch(dict.fromkeys(model._parts.source.values, (1,)))
    given = in_any_shape(model._opened).source.values
    return find_branch({**model.dimensions, **dict.fromkeys(given, (1,))})


def first_form(
    model: Model | QuantizedModel, given: Model | QuantizedModel | None
) -> Model | QuantizedModel | None:
    """The form of a decoder that reads no cache: the one that is given, or the other one in its file."""
    if given is not None:
        return in_own_integers(given) if isinstance(given, Model) else given
    if isinstance(model, Model):
        form = _form(model, reads_cache=False)
        return None if form is None else in_own_integers(form)
    name, values = branch_of(model), model._parts.source.values
    if name is None:
        return None
    return Model(open_model(source_place(model._parts), values={**values, name: [False]}))


def _form(model: Model, reads_cache: bool) -> Model | None:
    """One of the forms that a file is merged of; None for a file of one form alone."""
    source, name = in_any_shape(model._opened).source, branch_of(model)
    if name is None:
        return None
    shapes = {key: shape for key, shape in source.shapes.items() if key != name}
    values = {**source.values, name: [reads_cache]}
    return Model(open_model(source.place, shapes, source.passes, source.native, values))


def compiled_encoder(encoder: Model | QuantizedModel, most: int, options: CompileOptions) -> EncoderProgram:
    """An encoder for texts of at most `most` tokens, or for the places that its file fixes.

    Where nodes need to know a length before they run, each length is compiled when it comes.
    """
    model = in_own_integers(encoder) if isinstance(encoder, Model) else encoder
    try:
        roles = find_roles(model.dimensions)
    except UsageError:
        roles = None  # it reads no text
    refusal = ""
    if roles is not None and roles.new is not None:
        try:
            bounds = {roles.new: ascending_bounds(most, LEAST_LENGTH)}
            return EncoderProgram(bounded_executable(model._resizable(bounds), options), most)
        except (ModelError, UnsupportedError) as error:
            refusal = str(error)
    program = model.compile(isa=options.isa, threads=options.threads)
    sizes = [(None,) if dims is None else dims[1:] for dims in model.dimensions.values()]
    fixed = all(isinstance(size, int) for dims in sizes for size in dims)
    return EncoderProgram(program, max(_places(program), LEAST) if fixed else most, refusal)


def _places(program: Executable) -> int:
    return max((kind.shape[1] for kind in program.outputs.values() if len(kind.shape) > 1), default=1)


def source_reader(
    encoder: EncoderProgram,
    first: Model | QuantizedModel | None,
    roles: Roles,
    decoder: Executable,
    options: CompileOptions,
) -> EncoderReader:
    """Reader that computes the inputs of a decoder that a source decides.

    Raises UsageError where keys and values are wanted, and nothing gives them.
    """
    wanted = {name: decoder.inputs[name] for name in roles.source if name in decoder.inputs}
    keys = [name for name, kind in wanted.items() if len(kind.shape) == _KEY_AXES]
    if not keys:
        return EncoderReader(encoder.program, None, wanted, encoder.refusal)
    if first is None:
        if all(like_named(name, list(encoder.program.outputs)) for name in keys):
            return EncoderReader(encoder.program, None, wanted, encoder.refusal)
        raise UsageError(
            f"input '{keys[0]}' is keys or values of a source, which the decoder's form without a cache "
            "gives: name that as `first`",
            field="first",
        )
    program = _keys_program(first, keys, encoder.places, options)
    return EncoderReader(encoder.program, program, wanted, encoder.refusal)


def _keys_program(
    first: Model | QuantizedModel, keys: list[str], places: int, options: CompileOptions
) -> BoundedExecutable:
    """The program that gives keys and values of a source. Raises UsageError where the model gives others."""
    roles = find_roles(first.dimensions)
    sizes = [size for dims in first.dimensions.values() for size in (dims or ())[1:]]
    bounds: dict[str, int] = {size: 1 for size in sizes if isinstance(size, str) and "+" not in size}
    if roles.places is not None:
        bounds[roles.places] = places

    def narrowed(sizes: Mapping[str, int], graph: Graph) -> Graph:
        names = [value.name for value in graph.outputs]
        found = {name: like_named(name, names) for name in keys}
        missing = [name for name, output in found.items() if output is None]
        if missing:
            raise UsageError(f"`first` gives nothing for input '{missing[0]}'", field="first")
        return with_outputs(graph, [output for output in found.values() if output is not None])

    return bounded_executable(first._resizable(bounds, narrowed), options)
