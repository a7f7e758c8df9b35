"""Resolution of a recipe's rules for every node and value, before anything is quantized."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from qglow.graph.graph import Graph, Node, Value, nested
from qglow.numerics.schema import Schema
from qglow.quantization.attention_region import attention_region, whole_region
from qglow.quantization.experts import (
    BESIDE,
    BY_DEFAULT,
    ROUTES,
    WEIGHTS,
    behind_experts,
    expert_products,
    routers,
)
from qglow.quantization.scheme import IN_ATTENTION, treatments
from qglow.recipe.choices import FIXED, BlockFormat, Calibration
from qglow.recipe.matching import means
from qglow.recipe.rules import DYNAMIC, HALVES, Match, Rule
from qglow.recipe.schema import Recipe

LONGEST_WORDS = 120
"""Most characters of a rule's condition in a reason: rules that are made may name a hundred nodes."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Settings of one node and its results, or of one input of the model.

    wide: results are int16, not int8. kept_float: the rule that keeps it float, in words, or "". half: the
    16-bit float type that this rule asks for, or "". dynamic: whether it asks for scales of rows that are
    measured while the model runs. int8: the rule that states int8, in words, or "".
    rules: numbers, from 1, of all rules that match. policy: why the recipe's scheme keeps it float, or "".
    in_attention: whether the node belongs to an attention region. by_rows: whether the table that it looks up
    is int8 by row. weights: the format in which its weights are quantized, alone or beside `dynamic` rows.
    stated: whether a rule gives that format, so that tables get it too. left_out: the rule in words by the
    name of a correction that it leaves out. fixed_point: whether sums are brought to int8 in fixed point.
    """

    schema: Schema
    calibration: Calibration
    per_tensor: bool
    kept_float: str = ""
    rules: tuple[int, ...] = ()
    wide: bool = False
    half: str = ""
    dynamic: bool = False
    int8: str = ""
    policy: str = ""
    in_attention: bool = False
    by_rows: bool = False
    weights: BlockFormat | None = None
    stated: bool = False
    left_out: Mapping[str, str] = field(default_factory=dict)
    fixed_point: bool = False

    @property
    def is_float32(self) -> bool:
        """Whether a rule keeps the node float, weights and all."""
        return bool(self.kept_float) and not (self.half or self.dynamic or self.weights)

    def under(self, number: int, rule: Rule) -> Choice:
        """Return this choice as overridden by a rule, the `number`-th of the recipe."""
        kept, half, dynamic, int8 = self.kept_float, self.half, self.dynamic, self.int8
        dtype = "float" if rule.weights is not None and rule.dtype is None else rule.dtype
        words = f"rule {number} ({shortened(str(rule.match))})"
        left_out = {name: by for name, by in self.left_out.items() if name not in rule.corrections}
        fixed = self.fixed_point if rule.requantization is None else rule.requantization == FIXED
        left_out |= {name: words for name, wanted in rule.corrections.items() if not wanted}
        if dtype is not None:
            kept = words if dtype in ("float", *HALVES, DYNAMIC) else ""
            half = dtype if dtype in HALVES else ""
            dynamic = dtype == DYNAMIC
            int8 = words if dtype == "int8" else ""
        return replace(
            self,
            schema=self.schema if rule.schema is None else Schema(rule.schema),
            calibration=rule.calibration or self.calibration,
            per_tensor=self.per_tensor if rule.granularity is None else rule.granularity == "tensor",
            kept_float=kept,
            wide=self.wide if dtype is None else dtype == "int16",
            half=half,
            dynamic=dynamic,
            int8=int8,
            policy=self.policy if dtype is None else "",
            by_rows=self.by_rows and dtype is None,
            weights=self.weights if dtype is None else rule.weights,
            stated=self.stated if dtype is None else rule.weights is not None,
            left_out=left_out,
            rules=(*self.rules, number),
            fixed_point=fixed,
        )


@dataclass(frozen=True)
class Choices:
    """Choices by the names of nodes and values, which quantization keeps; `default` holds for all others.

    unmatched: a sentence on every rule that matches nothing. path: what stands before names where the graph
    is a region; rules may have it there or not.
    """

    default: Choice
    nodes: Mapping[str, Choice]
    values: Mapping[str, Choice]
    unmatched: tuple[str, ...] = ()
    path: str = ""

    @staticmethod
    def of(graph: Graph, recipe: Recipe, path: str = "") -> Choices:
        """Apply the scheme, then the rules, to all nodes and inputs; later rules override earlier ones."""
        wanted = {"dynamic": recipe.dynamic, "weights": recipe.weights is not None}
        kept = " and ".join(name for name, given in wanted.items() if given)
        kept = f"the recipe's {kept}" if kept else ""
        default = Choice(
            Schema(recipe.schema),
            recipe.calibration,
            recipe.per_tensor,
            kept,
            dynamic=recipe.dynamic,
            weights=recipe.weights,
            fixed_point=recipe.requantization == FIXED,
        )
        nodes = dict.fromkeys((node.name for node in graph.nodes), default)
        calibration = IN_ATTENTION if recipe.calibration.is_default else recipe.calibration
        for name, treatment in treatments(graph, recipe).items():
            nodes[name] = replace(
                default,
                calibration=calibration if treatment.inside else default.calibration,
                policy=treatment.reason,
                kept_float="" if treatment.reason else kept,
                dynamic=recipe.dynamic and not treatment.reason,
                weights=None if treatment.reason else recipe.weights,
                wide=treatment.wide,
                in_attention=treatment.inside,
                by_rows=treatment.by_rows,
            )
        for node in behind_experts(graph):
            nodes[node.name] = replace(nodes[node.name], policy=nodes[node.name].policy or BESIDE)
        for node in expert_products(graph):
            nodes[node.name] = _of_experts(nodes[node.name], recipe)
        for node in routers(graph):
            choice = nodes[node.name]
            nodes[node.name] = replace(choice, policy=ROUTES, kept_float="", dynamic=False, weights=None)
        roles = _roles(graph, recipe)
        inputs = dict.fromkeys((value.name for value in graph.inputs), default)
        unmatched = []
        for number, rule in enumerate(recipe.rules, start=1):
            fitting = {node.name for node in graph.nodes if _inside(node, rule.match, path, roles)}
            region = _region(graph, rule.match)
            fitting = {name for name in fitting if region is None or name in region}
            named = [name for name in inputs if _means_input(rule.match, (name, path + name))]
            for table, names in ((nodes, fitting), (inputs, named)):
                table.update({name: table[name].under(number, rule) for name in names})
            if not fitting and not named and not _fits_inside(graph, recipe, rule.match, path):
                unmatched.append(f"rule {number} of the recipe ({rule.match}) fits no node or input")
        for node in expert_products(graph):
            choice = nodes[node.name]
            if choice.dynamic and choice.weights is None:
                nodes[node.name] = replace(choice, weights=WEIGHTS)
        _move_for_products(graph, nodes)
        values = {v.name: nodes[node.name] for node in graph.nodes for v in node.outputs}
        return Choices(default, nodes, inputs | values, tuple(unmatched), path)

    def of_node(self, node: Node) -> Choice:
        """The choice for a node."""
        return self.nodes.get(node.name, self.default)

    def names_of(self, node: Node) -> list[str]:
        """The names that a recipe may call a node of the graph by."""
        return names_of(node, self.path)

    def of_value(self, value: Value) -> Choice:
        """The choice for a value: that of the node that gives it."""
        return self.values.get(value.name, self.default)

    def left_out(self, correction: str) -> dict[str, str]:
        """The rules in words that leave a correction out, by the name of the node."""
        return {
            name: choice.left_out[correction]
            for name, choice in self.nodes.items()
            if correction in choice.left_out
        }

    def schema_of(self, value: Value) -> Schema:
        """The schema chosen for a value."""
        return self.of_value(value).schema


def _of_experts(choice: Choice, recipe: Recipe) -> Choice:
    """The choice for products whose rows have matrices of their own: weights, and rows where all are."""
    by, weights = choice.kept_float or BY_DEFAULT, recipe.weights or WEIGHTS
    return replace(choice, kept_float=by, dynamic=recipe.dynamic, policy="", weights=weights)


def shortened(text: str) -> str:
    """A text that reports repeat for many nodes, without what follows its first names.

    >>> shortened("name " + "|".join(f"/model/layers.{n}/attention/MatMul" for n in range(12)))
    'name /model/layers.0/attention/MatMul or 11 more'
    """
    if len(text) <= LONGEST_WORDS:
        return text
    first, *others = text.split("|")
    if others and len(first) <= LONGEST_WORDS and "(" not in text.replace(r"\(", ""):
        return f"{first} or {len(others)} more"
    return f"{text[: LONGEST_WORDS - 3]}..."


def names_of(node: Node, path: str = "") -> list[str]:
    """The names that a recipe may call a node by: its own and those of its results.

    The results of a node that import made several of, such as a convolution of signals, are given by the
    last of them, which only moves what the first computes. In a region these are the names there, and those
    with the region's path before them.
    """
    own = [node.name, *(value.name for value in node.outputs)]
    last = node
    while (moved := _moved_on(last)) is not None and moved.name.startswith(f"{node.name}__"):
        own += [value.name for value in moved.outputs]
        last = moved
    return own + [path + name for name in own] if path else own


def _moved_on(node: Node) -> Node | None:
    """The only reader of a node's only result, if it is no product itself."""
    users = node.outputs[0].users() if len(node.outputs) == 1 else []
    return users[0] if len(users) == 1 and not users[0].operator.sums_products else None


