"""Language models that go on from tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Unpack

from qglow.api.keywords import GenerationKeywords
from qglow.api.model import Model
from qglow.api.options import GenerationOptions
from qglow.api.quantized import QuantizedModel
from qglow.core.errors import ModelError, UnsupportedError, UsageError
from qglow.core.keywords import taking
from qglow.generation import Generator, Roles, find_roles, pair_states, scores_output
from qglow.graph.graph import Graph
from qglow.runtime.executable import Executable
from qglow.runtime.streaming import StreamingExecutable
from qglow.toolchain import CompileOptions
from qglow.toolchain.bounded import Narrowed, ResizableModel, bounded_executable, every_bound
from qglow.toolchain.bounded_inputs import Bounds
from qglow.toolchain.bounded_program import BoundedExecutable
from qglow.toolchain.files import write_programs
from qglow.toolchain.growing import GrowingExecutable
from qglow.toolchain.narrowing import without_output

LEAST_PIECE = 8
"""The shortest piece: bounds of sizes are at least that large."""


@taking(GenerationOptions)
def load_generator(
    model: Model | QuantizedModel | Executable,
    states: Mapping[str, str] | None = None,
    **options: Unpack[GenerationKeywords],
) -> Generator:
    """Compile a causal language model, float or int8, to generate tokens with it.

    The model reads tokens [1, n], and perhaps a mask and positions of them, and gives scores
    [1, n, vocabulary]. Inputs past... with outputs present... of a like name are its cache of keys and
    values, which the program keeps; `states` pairs others. A model without a cache sees all tokens for each
    new one. A program that `save_generator` wrote, from `load`, is compiled already: its context and its
    piece are the most that there are, and `isa` and `threads` are its own. Raises UsageError for inputs whose
    roles their names do not tell, and UnsupportedError where a node needs to know a size before it runs.
    """
    context, piece = _checked(options["context"], options["piece"])
    if isinstance(model, Executable):
        return _generator_of(model, states, context)
    roles = find_roles(model.dimensions)
    bounds = roles.bounds(context, piece)
    executable: Executable
    if bounds:
        run = CompileOptions(isa=options["isa"], threads=options["threads"])
        with _telling(context):
            executable = bounded_executable(_resizable(model, roles, bounds, piece, states), run)
    else:
        with _telling(context):
            executable = model.compile(isa=options["isa"], threads=options["threads"])
    return Generator(_with_states(executable, roles, states), roles, context, piece)


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
    roles = find_roles(model.dimensions)
    bounds = roles.bounds(context, piece)
    if not bounds:
        raise UsageError(f"input '{roles.tokens}' has a fixed number of tokens: compile the model as it is")
    with _telling(context):
        resizable = _resizable(model, roles, bounds, piece, states)
        run = CompileOptions(isa=options["isa"], threads=options["threads"])
        write_programs(Path(path), resizable, every_bound(resizable.dimensions), run)


def _checked(context: int, piece: int) -> tuple[int, int]:
    """The context, and the piece that fits into it. Raises UsageError for small ones."""
    for name, number in (("context", context), ("piece", piece)):
        if number < LEAST_PIECE:
            raise UsageError(f"{name} is {number}, it must be at least {LEAST_PIECE}", field=name)
    return context, min(piece, context)


@contextmanager
def _telling(context: int) -> Iterator[None]:
    """Turn errors of the body about what has no run-time size into one that names the context."""
    try:
        yield
    except (ModelError, UnsupportedError) as error:
        raise UnsupportedError(f"no program has a `context={context}`: {error}") from error


def _resizable(
    model: Model | QuantizedModel,
    roles: Roles,
    bounds: Bounds,
    piece: int,
    states: Mapping[str, str] | None,
) -> ResizableModel:
    return model._resizable(bounds, _scoring_few(roles, piece, states))


def _generator_of(program: Executable, states: Mapping[str, str] | None, context: int) -> Generator:
    """A generator with programs for several sizes. Raises UsageError for one that is none."""
    if not isinstance(program, BoundedExecutable):
        raise UsageError("the program takes one number of tokens alone; write one with `save_generator`")
    roles, bounds = find_roles(program.dimensions.declared), program.dimensions.bounds
    if roles.new is None:
        raise UsageError(f"the program takes one number of '{roles.tokens}' alone")
    piece = bounds[roles.new][-1]
    most = bounds[roles.past][-1] if roles.past is not None else piece
    return Generator(_with_states(program, roles, states), roles, min(context, most), piece)


def _with_states(executable: Executable, roles: Roles, states: Mapping[str, str] | None) -> Executable:
    pairs = pair_states(roles.states, list(executable.outputs), states)
    if not pairs:
        return executable
    if isinstance(executable, BoundedExecutable):
        return GrowingExecutable(executable, pairs)
    return StreamingExecutable(executable, pairs)


def _scoring_few(roles: Roles, piece: int, states: Mapping[str, str] | None) -> Narrowed:
    """Programs for long pieces of a prompt without the scores, which nobody reads there."""

    def narrowed(sizes: Mapping[str, int], graph: Graph) -> Graph:
        if roles.new is None or roles.past is None or sizes[roles.new] <= roles.scored(piece):
            return graph
        kinds = {value.name: value.type for value in graph.outputs}
        kept = pair_states(roles.states, list(kinds), states).values()
        return without_output(graph, scores_output({n: kind for n, kind in kinds.items() if n not in kept}))

    return narrowed
