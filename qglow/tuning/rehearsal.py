"""A float program whose values are rounded while it runs, as int8 would round them.

It is compiled once; each run then shows what other parameters of the activations would do to the outputs.
Weights and biases are the dequantized integers of one int8 graph.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from qglow.core.types import Array, Quantization
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.ops.elementwise import Mul
from qglow.graph.verifier import verify_graph
from qglow.instructions.liveness import whole_at
from qglow.instructions.program import Program
from qglow.kernels.selection.choice import NO_CHOICES
from qglow.quantization.dynamic import multiplies_scaled_rows
from qglow.quantization.report import is_int8
from qglow.report.tensors import counterpart
from qglow.targets.capabilities import stepped
from qglow.targets.protocol import SteppedProgram, SteppedTarget
from qglow.targets.registry import running_targets, select_target
from qglow.toolchain import CompileOptions, lower_graph
from qglow.tuning.rehearsed_constants import (
    Constant,
    Exchange,
    Form,
    Sources,
    contents_of,
    digest,
    reals_of,
    skeleton_of,
    with_integer_weights,
)
from qglow.tuning.sensitivity import int8_values

Parameters = Mapping[str, Quantization]
"""Parameters by the name of a value of the float graph, or of a copy of one, see `rescaled_copies`."""


class Rehearsal:
    """The float graph behind an int8 graph, compiled once.

    A value that the int8 graph rounds for integer nodes alone is rounded in a copy that they read, so that
    float nodes read it as it is.
    """

    def __init__(
        self,
        source: Graph,
        int8_graph: Graph,
        options: CompileOptions | None = None,
        others: Iterable[Rehearsal] = (),
        exchange: Exchange | None = None,
    ) -> None:
        """Compile, or share the code of one of `others` that differs in the contents of constants alone.

        exchange: nodes with other constants than those of the int8 graph.
        Raises UsageError if no target can stop between instructions, where values are rounded.
        """
        graph, self._reals = with_integer_weights(source, int8_graph, exchange or Exchange())
        places = _places(graph, source, int8_graph)
        verify_graph(graph, "with copies of values that are rounded")
        self._program: SteppedProgram
        self._whole: frozenset[str]
        self._sources: Sources
        self._form = Form.of(graph)
        if not self._shares(others, graph):
            self._compile(graph, options or CompileOptions())
        self._places = {name: place for name, place in places.items() if place in self._whole}
        self._constants = {value.name: Constant.of(value) for value in graph.constants()}
        # A graph is made of cycles: its constants would stay until Python collects them.
        for value in graph.constants():
            value.data = None

    def _compile(self, graph: Graph, options: CompileOptions) -> None:
        target = _target(options)
        program = lower_graph(graph, CompileOptions(isa=options.isa, observe=True))
        target.select(program, target.choices() if options.cache else NO_CHOICES, epilogues=False)
        target.plan(program, reuse=False)
        self._whole = frozenset(whole_at(program))
        self._program, self._sources = target.stepped(program, cache=options.cache), Sources.of(program)
        _forget(program, graph)

    def _shares(self, others: Iterable[Rehearsal], graph: Graph) -> bool:
        """Take the code of one of these where that is possible; return whether it was."""
        constants = {value.name: value.data for value in graph.constants() if value.data is not None}
        for other in others:
            if other._form.skeleton != self._form.skeleton:
                continue
            program = other._exchanged(constants, self._form.contents)
            if program is not None:
                self._program, self._whole, self._sources = program, other._whole, other._sources
                return True
        return False

    def _exchanged(
        self, constants: Mapping[str, Array], contents: Mapping[str, str]
    ) -> SteppedProgram | None:
        """The program with these constants, whose digests are `contents`."""
        known = self._form.contents
        changed = {name: content for name, content in contents.items() if content != known.get(name)}
        places = self._sources.places
        if any(name not in places for name in changed):
            return None
        digests = {place: content for name, content in changed.items() for place, _ in places[name]}
        return self._program.exchanged(self._sources.placed(constants), digests)

    def with_constants(self, constants: Mapping[str, Array]) -> Rehearsal | None:
        """The same code with other contents of some constants, by name; None where it has to be made anew."""
        if any(name not in self._form.contents for name in constants):
            return None
        contents = {name: digest(data) for name, data in constants.items()}
        program = self._exchanged(constants, contents)
        if program is None:
            return None
        other = copy.copy(self)
        other._program = program
        other._form = replace(self._form, contents={**self._form.contents, **contents})
        return other

    def exchanged(self, source: Graph, int8_graph: Graph, exchange: Exchange) -> Rehearsal | None:
        """The same with constants exchanged; None where it has to be made anew.

        source, int8_graph: those that this was made of, without an exchange.
        """
        nodes, found = {node.name: node for node in source.nodes}, dict[str, Array]()
        for made in int8_graph.nodes:
            if made.name not in exchange.exact and made.name not in exchange.instead:
                continue
            reals = dict(reals_of(nodes.get(made.name), made, exchange).values())
            if made.operator.regions or reals.keys() != self._reals.get(made.name, frozenset()):
                return None
            found.update(reals)
        return self.with_constants(found)

    def exact(self, source: Graph, graph: Graph) -> Rehearsal | None:
        """The same with the constants of a float graph; None where that is another one but for these.

        source: the float graph that this was made of. Without rounded values, runs are then those of `graph`.
        """
        has_regions = any(node.operator.regions for node in graph.nodes)  # which are int8 here
        if has_regions or skeleton_of(source, names=False) != skeleton_of(graph, names=False):
            return None
        nodes, found = {node.name: node for node in graph.nodes}, dict[str, Array]()
        for name, constant_of in self._constants.items():
            read = [nodes[node].inputs[index:] for node, index in constant_of.readers if node in nodes]
            contents = [contents_of(operands, constant_of.shape) for operands in read]
            if any(not np.array_equal(each, contents[0]) for each in contents[1:]):
                return None
            if contents:
                found[name] = contents[0]
        return self.with_constants(found)

    @property
    def rounded(self) -> frozenset[str]:
        """Names of the values of the float graph that can be rounded."""
        return frozenset(self._places)

    def __call__(
        self, inputs: Mapping[str, Array], parameters: Parameters, keep: bool = False
    ) -> dict[str, Array]:
        """Run once with these values rounded, and no others; return the outputs by name.

        keep: whether the same inputs come again, see `SteppedProgram.run_changed`.
        """
        changes = {
            self._places[name]: RoundedTo(kind) for name, kind in parameters.items() if name in self._places
        }
        return self._program.run_changed(inputs, changes, keep)


def _target(options: CompileOptions) -> SteppedTarget:
    """Return the chosen target, or the host's best if that cannot stop between instructions."""
    target = select_target(options.isa)
    return target if isinstance(target, SteppedTarget) else stepped(running_targets()[-1])