def _roles(graph: Graph, recipe: Recipe) -> Mapping[str, str]:
    """Roles in regions of attention by the names of nodes, if a rule is about roles."""
    if all(rule.match.role is None for rule in recipe.rules):
        return {}
    region = whole_region(graph) if recipe.scheme == "transformer" else attention_region(graph)
    return {node.name: role.name.lower() for node, role in region.roles.items()}


def _move_for_products(graph: Graph, nodes: dict[str, Choice]) -> None:
    """Take back the policy's float from movement of what alone products read that a rule makes int8.

    In int8 what such a product reads is quantized where it is computed.
    """
    moved: set[str] = set()
    for node in reversed(graph.nodes):
        choice = nodes[node.name]
        if not choice.policy or node.operator.kept_operand is None or graph.is_output(node.output):
            continue
        users = node.output.users()
        if users and all(user.name in moved or _is_stated_product(user, nodes) for user in users):
            nodes[node.name] = replace(choice, policy="")
            moved.add(node.name)


def _is_stated_product(node: Node, nodes: Mapping[str, Choice]) -> bool:
    return node.operator.multiplies_activations and bool(nodes[node.name].int8)


def _inside(node: Node, match: Match, path: str, roles: Mapping[str, str]) -> bool:
    """Whether a node has the name, the operator and the role that a rule wants."""
    if match.operator is not None and match.operator != node.operator.name:
        return False
    if match.role is not None and match.role != roles.get(node.name):
        return False
    return any(match.fits_name(name) for name in names_of(node, path))


