"""Language models that go on from tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, Unpack

from qglow.api.keywords import GenerationKeywords
from qglow.api.model import Model
from qglow.api.options import GenerationOptions
from qglow.api.own_integers import in_own_integers
from qglow.api.quantized import QuantizedModel
from qglow.api.sources import compiled_encoder, first_form, reading_cache, source_reader
from qglow.core.errors import DataError, ModelError, UnsupportedError, UsageError
from qglow.core.keywords import taking
from qglow.generation import Generator, Roles, find_roles, pair_states, scores_output
from qglow.graph.graph import Graph
from qglow.quantization.row_states import is_scales, scales_name
from qglow.runtime.executable import Executable
from qglow.runtime.streaming import StreamingExecutable
from qglow.toolchain import CompileOptions
from qglow.toolchain.bounded import (
    Int8States,
    Narrowed,
    ResizableModel,
    bounded_executable,
    every_bound,
    within,
)
from qglow.toolchain.bounded_inputs import Bounds, ProgramSizes
from qglow.toolchain.bounded_program import BoundedExecutable
from qglow.toolchain.files import write_programs
from qglow.toolchain.growing import GrowingExecutable
from qglow.toolchain.narrowing import continued_inputs, with_float_states, with_outputs

LEAST_PIECE = 8
"""The shortest piece: bounds of sizes are at least that large."""
INT8_CACHE = "int8"
Made = TypeVar("Made")
_NO_CACHE = "the model has no cache that grows with its tokens"


@taking(GenerationOptions)
def load_generator(
    model: Model | QuantizedModel | Executable,
    states: Mapping[str, str] | None = None,
    *,
    encoder: Model | QuantizedModel | None = None,
    first: Model | QuantizedModel | None = None,
    **options: Unpack[GenerationKeywords],
) -> Generator:
    """Compile a causal language model, float or int8, to generate tokens with it.

    The model reads tokens [1, n], and perhaps a mask and positions of them, and gives scores
    [1, n, vocabulary], or [1, 1, vocabulary] of the last token; with a cache a file may fix n to 1.
    Inputs past... with outputs present... of a like name, or that are the input followed by new places, are
    its cache of keys and values, which the program keeps; `states` pairs others. A model without a cache
    sees all tokens for each new one. With a `cache` of "int8" each token's keys and values of a head become
    int8 with a scale. A program that `save_generator` wrote, from `load`, is compiled already: its context
    and its piece are the most that there are, and `cache`, `isa` and `threads` are its own.

    The decoder of a model with an encoder has inputs "encoder..." or "cross..." besides. `encoder` reads a
    source (`Generator.begin`), a text of at most `source` tokens or other data. `first` is the decoder's form
    without a cache, which gives keys and values of the source; a decoder that is merged of both forms has it
    in itself. Such a decoder reads one token a call.

    Raises UsageError for inputs whose roles their names do not tell, and UnsupportedError where a node needs
    to know a size before it runs.
    """
    context, piece = _checked(options["context"], options["piece"])
    int8 = options["cache"] == INT8_CACHE
    run = CompileOptions(isa=options["isa"], threads=options["threads"])
    if isinstance(model, Executable):
        if encoder is not None or first is not None:
            raise UsageError("the program is compiled already: an encoder goes with the decoder's model")
        return _generator_of(model, states, context, int8)
    decoder = reading_cache(model)
    if isinstance(decoder, Model):
        decoder = in_own_integers(decoder)
    roles = find_roles(decoder.dimensions)
    _check_source(roles, encoder is not None, first is not None)
    # A form for one token may be wrong for more, with an encoder.
    piece = _piece_of(roles, context, piece, "with an encoder" if encoder is not None else "")
    source = None if encoder is None else compiled_encoder(encoder, options["source"], run)
    bounds = roles.bounds(context, piece, 1 if source is None else source.places)
    executable: Executable
    if bounds:
        resizable = _resizable(decoder, roles, bounds, piece, states, int8)
        executable = _within_context(
            resizable, roles, context, piece, lambda programs: bounded_executable(resizable, run, programs)
        )
        if source is not None:
            reader = source_reader(source, first_form(model, first), roles, executable, run)
            executable = _with_states(executable, roles, states, list(reader.wanted))
            return Generator(executable, roles, context, piece, reader)
    else:
        if int8:
            raise UsageError(f"cache is int8, but {_NO_CACHE}", field="cache")
        with _telling(context, piece):
            executable = decoder.compile(isa=options["isa"], threads=options["threads"])
    return _generator(executable, roles, states, context, piece)


@taking(GenerationOptions)
def save_generator(
    model: Model | QuantizedModel,
    path: str | Path,
    states: Mapping[str, str] | None = None,
    **options: Unpack[GenerationKeywords],
) -> None:
    """Write one .qglow file with the programs that `load_generator` compiles of a model.

    They read pieces of a prompt, single tokens and few tokens, over a cache of several sizes, and share their
    weights. `load_generator(load(path))` begins at once. Raises InputFileError, what `load_generator` raises,
    and UsageError for a model without dimensions that may have several sizes.
    """
    context, piece = _checked(options["context"], options["piece"])
    model = reading_cache(model)
    if isinstance(model, Model):
        model = in_own_integers(model)
    roles = find_roles(model.dimensions)
    if roles.source:
        raise UsageError(
            f"input '{roles.source[0]}' is of a source: decoders with an encoder are compiled when they "
            "are loaded"
        )
    piece = _piece_of(roles, context, piece)
    bounds = roles.bounds(context, piece)
    if not bounds:
        raise UsageError(f"input '{roles.tokens}' has a fixed number of tokens: compile the model as it is")
    resizable = _resizable(model, roles, bounds, piece, states, options["cache"] == INT8_CACHE)
    run = CompileOptions(isa=options["isa"], threads=options["threads"])
    _within_context(
        resizable, roles, context, piece, lambda found: write_programs(Path(path), resizable, found, run)
    )


def _check_source(roles: Roles, has_encoder: bool, has_first: bool) -> None:
    """Raise UsageError for a decoder of a source without an encoder, or an encoder without such a decoder."""
    if roles.source and not has_encoder:
        raise UsageError(
            f"input '{roles.source[0]}' is of what an encoder gives: name that model as `encoder`",
            field="encoder",
        )
    if not roles.source and (has_encoder or has_first):
        raise UsageError(
            "no input of the model is of what an encoder gives (encoder..., cross...): it takes no encoder"
        )
    if has_encoder and roles.is_fixed:
        raise UsageError(f"input '{roles.tokens}' has a fixed number of tokens, which takes no encoder")


def _checked(context: int, piece: int) -> tuple[int, int]:
    """The context, and the piece that fits into it. Raises UsageError for small ones."""
    for name, number in (("context", context), ("piece", piece)):
        if number < LEAST_PIECE:
            raise UsageError(f"{name} is {number}, it must be at least {LEAST_PIECE}", field=name)
    return context, min(piece, context)


def _piece_of(roles: Roles, context: int, piece: int, single: str = "") -> int:
    """The piece, or one token where the file fixes that, or for the reason `single`.

    Raises UsageError for a context that is too small for calls of one token.
    """
    reason = single or ("where the file fixes one token a call" if roles.takes_one else "")
    if not reason:
        return piece
    if context == LEAST_PIECE:
        # The cache before the last token is a place shorter, and its bound at least LEAST_PIECE too.
        raise UsageError(
            f"context is {context}, it must be at least {LEAST_PIECE + 1} {reason}", field="context"
        )
    return 1


@contextmanager
def _telling(context: int, piece: int) -> Iterator[None]:
    """Turn errors of the body about what has no run-time size into one that names the sizes."""
    try:
        yield
    except (DataError, ModelError, UnsupportedError) as error:  # DataError: of constants of the model
        raise UnsupportedError(
            f"no program has a `context={context}` and a `piece={piece}`: {error}; "
            "if tables of the model end before that, give a smaller `context`"
        ) from error


def _within_context(
    model: ResizableModel,
    roles: Roles,
    context: int,
    piece: int,
    compiled: Callable[[Sequence[ProgramSizes]], Made],
) -> Made:
    """Compile programs for every piece after any cache of the context; return what `compiled` makes of them.

    Where tables of a model end with the context, which some programs would exceed, it makes those that stay
    within it: the last tokens of the context are read in smaller pieces then.
    """
    every = every_bound(model.dimensions)
    with _telling(context, piece):
        try:
            return compiled(every)
        except (DataError, ModelError, UnsupportedError, UsageError):
            fitting: Sequence[ProgramSizes] = ()
            if roles.past is not None and roles.new is not None and piece > 1:
                fitting = within(every, roles.past, roles.new, context)
            if fitting:
                with suppress(DataError, ModelError, UnsupportedError, UsageError):
                    return compiled(fitting)
            raise


def _resizable(
    model: Model | QuantizedModel,
    roles: Roles,
    bounds: Bounds,
    piece: int,
    states: Mapping[str, str] | None,
    int8: bool,
) -> ResizableModel:
    resizable = model._resizable(bounds, _scoring_few(roles, piece, states))
    if not int8:
        return resizable
    growing = {roles.past, *roles.alike}
    grown = [name for name in roles.states if growing & {*(model.dimensions[name] or ())}]
    if roles.past is None or not grown:
        raise UsageError(f"cache is int8, but {_NO_CACHE}", field="cache")
    rows = Int8States(grown, lambda graph: _pairs_of(graph, roles, states))
    return replace(resizable, int8_states=rows)


def _generator_of(
    program: Executable, states: Mapping[str, str] | None, context: int, int8: bool
) -> Generator:
    """A generator with programs for several sizes. Raises UsageError for one that is none."""
    if not isinstance(program, BoundedExecutable):
        raise UsageError("the program takes one number of tokens alone; write one with `save_generator`")
    declared, bounds = program.dimensions.declared, program.dimensions.bounds
    roles = find_roles({name: sizes for name, sizes in declared.items() if not is_scales(name, declared)})
    if int8 and not any(is_scales(name, declared) for name in declared):
        raise UsageError("cache is int8, but the program was compiled with another one", field="cache")
    if roles.is_fixed:
        raise UsageError(f"the program takes one number of '{roles.tokens}' alone")
    piece = 1 if roles.new is None else bounds[roles.new][-1]
    most = piece if roles.past is None else bounds[roles.past][-1]
    if roles.takes_one or _is_limited(program, roles, piece):
        most += 1  # tokens before the last one of the context
    return _generator(program, roles, states, min(context, most), piece)


def _is_limited(program: Executable, roles: Roles, piece: int) -> bool:
    """Whether some caches within the context leave no room for a whole piece."""
    if not isinstance(program, BoundedExecutable) or roles.past is None or roles.new is None:
        return False
    before_piece = [one.sizes[roles.past] for one in program.taken if one.sizes[roles.new] >= piece]
    return max(before_piece, default=0) < max(one.sizes[roles.past] for one in program.taken)


def _generator(
    program: Executable, roles: Roles, states: Mapping[str, str] | None, context: int, piece: int
) -> Generator:
    executable = _with_states(program, roles, states)
    takes = None
    if isinstance(executable, GrowingExecutable) and _is_limited(program, roles, piece):
        takes = executable.takes
    return Generator(executable, roles, context, piece, takes=takes)


def _with_states(
    executable: Executable, roles: Roles, states: Mapping[str, str] | None, held: Sequence[str] = ()
) -> Executable:
    continued = executable.continued if isinstance(executable, BoundedExecutable) else {}
    pairs = pair_states(roles.states, list(executable.outputs), states, continued)
    scales = {scales_name(name): scales_name(output) for name, output in pairs.items()}
    pairs |= {name: output for name, output in scales.items() if name in executable.inputs}
    if not pairs and not held:
        return executable
    if isinstance(executable, BoundedExecutable):
        return GrowingExecutable(executable, pairs, held)
    return StreamingExecutable(executable, pairs)


def _pairs_of(graph: Graph, roles: Roles, states: Mapping[str, str] | None) -> dict[str, str]:
    outputs = [value.name for value in graph.outputs]
    return pair_states(roles.states, outputs, states, continued_inputs(graph))


def _scoring_few(roles: Roles, piece: int, states: Mapping[str, str] | None) -> Narrowed:
    """Programs with states in float, for long pieces of a prompt without the scores, which nobody reads."""

    def narrowed(sizes: Mapping[str, int], graph: Graph) -> Graph:
        kinds = {value.name: value.type for value in graph.outputs}
        pairs = _pairs_of(graph, roles, states)
        graph = with_float_states(graph, pairs)
        others = {name: kind for name, kind in kinds.items() if name not in pairs.values()}
        if roles.source:  # some give its keys and values again
            return with_outputs(graph, {*pairs.values(), scores_output(others)})
        if roles.new is None or roles.past is None or sizes[roles.new] <= roles.scored(piece):
            return graph
        return with_outputs(graph, kinds.keys() - {scores_output(others)})

    return narrowed
