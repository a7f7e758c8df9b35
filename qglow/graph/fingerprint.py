"""Identities of values and graphs that depend on what is computed, not on names.

A value's structural id is a hash of its producing computation: the operator, its attributes, the
ids of its operands, the fingerprints of its regions and the index of the output. A constant counts by its
type and content, an input of the graph by its position, element type and shape, and a value of a region by
its id there and the node.
"""

from __future__ import annotations

import hashlib
import json
import weakref
from functools import partial

import numpy as np

from qglow.core.text import format_attributes
from qglow.core.threads import each
from qglow.core.types import Array, TensorType
from qglow.graph.graph import Graph, Node, Value
from qglow.host.tail import HostedTail

ID_DIGITS = 32
"""Hexadecimal digits of a structural id: 128 bits, so that ids never meet by chance."""

_LARGE = 1 << 16
"""Bytes from which on an array's digest is kept."""
_HASHED: dict[int, tuple[weakref.ref[Array], str]] = {}
"""Weak references to live arrays, with their digests, by `id`."""


def structural_ids(graph: Graph) -> dict[Value, str]:
    """The structural id of every value of the graph and its regions, 32 hexadecimal digits."""
    constants = graph.constants()
    hashed = each(constant_id, constants, sum(value.type.size for value in constants))
    ids = dict(zip(constants, hashed, strict=True))
    for index, value in enumerate(graph.inputs):
        ids[value] = _hash("input", str(index), str(value.type))
    for node in graph.nodes:
        for operand in node.inputs:
            if operand is not None and operand not in ids:
                ids[operand] = constant_id(operand)
        computation = _computation(node, ids)
        for output in node.outputs:
            ids[output] = _hash("node", computation, str(output.index), _quantization(output.type))
        for name, region in zip(node.operator.region_names, node.operator.regions, strict=True):
            inside = structural_ids(region)
            ids |= {value: _hash("region", computation, name, key) for value, key in inside.items()}
    for value in graph.outputs:
        if value not in ids:
            ids[value] = constant_id(value)
    return ids


def fingerprint(graph: Graph) -> str:
    """SHA-256 over all the graph computes, 64 hexadecimal digits; names do not matter.

    Neither does the order of nodes, nor nodes without outputs (probes).
    """
    ids = structural_ids(graph)
    parts = [
        [str(value.type) for value in graph.inputs],
        sorted({ids[output] for node in graph.nodes for output in node.outputs}),
        [ids[value] for value in graph.outputs],
    ]
    if graph.tail is not None:
        parts.append([graph.tail.model, *_tail_places(graph, graph.tail)])
    return hashlib.sha256(json.dumps(parts).encode("utf-8")).hexdigest()


def _tail_places(graph: Graph, tail: HostedTail) -> list[str]:
    """Places of what a tail reads and of what the model gives, in inputs, outputs and the tail's results."""
    names = [("input", v.name) for v in graph.inputs] + [("output", v.name) for v in graph.outputs]
    places = {name: f"{kind} {index}" for index, (kind, name) in enumerate(names)}
    found = [places[name] for name in tail.operands]
    places |= {name: f"result {index}" for index, name in enumerate(tail.results)}
    return found + [places[name] for name in tail.outputs]


def content_digest(array: Array) -> str:
    """SHA-256 of the type, shape and bytes of a constant, 64 hexadecimal digits.

    A large array is hashed once, and made read-only so that its digest stays true.
    """
    known = _HASHED.get(id(array))
    if known is not None and known[0]() is array:
        return known[1]
    digest = _hashed(array)
    if array.nbytes >= _LARGE:
        array.setflags(write=False)
        forget = partial(_forget, id(array))
        _HASHED[id(array)] = weakref.ref(array, forget), digest
    return digest


def _forget(key: int, _: object) -> None:
    _HASHED.pop(key, None)


def _hashed(array: Array) -> str:
    little = array.dtype.newbyteorder("<")
    head = f"{little.str} {list(array.shape)} ".encode("ascii")
    digest = hashlib.sha256(head)
    digest.update(np.ascontiguousarray(array, little).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def constant_id(value: Value) -> str:
    """The structural id of a constant. Raises ValueError for a value without data."""
    if value.data is None:
        raise ValueError(f"value '{value.name}' is neither a constant nor computed before its use")
    return _hash("constant", content_digest(value.data), _quantization(value.type))


def _computation(node: Node, ids: dict[Value, str]) -> str:
    operands = ["_" if value is None else ids[value] for value in node.inputs]
    while operands and operands[-1] == "_":
        operands.pop()
    regions = [fingerprint(region) for region in node.operator.regions]
    return " ".join([node.operator.name, format_attributes(node.operator), *operands, *regions])


def _quantization(kind: TensorType) -> str:
    return "" if kind.quantization is None else str(kind.quantization)


def _hash(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode("utf-8")).hexdigest()[:ID_DIGITS]
