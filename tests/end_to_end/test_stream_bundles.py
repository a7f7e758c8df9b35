"""Bundles that keep states: a stream in C has the bits of the stream in Python."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import qglow
from qglow import Array
from qglow.cli.main import main
from qglow.core.errors import UsageError
from qglow.emulation.bundle import load_bundle
from qglow.targets.registry import running_names
from tests.compilers import c_compiler
from tests.emulated import needs
from tests.end_to_end.test_streaming import CACHED, MODELS, PIECE, int8_model, loaded, recurrence, sequence
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


@pytest.mark.parametrize("target", ["generic", "host", *EMULATED])
@pytest.mark.parametrize("name", ["lstm", "convolution"])
def test_int8_streams_have_the_bits_of_the_program(name: str, target: str, tmp_path: Path) -> None:
    if target in EMULATED:
        needs(target)
    elif target not in ("host", *running_names()):
        pytest.skip("the host cannot run it")
    model, axis, states, _along = MODELS[name]
    quantized = int8_model(model, tmp_path, axis, states)
    assert_same_stream(quantized, states, pieces_of(axis), tmp_path, target)


@pytest.mark.parametrize("target", ["host", "cortex-m7"])
def test_float_streams_have_the_bits_of_the_program(target: str, tmp_path: Path) -> None:
    if target != "host":
        needs(target)
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
static float x[TINY_X_ELEMENTS], y[TINY_Y_ELEMENTS], h[TINY_H_ELEMENTS], c[TINY_C_ELEMENTS];
int main(void)
{
    const tiny_io io = {.x = x, .y = y, .h = h, .c = c};
    if (tiny_check(arena, tiny_weights) || TINY_STATES != 2u) { return 1; }
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


def test_quantized_states_and_sources_are_refused(tmp_path: Path) -> None:
    model, axis, states, _along = MODELS["convolution"]
    pieces = loaded(model, tmp_path, axis, PIECE)
    data = {name: np.zeros((2, *kind.shape[1:]), np.float32) + 1 for name, kind in pieces.inputs.items()}
    quantized = pieces.quantize(pieces.profile(data), io="int8", check=False, repair=False)
    with pytest.raises(UsageError, match="begin as zero bytes, which are no zeros here"):
        quantized.save_bundle(tmp_path / "made", states=states)
    with pytest.raises(UsageError, match="bundles of 'c' keep no states"):
        pieces.save_bundle(tmp_path / "made", isa="c", states=states)


def test_the_command_declares_states(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, axis, _states, _along = MODELS["convolution"]
    int8_model(model, tmp_path, axis, CACHED).save(tmp_path / "int8")
    given, made = ["compile", str(tmp_path / "int8"), "--state", "cache=next_cache"], tmp_path / "made"
    assert main([*given, "-o", str(tmp_path / "x.qglow")]) == UsageError.exit_code
    assert "--state are for bundles" in capsys.readouterr().err
    assert main([*given, "--emit-bundle", str(made)]) == 0
    assert list(load_bundle(made).state) == ["cache"]
