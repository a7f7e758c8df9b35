"""Weights in blocks are found once for all sizes of a model, and again where they are others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qglow
from qglow.artefacts.replay import graph_at
from qglow.core.passes import PassLog
from qglow.graph.graph import Graph, Node
from qglow.graph.ops.blocks import BlockGemm
from qglow.graph.rewriting import new_constant, operand
from qglow.graph.text import print_graph
from qglow.quantization.blocks import BlockMaker, KnownBlocks, quantize_in_blocks
from qglow.recipe.choices import BlockFormat
from scripts.benchmarks.measurements.decoding import own_shapes
from scripts.random_llama import LlamaSize, random_llama
from tests.unit.importer.tiny import save

SIZE = LlamaSize(layers=1, width=32, heads=4, groups=4, inner=64, words=40)
TABLE = qglow.Rule(qglow.Match(operator="Gather"), weights=BlockFormat(8, 32, True))
FORMS: dict[str, dict[str, Any]] = {
    "blocks": {"weights": "int4"},
    "dynamic": {"weights": "int4:16:symmetric", "dynamic": True},
}


def quantized(folder: Path, form: Mapping[str, Any]) -> qglow.QuantizedModel:
    path = save(random_llama(SIZE), folder, "llama.onnx")
    recipe = qglow.Recipe(rules=(TABLE,))
    return qglow.load_model(path, own_shapes(qglow.load_model(path))).quantize(recipe=recipe, **form)


def other_shapes(model: qglow.QuantizedModel) -> dict[str, tuple[int, ...]]:
    sizes = {"batch": 1, "new": 3, "past": 5, "total": 8}
    return {
        name: tuple(d if isinstance(d, int) else sizes.get(str(d), 8) for d in dimensions or ())
        for name, dimensions in model.dimensions.items()
    }


@pytest.mark.parametrize("form", list(FORMS))
def test_another_size_finds_nothing_again(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = quantized(tmp_path, FORMS[form])
    shapes = other_shapes(model)
    with monkeypatch.context() as patched:
        patched.setattr(KnownBlocks, "find", lambda *arguments: None)
        expected = print_graph(graph_at(model._parts, shapes))
    assert expected.count("BlockG") > 5

    def refuse(*arguments: object) -> object:
        raise AssertionError("blocks are known")

    monkeypatch.setattr("qglow.quantization.blocks.quantize_blocks", refuse)
    assert print_graph(graph_at(model._parts, shapes)) == expected


def weighted(model: qglow.QuantizedModel) -> tuple[Graph, Node]:
    graph = model.float_graph
    return graph, next(node for node in graph.nodes if node.operator.accumulate is not None)


def test_other_weights_or_formats_are_not_known(tmp_path: Path) -> None:
    model = quantized(tmp_path, FORMS["blocks"])
    chosen, made = BlockFormat(4, 32, False), BlockGemm(bits=4, block=32)
    known = KnownBlocks(model.graph, model.float_graph)
    graph, node = weighted(model)
    assert known.find(node, made, chosen) is not None
    others = (BlockFormat(4, 32, True), BlockFormat(4, 32, False, float16=True))
    assert not any(known.find(node, made, other) for other in others)
    assert not any(known.find(node, replace(made, **other), chosen) for other in ({"bits": 8}, {"block": 16}))
    changed = np.array(operand(node, 1).data)
    changed[0, 0] += 1
    node.inputs = (node.inputs[0], new_constant(graph, "changed", changed), *node.inputs[2:])
    assert known.find(node, made, chosen) is None
    quantize_in_blocks(graph, {node: chosen}, PassLog(), BlockMaker(known))
    twin = next(one for one in model.graph.nodes if one.name == node.name)
    assert operand(node, 1).data.tobytes() != operand(twin, 1).data.tobytes()  # type: ignore[union-attr]
