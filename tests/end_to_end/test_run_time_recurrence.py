"""Recurrent layers over any number of steps and sequences: the bits of programs for each size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, helper

import qglow
from qglow.core.types import Array
from tests.end_to_end.bits import same
from tests.runtimes import NATIVE_ISAS
from tests.unit.importer.tiny import save, session, tiny_model

node = helper.make_node
WIDTH, HIDDEN = 6, 8
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
BOUNDS = {"N": 8, "T": 12}
SIZES = ((8, 12), (2, 5), (1, 1), (3, 7), (8, 2), (1, 12), (5, 11))


def tagger(cell: str, direction: str, shape: tuple[int | str, int | str] = ("N", "T")) -> ModelProto:
    """Labels of all steps by one layer, and one of the sequence by its last states."""
    count, random = DIRECTIONS[direction], np.random.default_rng(7)

    def drawn(*shape: int) -> Array:
        return (random.normal(size=shape) * 0.4).astype(np.float32)

    constants = {
        "w": drawn(count, GATES[cell] * HIDDEN, WIDTH),
        "r": drawn(count, GATES[cell] * HIDDEN, HIDDEN),
        "b": drawn(count, 2 * GATES[cell] * HIDDEN),
        "labels": drawn(count * HIDDEN, 5),
        "rows": np.array([0, 0, -1]),
    }
    carried = ["cells"] if cell == "LSTM" else []
    nodes = [
        node("Transpose", ["x"], ["steps"], perm=[1, 0, 2]),
        node(
            cell,
            ["steps", "w", "r", "b"],
            ["states", "last", *carried],
            hidden_size=HIDDEN,
            direction=direction,
        ),
        node("Transpose", ["states"], ["each"], perm=[2, 0, 1, 3]),
        node("Reshape", ["each", "rows"], ["joined"]),
        node("MatMul", ["joined", "labels"], ["y"]),
        node("ReduceMax", ["last"], ["z"], axes=[0], keepdims=0),
        *(node("Tanh", [name], ["c"]) for name in carried),
    ]
    outputs = ["y", "z", *(["c"] if carried else [])]
    return tiny_model(nodes, {"x": (*shape, WIDTH)}, outputs, constants, opset=17)


def sequences(batch: int, steps: int, seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng([batch, steps, seed])
    return {"x": random.normal(size=(batch, steps, WIDTH)).astype(np.float32)}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("cell", GATES)
def test_any_number_of_steps_and_sequences(cell: str, direction: str, tmp_path: Path) -> None:
    made = tagger(cell, direction)
    source, known = qglow.load_model(made.SerializeToString()), session(save(made, tmp_path))
    program, own = source.compile(bounds=BOUNDS), source.compile()
    for sizes in SIZES:
        given = sequences(*sizes)
        found = program(given)
        assert same(found, own(given)), sizes
        for output, wanted in zip(known.get_outputs(), known.run(None, given), strict=True):
            np.testing.assert_allclose(found[output.name], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("free", [("N", 5), (3, "T"), (1, "T")], ids=["sequences", "steps", "one"])
@pytest.mark.parametrize("cell", GATES)
def test_one_number_is_free(cell: str, free: tuple[int | str, int | str]) -> None:
    source = qglow.load_model(tagger(cell, "bidirectional", free).SerializeToString())
    bounds = {name: bound for name, bound in BOUNDS.items() if name in free}
    program, own = source.compile(bounds=bounds), source.compile()
    for sizes in SIZES:
        given = sequences(
            *(n if isinstance(place, str) else place for n, place in zip(sizes, free, strict=True))
        )
        assert same(program(given), own(given)), sizes


@pytest.mark.parametrize("cell", GATES)
def test_int8_states(cell: str) -> None:
    source = qglow.load_model(tagger(cell, "bidirectional").SerializeToString())
    quantized = source.quantize(source.profile([sequences(4, 6, seed) for seed in range(4)]), check=False)
    assert quantized.report is not None
    assert [each.operator for each in quantized.report.quantized].count("Recurrence") == 2
    program, own = quantized.compile(bounds=BOUNDS), quantized.compile()
    for sizes in SIZES:
        given = sequences(*sizes)
        assert same(program(given), own(given)), sizes


@pytest.mark.parametrize("isa", NATIVE_ISAS)
def test_every_instruction_set_has_the_bits_of_its_own(isa: str) -> None:
    source = qglow.load_model(tagger("GRU", "bidirectional").SerializeToString())
    program, own = source.compile(bounds=BOUNDS, isa=isa), source.compile(isa=isa)
    for sizes in ((8, 12), (3, 5), (1, 1)):
        assert same(program(sequences(*sizes)), own(sequences(*sizes))), sizes


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_sequences_that_end_earlier(direction: str, tmp_path: Path) -> None:
    made = tagger("LSTM", direction)
    layer = made.graph.node[1]
    layer.input.append("lengths")
    made.graph.input.append(helper.make_tensor_value_info("lengths", 6, ["N"]))
    source, known = qglow.load_model(made.SerializeToString()), session(save(made, tmp_path))
    program, own = source.compile(bounds=BOUNDS), source.compile()
    for batch, steps in SIZES:
        ends = np.random.default_rng(steps).integers(1, steps + 1, batch).astype(np.int32)
        given = sequences(batch, steps) | {"lengths": ends}
        found = program(given)
        assert same(found, own(given)), (batch, steps)
        for output, wanted in zip(known.get_outputs(), known.run(None, given), strict=True):
            np.testing.assert_allclose(found[output.name], wanted, rtol=1e-4, atol=1e-5)