def _fits_inside(graph: Graph, recipe: Recipe, match: Match, path: str) -> bool:
    """Whether a rule is about nodes or inputs of regions of the graph, which are quantized by themselves."""
    for inner, region in nested(graph, path):
        if region is graph:
            continue
        roles = {} if match.role is None else _roles(region, recipe)
        if any(_inside(node, match, inner, roles) for node in region.nodes):
            return True
        if any(_means_input(match, (v.name, inner + v.name)) for v in region.inputs):
            return True
    return False


def _means_input(match: Match, names: Iterable[str]) -> bool:
    """Whether a rule applies to an input that has these names; only rules that match by name alone can."""
    by_name = match.name is not None and not (match.operator or match.start or match.end or match.role)
    return by_name and any(map(match.fits_name, names))


def _region(graph: Graph, match: Match) -> set[str] | None:
    """Names of the nodes between a rule's two values, or nodes; None if it names neither."""
    if match.start is None and match.end is None:
        return None
    region = {node.name for node in graph.nodes}
    if match.start is not None:
        region &= _dependent(graph.nodes, _values_called(graph, match.start), forward=True)
    if match.end is not None:
        region &= _dependent(list(reversed(graph.nodes)), _values_called(graph, match.end), forward=False)
    return region


def _values_called(graph: Graph, written: str) -> set[str]:
    """Return names of the values that are called so, else of the results of nodes that are."""
    found = {value.name for value in graph.values() if means(written, value.name)}
    return found or {v.name for n in graph.nodes if means(written, n.name) for v in n.outputs}


def _dependent(nodes: Iterable[Node], reached: set[str], forward: bool) -> set[str]:
    """Return the names of all nodes that depend on the `reached` values, or that these depend on.

    `nodes` are in graph order for the former (`forward`), in reverse graph order for the latter.
    """
    found, reached = set(), set(reached)
    for node in nodes:
        before = {value.name for value in node.inputs if value is not None}
        after = {value.name for value in node.outputs}
        entering, leaving = (before, after) if forward else (after, before)
        if entering & reached:
            found.add(node.name)
            reached |= leaving
    return found
