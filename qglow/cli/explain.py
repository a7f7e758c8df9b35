"""qglow explain: why a node is what it is."""

from __future__ import annotations

from dataclasses import dataclass

from qglow.api.options import MODEL, IsaOptions
from qglow.cli.options import GraphOptions
from qglow.cli.output import show
from qglow.cli.targets import open_graph_target
from qglow.core.options import option

EXAMPLES = ("qglow explain model.quantized conv1",)


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """The node to explain."""

    node: str = option(
        help="The name of a node, or of its result", argument=True, metavar="NODE", group=MODEL
    )


def explain(model: GraphOptions, what: NodeOptions, code: IsaOptions) -> None:
    """Explain why a node became what it is.

    Its precision, the ranges and parameters of its values, what every pass did with it or why not, and
    the kernel that was chosen.
    """
    loaded = open_graph_target(model.target, model.shapes, model.profile, model.recipe, values=model.values)
    show(*loaded.explain(what.node, isa=code.isa).sections)
