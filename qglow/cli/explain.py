"""qglow explain: why a node is what it is."""

from __future__ import annotations

from typing import Annotated

import typer

from qglow.cli.options import IsaOption, ProfileOption, RecipeOption, ShapeOption, TargetArgument
from qglow.cli.output import show
from qglow.cli.targets import open_graph_target


def explain(
    target: TargetArgument,
    node: Annotated[str, typer.Argument(metavar="NODE", help="The name of a node, or of its result.")],
    profile: ProfileOption = None,
    recipe: RecipeOption = None,
    shape: ShapeOption = None,
    isa: IsaOption = None,
) -> None:
    """Explain a node: the chain of reasons for what it became.

    Its precision, the ranges and parameters of its values, what every pass did with it or why
    not, and the kernel that was chosen.
    """
    show(*open_graph_target(target, shape, profile, recipe).explain(node, isa).sections)