def _forget(program: Program, graph: Graph) -> None:
    """Let go of constants that the code has a form of its own of, and that come anew with each exchange."""
    given = {value.name: value.data for value in graph.constants()}
    for buffer in program.constants:
        if buffer.made_of is not None or buffer.data is given.get(buffer.name):
            buffer.data = None


@dataclass(frozen=True)
class RoundedTo:
    """Change of an array, in place: elements are rounded and clipped to what parameters can represent."""

    kind: Quantization

    def __call__(self, array: Array) -> None:
        """NaN stays."""
        kind = self.kind
        scale = np.float32(kind.scale)
        low, high = (np.float32(round(bound / kind.scale)) for bound in kind.real_range)
        with np.errstate(all="ignore"):
            np.divide(array, scale, out=array)
            np.clip(array, low, high, out=array)
            np.rint(array, out=array)
            np.multiply(array, scale, out=array)


def _places(graph: Graph, source: Graph, int8_graph: Graph) -> dict[str, str]:
    """Return the name of the value of `graph` to round for each of `rounded_values`, by its name.

    Where only some readers get a value rounded, a copy for them is added to `graph`.
    """
    names, values = counterpart(source, int8_graph), {v.name: v for v in graph.values() if not v.is_constant}
    integer = {n.name for n in int8_graph.nodes if is_int8(n) and not multiplies_scaled_rows(n)}
    copies = rescaled_copies(source, int8_graph)
    places: dict[str, str] = {}
    for value in int8_values(int8_graph):
        twin = values.get(names.get(value.name, ""))
        if twin is None:
            continue
        if value.name in copies:
            first = values[places[twin.name]] if twin.name in places else twin
            users = {node.name for node in value.users()}
            read = [node for node in first.users() if node.name in users]
            if read:
                places[value.name] = _copied_for(graph, first, read).name
            continue
        if twin.name in places:
            continue
        readers = [node for node in twin.users() if node.name in integer]
        by_all = value.producer is not None and not value.producer.operator.quantizes
        alone = len(readers) == len(twin.users()) and not (graph.is_output(twin) or _shows_shared(twin))
        if by_all or alone:
            places[twin.name] = twin.name
        elif readers:
            copy = _copied_for(graph, twin, readers)
            places[twin.name] = copy.name
            values[copy.name] = copy
    return places


def _shows_shared(value: Value) -> bool:
    """Whether a value may lie where another one does that further nodes read: they would read it rounded."""
    producer = value.producer
    if producer is None or not producer.operator.rearranges:
        return False
    return any(len(operand.users()) > 1 for operand in producer.inputs[:1] if operand is not None)


def rescaled_copies(source: Graph, int8_graph: Graph) -> dict[str, Value]:
    """The values that are rounded once more for some of their readers, by the name of that copy.

    Such are int8 copies of int16 values, and those that a join or an addition wants at its own scale.
    """
    names, seen, found = counterpart(source, int8_graph), dict[str, Quantization](), dict[str, Value]()
    for value in int8_values(int8_graph):
        name, kind = names.get(value.name), value.type.quantization
        if name is None or kind is None:
            continue
        if seen.setdefault(name, kind) != kind:
            found[value.name] = value
    return found


def rounded_values(source: Graph, int8_graph: Graph) -> dict[str, Value]:
    """The values of an int8 graph that are rounded, by the names of `Parameters`."""
    names, copies = counterpart(source, int8_graph), rescaled_copies(source, int8_graph)
    values = [value for value in int8_values(int8_graph) if value.name in names]
    return {value.name if value.name in copies else names[value.name]: value for value in values}


def _copied_for(graph: Graph, value: Value, readers: list[Node]) -> Value:
    """Let these nodes read a copy of a value, which is returned."""
    one = constant(graph.unique_name(f"{value.name}.one"), np.ones((1,) * len(value.type.shape), np.float32))
    copy = Value(graph.unique_name(f"{value.name}.copy"), value.type)
    node = Node(graph.unique_name(f"{value.name}.copied"), Mul(), (value, one), (copy,))
    for reader in readers:
        reader.inputs = tuple(copy if operand is value else operand for operand in reader.inputs)
    graph.nodes.insert_after(value.producer, node)
    return copy
