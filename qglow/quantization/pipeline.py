"""Quantization of a canonical float graph, with its profile, to an int8 graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from qglow.core.errors import UnsupportedError, UsageError
from qglow.core.passes import PassLog, Pipeline
from qglow.core.threads import each
from qglow.core.types import Array, Quantization
from qglow.graph.graph import Graph, Node
from qglow.graph.rewriting import operand
from qglow.graph.verifier import verify_graph
from qglow.profiling.histogram import ValueProfile
from qglow.profiling.profile import Profile
from qglow.quantization import weight_range
from qglow.quantization.assign import Assignment, NarrowOperands, assign_parameters, narrow_operands
from qglow.quantization.bias import channel_means, corrected
from qglow.quantization.blocks import BlockMaker, KnownBlocks, quantize_in_blocks
from qglow.quantization.carried import keep_moved_float, keep_rounds_float
from qglow.quantization.choices import Choice, Choices
from qglow.quantization.corrections import Correction
from qglow.quantization.dynamic import rows_of, scale_rows
from qglow.quantization.equalize import Equalization, equalize
from qglow.quantization.fixed_point import round_in_fixed_point
from qglow.quantization.folding.cancel_conversions import CancelConversions
from qglow.quantization.folding.editing import parameters
from qglow.quantization.folding.float_results import FloatResults
from qglow.quantization.folding.fold_rescale_down import FoldRescaleDown
from qglow.quantization.folding.fold_rescale_up import FoldRescaleUp
from qglow.quantization.folding.merge_rescales import MergeRescales
from qglow.quantization.folding.read_integers import ReadIntegers
from qglow.quantization.folding.sink_rescale import SinkRescale
from qglow.quantization.group_weights import WeightGroups
from qglow.quantization.half import round_chosen
from qglow.quantization.interface import interface_parameters, make_interface_int8
from qglow.quantization.islands import plan_islands, release_products
from qglow.quantization.logarithms import keep_logarithms_float
from qglow.quantization.own_level import keep_own_level_float
from qglow.quantization.placement import (
    FloatReasons,
    Overruled,
    block_products,
    check_patterns,
    dynamic_products,
    float_reasons,
    handles_reals,
)
from qglow.quantization.preparations import FactorsOfRecipes, Preparation, Preparations, preparation_key
from qglow.quantization.products import product_margins
from qglow.quantization.ranges import Ranges
from qglow.quantization.regions import (
    UNSEEN,
    is_unseen,
    region_paths,
    region_recipe,
    region_statistics,
    with_regions,
)
from qglow.quantization.report import QuantizationReport, constant_bytes, make_report
from qglow.quantization.rewrite import rewrite
from qglow.quantization.searched_factors import SearchedFactors, SharedSearch
from qglow.quantization.split_channels import split_channels
from qglow.quantization.table_rows import scale_table_rows
from qglow.quantization.tensors import tensor_ranges
from qglow.quantization.tied_tables import find_ties, tables_of, tie_tables
from qglow.quantization.unsuited import keep_unsuited_float
from qglow.quantization.weights import FloatWeights, set_integers
from qglow.recipe.choices import Calibration
from qglow.recipe.schema import Recipe

FOLDING: Pipeline[Graph] = Pipeline(
    (
        CancelConversions(),
        MergeRescales(),
        FoldRescaleUp(),
        SinkRescale(),
        FoldRescaleUp(),
        FoldRescaleDown(),
        MergeRescales(),
        FloatResults(),
        ReadIntegers(),
    )
)
"""Passes over the int8 graph between rewriting and the final weights."""


@dataclass(frozen=True)
class QuantizedGraph:
    """An int8 graph and what was done to get it.

    source: the float graph that it stands for: the one given, with its channels equalized or split where
    that was done, so that values of the same name are comparable. recipe: the choices that made it. rescaled:
    names of the values of `source` whose channels were scaled or split, so that the profile's histograms do
    not apply to them. corrections: what was done to lose less, in groups that rules may leave out.
    """

    graph: Graph
    source: Graph
    report: QuantizationReport
    recipe: Recipe
    rescaled: tuple[str, ...] = ()
    corrections: tuple[Correction, ...] = ()


def quantize(
    graph: Graph,
    profile: Profile,
    recipe: Recipe | None = None,
    folding: Pipeline[Graph] = FOLDING,
    log: PassLog | None = None,
) -> QuantizedGraph:
    """The int8 form of a canonical float graph, which stays as it is.

    `profile` must be of this graph with batch 1; for another batch size pass the statistics with
    `quantize_with`. Raises ProfileError for a stale or incomplete profile, UsageError for a pattern of
    keep_float that fits nothing, UnsupportedError under assert_all_quantized, naming the float nodes.
    """
    return quantize_with(graph, profile.check_matches(graph), profile.samples, recipe, folding, log)


def quantize_with(
    graph: Graph,
    statistics: dict[str, ValueProfile],
    samples: int,
    recipe: Recipe | None = None,
    folding: Pipeline[Graph] = FOLDING,
    log: PassLog | None = None,
    seen_again: Mapping[str, ValueProfile] | None = None,
    preparations: Preparations | None = None,
    known_blocks: KnownBlocks | None = None,
    factors: FactorsOfRecipes | None = None,
    searched: SearchedFactors | None = None,
) -> QuantizedGraph:
    """Quantize a graph like `quantize`, with statistics by value name over `samples` samples.

    seen_again: statistics of the `rescaled` values from a profile of `QuantizedGraph.source`, made with the
    same arguments: their histograms then count in place of the ranges of their channels. preparations: of
    earlier calls with the same graph, statistics and number of samples, which may differ in their recipes.
    known_blocks: weights in blocks of the same model in other sizes. factors: those of channels that calls
    with the same graph, statistics and number of samples found, to which this one adds. searched: factors
    that calls with anything found, to which this one adds.
    """
    recipe = recipe or Recipe()
    made = _Quantizer(graph, statistics, samples, recipe, folding, log, preparations, factors, searched)
    return made.run(seen_again or {}, known_blocks)


def proposed_parameters(
    graph: Graph,
    statistics: dict[str, ValueProfile],
    samples: int,
    recipe: Recipe,
    calibrations: Sequence[Calibration],
    preparations: Preparations | None = None,
) -> list[dict[str, Quantization]]:
    """Return the parameters that each calibration gives in place of the recipe's one, by name of the value.

    Calibrations of rules stay in force. Values are those of `QuantizedGraph.source`; folding may leave
    some of them without integers. Arguments and errors are those of `quantize_with`.
    """
    made = _Quantizer(graph, statistics, samples, recipe, FOLDING, None, preparations)
    return made.propose(calibrations)


@dataclass(frozen=True)
class _Prepared:
    choices: Choices
    reasons: FloatReasons
    stated: Mapping[str, str]
    groups: WeightGroups


class _Quantizer:
    def __init__(
        self,
        graph: Graph,
        statistics: dict[str, ValueProfile],
        samples: int,
        recipe: Recipe,
        folding: Pipeline[Graph],
        log: PassLog | None,
        preparations: Preparations | None,
        factors: FactorsOfRecipes | None = None,
        searched: SearchedFactors | None = None,
        path: str = "",
        carried: Sequence[int] = (),
    ) -> None:
        """path: what precedes names where the graph is a region, which need not hold what patterns name.

        carried: places of results of a region that its next round takes.
        """
        self._graph = graph.copy()
        self._path, self._carried = path, carried
        self._preparations = None if log is not None else preparations
        self._profiled = statistics
        self._statistics = dict(statistics)
        self._samples = samples
        self._recipe = recipe
        self._folding = folding
        self._log = log or PassLog()
        self._bytes_before = constant_bytes(graph)
        self._corrections: list[Correction] = []
        self._factors: FactorsOfRecipes = {} if factors is None else factors
        self._searched: SearchedFactors = {} if searched is None else searched

    def propose(self, calibrations: Sequence[Calibration]) -> list[dict[str, Quantization]]:
        """Parameters by name of the value for each of these calibrations."""
        prepared = self._prepare()
        proposals = []
        for calibration in calibrations:
            choices = choices_of(self._graph, replace(self._recipe, calibration=calibration), self._path)
            assignment, _ = self._assigned(prepared, self._ranges(choices))
            proposals.append({value.name: kind for value, kind in assignment.items()})
        return proposals

    def _prepare(self) -> _Prepared:
        """Choose the int8 nodes, equalize and split channels, and cut Gemms into groups."""
        recipe, shared = self._recipe, self._preparations
        key = preparation_key(recipe)
        if not self._path:
            check_patterns(self._graph, recipe)
        choices = choices_of(self._graph, recipe, self._path)
        if shared is not None and key in shared:
            known = shared[key]
            reasons, stated = self._resume(known), known.stated
        else:
            reasons, stated = self._choose_nodes(choices)
            if shared is not None:
                shared[key] = self._preparation(reasons, stated)
        groups = WeightGroups(self._graph, self._statistics, reasons, choices, recipe.group_size)
        if recipe.group_size:
            groups.run(self._log)
        return _Prepared(choices, reasons, stated, groups)

    def _preparation(self, reasons: FloatReasons, stated: Mapping[str, str]) -> Preparation:
        by_name = {node.name: reason for node, reason in reasons.items()}
        entries, corrections = list(self._log.entries), tuple(self._corrections)
        graph, statistics = self._graph.copy(), dict(self._statistics)
        return Preparation(graph, statistics, by_name, stated, entries, corrections)

    def _resume(self, known: Preparation) -> FloatReasons:
        self._graph, self._statistics = known.graph.copy(), dict(known.statistics)
        self._log.entries += known.entries
        self._corrections += known.corrections
        nodes = {node.name: node for node in self._graph.nodes}
        return {nodes[name]: reason for name, reason in known.reasons.items()}

    def _choose_nodes(self, choices: Choices) -> tuple[FloatReasons, Mapping[str, str]]:
        """Choose the int8 nodes, equalize and split channels; return why the others stay float, and rules."""
        graph, recipe, log = self._graph, self._recipe, self._log
        reasons = float_reasons(graph, recipe, choices)
        overruled = Overruled(choices, frozenset(reasons))
        release_products(graph, reasons)
        keep_unsuited_float(graph, self._profiled, reasons)
        if not self._path:  # what a region is given need not come from outside
            keep_own_level_float(graph, reasons)
        keep_logarithms_float(graph, self._profiled, reasons)
        keep_moved_float(graph, recipe, reasons)
        keep_rounds_float([graph.outputs[place] for place in self._carried], choices, reasons)
        overruled.take_from(reasons)
        plan_islands(graph, reasons)
        overruled.take_from(reasons)
        scale_table_rows(graph, reasons, overruled.fixed, choices, log)
        if recipe.assert_all_quantized and reasons:
            raise not_quantized(reasons)
        wanted, statistics, made = Equalization.of(recipe, choices), self._statistics, self._corrections
        if wanted:
            known = self._factors.setdefault(preparation_key(recipe), {})
            search = SharedSearch(graph, statistics, self._samples, choices.schema_of, self._searched)
            # Integers of rows gain by scaled channels as those of ranges do.
            by_rows = dynamic_products(graph, recipe, choices)
            staying = {node: why for node, why in reasons.items() if by_rows.get(node, why) is not None}
            made += equalize(graph, statistics, search, staying, wanted, log, known)
        if recipe.split_channels:
            left_out = choices.left_out("split_channels")
            made += split_channels(graph, statistics, reasons, recipe.split_channels, log, left_out)
        return reasons, overruled.stated

    def _ranges(self, choices: Choices) -> Ranges:
        return Ranges(self._statistics, choices, frozenset(value.name for value in self._graph.outputs))

    def _assigned(self, prepared: _Prepared, ranges: Ranges) -> tuple[Assignment, NarrowOperands]:
        graph, reasons = self._graph, prepared.reasons
        int8 = [node for node in graph.nodes if node not in reasons and handles_reals(node)]
        self._log.pass_name = "assign"
        assignment = assign_parameters(graph, int8, ranges, self._log)
        for name, instead in ranges.instead.items():
            self._log.applied(name, instead)
        return assignment, narrow_operands(int8, assignment, ranges)

    def run(self, seen_again: Mapping[str, ValueProfile], known_blocks: KnownBlocks | None) -> QuantizedGraph:
        tables = tables_of(self._graph)
        prepared = self._prepare()
        graph, recipe, log = self._graph, self._recipe, self._log
        ties = find_ties(graph, tables)
        choices, reasons, groups = prepared.choices, prepared.reasons, prepared.groups
        source = graph.copy()
        rescaled = self._see_again(seen_again)
        int8 = [node for node in graph.nodes if node not in reasons and handles_reals(node)]
        by_name = {node.name: reason for node, reason in reasons.items()}
        ranges = self._ranges(choices)
        assignment, narrow = self._assigned(prepared, ranges)
        assignment = {value: chosen for value, chosen in assignment.items() if value not in groups.partial}
        states = dict(recipe.states)
        interface = interface_parameters(graph, assignment, ranges, states) if recipe.io == "int8" else {}
        sums = [node for node in int8 if node.operator.accumulate is not None]
        dynamic = dynamic_products(graph, recipe, choices)
        inputs = {node.name: rows_of(node).name for node in (*sums, *dynamic)}
        sources = {node.name: self._weights(node, choices) for node in sums}
        tensors = tensor_ranges(assignment, self._statistics, ranges)
        halves = round_chosen(graph, recipe, choices, log)
        rewrite(graph, int8, assignment, sources, recipe.per_tensor, narrow)
        make_interface_int8(graph, interface)
        verify_graph(graph, "after rewriting to int8")
        self._folding.run(graph, verify_graph, log)
        margins = product_margins(int8)
        means = {node: self._means(node, inputs[node.name], choices.of_node(node)) for node in sums}
        for node, weights in zip(sums, self._corrected(means, sources, choices), strict=True):
            if means[node] is not None:
                self._corrections.append(Correction("correct_bias", node.name, (), (node.name,)))
            margins[node.name] = set_integers(graph, node, weights, choices.of_node(node).per_tensor)
        maker = BlockMaker(known_blocks, refined=recipe.rounding == "hqq")
        shifting = {
            node.name: self._means(node, inputs[node.name], choices.of_node(node)) for node in dynamic
        }
        seen = {name: means for name, means in shifting.items() if means is not None}
        rows = scale_rows(graph, dynamic, log, maker, seen)
        formats = block_products(graph, recipe, choices)
        quantize_in_blocks(graph, formats, log, maker)
        halves = {**halves, **{node.name: str(chosen) for node, chosen in formats.items()}}
        tied, in_blocks = tie_tables(graph, ties, log)
        by_name |= tied
        halves |= {name: halves.get(product) or rows.formats[product] for name, product in in_blocks.items()}
        regions = self._quantize_regions(choices, known_blocks)
        round_in_fixed_point(graph, choices)
        verify_graph(graph, "after the final weights")
        before, folding = self._bytes_before, str(self._folding)
        report = make_report(graph, by_name, margins, before, folding, log, halves, prepared.stated, rows)
        report = replace(report, warnings=choices.unmatched, tensors=tensors)
        report = with_regions(report, regions)
        return QuantizedGraph(graph, source, report, recipe, rescaled, tuple(self._corrections))

    def _quantize_regions(
        self, choices: Choices, known_blocks: KnownBlocks | None
    ) -> list[tuple[str, QuantizationReport]]:
        """Quantize what nodes run, each region between float values; return paths and reports."""
        recipe, found = self._recipe, []
        for node in self._graph.nodes:
            kept = recipe.keeps_float(choices.names_of(node), node.operator.name)
            if kept is not None or choices.of_node(node).is_float32:
                continue
            regions = []
            for path, region in zip(region_paths(node), node.operator.regions, strict=True):
                seen = region_statistics(self._profiled, path)
                if is_unseen(seen):
                    self._log.refused(path, UNSEEN)
                    regions.append(region)
                    continue
                inner = _Quantizer(
                    region,
                    seen,
                    self._samples,
                    region_recipe(recipe),
                    self._folding,
                    None,
                    None,
                    searched=self._searched,
                    path=self._path + path,
                    carried=node.operator.carried_results,
                )
                made = inner.run({}, known_blocks)
                regions.append(made.graph)
                found.append((path, made.report))
            if regions:
                node.operator = node.operator.with_regions(regions)
        return found

    def _see_again(self, found: Mapping[str, ValueProfile]) -> tuple[str, ...]:
        """Take over new histograms for values that lost theirs; return the names of all these values."""
        rescaled = self._without_histogram()
        self._log.pass_name = "profile-again"
        for name in rescaled:
            if name in found:
                # The old channel means stay: like those of all other values they are over `_samples` samples.
                channels = self._statistics[name].channels
                self._statistics[name] = replace(found[name], channels=channels)
                self._log.applied(
                    name, "a histogram of the calibration samples replaces the range of channels"
                )
        return rescaled

    def _without_histogram(self) -> tuple[str, ...]:
        counted = {name for name, profile in self._profiled.items() if profile.total}
        now = {name for name, profile in self._statistics.items() if not profile.total}
        changed = now & (counted | (self._statistics.keys() - self._profiled.keys()))
        return tuple(v.name for v in self._graph.values() if v.name in changed)

    def _weights(self, node: Node, choices: Choices) -> FloatWeights:
        source = FloatWeights.of(node)
        if self._recipe.weight_range == "max":
            return source
        self._log.pass_name = weight_range.PASS
        per_tensor = choices.of_node(node).per_tensor
        return weight_range.with_least_error(source, per_tensor, node.name, self._log)

    def _means(self, node: Node, value_name: str, choice: Choice) -> Array | None:
        """Means of the channels that a node reads, if its bias is to be corrected by them."""
        profile = self._statistics.get(value_name)
        wanted = self._recipe.correct_bias and "correct_bias" not in choice.left_out
        if not wanted or profile is None or profile.channels is None:
            return None
        # Scaled channels have no histogram, but as many elements as before.
        counted = self._profiled.get(value_name, profile).total
        return channel_means(profile.channels, counted, self._samples, self._graph, rows_of(node))

    def _corrected(
        self, means: Mapping[Node, Array | None], sources: Mapping[str, FloatWeights], choices: Choices
    ) -> list[FloatWeights]:
        """The weights of all nodes, with corrected biases where there are means."""

        def one(node: Node) -> FloatWeights:
            source, seen, x = sources[node.name], means[node], operand(node)
            if seen is None:
                return source
            per_tensor = choices.of_node(node).per_tensor
            return corrected(node, source, parameters(x).scale, seen, per_tensor, x.type.shape)

        return each(one, means, sum(source.weights.size for source in sources.values()))


def choices_of(graph: Graph, recipe: Recipe, path: str = "") -> Choices:
    """Resolve the rules for a graph, or for the region at `path`.

    Raises UsageError under `strict` if a rule matches nothing.
    """
    choices = Choices.of(graph, recipe, path)
    if recipe.strict and choices.unmatched:
        raise UsageError("; ".join(choices.unmatched) + " (`strict`)", field="strict")
    return choices


def not_quantized(reasons: FloatReasons) -> UnsupportedError:
    """Return the error of assert_all_quantized, with every float node and its reason."""
    return UnsupportedError(
        f"{len(reasons)} nodes stay float (`assert_all_quantized`):",
        details=[f"{node.operator.name} '{node.name}': {reason}" for node, reason in reasons.items()],
    )
