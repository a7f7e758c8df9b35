"""Operators that depend only on the order of elements read int8 values without a Dequantize."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.core.passes import Pass, PassLog
from qglow.graph.graph import Graph, Value
from qglow.graph.rewriting import operand
from qglow.quantization.folding.editing import covered, remove_unused


@dataclass(frozen=True)
class ReadIntegers(Pass[Graph]):
    """ArgMax of a Dequantize is that of the integers: larger integers stand for larger reals.

    It runs after FloatResults, so that sums that nothing needs in int8 are ranked as floats: int8 has ties.
    """

    name: ClassVar[str] = "read-integers"

    def run(self, ir: Graph, log: PassLog) -> None:
        """Run the pass as the class describes it."""
        for node in ir.nodes:
            if log.exhausted:
                return
            if not node.operator.reads_integers:
                continue
            producer = operand(node).producer
            if producer is None or not producer.operator.dequantizes:
                continue
            source = operand(producer)
            if not _is_finite(source):
                log.refused(node.name, f"reals of '{source.name}' overflow, and then are equal")
                continue
            node.inputs = (source,)
            log.applied(node.name, f"ranks the integers of '{source.name}'")
        remove_unused(ir)


def _is_finite(value: Value) -> bool:
    with np.errstate(over="ignore"):
        return all(math.isfinite(np.float32(bound)) for bound in covered(value))
