"""Language models that go on from tokens."""

from __future__ import annotations

from collections.abc import Mapping
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
from qglow.toolchain.bounded import Narrowed
from qglow.toolchain.bounded_program import BoundedExecutable
from qglow.toolchain.growing import GrowingExecutable
from qglow.toolchain.narrowing import without_output

LEAST_PIECE = 8
"""The shortest piece: bounds of sizes are at least that large."""


@taking(GenerationOptions)
def load_generator(
    model: Model | QuantizedModel,
    states: Mapping[str, str] | None = None,
    **options: Unpack[GenerationKeywords],
) -> Generator:
    """Compile a causal language model, float or int8, to generate tokens with it.

    The model reads tokens [1, n], and perhaps a mask and positions of them, and gives scores
    [1, n, vocabulary]. Inputs past... with outputs present... of a like name are its cache of keys and
    values, which the program keeps; `states` pairs others. A model without a cache sees all tokens for each
    new one. Raises UsageError for inputs whose roles their names do not tell, and UnsupportedError where a
    node needs to know a size before it runs.
    """
    context, piece = options["context"], options["piece"]
    for name, number in (("context", context), ("piece", piece)):
        if number < LEAST_PIECE:
            raise UsageError(f"{name} is {number}, it must be at least {LEAST_PIECE}", field=name)
    piece = min(piece, context)
    roles = find_roles(model.dimensions)
    bounds = roles.bounds(context, piece)
    run = CompileOptions(isa=options["isa"], threads=options["threads"])
    executable: Executable
    try:
        if bounds:
            executable = model._bounded(bounds, run, _scoring_few(roles, piece, states))
        else:
            executable = model.compile(isa=options["isa"], threads=options["threads"])
    except (ModelError, UnsupportedError) as error:
        raise UnsupportedError(f"no program has a `context={context}`: {error}") from error
    pairs = pair_states(roles.states, list(executable.outputs), states)
    if isinstance(executable, BoundedExecutable) and pairs:
        executable = GrowingExecutable(executable, pairs)
    elif pairs:
        executable = StreamingExecutable(executable, pairs)
    return Generator(executable, roles, context, piece)


def _scoring_few(roles: Roles, piece: int, states: Mapping[str, str] | None) -> Narrowed:
    """Programs for long pieces of a prompt without the scores, which nobody reads there."""

    def narrowed(sizes: Mapping[str, int], graph: Graph) -> Graph:
        if roles.new is None or roles.past is None or sizes[roles.new] <= roles.scored(piece):
            return graph
        kinds = {value.name: value.type for value in graph.outputs}
        kept = pair_states(roles.states, list(kinds), states).values()
        return without_output(graph, scores_output({n: kind for n, kind in kinds.items() if n not in kept}))

    return narrowed
