"""Two operators as another package brings them, without a kernel: the example's Softsign and another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from docs.examples.plugin.qglow_example import softsign
from qglow.core.types import Array, TensorType
from qglow.exporter.export import Export
from qglow.exporter.operators import exports
from qglow.graph.graph import Node
from qglow.graph.operator import KeepFloat, Operator, Policy, register
from qglow.graph.ops.elementwise import Mul, Relu
from qglow.graph.ops.rules import Arrays, Types, float_operand, given
from qglow.importer.node import ImportNode
from qglow.importer.rules import imports
from qglow.lowering.decompose import Parts, decomposes

DOMAIN = "org.example"


@dataclass(frozen=True)
class Gate(Operator):
    """x * max(gate, 0), in float."""

    name: ClassVar[str] = "Gate"
    operands: ClassVar[tuple[str, ...]] = ("x", "gate")
    policy: ClassVar[Policy] = KeepFloat("the test wants it so")

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        return (float_operand(inputs, 0, "x"),)

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        return (given(inputs, 0) * np.maximum(given(inputs, 1), np.float32(0)),)


def decompose_gate(operator: Gate, parts: Parts) -> list[Node]:
    """By a Relu, which is decomposed in turn."""
    return parts.finish(Mul(), parts.operand(0), parts.add("open", Relu(), parts.operand(1)))


def import_gate(node: ImportNode) -> None:
    node.emit(Gate(), node.value(0), node.value(1))


def export_gate(operator: Gate, out: Export) -> None:
    out.emit("Gate", domain=DOMAIN)


def declare() -> None:
    """The entry point: register everything."""
    softsign.declare()
    register(Gate)
    imports("Gate", domain=DOMAIN)(import_gate)
    exports(Gate)(export_gate)
    decomposes(Gate)(decompose_gate)


def broken() -> None:
    raise ImportError("no module named 'acme'")
