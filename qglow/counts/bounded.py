"""A graph of the largest sizes that gives the results of smaller ones.

Tensors keep the shape of the bound; along an axis that is counted, the places below the count are those of
the smaller tensor, and all others have no effect on them. Where places are combined, those that are not
live are replaced by a number without effect; where tensors stand one after the other, live places are moved
together. What these steps need to know of sizes are inputs, `BoundedGraph.fillers`. Live results have the
bits of a graph of their own size: sums run over ascending places (rules 9 and 13 of the numeric contract),
and what follows the live ones adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qglow.core.errors import UnsupportedError
from qglow.core.types import ElementType, TensorType
from qglow.counts.borders import join_borders
from qglow.counts.bounded_form import BoundedGraph, ComputedConstant, GrownInput, LiveAxis
from qglow.counts.chosen_places import ChosenPlaces
from qglow.counts.count import Count, sum_of
from qglow.counts.counted_graph import CountedGraph
from qglow.counts.factors import compute_factors
from qglow.counts.fillers import (
    CountedPlaces,
    JoinedPlaces,
    PlacesFromEnd,
    ShiftedPlaces,
)
from qglow.counts.gathers import reshape_whole_gathers
from qglow.counts.indices import counts_from_start
from qglow.counts.means import divide_sums, reduce_windows
from qglow.counts.merges import Merges
from qglow.counts.reals import dequantize_changing
from qglow.counts.refusals import dependent, reading
from qglow.counts.reliance import Place, Reliance
from qglow.counts.rest import Rest, at_least, neutral_element, of_border, rest_of
from qglow.counts.samples import AlignedGraphs, SizedGraph
from qglow.counts.sequences import end_sequences
from qglow.counts.small import SmallConstants
from qglow.counts.uniform import spread_numbers
from qglow.graph.axes import AxisEffect
from qglow.graph.graph import Node, Value, constant
from qglow.graph.ops.movement import Gather
from qglow.graph.ops.selection import Where
from qglow.graph.verifier import verify_graph


def bounded_graph(graphs: Sequence[SizedGraph], small: SmallConstants | None = None) -> BoundedGraph:
    """The graph for all sizes up to those of the first entry, whose graph is changed.

    graphs: the same model in several sizes: one more than there are dimensions, affinely independent ones,
    and a further one, which the others have to explain. small: constants of far smaller sizes. Raises
    UnsupportedError that names the node that depends on how many places there are.
    """
    reduce_windows([entry.graph for entry in graphs])
    divide_sums([entry.graph for entry in graphs])
    compute_factors([entry.graph for entry in graphs])
    spread_numbers([entry.graph for entry in graphs], small)
    end_sequences([entry.graph for entry in graphs])
    borders = join_borders([entry.graph for entry in graphs])
    reshape_whole_gathers([entry.graph for entry in graphs])
    dequantize_changing([entry.graph for entry in graphs])
    samples = AlignedGraphs(graphs, small)
    for value in samples.bound.outputs:
        if value.is_constant and samples.changes(value):
            raise UnsupportedError(f"output '{value.name}' depends on sizes alone, and no node gives it")
    work = _Work(samples, borders)
    for node in list(samples.bound.nodes):
        work.convert(node)
    work.check_outputs()
    graph, live, summed = samples.bound, work.live_axes(), work.summed_places()
    verify_graph(graph, "run-time counts")
    return BoundedGraph(
        graph,
        {v.name: work.graph.counts(v) for v in graph.inputs if v in work.own_inputs},
        {v.name: work.graph.counts(v) for v in graph.outputs},
        tuple(work.graph.fillers),
        work.computed,
        {
            value.name: work.grown[value]
            for value in graph.outputs
            if value in work.grown and work.grown[value].input in {v.name for v in graph.inputs}
        },
        live,
        summed,
        frozenset(value.name for value in graph.inputs if work.is_loose(value)),
        tuple(work.windows),
    )


class _Work:
    """The conversion of one graph, node by node."""

    def __init__(self, samples: AlignedGraphs, borders: set[Value]) -> None:
        self.graph = CountedGraph(samples)
        self.computed: dict[str, ComputedConstant] = {}
        self.grown: dict[Value, GrownInput] = {}
        self.windows: dict[Count, None] = {}
        self._not_negative: set[str] = set()
        self.own_inputs = set(samples.bound.inputs)
        self._samples, self._borders = samples, borders
        self._rests: dict[tuple[Value, int], Rest] = {}
        self._masked: dict[tuple[Value, int, float], Value] = {}
        self._merges = Merges(samples, self.graph.counts)
        self._filled: dict[Value, set[int]] = {}
        self._reached: dict[Value, list[int]] = {}
        self._reliance = Reliance()
        self._relied: set[Place] = set()
        self._summed: dict[Value, Count] = {}
        for value in samples.bound.inputs:
            for axis in self.graph.counted(value):
                self._rests[value, axis] = Rest.FINITE if value.type.is_quantized else Rest.ZERO

    def check_outputs(self) -> None:
        """Raise UnsupportedError for an output whose live places are not together."""
        for value in self.graph.bound.outputs:
            if any(self._merges.is_merged(value, axis) for axis in range(len(value.type.shape))):
                assert value.producer is not None, "no input is merged"
                reason = f"output '{value.name}' has rows of several dimensions, which are not together"
                raise dependent(value.producer, reason)

    def live_axes(self) -> dict[str, tuple[LiveAxis, ...]]:
        """Axes of each result whose places that are not live may be left out, the outermost first."""
        for value in self.graph.bound.outputs:
            if value in self.grown:  # the next call reads it, whatever this one leaves there
                self._reliance.rely(*((value, axis) for axis in self.graph.counted(value)))
        self._relied = self._reliance.spread(self._tells)
        found = {}
        for value, axes in self._reached.items():
            counted = [axis for axis in self.graph.counted(value) if axis in axes]
            idle = [axis for axis in counted if (value, axis) not in self._relied]
            if idle:
                counts = self.graph.counts(value)
                found[value.name] = tuple(
                    LiveAxis(axis, self.graph.number(counts[axis]).name) for axis in idle
                )
        return found

    def is_loose(self, value: Value) -> bool:
        """Whether a model's input may hold anything where it is not live, once `live_axes` is known."""
        return value in self.own_inputs and not any(
            (value, axis) in self._relied for axis in self.graph.counted(value)
        )

    def _tells(self, place: Place) -> bool:
        """Whether more is known of what is not live than the type of the value tells."""
        return self._rest(*place) > at_least(place[0], Rest.ANY)

    def summed_places(self) -> dict[str, str]:
        """Sums of products of which only the first terms matter, and the inputs with their number."""
        return {value.name: self.graph.number(count).name for value, count in self._summed.items()}

    def convert(self, node: Node) -> None:
        """Make the results of a node independent of places that are not live."""
        self._compute_constants(node)
        joined = node.operator.joined_axis(node.input_types())
        cuts = self._cuts(node)
        states = node.operator.states_shape or node.operator.follows_shape
        if self._samples.attributes_change(node) and not (cuts or states):
            raise dependent(node, "its attributes are others for other sizes")
        present = [value for value in node.inputs if value is not None]
        if joined is not None and any(self._merges.is_merged(value, joined) for value in present):
            raise dependent(node, "it joins rows of several dimensions")
        self._note_sizes(node, joined)
        beside = min((of_border(v) for v in present if v in self._borders), default=Rest.ZERO)
        reached: list[dict[int, Rest]] = [{} for _ in node.outputs]
        sources: list[dict[int, list[Place]]] = [{} for _ in node.outputs]
        wanted: list[tuple[int, int, float]] = []
        for index, value, axis in self._counted_operands(node, joined):
            effect = self._effect(node, index, axis)
            if effect.chosen:
                self._choose(node, axis)
            if effect.neutral is not None:
                wanted.append((index, axis, effect.neutral))
            for number in range(len(node.outputs)):
                to = effect.axis_of(number)
                if to is not None:
                    rest = rest_of(node, index, self._rest(value, axis), effect.neutral, to)
                    reached[number][to] = min(reached[number].get(to, beside), rest)
                    sources[number].setdefault(to, []).append((value, axis))
        for index, axis, neutral in self._needed(node, wanted):
            self._mask(node, index, axis, neutral)
        if _joins_operands(node, wanted):
            # Terms behind the live ones have a factor of zero now.
            self._summed[node.output] = self.graph.counts(self._operand(node, wanted[0][0]))[wanted[0][1]]
        for value, own, places in zip(node.outputs, reached, sources, strict=True):
            for axis in self.graph.counted(value):
                self._require(self.graph.counts(value)[axis])
                if axis not in own and axis != joined and not (cuts or node.operator.states_shape):
                    raise dependent(
                        node, f"axis {axis} of its result grows with {self.graph.counts(value)[axis]}"
                    )
                self._rests[value, axis] = at_least(value, own.get(axis, Rest.ANY))
            self._reached[value] = list(own)
            for axis, operands in places.items():
                self._reliance.follows((value, axis), *operands)
        if joined is not None and joined in self.graph.counted(node.output):
            self._join(node, joined)

    def _note_sizes(self, node: Node, joined: int | None) -> None:
        """Note sizes of the axes of results that follow from one axis of an operand."""
        known: list[dict[int, Count]] = [{} for _ in node.outputs]
        for index, value, axis in self._counted_operands(node, joined):
            effect = self._effect_in_all(node, index, axis)
            if effect is None:
                continue
            self._merges.note(node, index, axis, effect)
            for number, sizes in enumerate(known):
                to = effect.axis_of(number)
                if to is not None:
                    sizes[to] = self._following(node, value, axis, effect)
        if joined is not None:
            known[0][joined] = sum_of([self.graph.counts(v)[joined] for v in node.inputs if v is not None])
        for value, sizes in zip(node.outputs, known, strict=True):
            self.graph.note(value, sizes, [axis for axis in sizes if self._merges.is_merged(value, axis)])

    def _effect_in_all(self, node: Node, index: int, axis: int) -> AxisEffect | None:
        """The effect of an axis in all sizes; None where there is no single one."""
        return self._merges.effect(node, index, axis) or self._samples.effect(node, index, axis)

    def _following(self, node: Node, value: Value, axis: int, effect: AxisEffect) -> Count:
        """Places that follow from those of an axis of an operand."""
        count = self.graph.counts(value)[axis].times(effect.factor)
        following = count.windows(effect.added, effect.stride)
        if following != count and node.operator.window(node.input_types()) is not None:
            self.windows[following] = None
        return following

    def _counted_operands(self, node: Node, joined: int | None) -> Iterator[tuple[int, Value, int]]:
        """Operands with every axis that is counted or merged, but for the one along which they are joined."""
        for index, value in enumerate(node.inputs):
            if value is None or value.is_constant:
                continue
            for axis in sorted({*self.graph.counted(value), *self._merges.axes(node, value)}):
                if axis != joined:
                    yield index, value, axis

    def _rest(self, value: Value, axis: int) -> Rest:
        return self._rests.get((value, axis), at_least(value, Rest.ANY))

    def _compute_constants(self, node: Node) -> None:
        """Turn constants that sizes change into inputs; those that count places follow from sizes alone."""
        for value in dict.fromkeys(node.inputs):
            if value is None or not value.is_constant or not self._samples.changes(value):
                continue
            one_number = _has_factors(node) or node.operator.recurs is not None
            if value in self._borders or (one_number and self._samples.repeats(value)):
                continue  # as many places as the bound has hold the number that each size has
            if value.type.quantization is not None:
                raise dependent(node, f"its weights '{value.name}' are others for other sizes")
            arrays = self._samples.arrays(value)
            made = self.graph.replace_constant(value)
            if self._samples.never_negative(value):
                self._not_negative.add(made.name)
            for axis in self.graph.counted(made):
                self._rests[made, axis] = Rest.ZERO
            counted = self._samples.progression(value)
            if counted is None:
                self.computed[value.name] = ComputedConstant(
                    made.type, self.graph.counts(made), arrays, reading(node)
                )
            else:
                (bound,), (count,) = made.type.shape, self.graph.counts(made)
                kind = str(made.type.element.dtype)
                self.graph.fillers.append(
                    CountedPlaces(made.name, counted.first, count, bound, kind, counted.step)
                )

    def _cuts(self, node: Node) -> bool:
        """Whether the result is a part of the operand; it then begins where the sizes of a call tell."""
        value = node.inputs[0] if node.inputs else None
        if value is None or not value.type.shape:
            return False
        effect = node.operator.axis_effect(0, 0, node.input_types())
        if effect is None or not effect.cuts:
            return False
        for axis in range(len(value.type.shape)):
            self._shift(node, axis)
        return True

    def _require(self, count: Count) -> None:
        """Note that no call may have a number of places below 0."""
        if count.may_be_negative:
            self.windows[Count(count.terms, count.offset + 1)] = None

    def _shift(self, node: Node, axis: int) -> None:
        first, value = self._samples.first_place(node, axis), self._operand(node, 0)
        end = None if first is None else self._samples.end_place(node, axis, first)
        if first is None or end is None:
            raise dependent(node, f"the part along axis {axis} begins or ends at no sum of dimensions")
        # A part of a smaller tensor would begin at its first place, and end at its last one.
        self._require(first)
        self._require(sum_of([self.graph.counts(value)[axis], end.times(-1)]))
        if first.is_constant:
            return
        extent = value.type.shape[axis]
        places = self.graph.add_input(f"{node.name}__places", TensorType(ElementType.INT64, (extent,)))
        self.graph.fillers.append(ShiftedPlaces(places.name, first, first.at(self._samples.sizes), extent))
        moved = self.graph.insert_before(node, Gather(axis), (value, places), f"{node.name}__moved", value)
        node.inputs = (moved, *node.inputs[1:])

    def _choose(self, node: Node, axis: int) -> None:
        """Count indices of an axis from its beginning, and those of rows as the bound has these."""
        value, indices = self._operand(node, 0), self._operand(node, 1)
        parts, count = self._merges.parts(value, axis), self.graph.counts(value)[axis]
        if indices.data is None or parts is not None:
            is_positive = counts_from_start(indices, self._not_negative)
            if parts is None and is_positive:
                return
            places = ChosenPlaces(self.graph, node, indices)
            made = places.from_start(count) if parts is None else places.of_rows(parts, is_positive)
            self._resemble(made, indices)
            for place in self.graph.counted(indices):
                self._reliance.follows((made, place), (indices, place))
            node.inputs = (value, made, *node.inputs[2:])
            return
        if (indices.data < 0).any():
            made = self.graph.add_input(f"{indices.name}__from_end", indices.type)
            self.graph.fillers.append(PlacesFromEnd(made.name, indices.data, count))
            node.inputs = (value, made)

    def _effect(self, node: Node, index: int, axis: int) -> AxisEffect:
        """The effect of an axis. Raises UnsupportedError where all its places matter."""
        effect = self._effect_in_all(node, index, axis)
        value = self._operand(node, index)
        if effect is None and not index and self._has_one_factor(node):
            effect = AxisEffect(axis)
        count = self.graph.counts(value)[axis]
        if effect is None:
            raise dependent(node, f"it needs all {count} places along axis {axis} of '{value.name}'")
        if (
            effect.axis is not None
            and not effect.cuts
            and self.graph.counts(node.output)[effect.axis] != self._following(node, value, axis, effect)
        ):
            raise dependent(node, f"axis {effect.axis} of its result does not grow as '{value.name}' does")
        return effect

    def _has_one_factor(self, node: Node) -> bool:
        """Whether all channels have the same factor and addend, such as those of 1 - mask."""
        constants = [value for value in node.inputs[1:] if value is not None]
        return _has_factors(node) and all(
            value.is_constant and self._samples.repeats(value) for value in constants
        )

    def _needed(
        self, node: Node, wanted: Sequence[tuple[int, int, float]]
    ) -> Sequence[tuple[int, int, float]]:
        """Operands that need a number in place of what is not live."""
        needed = self._without_zeros(node, wanted)
        left = {(self._operand(node, index), axis) for index, axis, _ in wanted}
        self._reliance.rely(*(left - {(self._operand(node, index), axis) for index, axis, _ in needed}))
        return needed

    def _without_zeros(
        self, node: Node, wanted: Sequence[tuple[int, int, float]]
    ) -> Sequence[tuple[int, int, float]]:
        needed = []
        for index, axis, neutral in wanted:
            if neutral == 0.0 and self._rest(self._operand(node, index), axis) is Rest.ZERO:
                continue
            needed.append((index, axis, neutral))
        if _joins_operands(node, wanted):
            # A factor of zero is enough beside one that is finite.
            rests = [self._rest(self._operand(node, index), axis) for index, axis, _ in wanted]
            if Rest.ZERO in rests and min(rests) >= Rest.FINITE:
                return []
            if len(needed) == 2 and max(rests) is Rest.FINITE:
                return [entry for entry, rest in zip(wanted, rests, strict=True) if rest is min(rests)][:1]
        return needed

    def _operand(self, node: Node, index: int) -> Value:
        value = node.inputs[index]
        assert value is not None
        return value

    def _mask(self, node: Node, index: int, axis: int, neutral: float) -> None:
        """Replace what is not live in an operand."""
        value = self._operand(node, index)
        key = value, axis, neutral
        if key not in self._masked:
            quantization = value.type.quantization
            if quantization is not None and node.operator.distributes_along(node.input_types()) is not None:
                raise dependent(node, "int8 scores have no number that stands for minus infinity")
            data = neutral_element(value.type, neutral)
            if data is None:
                raise dependent(node, f"'{value.name}' has no element without effect")
            other = constant(self.graph.bound.unique_name(f"{value.name}__neutral"), data, quantization)
            live = self.graph.live_places(
                self.graph.counts(value)[axis], value.type.shape[axis], len(value.type.shape) - axis
            )
            operands = live, value, other
            masked = self.graph.insert_before(node, Where(), operands, f"{value.name}__live", value)
            self._resemble(masked, value)
            self._rests[masked, axis] = at_least(masked, Rest.ZERO if neutral == 0.0 else Rest.ANY)
            self._filled[masked] = {axis, *self._filled.get(value, ())}
            self._reached[masked] = [
                place for place in self.graph.counted(value) if place not in self._filled[masked]
            ]
            for place in self._reached[masked]:
                self._reliance.follows((masked, place), (value, place))
            self._masked[key] = masked
        node.inputs = tuple(self._masked[key] if i == index else v for i, v in enumerate(node.inputs))

    def _resemble(self, made: Value, value: Value) -> None:
        """Note that a value has what another one has, where it is not live too."""
        for place in self.graph.counted(value):
            self._rests[made, place] = self._rest(value, place)
        self._merges.copy(value, made)

    def _join(self, node: Node, axis: int) -> None:
        """Move live places together behind the node."""
        values = [value for value in node.inputs if value is not None]
        parts = [(self.graph.counts(value)[axis], value.type.shape[axis]) for value in values]
        rest = min(
            (self._rest(v, axis) for v in values if not self.graph.counts(v)[axis].is_constant),
            default=Rest.ANY,
        )
        old = node.output
        if any(not count.is_constant for count, _ in parts[:-1]):
            places = self.graph.add_input(
                f"{node.name}__places", TensorType(ElementType.INT64, (old.type.shape[axis],))
            )
            joined = JoinedPlaces(places.name, tuple(parts))
            self.graph.fillers.append(joined)
            new = self.graph.gather_behind(node, axis, places)
            if not parts[0][0].is_constant and values[0] in self.own_inputs:
                self.grown[new] = GrownInput(values[0].name, axis, joined)
            for place in self.graph.counted(old):
                self._rests[new, place] = self._rest(old, place)
                self._reliance.follows((new, place), (old, place))
            self._reliance.follows((new, axis), *((value, axis) for value in values))
            old = new
        self._rests[old, axis] = at_least(old, rest)
        self._reliance.follows((old, axis), *((value, axis) for value in values))


def _joins_operands(node: Node, wanted: Sequence[tuple[int, int, float]]) -> bool:
    """Whether a node sums products of two operands over what is not live of both."""
    return node.operator.sums_products and [index for index, *_ in wanted] == [0, 1]


def _has_factors(node: Node) -> bool:
    """Whether a node multiplies and shifts each channel by constants, and sums nothing."""
    operator = node.operator
    if operator.filters is not None or operator.standardizes:
        return False
    return operator.constants_axis(node.input_types()) is not None
