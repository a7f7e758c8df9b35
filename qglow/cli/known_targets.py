"""qglow targets: what programs can be compiled for."""

from __future__ import annotations

from qglow.cli.output import show

EXAMPLES = ("qglow targets",)


def targets() -> None:
    """List the targets that --isa takes.

    For every target: the processor and the features that its code is for, by LLVM's names, and whether this
    host runs it. "reference" is the interpreter that all others are held to, bit for bit. Packages add
    targets with entry points of the group qglow.targets.
    """
    from qglow.api import list_targets
    from qglow.report.targets import target_section

    show(target_section(list_targets()))
