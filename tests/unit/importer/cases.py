"""What tests of import functions are made of: one node, its inputs and the operator sets to try."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from qglow.core.types import Array

RNG = np.random.default_rng(7)
IMAGE = (2, 6, 9, 8)


def floats(*shape: int) -> Array:
    return RNG.normal(0, 1, shape).astype(np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def node(op_type: str, *inputs: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op_type, list(inputs), ["y"], **attributes)


@dataclass
class Case:
    """One node from the inputs to `y`, at several operator sets."""

    name: str
    node: NodeProto
    opsets: tuple[int, ...] = (13, 21)
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: {"x": IMAGE})
    constants: Mapping[str, Array] = field(default_factory=dict)
