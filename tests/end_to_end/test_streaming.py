"""Streaming models: a program that keeps states over pieces answers as one call over the whole sequence."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import qglow
from qglow import Array, StreamingExecutable
from qglow.cli.main import main
from qglow.core.errors import DataError, UsageError
from qglow.numerics.quantize import dequantize, quantize
from tests.unit.importer.tiny import save, session, tiny_model
from tests.zoo import wild_path

node = helper.make_node
Shapes = dict[str, Sequence[int | str | None] | None]
CHANNELS, HIDDEN, TAPS, PIECE, PIECES = 6, 8, 4, 5, 4
WHOLE = PIECE * PIECES
CACHED = {"cache": "next_cache"}


def drawn(*shape: int, seed: int = 0) -> Array:
    return (np.random.default_rng(seed).normal(size=shape) / 2.0).astype(np.float32)


def convolution() -> onnx.ModelProto:
    """A causal convolution that takes the last frames of the piece before, and gives those of its own."""
    nodes = [
        node("Concat", ["cache", "x"], ["joined"], axis=2),
        node("Conv", ["joined", "w"], ["y"]),
        node("Slice", ["joined", "begin", "end", "axis"], ["next_cache"]),
    ]
    constants = {
        "w": drawn(HIDDEN, CHANNELS, TAPS),
        "begin": np.array([1 - TAPS]),
        "end": np.array([10**6]),
        "axis": np.array([2]),
    }
    shapes: Shapes = {"x": (1, CHANNELS, "T"), "cache": (1, CHANNELS, TAPS - 1)}
    return tiny_model(nodes, shapes, ["y", "next_cache"], constants, opset=17)


def recurrence(cell: str) -> onnx.ModelProto:
    """A GRU or LSTM whose states are inputs and outputs."""
    gates, states = (3, ["h"]) if cell == "GRU" else (4, ["h", "c"])
    last = [f"next_{name}" for name in states]
    nodes = [
        node(cell, ["x", "w", "r", "", "", *states], ["all", *last], hidden_size=HIDDEN),
        node("Squeeze", ["all", "axis"], ["y"]),
    ]
    constants = {
        "w": drawn(1, gates * HIDDEN, CHANNELS, seed=1),
        "r": drawn(1, gates * HIDDEN, HIDDEN, seed=2),
        "axis": np.array([1]),
    }
    shapes: Shapes = {"x": ("T", 1, CHANNELS), **dict.fromkeys(states, (1, 1, HIDDEN))}
    return tiny_model(nodes, shapes, ["y", *last], constants, opset=17)


MODELS = {
    "convolution": (convolution(), 2, CACHED, 2),
    "gru": (recurrence("GRU"), 0, {"h": "next_h"}, 0),
    "lstm": (recurrence("LSTM"), 0, {"h": "next_h", "c": "next_c"}, 0),
}
"""Models by name: the axis of time in x, the states, and the axis of time in y."""


def sequence(axis: int, length: int, seed: int = 5) -> Array:
    return drawn(1, CHANNELS, length, seed=seed) if axis == 2 else drawn(length, 1, CHANNELS, seed=seed)


def loaded(model: onnx.ModelProto, folder: Path, axis: int, length: int) -> qglow.Model:
    return qglow.load_model(save(model, folder), {"x": sequence(axis, length).shape})


def int8_model(
    model: onnx.ModelProto, folder: Path, axis: int, states: dict[str, str], io: str = "float"
) -> qglow.QuantizedModel:
    """An int8 model of pieces, with the states that streams have in them."""
    pieces = loaded(model, folder, axis, PIECE)
    program = pieces.compile(states=states)
    samples = []
    for x in np.split(sequence(axis, 6 * PIECE, seed=9), 6, axis):
        samples.append({"x": x} | {name: array.copy() for name, array in program.state.items()})
        program({"x": x})
    data = {name: np.stack([_sample(sample[name]) for sample in samples]) for name in samples[0]}
    return pieces.quantize(pieces.profile(data), states=states if io == "int8" else None, io=io)


def _sample(array: Array) -> Array:
    return array[0] if len(array) == 1 else array


@pytest.mark.parametrize("name", MODELS)
def test_pieces_are_the_whole_in_float(name: str, tmp_path: Path) -> None:
    model, axis, states, along = MODELS[name]
    whole = loaded(model, tmp_path, axis, WHOLE).compile()
    x = sequence(axis, WHOLE)
    zeros = {state: np.zeros(whole.inputs[state].shape, np.float32) for state in states}
    expected = whole({"x": x} | zeros)
    program = loaded(model, tmp_path, axis, PIECE).compile(states=states)
    assert list(program.inputs) == ["x"] and list(program.outputs) == ["y"]
    found = [program({"x": piece})["y"] for piece in np.split(x, PIECES, axis)]
    np.testing.assert_array_equal(np.concatenate(found, along), expected["y"])
    for state, output in states.items():
        np.testing.assert_array_equal(program.state[state], expected[output])


@pytest.mark.parametrize("name", MODELS)
def test_int8_states_are_those_of_calls_by_hand(name: str, tmp_path: Path) -> None:
    model, axis, states, _along = MODELS[name]
    quantized = int8_model(model, tmp_path, axis, states)
    plain, program = quantized.compile(), quantized.compile(states=states)
    held = {state: np.zeros(plain.inputs[state].shape, np.float32) for state in states}
    for piece in np.split(sequence(axis, WHOLE), PIECES, axis):
        expected = plain({"x": piece} | held)
        np.testing.assert_array_equal(program({"x": piece})["y"], expected["y"])
        held = {state: expected[output] for state, output in states.items()}
    assert all(held[state].any() for state in states)


@pytest.mark.parametrize("name", MODELS)
def test_states_in_int8_have_one_scale(name: str, tmp_path: Path) -> None:
    """Where the recipe tells which output an input takes, it is quantized as that input is."""
    model, axis, states, _along = MODELS[name]
    quantized = int8_model(model, tmp_path, axis, states, io="int8")
    program, plain = quantized.compile(states=states), int8_model(model, tmp_path, axis, states)
    assert all(array.dtype == np.int8 for array in program.state.values())
    real = plain.compile(states=states)
    taken, given = program.inputs["x"].quantization, program.outputs["y"].quantization
    assert taken is not None and given is not None
    found = wanted = np.zeros(0, np.float32)
    for x in np.split(sequence(axis, WHOLE), PIECES, axis):
        steps = program({"x": quantize(x, taken.scale, taken.zero_point)})["y"]
        found, wanted = dequantize(steps, given.scale, given.zero_point), real({"x": x})["y"]
    noise = np.sum((found - wanted).astype(np.float64) ** 2)
    assert 10 * np.log10(np.sum(wanted.astype(np.float64) ** 2) / noise) > 20
    quantized.save(tmp_path / "saved")
    again = qglow.load_quantized(tmp_path / "saved")
    assert dict(again.recipe.states) == states
    assert again.compile(states=states).state.keys() == states.keys()


def test_int8_pieces_are_the_whole(tmp_path: Path) -> None:
    """Frames have one scale wherever they lie, so that every piece computes the same integers."""
    model, axis, states, along = MODELS["convolution"]
    program = int8_model(model, tmp_path, axis, states).compile(states=states)
    x = sequence(axis, 2 * PIECE)
    first, second = np.split(x, 2, axis)
    found = np.concatenate([program({"x": first})["y"], program({"x": second})["y"]], along)
    shifted = program.fork()  # the same frames, cut elsewhere
    shifted.reset({"cache": np.ascontiguousarray(x[:, :, 2 : 2 + TAPS - 1])})
    middle = shifted({"x": x[:, :, 2 + TAPS - 1 : 2 + TAPS - 1 + PIECE]})["y"]
    np.testing.assert_array_equal(middle, found[:, :, 5:10])


@pytest.fixture
def gru(tmp_path: Path) -> StreamingExecutable:
    return loaded(recurrence("GRU"), tmp_path, 0, PIECE).compile(states={"h": "next_h"})


def test_a_reset_begins_a_new_stream(gru: StreamingExecutable) -> None:
    x = sequence(0, PIECE)
    first, second = gru({"x": x})["y"], gru({"x": x})["y"]
    assert not np.array_equal(first, second)
    gru.reset()
    np.testing.assert_array_equal(gru({"x": x})["y"], first)
    held = gru.state["h"].copy()
    gru({"x": x})
    gru.reset(initial={"h": held})
    np.testing.assert_array_equal(gru({"x": x})["y"], second)


def test_a_fork_goes_its_own_way(gru: StreamingExecutable) -> None:
    x, other = sequence(0, PIECE), sequence(0, PIECE, seed=6)
    gru({"x": x})
    forked = gru.fork()
    forked({"x": other})
    np.testing.assert_array_equal(gru({"x": x})["y"], _after(gru, x, x))
    assert not np.array_equal(forked.state["h"], gru.state["h"])
    assert forked.weight_bytes == gru.weight_bytes and forked.isa == gru.isa


def _after(program: StreamingExecutable, *pieces: Array) -> Array:
    fresh = program.fork()
    fresh.reset()
    return [fresh({"x": piece})["y"] for piece in pieces][-1]


def test_forks_run_in_threads(gru: StreamingExecutable) -> None:
    streams = [sequence(0, WHOLE, seed=seed) for seed in range(4)]

    def run(x: Array) -> Array:
        program = gru.fork()
        return np.concatenate([program({"x": piece})["y"] for piece in np.split(x, PIECES)])

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(run, streams))
    for x, y in zip(streams, found, strict=True):
        np.testing.assert_array_equal(y, run(x))
    assert not gru.state["h"].any()


def test_a_state_is_live(gru: StreamingExecutable) -> None:
    kept = gru.state["h"]
    gru({"x": sequence(0, PIECE)})
    assert kept.any() and gru.state["h"] is kept
    kept[:] = 0
    np.testing.assert_array_equal(gru({"x": sequence(0, PIECE)})["y"], _after(gru, sequence(0, PIECE)))


def test_a_call_that_fails_leaves_the_states(gru: StreamingExecutable) -> None:
    gru({"x": sequence(0, PIECE)})
    before = gru.state["h"].copy()
    with pytest.raises(DataError, match="shape"):
        gru({"x": sequence(0, PIECE + 1)})
    with pytest.raises(DataError, match="'h' is a state"):
        gru({"x": sequence(0, PIECE), "h": before})
    with pytest.raises(DataError, match="none given, x wanted"):
        gru({})
    np.testing.assert_array_equal(gru.state["h"], before)


@pytest.mark.parametrize("int8", [False, True], ids=["float", "int8"])
def test_bound_calls_go_on_with_the_states(int8: bool, tmp_path: Path) -> None:
    model, axis, states, _along = MODELS["lstm"]
    made = int8_model(model, tmp_path, axis, states) if int8 else loaded(model, tmp_path, axis, PIECE)
    program = made.compile(states=states)
    other = program.fork()
    x, y = sequence(axis, PIECE), np.zeros(program.outputs["y"].shape, np.float32)
    run = program.bind({"x": x}, {"y": y})
    for _ in range(3):
        run()
        np.testing.assert_array_equal(y, other({"x": x})["y"])
    np.testing.assert_array_equal(program({"x": x})["y"], other({"x": x})["y"])
    run()
    np.testing.assert_array_equal(y, other({"x": x})["y"])
    with pytest.raises(UsageError, match="no output is called 'next_h'"):
        program.bind({"x": x}, {"y": y, "next_h": y})
    with pytest.raises(UsageError, match="share memory"):
        program.bind({"x": x}, {"y": program.state["h"]})


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ({"hidden": "next_h"}, "'hidden'.*the inputs are x, h"),
        ({"h": "hn"}, "'hn'; the outputs are y, next_h"),
        ({"h": "y"}, "float<1 x 1 x 8>.*'y' is float<5 x 1 x 8>"),
    ],
)
def test_states_that_do_not_fit_are_refused(states: dict[str, str], words: str, tmp_path: Path) -> None:
    model = loaded(recurrence("GRU"), tmp_path, 0, PIECE)
    with pytest.raises(UsageError, match=words) as caught:
        model.compile(states=states)
    assert "\n" not in str(caught.value)


def test_initial_states_that_do_not_fit_are_refused(gru: StreamingExecutable) -> None:
    with pytest.raises(UsageError, match="no state is called 'c'; the states are h"):
        gru.reset({"c": np.zeros(1, np.float32)})
    with pytest.raises(UsageError, match="float64 of shape"):
        gru.reset({"h": np.zeros((1, 1, HIDDEN))})


def test_int8_programs_take_pieces_of_any_length(tmp_path: Path) -> None:
    """One stream runs through programs for several lengths, where the model's file leaves the length open."""
    model, axis, states, along = MODELS["convolution"]
    path = save(model, tmp_path)
    free = qglow.load_model(path)
    samples = [
        {"x": sequence(axis, length, seed=length), "cache": drawn(1, CHANNELS, TAPS - 1, seed=length)}
        for length in (PIECE, PIECE, 7)
    ]
    folder = tmp_path / "samples"
    folder.mkdir()
    for index, sample in enumerate(samples):
        np.savez(folder / f"{index}.npz", x=sample["x"], cache=sample["cache"])
    program = free.quantize(free.profile(folder)).compile(states=states)
    x = sequence(axis, WHOLE)
    parts = [program({"x": piece})["y"] for piece in np.split(x, [3, 3 + PIECE], axis)]
    program.reset()
    np.testing.assert_array_equal(np.concatenate(parts, along), program({"x": x})["y"])


