"""A cache of keys and values in int8: prefill and decode, bits, files, memory, and mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qglow
from qglow.cli.main import main
from qglow.core.errors import UsageError
from qglow.core.types import Array
from qglow.numerics.rows import row_scales
from qglow.toolchain.growing import GrowingExecutable
from tests.end_to_end.decoder_model import DEPTH, HEADS, STATES, decoder, tokens
from tests.runtimes import NATIVE_ISAS
from tests.unit.importer.tiny import save

CONTEXT = 24
TEXT = [int(token) for token in tokens(20)[0]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(decoder(), tmp_path_factory.mktemp("decoder"), "decoder.onnx")


@pytest.fixture(scope="module")
def model(path: Path) -> qglow.Model:
    return qglow.load_model(path)


def generator(source: Any, cache: str = "int8", **options: Any) -> qglow.Generator:
    return qglow.load_generator(source, context=CONTEXT, piece=8, cache=cache, **options)


def program(made: qglow.Generator) -> GrowingExecutable:
    assert isinstance(made.executable, GrowingExecutable)
    return made.executable


def in_pieces(made: qglow.Generator, pieces: tuple[int, ...]) -> Array:
    """Scores after every piece of the text."""
    made.reset()
    ends = np.cumsum(pieces)
    return np.stack([made.read(TEXT[end - size : end]) for end, size in zip(ends, pieces, strict=True)])


FORMS: Mapping[str, dict[str, Any]] = {"float": {}, "int4": {"weights": "int4"}, "dynamic": {"dynamic": True}}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("isa", NATIVE_ISAS)
def test_prefill_is_decode_bit_for_bit(path: Path, model: qglow.Model, form: str, isa: str) -> None:
    source: Any = model
    if FORMS[form]:
        sizes = {"tokens": (1, 4), **dict.fromkeys(STATES, (1, HEADS, 4, DEPTH))}
        source = qglow.load_model(path, sizes).quantize(**FORMS[form])
    made = generator(source, isa=isa)
    one = in_pieces(made, (1,) * 20)
    states = {name: array.copy() for name, array in program(made).state.items()}
    for pieces in ((8, 8, 4), (3, 1, 5, 1, 1, 8, 1)):
        found = in_pieces(made, pieces)
        assert found.tobytes() == one[np.cumsum(pieces) - 1].tobytes()
        assert all(states[name].tobytes() == array.tobytes() for name, array in program(made).state.items())


def test_every_instruction_set_keeps_the_same_integers(model: qglow.Model) -> None:
    made = [generator(model, isa=isa) for isa in NATIVE_ISAS if isa != "generic"]  # whose floats are others
    scores = [in_pieces(one, (8, 8, 4)).tobytes() for one in made]
    kept = [{name: array.tobytes() for name, array in program(one).state.items()} for one in made]
    assert scores == scores[:1] * len(made) and kept == kept[:1] * len(made)


def test_what_is_kept_is_each_head_of_a_token_by_its_own_scale(model: qglow.Model) -> None:
    small, real = generator(model), generator(model, cache="float32")
    expected, found = (in_pieces(one, (8, 8, 4)) for one in (real, small))
    assert np.abs(found - expected).max() < 0.02 * np.abs(expected).max() and np.any(found != expected)
    for name in STATES:
        codes, scales = (program(small).state[key] for key in (name, f"scales.{name}"))
        assert codes.dtype == np.int8 and codes.shape == (1, HEADS, 20, DEPTH)
        # Keys and values of the first layer do not depend on the cache.
        rows = program(real).state[name]
        wanted = row_scales(rows)
        assert scales.tobytes() == wanted.tobytes()
        assert np.array_equal(codes, np.rint(np.clip(rows / wanted, -127, 127)))


def test_no_program_copies_the_cache(model: qglow.Model) -> None:
    for one in program(generator(model))._executable._programs:
        assert set(one.kept.values()) == {*STATES, *(f"scales.{name}" for name in STATES)}
        for kind in one.executable.kept.values():
            opcodes = [
                i.operation.opcode
                for i in one.executable.program.code
                if any(buffer.type == kind for buffer in i.writes())
            ]
            assert set(opcodes) == {"insertat"}
        masks = [i for i in one.executable.program.code if i.operation.opcode == "select"]
        cache = (1, HEADS, one.form.taken.sizes["past"] + one.form.taken.sizes["new"], DEPTH)
        alone = one.form.taken.sizes["new"] == 1
        assert not alone or all(i.writes()[0].type.shape != cache for i in masks)


def test_streams_are_forgotten_and_forked(model: qglow.Model) -> None:
    made = generator(model)
    first = in_pieces(made, (8, 8, 4))
    assert in_pieces(made, (8, 8, 4)).tobytes() == first.tobytes()
    made.reset()
    made.read(TEXT[:7])
    forked = program(made).fork()
    made.read(TEXT[7:12])
    assert forked.state["past_key"].shape[2] == 7
    again = forked({"tokens": np.array([TEXT[7:12]])})["logits"]
    assert again[0, -1].tobytes() == in_pieces(made, (8, 4))[-1].tobytes()


def test_a_file_has_it(model: qglow.Model, tmp_path: Path) -> None:
    qglow.save_generator(model, tmp_path / "small.qglow", context=CONTEXT, piece=8, cache="int8")
    qglow.save_generator(model, tmp_path / "real.qglow", context=CONTEXT, piece=8)
    expected = in_pieces(generator(model), (8, 8, 4))
    for cache in ("int8", "float32"):
        loaded = generator(qglow.load(tmp_path / "small.qglow", trust=True), cache)
        assert in_pieces(loaded, (8, 8, 4)).tobytes() == expected.tobytes()
        assert program(loaded).state["past_key"].dtype == np.int8
    with pytest.raises(UsageError, match="cache is int8, but the program was compiled with another one"):
        generator(qglow.load(tmp_path / "real.qglow", trust=True))


def test_commands_have_it(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(token) for token in TEXT[:6]]
    wanted = list(generator(qglow.load_model(path)).generate(TEXT[:6], 8))
    arguments = ["--tokens", ",".join(words), "--count", "8", "--context", str(CONTEXT)]
    assert main(["generate", str(path), *arguments, "--cache", "int8"]) == 0
    assert capsys.readouterr().out.strip() == ",".join(map(str, wanted))
    compiled = tmp_path / "small.qglow"
    options = ["--context", str(CONTEXT), "--piece", "8", "--cache", "int8"]
    assert main(["compile", str(path), *options, "-o", str(compiled)]) == 0
    assert main(["generate", str(compiled), "--trust", *arguments]) == 0
    assert capsys.readouterr().out.strip().endswith(",".join(map(str, wanted)))
    measured = ["bench", str(path), "--prefill", "8", "--decode", "4", "--texts", "1", "--threads", "1"]
    assert main([*measured, "--cache", "int8"]) == 0
    assert main(["bench", str(path), "--cache", "int8"]) == 2
    assert "--cache goes with --prefill and --decode" in capsys.readouterr().err


def test_a_model_without_a_cache_is_told(tmp_path: Path) -> None:
    from tests.end_to_end.test_generation import without_cache

    for length in ("n", 16):
        model = qglow.load_model(save(without_cache(length), tmp_path, f"{length}.onnx"))
        with pytest.raises(UsageError, match="cache is int8, but the model has no cache that grows"):
            generator(model)
