"""qglow ops: what every layer does with every operator."""

from __future__ import annotations

from qglow.cli.output import show

EXAMPLES = ("qglow ops",)


def ops() -> None:
    """List operators and what is done with them.

    For every operator of graphs: whether ONNX has it, what quantization does with it, how it is exported
    and lowered; then the instructions and their kernels.
    """
    from qglow.report.operator_matrix import operator_sections

    show(*operator_sections())
