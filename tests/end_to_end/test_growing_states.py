"""Caches that grow are written in place: no copy of what is there, and the bits of programs without it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import qglow
from qglow.core.errors import UsageError
from qglow.core.types import Array
from qglow.toolchain import bounded_program as bounded_programs
from qglow.toolchain.bounded_program import BoundedExecutable
from qglow.toolchain.growing import GrowingExecutable
from qglow.toolchain.shape_constants import ShapeConstants
from tests.end_to_end.decoder_model import DEPTH, HEADS, STATES, decoder, piecewise, tokens, without_past
from tests.runtimes import NATIVE_ISAS
from tests.unit.importer.tiny import save, tiny_model

BOUNDS: Mapping[str, tuple[int, ...]] = {"new": (1, 8), "past": (16, 24)}
node = helper.make_node


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> qglow.Model:
    return qglow.load_model(save(decoder(), tmp_path_factory.mktemp("decoder")))


def growing(source: qglow.Model, isa: str | None = None) -> GrowingExecutable:
    program = source.compile(bounds=BOUNDS, states=STATES, isa=isa)
    assert isinstance(program, GrowingExecutable)
    return program


def test_no_program_copies_the_cache(model: qglow.Model) -> None:
    bounded = model.compile(bounds=BOUNDS)
    assert isinstance(bounded, BoundedExecutable)
    for one in bounded._programs:
        cache = (1, HEADS, one.form.taken.sizes["past"] + one.form.taken.sizes["new"], DEPTH)
        assert one.kept == {output: name for name, output in STATES.items()}
        assert {name: kind.shape for name, kind in one.executable.kept.items()} == dict.fromkeys(
            STATES, cache
        )
        opcodes = [
            i.operation.opcode
            for i in one.executable.program.code
            if any(buffer.type.shape == cache for buffer in i.writes())
        ]
        # Queries and values of pieces may need a mask; a single token never does.
        assert opcodes.count("insertat") == 2 and not {"insert", "gather", "copy"} & set(opcodes)
        assert one.form.taken.sizes["new"] > 1 or len(opcodes) == 2


@pytest.mark.parametrize("isa", [*NATIVE_ISAS, "reference"])
def test_changes_of_the_program_leave_the_bits_of_the_whole(model: qglow.Model, isa: str) -> None:
    drawn = tokens(25)
    whole = model.compile(isa=isa)(without_past(drawn))["logits"]
    program = growing(model, isa)
    # Long pieces that are not full leave elements behind the live ones, also before shorter programs run.
    pieces = (3, 1, 5, 2, 1, 1, 4, 1, 6, 1)
    for _ in range(2):
        found = piecewise(program, drawn, pieces)
        if isa == "reference":
            np.testing.assert_allclose(found, whole, rtol=1e-4, atol=1e-5)
        else:
            assert found.tobytes() == whole.tobytes()
        program.reset()


def test_the_cache_stays_where_it_is(model: qglow.Model) -> None:
    program = growing(model)
    piecewise(program, tokens(6), (5, 1))
    before = program.state["past_key"]
    first = before.copy()
    piecewise(program, tokens(4, seed=1), (1, 1, 1, 1))
    after = program.state["past_key"]
    assert np.shares_memory(before, after) and after.shape[2] == 10
    assert after[:, :, :6].tobytes() == first.tobytes()


def test_single_tokens_leave_what_is_known_of_pieces(
    model: qglow.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_programs, "KEPT", 4)
    program, calls = growing(model), list[Mapping[str, int]]()
    compute = ShapeConstants.__call__

    def counted(self: ShapeConstants, sizes: Mapping[str, int]) -> dict[str, Array]:
        calls.append(sizes)
        return compute(self, sizes)

    monkeypatch.setattr(ShapeConstants, "__call__", counted)
    first = piecewise(program, tokens(14), (8, 1, 1, 1, 1, 1, 1))
    assert len(calls) == 7
    program.reset()
    again = program({"tokens": tokens(14)[:, :8]})["logits"]
    assert len(calls) == 7 and again.tobytes() == first[:, :8].tobytes()


def test_a_call_without_states_leaves_its_inputs_alone(model: qglow.Model) -> None:
    bounded = model.compile(bounds=BOUNDS)
    past = np.random.default_rng(4).normal(size=(1, HEADS, 9, DEPTH)).astype(np.float32)
    given = {"tokens": tokens(2), **{name: past.copy() for name in STATES}}
    found = bounded(given)
    assert all(given[name].tobytes() == past.tobytes() for name in STATES)
    assert found["present_key"].shape == (1, HEADS, 11, DEPTH)
    assert found["present_key"][:, :, :9].tobytes() == past.tobytes()
    assert set(bounded.outputs) == {"logits", *STATES.values()}
    assert bounded.inputs["past_key"].shape == (1, HEADS, 24, DEPTH)


def test_streams_run_at_the_same_time(model: qglow.Model) -> None:
    program = growing(model)
    streams = [program.fork() for _ in range(4)]
    pieces = (5, 1, 1, 1, 2, 1, 1)
    texts = [tokens(12, seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda pair: piecewise(*pair, pieces), zip(streams, texts, strict=True)))
    own = model.compile()
    for text, logits in zip(texts, found, strict=True):
        assert logits.tobytes() == own(without_past(text))["logits"].tobytes()


def test_a_state_that_something_else_reads_is_copied(tmp_path: Path) -> None:
    nodes = [
        node("Concat", ["before", "x"], ["after"], axis=1),
        node("ReduceSum", ["before", "axis"], ["sum"], keepdims=0),
        node("ReduceMax", ["after"], ["largest"], axes=[1], keepdims=0),
    ]
    shapes = {"x": (1, "new", 4), "before": (1, "past", 4)}
    made = tiny_model(nodes, shapes, ["sum", "largest", "after"], {"axis": np.array([1])}, opset=17)
    model = qglow.load_model(save(made, tmp_path))
    bounded = model.compile(bounds={"new": 8, "past": 16})
    assert isinstance(bounded, BoundedExecutable)
    assert not bounded._programs[0].kept
    program, own = model.compile(bounds={"new": 8, "past": 16}, states={"before": "after"}), model.compile()
    before = np.zeros((1, 0, 4), np.float32)
    for count in (3, 8, 1):
        piece = np.random.default_rng(count).normal(size=(1, count, 4)).astype(np.float32)
        wanted = own({"x": piece, "before": before})
        found = program({"x": piece})
        assert all(found[name].tobytes() == wanted[name].tobytes() for name in ("sum", "largest"))
        before = wanted["after"]


def test_memory_of_another_form_is_refused(model: qglow.Model) -> None:
    bounded = model.compile(bounds=BOUNDS)
    assert isinstance(bounded, BoundedExecutable)
    executable = bounded._programs[0].executable
    wrong = np.zeros((1, HEADS, 3, DEPTH), np.float32)
    with pytest.raises(UsageError, match="the array for the state 'past_key' is not contiguous float"):
        executable.run_on({"past_key": wrong}, {})