def test_a_real_voice_detector_streams(tmp_path: Path) -> None:
    path = wild_path("ten_vad.onnx")
    states = {f"input_{index}": f"output_{index}" for index in (2, 3, 6, 7)}
    program = qglow.load_model(path).compile(states=states)
    judge = session(path)
    held = {name: np.zeros((1, 64), np.float32) for name in states}
    with np.load(wild_path("ten_vad.inputs.npz")) as data:
        frames = [data[f"{index}|input_1"] for index in range(4)]
    for frame in frames:
        results = judge.run(None, {"input_1": frame} | held)
        expected = dict(zip([output.name for output in judge.get_outputs()], results, strict=True))
        found = program({"input_1": frame})
        assert list(found) == ["output_1"]
        np.testing.assert_allclose(found["output_1"], expected["output_1"], rtol=1e-3, atol=1e-5)
        held = {name: expected[output] for name, output in states.items()}
        for name in states:
            np.testing.assert_allclose(program.state[name], held[name], rtol=1e-3, atol=1e-4)


def test_samples_of_a_command_are_one_stream(tmp_path: Path) -> None:
    model, axis, states, along = MODELS["convolution"]
    pieces = loaded(model, tmp_path, axis, PIECE)
    x = np.concatenate(np.split(sequence(axis, WHOLE), PIECES, axis))
    np.savez(tmp_path / "x.npz", x=x)
    path, shape = str(tmp_path / "tiny.onnx"), f"x={','.join(map(str, pieces.inputs['x'].shape))}"
    given = ["run", path, "--shape", shape, "--data", str(tmp_path / "x.npz")]
    assert main([*given, "--state", "cache=next_cache", "-o", str(tmp_path / "y.npz")]) == 0
    program = pieces.compile(states=states)
    with np.load(tmp_path / "y.npz") as written:
        assert list(written) == ["y"]
        found = written["y"]
    for piece, y in zip(x, found, strict=True):
        np.testing.assert_array_equal(y, program({"x": piece[None]})["y"][0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cache", "write INPUT=OUTPUT"),
        ("cache=y", "their types have to be equal"),
        ("=y", "write INPUT=OUTPUT"),
    ],
)
def test_states_of_a_command_that_do_not_fit(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(convolution(), tmp_path)
    given = ["run", str(path), "--shape", f"x=1,{CHANNELS},{PIECE}", "--data", str(tmp_path)]
    assert main([*given, "--state", text]) == UsageError.exit_code
    assert words in capsys.readouterr().err


def test_samples_of_a_batch_of_streams_are_refused(tmp_path: Path) -> None:
    nodes = [node("Add", ["x", "s"], ["y"]), node("Relu", ["y"], ["next"])]
    path = save(tiny_model(nodes, {"x": (2, 3), "s": (2, 3)}, ["y", "next"]), tmp_path)
    program = qglow.load_model(path).compile(states={"s": "next"})
    with pytest.raises(UsageError, match="bind a batch of 1"):
        list(qglow.run_data(program, {"x": drawn(4, 3)}))
