"""Import of the inverse of a pool of maxima. https://onnx.ai/onnx/operators/onnx__MaxUnpool.html"""

from __future__ import annotations

import math

import numpy as np

from qglow.core.memory import require_more_memory
from qglow.graph.ops.movement import Gather
from qglow.graph.ops.shape import Reshape
from qglow.importer.node import Broken, ImportNode, ImportRule
from qglow.importer.shape import joined
from qglow.importer.windows import read_pads, read_steps

INDEX_BYTES = 8


def import_max_unpool(node: ImportNode) -> None:
    """Import MaxUnpool of known places: each element where its maximum was, zeros elsewhere.

    Places number the elements of the shape that the windows fill. A stated result may be larger: zeros follow
    at the end of its axes.
    """
    x, places = node.value(0), node.array(1, "the places of the maxima").reshape(-1)
    sizes = node.kind().shape[2:]
    kernel = node.integers("kernel_shape", ())
    strides, _ = read_steps(node, kernel)
    pads = read_pads(node, len(sizes))
    spread = zip(sizes, strides, kernel, pads, pads[len(sizes) :], strict=False)
    filled = (
        *node.kind().shape[:2],
        *((n - 1) * step + k - before - after for n, step, k, before, after in spread),
    )
    stated = node.optional_array(2, "the shape of the result")
    shape = filled if stated is None else tuple(int(n) for n in stated.reshape(-1))
    fits = len(shape) == len(filled) and all(m >= n >= 0 for m, n in zip(shape, filled, strict=True))
    node.require(fits, f"a result of {list(shape)}; windows fill {list(filled)}")
    total = math.prod(filled)
    require_more_memory(2 * INDEX_BYTES * math.prod(shape), f"node '{node.name}'")
    if places.size != x.type.size or not all(0 <= place < total for place in places):
        raise Broken(f"{places.size} places for {x.type}, in {total} elements")
    sources = np.full(total, x.type.size, np.int64)
    sources[places] = np.arange(places.size)
    taken = np.full(shape, x.type.size, np.int64)
    taken[tuple(slice(0, size) for size in filled)] = sources.reshape(filled)
    zero = node.part_constant("zero", np.zeros(1, x.type.element.dtype))
    flat = node.emit(Reshape(shape=(x.type.size,)), x, part="flat")
    elements = joined(node, (flat, zero), part="elements")
    node.emit(Gather(axis=0), elements, node.part_constant("positions", taken))


RULES: dict[str, ImportRule] = {"MaxUnpool": ImportRule(import_max_unpool, newest=22)}
