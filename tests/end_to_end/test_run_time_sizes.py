"""Programs for all sizes up to a bound: the bits of programs that are compiled for each size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import qglow
from qglow.core.errors import DataError, UnsupportedError, UsageError
from qglow.core.types import Array
from qglow.toolchain.growing import GrowingExecutable
from qglow.toolchain.shape_constants import ShapeConstants
from tests.end_to_end.bits import same
from tests.end_to_end.decoder_model import (
    DEPTH,
    HEADS,
    STATES,
    WORDS,
    decoder,
    piecewise,
    tokens,
    without_past,
)
from tests.runtimes import NATIVE_ISAS
from tests.unit.importer.tiny import save, tiny_model
from tests.zoo import wild_path

BOUND = 24
node = helper.make_node


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> qglow.Model:
    return qglow.load_model(save(decoder(), tmp_path_factory.mktemp("decoder")))


@pytest.fixture(scope="module")
def quantized(model: qglow.Model) -> qglow.QuantizedModel:
    cache = np.random.default_rng(1).normal(size=(12, HEADS, 6, DEPTH)).astype(np.float32)
    data = {
        "tokens": np.concatenate([tokens(5, seed) for seed in range(12)]),
        **{name: cache + place for place, name in enumerate(STATES)},
    }
    return model.quantize(model.profile(data), repair=False, check=False)


@pytest.mark.parametrize("isa", NATIVE_ISAS)
def test_every_size_has_the_bits_of_a_program_of_its_own(model: qglow.Model, isa: str) -> None:
    bounded = model.compile(bounds={"new": 8, "past": BOUND}, isa=isa)
    cache = np.random.default_rng(2).normal(size=(2, 1, HEADS, BOUND, DEPTH)).astype(np.float32)
    own = model.compile(isa=isa)
    for new, past in ((1, 1), (8, BOUND), (5, 17), (3, 0)):
        inputs = {
            "tokens": tokens(new),
            "past_key": cache[0][:, :, :past],
            "past_value": cache[1][:, :, :past],
        }
        assert same(bounded(inputs), own(inputs)), (new, past)


@pytest.mark.parametrize("kind", ["float", "int8"])
def test_pieces_over_a_cache_have_the_bits_of_the_whole(
    model: qglow.Model, quantized: qglow.QuantizedModel, kind: str
) -> None:
    source = model if kind == "float" else quantized
    drawn = tokens(20)
    program = source.compile(bounds={"new": (1, 8), "past": (8, BOUND)}, states=STATES)
    found = piecewise(program, drawn, (8, 5, 1, 1, 1, 1, 1, 1, 1))
    assert found.tobytes() == source.compile()(without_past(drawn))["logits"].tobytes()
    assert program.state["past_key"].shape == (1, HEADS, 20, DEPTH)
    assert len(program.programs) == 4


@pytest.mark.parametrize("choice", [{"weights": "int4:16"}, {"weights": "int8"}, {"dynamic": True}])
def test_models_without_a_profile_take_all_sizes(
    model: qglow.Model, choice: dict[str, Any], tmp_path: Path
) -> None:
    cache = (1, HEADS, 5, DEPTH)
    loaded = qglow.load_model(model.path, {"tokens": (1, 4), **dict.fromkeys(STATES, cache)})
    loaded.quantize(**choice).save(tmp_path / "quantized")
    source = qglow.load_quantized(tmp_path / "quantized")
    drawn = tokens(9)
    program = source.compile(bounds={"new": (1, 8), "past": BOUND}, states=STATES)
    whole = source.compile()(without_past(drawn))["logits"]
    assert piecewise(program, drawn, (5, 1, 3)).tobytes() == whole.tobytes()


def test_sizes_import_nothing_once_it_is_compiled(
    model: qglow.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = model.compile(bounds={"new": (1, 8), "past": BOUND}, states=STATES)
    wanted = model.compile()(without_past(tokens(12)))["logits"]

    def refuse(*arguments: object) -> None:
        raise AssertionError("a call imports the constants of its size")

    monkeypatch.setattr(ShapeConstants, "imported", refuse)
    assert piecewise(program, tokens(12), (7, 1, 1, 3)).tobytes() == wanted.tobytes()


def test_streams_are_reset_and_forked(model: qglow.Model) -> None:
    program = model.compile(bounds={"new": (1, 8), "past": BOUND}, states=STATES)
    assert isinstance(program, GrowingExecutable)
    assert set(program.inputs) == {"tokens"} and set(program.outputs) == {"logits"}
    drawn = tokens(9)
    piecewise(program, drawn, (4,))
    twin, kept = program.fork(), program.state["past_key"].copy()
    rest = piecewise(program, drawn[:, 4:], (1, 1, 1, 1, 1))
    assert twin.state["past_key"].tobytes() == kept.tobytes()
    assert piecewise(twin, drawn[:, 4:], (5,)).tobytes() == rest.tobytes()
    program.reset(initial={name: np.zeros((1, HEADS, 3, DEPTH), np.float32) for name in STATES})
    assert program.state["past_value"].shape == (1, HEADS, 3, DEPTH)
    program.reset()
    assert program.state["past_value"].shape == (1, HEADS, 0, DEPTH)
    assert piecewise(program, drawn, (8, 1))[:, 4:].tobytes() == rest.tobytes()


def test_a_stream_ends_at_its_bound(model: qglow.Model) -> None:
    program = model.compile(bounds={"new": 8, "past": 8}, states=STATES)
    program({"tokens": tokens(8)})
    program({"tokens": tokens(8)})
    with pytest.raises(DataError, match="dimension 'past' is 16, the bound is 8"):
        program({"tokens": tokens(1)})
    assert program.state["past_key"].shape == (1, HEADS, 16, DEPTH)


def test_elements_behind_the_live_ones_may_be_anything(tmp_path: Path) -> None:
    # A place that is not live is 0, and 1 / 0 infinite; then log(inf - inf) is NaN.
    nodes = [
        node("Reciprocal", ["x"], ["inverse"]),
        node("Sub", ["inverse", "inverse"], ["difference"]),
        node("Add", ["difference", "x"], ["y"]),
        node("ReduceSum", ["y", "axis"], ["sum"], keepdims=0),
        node("ReduceMax", ["y"], ["largest"], axes=[1], keepdims=0),
        node("Transpose", ["y"], ["turned"], perm=[0, 2, 1]),
        node("MatMul", ["turned", "y"], ["products"]),
        node("Gather", ["y", "end"], ["last"], axis=1),
    ]
    outputs = ["sum", "largest", "products", "last"]
    constants = {"axis": np.array([1]), "end": np.array([-1])}
    model = qglow.load_model(save(tiny_model(nodes, {"x": (1, "T", 4)}, outputs, constants), tmp_path))
    bounded, own = model.compile(bounds={"T": 16}), model.compile()
    for count in (1, 2, 15, 16):
        inputs = {"x": np.random.default_rng(count).normal(size=(1, count, 4)).astype(np.float32)}
        found = bounded(inputs)
        assert same(found, own(inputs)), count
        assert all(np.isfinite(array).all() for array in found.values())


def test_a_state_may_become_shorter(tmp_path: Path) -> None:
    # The state is the piece before, whatever length that had.
    nodes = [
        node("Concat", ["before", "x"], ["both"], axis=1),
        node("ReduceSum", ["before", "axis"], ["sum"], keepdims=0),
        node("CumSum", ["both", "axis"], ["sums"]),
        node("Identity", ["x"], ["after"]),
    ]
    shapes = {"x": (1, "new", 4), "before": (1, "past", 4)}
    outputs = ["sum", "sums", "after"]
    constants = {"axis": np.array([1])}
    made = tiny_model(nodes, shapes, outputs, constants, opset=17)
    model = qglow.load_model(save(made, tmp_path))
    program = model.compile(bounds={"new": 16, "past": 16}, states={"before": "after"})
    own, before = model.compile(), np.zeros((1, 0, 4), np.float32)
    for count in (12, 3, 5):
        piece = np.random.default_rng(count).normal(size=(1, count, 4)).astype(np.float32)
        wanted = own({"x": piece, "before": before})
        assert same(program({"x": piece}), {name: wanted[name] for name in ("sum", "sums")}), count
        before = piece


def test_a_node_that_has_to_know_a_size_is_named(tmp_path: Path) -> None:
    nodes = [
        node("Reshape", ["x", "all"], ["r"], name="merged"),
        node("Softmax", ["r"], ["y"], axis=0, name="shares"),
    ]
    made = tiny_model(nodes, {"x": (1, 4, "T")}, ["y"], {"all": np.array([-1])})
    model = qglow.load_model(save(made, tmp_path))
    with pytest.raises(UnsupportedError, match="node 'shares' .*the 4 by T places along axis 0 of 'r'"):
        model.compile(bounds={"T": 16})


def test_wrong_bounds_and_sizes_are_refused(model: qglow.Model) -> None:
    for bounds, message in (
        ({"new": 8}, "dimension 'past' of input 'past_key' has no size"),
        ({"new": 8, "past": 8, "seq": 8}, "no dimension of an input is called 'seq'; there are new, past"),
        ({"new": 3, "past": 8}, "the bound of 'new' is 3, it must be 1 or at least 8"),
        ({"new": "past", "past": 8, "x": 8}, "no dimension of an input is called 'x'"),
        ({"new": 8.5, "past": 8}, "the bound of 'new' is 8.5, it must be 1 or at least 8"),
        ({"new": 8, "past": "2 * other"}, "'past' is bounded by '2 \\* other', which is no sum"),
    ):
        with pytest.raises(UsageError, match=message):
            model.compile(bounds=bounds)
    program = model.compile(bounds={"new": 8, "past": 8})
    inputs = dict(without_past(tokens(9)))
    with pytest.raises(DataError, match="dimension 'new' is 9, the bound is 8"):
        program(inputs)
    inputs["tokens"] = tokens(3)
    inputs["past_key"] = np.zeros((1, HEADS, 2, DEPTH), np.float32)
    with pytest.raises(DataError, match="input 'past_value' has shape"):
        program(inputs)
    with pytest.raises(UsageError, match="state 'past_key': no output is called 'logit'"):
        model.compile(bounds={"new": 8, "past": 8}, states={"past_key": "logit"})
    with pytest.raises(UsageError, match="the output 'logits' is"):
        model.compile(bounds={"new": 8, "past": 8}, states={"past_key": "logits"})
    with pytest.raises(UsageError, match="arrays"):
        program.bind({}, {})


def test_a_dimension_that_no_input_shows_alone_is_refused(tmp_path: Path) -> None:
    nodes = [node("ReduceSum", ["mask", "axis"], ["sum"], keepdims=0), node("Neg", ["x"], ["y"])]
    shapes = {"x": (1, "new"), "mask": (1, "past + new")}
    model = qglow.load_model(save(tiny_model(nodes, shapes, ["sum", "y"], {"axis": np.array([1])}), tmp_path))
    with pytest.raises(UsageError, match="the inputs show no size of 'past': it is part of sums alone"):
        model.compile(bounds={"new": 8, "past": 8})


def test_other_peoples_decoder_with_a_cache() -> None:
    model = qglow.load_model(wild_path("capp_gpt.onnx"))
    states = {
        f"past_key_values.{layer}.{kind}": f"present.{layer}.{kind}"
        for layer in range(4)
        for kind in ("key", "value")
    }
    bounds = {"sequence_length": (1, 16), "past_sequence_length": 64}
    program = model.compile(bounds=bounds, states=states)
    drawn = np.random.default_rng(0).integers(0, WORDS, size=(1, 24))

    def inputs(past: int, new: int) -> dict[str, Array]:
        return {
            "input_ids": drawn[:, past : past + new],
            "attention_mask": np.ones((1, past + new), np.int64),
            "position_ids": np.arange(past, past + new)[None],
        }

    begin, logits = 0, []
    for piece in (16, 4, 1, 1, 1, 1):
        logits.append(program(inputs(begin, piece))["logits"])
        begin += piece
    empty = np.zeros((1, 4, 0, 16), np.float32)
    whole = model.compile()({**inputs(0, 24), **dict.fromkeys(states, empty)})["logits"]
    assert np.concatenate(logits, 1).tobytes() == whole.tobytes()


def test_rows_of_a_cache_are_repeated_for_groups_of_heads(tmp_path: Path) -> None:
    """Keys that a cache and new ones are joined to, moved together, are reshaped (grouped heads)."""
    nodes = [
        node("Concat", ["past", "x"], ["present"], axis=2),
        node("Unsqueeze", ["present", "two"], ["apart"]),
        node("Shape", ["apart"], ["shape"]),
        node("Mul", ["shape", "thrice"], ["wide"]),
        node("Expand", ["apart", "wide"], ["repeated"]),
        node("Reshape", ["repeated", "heads"], ["keys"]),
        node("ReduceSum", ["keys", "two"], ["y"], keepdims=0),
    ]
    constants = {"two": np.array([2]), "thrice": np.array([1, 1, 3, 1, 1]), "heads": np.array([0, 6, -1, 4])}
    shapes = {"past": (1, 2, "past_size", 4), "x": (1, 2, "new", 4)}
    made = tiny_model(nodes, shapes, ["y", "present"], constants, opset=17)
    model = qglow.load_model(save(made, tmp_path))
    bounded, own = model.compile(bounds={"past_size": 16, "new": 8}), model.compile()
    random = np.random.default_rng(0)
    for past, new in ((16, 8), (5, 3), (0, 1)):
        sizes = {"past": past, "x": new}
        inputs = {n: random.normal(size=(1, 2, size, 4)).astype(np.float32) for n, size in sizes.items()}
        assert same(bounded(inputs), own(inputs)), (past, new)


END = 2**31


@pytest.mark.parametrize(
    ("part", "least"),
    [
        ((-4, 2**31, 1), 4),
        ((5, 2**31, 1), 5),
        ((0, 5, 1), 5),
        ((0, 9, 2), 9),
        ((2, -1, 1), 3),
        ((0, -1, 1), 1),
    ],
)
def test_a_slice_of_too_few_places_is_an_error_of_the_call(
    part: tuple[int, int, int], least: int, tmp_path: Path
) -> None:
    """A program of that size has fewer places, or begins elsewhere: other calls go on."""
    nodes = [node("Slice", ["x", "first", "end", "zero", "step"], ["s"]), node("Neg", ["s"], ["y"])]
    first, end, step = (np.array([number]) for number in part)
    constants = {"first": first, "end": end, "step": step, "zero": np.array([0])}
    made = tiny_model(nodes, {"x": ("T", 2)}, ["y"], constants, opset=17)
    program = qglow.load_model(save(made, tmp_path)).compile(bounds={"T": 24})
    for count in (24, *range(1, 24), 24):
        x = np.random.default_rng(count).normal(size=(count, 2)).astype(np.float32)
        if count < least:
            with pytest.raises(DataError, match=rf"x \[{count}, 2\] is too small"):
                program({"x": x})
        else:
            assert program({"x": x})["y"].tobytes() == (-x[slice(*part)]).tobytes(), count


@pytest.mark.parametrize("kind", ["INT64", "FLOAT"])
@pytest.mark.parametrize("limit", ["Min", "Max"])
def test_numbers_that_only_small_sizes_change(limit: str, kind: str, tmp_path: Path) -> None:
    """The length, but at most or at least 4: the bound and its half do not tell that it is another one."""
    to = getattr(TensorProto, kind)
    nodes = [
        node("Shape", ["x"], ["length"], start=2),
        node(limit, ["length", "four"], ["limited"]),
        node("Cast", ["limited"], ["number"], to=to),
        node("Add", ["x", "number"], ["y"]),
    ]
    made = tiny_model(nodes, {"x": (1, 1, "T")}, ["y"], {"four": np.array([4])}, opset=17)
    made.graph.input[0].type.tensor_type.elem_type = made.graph.output[0].type.tensor_type.elem_type = to
    program = qglow.load_model(save(made, tmp_path)).compile(bounds={"T": 16})
    for count in (16, *range(1, 16)):
        x = np.arange(count).astype(np.int64 if kind == "INT64" else np.float32).reshape(1, 1, -1)
        limited = (min if limit == "Min" else max)(count, 4)
        np.testing.assert_array_equal(program({"x": x})["y"], x + limited)


@pytest.mark.parametrize("shape", [(1, "T"), ("T", 1, 6)])
def test_numbers_of_passes_that_only_small_sizes_change_are_refused(
    shape: tuple[int | str, ...], tmp_path: Path
) -> None:
    """Factors and summands that passes made of them are no tensors of the file."""
    nodes = [
        node("Shape", ["x"], ["sizes"]),
        node("ReduceMax", ["sizes"], ["length"], keepdims=1),
        node("Min", ["length", "four"], ["limited"]),
        node("Cast", ["limited"], ["number"], to=TensorProto.FLOAT),
        node("ReduceMax", ["x"], ["largest"], axes=[len(shape) - 2], keepdims=0),
        node("Mul", ["largest" if len(shape) > 2 else "x", "number"], ["scaled"]),
        node("Add", ["scaled", "number"], ["y"]),
    ]
    made = tiny_model(nodes, {"x": shape}, ["y"], {"four": np.array([7])}, opset=17)
    with pytest.raises(UnsupportedError, match="'scaled'|'y'|Add|Mul"):
        qglow.load_model(save(made, tmp_path)).compile(bounds={"T": 24})
