"""A float program whose values are rounded while it runs, as int8 would round them.

It is compiled once; each run then shows what other parameters of the activations would do to the outputs.
Weights and biases are the dequantized integers of one int8 graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from qglow.core.files import sha256_hex
from qglow.core.text import format_attributes
from qglow.core.types import Array, Quantization
from qglow.graph.fingerprint import fingerprint
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.operator import Accumulate
from qglow.graph.ops.elementwise import Mul
from qglow.graph.verifier import verify_graph
from qglow.instructions.liveness import whole_at
from qglow.instructions.program import Program
from qglow.kernels.selection.choice import NO_CHOICES
from qglow.numerics.quantize import dequantize_by
from qglow.quantization.report import is_int8
from qglow.report.tensors import counterpart
from qglow.targets.capabilities import stepped
from qglow.targets.protocol import SteppedProgram, SteppedTarget
from qglow.targets.registry import running_targets, select_target
from qglow.toolchain import CompileOptions, lower_graph
from qglow.tuning.sensitivity import int8_values, real_constants

Parameters = Mapping[str, Quantization]
"""Parameters by the name of a value of the float graph, or of a copy of one, see `rescaled_copies`."""


@dataclass(frozen=True)
class Exchange:
    """Nodes, by name, whose constants are not those of the int8 graph.

    exact: those that keep their float weights and biases. instead: int8 nodes of other int8 forms of the same
    float graph, whose constants count.
    """

    exact: Collection[str] = frozenset()
    instead: Mapping[str, Node] = field(default_factory=dict)


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
        graph = _with_integer_weights(source, int8_graph, exchange or Exchange())
        places = _places(graph, source, int8_graph)
        verify_graph(graph, "with copies of values that are rounded")
        self._program: SteppedProgram
        self._whole: frozenset[str]
        self._form: _Form
        form = _Form.of(graph)
        if not self._shares(others, graph, form):
            self._compile(graph, form, options or CompileOptions())
        self._places = {name: place for name, place in places.items() if place in self._whole}
        # A graph is made of cycles: its constants would stay until Python collects them.
        for value in graph.constants():
            value.data = None

    def _compile(self, graph: Graph, form: _Form, options: CompileOptions) -> None:
        target = _target(options)
        program = lower_graph(graph, CompileOptions(isa=options.isa, observe=True))
        target.select(program, target.choices() if options.cache else NO_CHOICES, epilogues=False)
        target.plan(program, reuse=False)
        self._whole, self._form = frozenset(whole_at(program)), form
        self._program = target.stepped(program, cache=options.cache)
        _forget(program, graph)

    def _shares(self, others: Iterable[Rehearsal], graph: Graph, form: _Form) -> bool:
        """Take the code of one of these where that is possible; return whether it was."""
        for other in others:
            exchanged = other._exchanged(graph, form)
            if exchanged is not None:
                # The code's own form: further exchanges begin with its constants.
                self._program, self._whole, self._form = exchanged, other._whole, other._form
                return True
        return False

    def _exchanged(self, graph: Graph, form: _Form) -> SteppedProgram | None:
        """The program for another graph, if it differs in the contents of constants alone."""
        if form.skeleton != self._form.skeleton:
            return None
        known = self._form.contents
        changed = {name for name, content in form.contents.items() if content != known.get(name)}
        constants = {value.name: value.data for value in graph.constants() if value.data is not None}
        return self._program.exchanged(constants, changed)

    @property
    def rounded(self) -> frozenset[str]:
        """Names of the values of the float graph that can be rounded."""
        return frozenset(self._places)

    def __call__(self, inputs: Mapping[str, Array], parameters: Parameters) -> dict[str, Array]:
        """Run once with these values rounded, and no others; return the outputs by name."""
        changes: dict[str, Callable[[Array], None]] = {
            self._places[name]: partial(_round, kind=kind)
            for name, kind in parameters.items()
            if name in self._places
        }
        return self._program.run_changed(inputs, changes)


def _target(options: CompileOptions) -> SteppedTarget:
    """Return the chosen target, or the host's best if that cannot stop between instructions."""
    target = select_target(options.isa)
    return target if isinstance(target, SteppedTarget) else stepped(running_targets()[-1])


@dataclass(frozen=True)
class _Form:
    """Facts that tell graphs apart, without their constants, which may be large.

    skeleton: all but the contents of constants. contents: a digest of each constant, by its name.
    """

    skeleton: list[object]
    contents: Mapping[str, str]

    @staticmethod
    def of(graph: Graph) -> _Form:
        contents = {v.name: _digest(v.data) for v in graph.constants() if v.data is not None}
        return _Form(_skeleton(graph), contents)


