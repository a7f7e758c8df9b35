"""Bundles that keep states: a stream in C has the bits of the stream in Python."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import qglow
from qglow import Array
from qglow.cli.main import main
from qglow.core.errors import UsageError
from qglow.emulation.bundle import load_bundle
from qglow.numerics.quantize import as_unsigned
from qglow.targets.registry import running_names
from tests.compilers import c_compiler
from tests.emulated import needs
from tests.end_to_end.test_streaming import (
    CACHED,
    CHANNELS,
    HIDDEN,
    MODELS,
    PIECE,
    TAPS,
    Shapes,
    drawn,
    int8_model,
    loaded,
    node,
    recurrence,
    sequence,
)
from tests.unit.importer.tiny import save, tiny_model
from tests.zoo import wild_path

CALLS = 20
LSTM = {"h": "next_h", "c": "next_c"}
EMULATED = ("aarch64-dotprod", "riscv64", "cortex-m4", "cortex-m7", "cortex-m55", "wasm32-simd128")


def assert_same_stream(
    made: qglow.Model | qglow.QuantizedModel,
    states: Mapping[str, str],
    pieces: list[dict[str, Array]],
    folder: Path,
    target: str,
) -> None:
    """Outputs of every call, and the states behind the last one, are those of the program."""
    made.save_bundle(folder / "made", isa=target, states=states)
    bundle, program = load_bundle(folder / "made"), made.compile(states=states)
    assert set(bundle.inputs) == set(program.inputs) and set(bundle.outputs) == set(program.outputs)
    assert set(bundle.state) == set(states)
    for number, piece in enumerate(pieces):
        found, wanted = bundle(piece), program(piece)
        for name in wanted:
            assert found[name].tobytes() == wanted[name].tobytes(), f"%{name} of call {number}"
    for name in states:
        assert program.state[name].any()
        assert bundle.state[name].tobytes() == program.state[name].tobytes(), name


def pieces_of(axis: int) -> list[dict[str, Array]]:
    return [{"x": x} for x in np.split(sequence(axis, CALLS * PIECE), CALLS, axis)]


def may_run(target: str) -> None:
    """Skip where this machine has no way to run code for a target."""
    if target == "c":
        c_compiler()
    elif target in EMULATED:
        needs(target)
    elif target not in ("host", *running_names()):
        pytest.skip("the host cannot run it")


@pytest.mark.parametrize("target", ["generic", "host", *EMULATED, "c"])
@pytest.mark.parametrize("name", ["lstm", "convolution"])
def test_int8_streams_have_the_bits_of_the_program(name: str, target: str, tmp_path: Path) -> None:
    may_run(target)
    model, axis, states, _along = MODELS[name]
    quantized = int8_model(model, tmp_path, axis, states)
    assert_same_stream(quantized, states, pieces_of(axis), tmp_path, target)


@pytest.mark.parametrize("target", ["host", "cortex-m7", "c"])
def test_float_streams_have_the_bits_of_the_program(target: str, tmp_path: Path) -> None:
    may_run(target)
    model, axis, states, _along = MODELS["gru"]
    made = loaded(model, tmp_path, axis, PIECE)
    assert_same_stream(made, states, pieces_of(axis), tmp_path, target)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["host", "aarch64-dotprod", "cortex-m55"])
def test_a_voice_detector_has_the_bits_of_the_program(target: str, tmp_path: Path) -> None:
    """Four states of two LSTM layers, of a model that others made."""
    path = wild_path("ten_vad.onnx")
    if target != "host":
        needs(target)
    states = {f"input_{index}": f"output_{index}" for index in (2, 3, 6, 7)}
    model = qglow.load_model(path)
    with np.load(wild_path("ten_vad.inputs.npz")) as data:
        scale = float(np.std(data["0|input_1"]))
    drawn = np.random.default_rng(0).normal(size=(CALLS, *model.inputs["input_1"].shape)) * scale
    pieces = [{"input_1": frame} for frame in drawn.astype(np.float32)]
    program, seen = model.compile(states=states), []
    for piece in pieces:
        seen.append(piece | {name: array.copy() for name, array in program.state.items()})
        program(piece)
    samples = {name: np.concatenate([one[name] for one in seen]) for name in seen[0]}
    quantized = model.quantize(model.profile(samples), check=False, repair=False)
    assert_same_stream(quantized, states, pieces, tmp_path, target)


STREAM = """
#include <stdio.h>
#include "tiny.h"
static _Alignas(64) unsigned char arena[TINY_ARENA_BYTES];
static float x[TINY_X_ELEMENTS], y[TINY_Y_ELEMENTS];
static float h[TINY_H_ELEMENTS] = {1.0f}, c[TINY_C_ELEMENTS] = {1.0f};
int main(void)
{
    const tiny_io io = {.x = x, .y = y, .h = h, .c = c};
    if (tiny_check(arena, tiny_weights) || TINY_STATES != 2u) { return 1; }
    tiny_reset(&io);
    while (fread(x, sizeof x, 1, stdin)) {
        RUN
        fwrite(y, sizeof y, 1, stdout);
    }
    return 0;
}
"""
ONCE = "tiny_run(arena, tiny_weights, &io);"
IN_PARTS = """
        for (uint32_t step = 0; step < TINY_STEPS; step++) {
            for (uint32_t part = tiny_parts[step]; part-- > 0;) {
                tiny_part(arena, tiny_weights, &io, step, part);
            }
        }
