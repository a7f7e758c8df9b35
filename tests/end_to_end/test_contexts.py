"""Contexts of language models: as long as their tables, and refused where these are shorter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.transformers.float16 import convert_float_to_float16

import qglow
from qglow.cli.main import main
from qglow.core.errors import DataError, QglowError, UnsupportedError
from qglow.toolchain.growing import GrowingExecutable
from tests.end_to_end.decoder_model import LONGEST, STATES, decoder, tokens, without_past
from tests.unit.importer.tiny import save, session

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def with_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(decoder(), tmp_path_factory.mktemp("generation"), "decoder.onnx")


@pytest.mark.parametrize("piece", [8, 16, 32, 64])
def test_a_context_is_as_long_as_the_tables_of_the_model(
    with_cache: Path, tmp_path: Path, piece: int
) -> None:
    """Pieces that would reach beyond the tables are read in smaller ones, with the same bits."""
    drawn, running = tokens(LONGEST, seed=2), session(decoder())
    wanted = running.run(["logits"], dict(without_past(drawn)))[0][0]
    model = qglow.load_model(with_cache)
    made = qglow.load_generator(model, context=LONGEST, piece=piece)
    qglow.save_generator(model, tmp_path / "decoder.qglow", context=LONGEST, piece=piece)
    loaded = qglow.load_generator(qglow.load(tmp_path / "decoder.qglow", trust=True), context=4096)
    one_by_one = [made.read([token]) for token in drawn[0].tolist()]
    for generator in (made, loaded):
        for first in (1, 47, 58, LONGEST):
            generator.reset()
            found = {first: generator.read(drawn[0, :first].tolist())}
            if first < LONGEST:
                found[LONGEST] = generator.read(drawn[0, first:].tolist())
            for count, scores in found.items():
                np.testing.assert_array_equal(scores, one_by_one[count - 1])
                np.testing.assert_allclose(scores, wanted[count - 1], rtol=1e-4, atol=1e-5)
        with pytest.raises(DataError, match="65 tokens are more than the context of 64"):
            generator.read([1])
    stream = made.executable
    assert isinstance(stream, GrowingExecutable)
    assert {name: array.shape[2] for name, array in stream.fork().state.items()} == dict.fromkeys(STATES, 64)


def test_a_context_beyond_the_tables_is_refused_with_what_to_do(with_cache: Path, capsys: Capture) -> None:
    assert main(["generate", str(with_cache), "--tokens", "1", "--context", str(LONGEST + 1)]) == 3
    assert capsys.readouterr().err.splitlines()[-1].endswith("give a smaller --context")


def test_a_context_beyond_positions_that_are_looked_up_is_refused_so_too(tmp_path: Path) -> None:
    """The mask is long enough: it is the lookup of constant positions that fails, in float16."""
    model = decoder()
    for tensor in model.graph.initializer:
        if tensor.name == "causal":
            mask = np.tril(np.ones((4 * LONGEST, 4 * LONGEST), np.bool_))
            tensor.CopyFrom(onnx.numpy_helper.from_array(mask, "causal"))
    loaded = qglow.load_model(save(convert_float_to_float16(model), tmp_path))
    with pytest.raises(UnsupportedError, match="no program has a .* give a smaller `context`"):
        qglow.load_generator(loaded, context=2 * LONGEST)


def test_a_context_with_no_room_at_all_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    """Tables of eight places, in a context of eight: no cache leaves room for a whole piece."""
    model = decoder()
    for tensor in model.graph.initializer:
        if tensor.name == "places":
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor)[:8], "places"))
    out = tmp_path / "decoder.qglow"
    with pytest.raises(QglowError, match="no program|a program for each size"):
        qglow.save_generator(qglow.load_model(save(model, tmp_path)), out, context=8, piece=8)
    assert not out.exists()