def _digest(data: Array) -> str:
    return sha256_hex(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)


def _skeleton(graph: Graph) -> list[object]:
    """All of a graph but the contents of its constants; regions stand there as a whole."""
    values = [graph.inputs, graph.outputs, graph.constants()]
    named: list[object] = [[(value.name, str(value.type)) for value in part] for part in values]
    for node in graph.nodes:
        operands = [None if value is None else value.name for value in node.inputs]
        results = [(value.name, str(value.type)) for value in node.outputs]
        inside = [fingerprint(region) for region in node.operator.regions]
        attributes = format_attributes(node.operator)
        named.append((node.name, node.operator.name, attributes, operands, results, inside))
    return named


def _forget(program: Program, graph: Graph) -> None:
    """Let go of constants that the code has a form of its own of, and that come anew with each exchange."""
    given = {value.name: value.data for value in graph.constants()}
    for buffer in program.constants:
        if buffer.data is given.get(buffer.name):
            buffer.data = None


def _round(array: Array, kind: Quantization) -> None:
    """Round and clip elements to the reals that the parameters can represent, in place. NaN stays."""
    low, high = kind.real_range
    scale = np.float32(kind.scale)
    with np.errstate(all="ignore"):
        np.divide(array, scale, out=array)
        np.clip(array, np.float32(round(low / kind.scale)), np.float32(round(high / kind.scale)), out=array)
        np.rint(array, out=array)
        np.multiply(array, scale, out=array)


def _with_integer_weights(source: Graph, int8_graph: Graph, exchange: Exchange) -> Graph:
    """Return the float graph with the dequantized weights and biases of the int8 graph, and its regions."""
    graph = source.copy()
    nodes = {node.name: node for node in graph.nodes}
    for made in int8_graph.nodes:
        int8 = exchange.instead.get(made.name, made)
        policy, node = int8.operator.policy, nodes.get(int8.name)
        if node is None or node.operator.name != int8.operator.name:
            continue
        if not isinstance(policy, Accumulate):
            node.inputs = _with_integer_operands(node, int8)
            if node.operator.region_names:
                node.operator = node.operator.with_regions(
                    [region.copy() for region in int8.operator.regions]
                )
            continue
        positions = {name.rstrip("?*"): i for i, name in enumerate(node.operator.operands)}
        operands = [*node.inputs, *(None for _ in range(len(positions) - len(node.inputs)))]
        for name, data in (real_constants(int8, policy) or {}).items():
            known = operands[positions[name]]
            if int8.name in exchange.exact:
                data = _exact(known, data)
            operands[positions[name]] = constant(f"{node.name}.{name}.real", data)
        node.inputs = operands
    return graph


def _exact(known: Value | None, rounded: Array) -> Array:
    """The contents of a float constant that was rounded; a bias that is missing is zero."""
    if known is None:
        return np.zeros_like(rounded)
    same = known.data is not None and known.data.shape == rounded.shape
    return known.data.astype(np.float32) if same and known.data is not None else rounded


def _with_integer_operands(node: Node, int8: Node) -> list[Value | None]:
    """Return the operands of a float node with the reals that constants of its int8 form stand for."""
    operands = list(node.inputs)
    for index, (value, integers) in enumerate(zip(node.inputs, int8.inputs, strict=False)):
        if value is None or integers is None or value.data is None or integers.data is None:
            continue
        kind = integers.type.quantization
        fits = kind is not None and (len(kind.scales) == 1 or node.operator.recurs is not None)
        if kind is not None and fits and integers.data.shape == value.data.shape:
            real = dequantize_by(integers.data, kind).astype(np.float32)
            operands[index] = constant(f"{node.name}.{index}.real", real)
    return operands


def _places(graph: Graph, source: Graph, int8_graph: Graph) -> dict[str, str]:
    """Return the name of the value of `graph` to round for each of `rounded_values`, by its name.

    Where only some readers get a value rounded, a copy for them is added to `graph`.
    """
    names, values = counterpart(source, int8_graph), {v.name: v for v in graph.values() if not v.is_constant}
    integer = {node.name for node in int8_graph.nodes if is_int8(node)}
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
        if by_all or (len(readers) == len(twin.users()) and not graph.is_output(twin)):
            places[twin.name] = twin.name
        elif readers:
            copy = _copied_for(graph, twin, readers)
            places[twin.name] = copy.name
            values[copy.name] = copy
    return places


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