"""


@pytest.mark.parametrize(("threads", "run"), [(1, ONCE), (3, IN_PARTS)])
def test_a_stream_in_c(threads: int, run: str, tmp_path: Path) -> None:
    """The struct has one pointer for each state; parts for threads end with the states too."""
    compiler = c_compiler()
    quantized = int8_model(recurrence("LSTM"), tmp_path, 0, LSTM)
    quantized.save_bundle(tmp_path / "made", states=LSTM, threads=threads)
    (header,) = (tmp_path / "made").glob("*.h")
    source = STREAM.replace("RUN", run).replace("tiny", header.stem).replace("TINY", header.stem.upper())
    (tmp_path / "stream.c").write_text(source)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1"]
    paths = ["stream.c", "-Imade", "-Lmade", f"-l{header.stem}", "-o", "stream"]
    subprocess.run([compiler, *flags, *paths], cwd=tmp_path, check=True, capture_output=True)
    program, pieces = quantized.compile(states=LSTM), pieces_of(0)
    given = b"".join(piece["x"].tobytes() for piece in pieces)
    done = subprocess.run(["./stream"], cwd=tmp_path, input=given, capture_output=True, check=False)
    assert done.returncode == 0
    assert done.stdout == b"".join(program(piece)["y"].tobytes() for piece in pieces)


def test_a_state_takes_over_the_output_that_is_named(tmp_path: Path) -> None:
    quantized = int8_model(recurrence("LSTM"), tmp_path, 0, LSTM)
    swapped = {"h": "next_c", "c": "next_h"}
    for name, states in (("right", LSTM), ("other", swapped)):
        quantized.save_bundle(tmp_path / name, states=states)
    right, other = (load_bundle(tmp_path / name) for name in ("right", "other"))
    (piece, *_) = pieces_of(0)
    for bundle in (right, other):
        bundle(piece)
    assert right.state["h"].tobytes() == other.state["c"].tobytes() != right.state["c"].tobytes()


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ({"h": "y"}, "their types have to be equal"),
        ({"no": "next_h"}, "no input has this name"),
        ({"h": "no"}, "no output is called 'no'"),
    ],
)
def test_states_that_do_not_fit_are_refused(states: dict[str, str], words: str, tmp_path: Path) -> None:
    made = loaded(recurrence("LSTM"), tmp_path, 0, PIECE)
    with pytest.raises(UsageError, match=words):
        made.save_bundle(tmp_path / "made", states=states)
    assert not (tmp_path / "made").exists()


def kept_in_int8(folder: Path, element: str) -> qglow.QuantizedModel:
    """The causal convolution as another tool quantized it, with one scale for its cache and all else."""
    kind = np.dtype(element)
    constants = {
        "scale": np.float32(0.02),
        "zero": np.array(135 if element == "uint8" else 7, kind),
        "small": np.full(HIDDEN, 0.01, np.float32),
        "none": np.zeros(HIDDEN, np.int8),
        "w_steps": np.rint(drawn(HIDDEN, CHANNELS, TAPS) / np.float32(0.01)).astype(np.int8),
        "begin": np.array([1 - TAPS]),
        "end": np.array([10**6]),
        "axis": np.array([2]),
    }
    nodes = [
        node("DequantizeLinear", ["x", "scale", "zero"], ["real"]),
        node("DequantizeLinear", ["cache", "scale", "zero"], ["kept"]),
        node("Concat", ["kept", "real"], ["joined"], axis=2),
        node("QuantizeLinear", ["joined", "scale", "zero"], ["steps"]),
        node("DequantizeLinear", ["steps", "scale", "zero"], ["rounded"]),
        node("DequantizeLinear", ["w_steps", "small", "none"], ["w"], axis=0),
        node("Conv", ["rounded", "w"], ["convolved"]),
        node("QuantizeLinear", ["convolved", "scale", "zero"], ["y"]),
        node("Slice", ["rounded", "begin", "end", "axis"], ["last"]),
        node("QuantizeLinear", ["last", "scale", "zero"], ["next_cache"]),
    ]
    shapes: Shapes = {"x": (1, CHANNELS, PIECE), "cache": (1, CHANNELS, TAPS - 1)}
    number = helper.np_dtype_to_tensor_dtype(kind)
    results = ["y", "next_cache"]
    model = tiny_model(nodes, shapes, results, constants, opset=17, input_type=number, output_type=number)
    return qglow.load_model(save(model, folder)).quantize(check=False, repair=False)


@pytest.mark.parametrize("target", ["host", *EMULATED, "c"])
@pytest.mark.parametrize("element", ["int8", "uint8"])
def test_quantized_states_begin_at_their_zero_points(element: str, target: str, tmp_path: Path) -> None:
    """Callers see int8 or uint8, whichever of the two the code has in memory."""
    may_run(target)
    quantized = kept_in_int8(tmp_path, element)
    (cache,) = quantized.compile(states=CACHED).state.values()
    assert cache.dtype == element and cache.any(), "zero bytes would begin the stream too"
    pieces = [{"x": quantize_to(quantized, piece["x"])} for piece in pieces_of(2)]
    assert_same_stream(quantized, CACHED, pieces, tmp_path, target)
    (entry,) = [
        tensor
        for tensor in json.loads(next((tmp_path / "made").glob("*.json")).read_text())["tensors"]
        if tensor["role"] == "state"
    ]
    assert (
        entry["element"] == {"int8": "i8", "uint8": "u8"}[element]
        and entry["zero_point"] == cache.flat[0]
        and entry["scale"] > 0
    )


def quantize_to(quantized: qglow.QuantizedModel, x: Array) -> Array:
    """x as the int8 or uint8 input that callers of a program have."""
    kind = quantized.compile().inputs["x"]
    assert kind.quantization is not None
    steps = np.rint(x / np.float32(kind.quantization.scale)) + kind.quantization.zero_point
    stored = np.clip(steps, -128, 127).astype(np.int8)
    return as_unsigned(stored) if kind.unsigned else stored


@pytest.mark.parametrize("target", ["host", "cortex-m4", "wasm32-simd128", "c"])
def test_streams_of_a_bundle_begin_anew_and_fork(target: str, tmp_path: Path) -> None:
    may_run(target)
    quantized = kept_in_int8(tmp_path, "uint8")
    quantized.save_bundle(tmp_path / "made", isa=target, states=CACHED)
    bundle = load_bundle(tmp_path / "made")
    first, second, *_ = [{"x": quantize_to(quantized, piece["x"])} for piece in pieces_of(2)]
    begun = bundle(first)["y"]
    forked = bundle.fork()
    further = bundle(second)["y"]
    assert np.array_equal(forked(second)["y"], further) and not np.array_equal(further, begun)
    bundle.reset()
    assert np.array_equal(bundle(first)["y"], begun)
    bundle.reset(forked.state)
    assert np.array_equal(bundle.state["cache"], forked.state["cache"])
    with pytest.raises(UsageError, match="no state is called 'other'"):
        bundle.reset({"other": np.zeros(1, np.uint8)})
    with pytest.raises(UsageError, match="the initial 'cache' is int8 of shape"):
        bundle.reset({"cache": forked.state["cache"].view(np.int8)})


def test_the_command_declares_states(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, axis, _states, _along = MODELS["convolution"]
    int8_model(model, tmp_path, axis, CACHED).save(tmp_path / "int8")
    given, made = ["compile", str(tmp_path / "int8"), "--state", "cache=next_cache"], tmp_path / "made"
    assert main([*given, "-o", str(tmp_path / "x.qglow")]) == UsageError.exit_code
    assert "--state is for bundles and language models" in capsys.readouterr().err
    assert main([*given, "--emit-bundle", str(made)]) == 0
    assert list(load_bundle(made).state) == ["cache"]
