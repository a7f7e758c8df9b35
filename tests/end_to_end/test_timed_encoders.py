"""Tokens per second of decoders that go on from what an encoder has read, beside onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import qglow
from qglow.cli.main import main
from qglow.core.errors import UsageError
from qglow.generation import find_roles, like_named
from qglow.report.encoded_decoding import (
    EncodedDecoder,
    EncodedFiles,
    EncodedNames,
    OnnxruntimeEncodedDecoder,
)
from tests.end_to_end import encoder_decoder_model as made
from tests.unit.importer.tiny import save

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.export(tmp_path_factory.mktemp("export"))


def test_merged_decoders_are_timed_beside_onnxruntime(folder: Path, tmp_path: Path) -> None:
    model = qglow.load_model(save(made.merged_alone(), tmp_path))
    result = qglow.bench_decoding(model, prefill=6, decode=3, texts=1, threads=1)
    assert {"qglow", "onnxruntime"} <= set(result.speeds)
    with pytest.raises(UsageError, match="what an encoder gives"):
        qglow.bench_decoding(qglow.load_model(folder / "decoder_model_merged.onnx"))


@pytest.mark.parametrize("form", made.FORMS)
def test_rivals_with_an_encoder_compute_the_same(form: str, folder: Path) -> None:
    """The first tokens are the source's, and give scores behind the token that an answer begins with."""
    generator = made.load(folder, form)
    first, place = folder / "decoder_model.onnx", folder / f"{form}.onnx"
    merged = form == "decoder_model_merged"
    files = EncodedFiles(folder / "encoder_model.onnx", place if merged else first, place)
    roles = find_roles(qglow.load_model(place).dimensions)
    states = {name: name.replace("past_key_values", "present") for name in made.OWN}
    branch = "use_cache_branch" if merged else None
    of_first = find_roles(qglow.load_model(first).dimensions).source
    names = EncodedNames(states, (*roles.source, *of_first), "logits", branch, like_named)
    feeds = find_roles(qglow.load_model(files.encoder).dimensions).arrays  # type: ignore[arg-type]
    rival = EncodedDecoder(OnnxruntimeEncodedDecoder(files, names, feeds, roles.arrays))
    own = EncodedDecoder(generator)
    for length in (7, 3):
        tokens = made.source(length)["input_ids"][0].tolist()
        own.reset()
        rival.reset()
        for part in (tokens, [5], [11], [2]):
            np.testing.assert_allclose(own.read(part), rival.read(part), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("form", made.FORMS)
def test_decoders_with_an_encoder_are_timed_beside_onnxruntime(
    form: str, folder: Path, capsys: Capture
) -> None:
    given = [
        "--encoder",
        str(folder / "encoder_model.onnx"),
        "--prefill",
        "6",
        "--decode",
        "3",
        "--texts",
        "1",
    ]
    assert main(["bench", str(folder / f"{form}.onnx"), *given, "--threads", "1"]) == 0
    out = capsys.readouterr().out
    assert "onnxruntime" in out and "6 tokens read, 3 added one by one" in out


def test_quantized_decoders_with_an_encoder_are_timed_beside_their_float_forms(folder: Path) -> None:
    shapes = {"input_ids": (1, 1), "encoder_attention_mask": (1, 7), **dict.fromkeys(made.OWN, (1, 2, 5, 8))}
    model = qglow.load_model(
        folder / "decoder_with_past_model.onnx", {**shapes, **dict.fromkeys(made.CROSS, (1, 2, 7, 8))}
    )
    encoder = qglow.load_model(folder / "encoder_model.onnx")
    result = qglow.bench_decoding(
        model.quantize(dynamic=True),
        encoder=encoder,
        first=qglow.load_model(folder / "decoder_model.onnx"),
        prefill=5,
        decode=2,
        texts=1,
        threads=1,
    )
    assert list(result.speeds) == ["qglow quantized", "qglow float32", "onnxruntime"]


def test_what_cannot_be_timed_with_an_encoder_is_named(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    encoder = qglow.load_model(folder / "encoder_model.onnx")
    model = qglow.load_model(folder / "decoder_with_past_model.onnx")
    with pytest.raises(UsageError, match="`encoder`"):
        qglow.bench_decoding(model)
    with pytest.raises(UsageError, match="beside onnxruntime alone"):
        qglow.bench_decoding(model, encoder=encoder, openvino=True)
    with pytest.raises(UsageError, match="`first`"):
        qglow.bench_decoding(model, encoder=encoder, prefill=5, decode=2, texts=1)
    with pytest.raises(UsageError, match="reads no text: name samples for it as `data`"):
        qglow.bench_decoding(model, encoder=sound_encoder())
    with pytest.raises(UsageError, match="name one as `encoder`"):
        qglow.bench_decoding(
            qglow.load_model(save(made.merged_alone(), tmp_path)), data={"features": np.ones(3)}
        )
    assert main(["bench", str(folder / "encoder_model.onnx"), "--encoder", "e.onnx"]) == 2
    assert "--encoder goes with --prefill and --decode" in capsys.readouterr().err


@pytest.mark.parametrize("form", made.FORMS)
@pytest.mark.parametrize("places", [4, "places"])
def test_an_encoder_of_sound_reads_a_sample(
    form: str, places: int | str, folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    """Prefill counts the places that the encoder makes of the sample."""
    save_sound(tmp_path, places)
    given = ["--encoder", str(tmp_path / "sound.onnx"), "--data", str(tmp_path / "clips.npz")]
    command = ["bench", str(folder / f"{form}.onnx"), *given, "--decode", "3", "--texts", "1"]
    assert main([*command, "--threads", "1"]) == 0
    out = capsys.readouterr().out
    assert "onnxruntime" in out and "4 tokens read, 3 added one by one" in out
    assert main([*command, "--prefill", "4"]) == 2
    assert "--prefill counts tokens" in capsys.readouterr().err


def test_a_rival_reads_the_same_sound(folder: Path, tmp_path: Path) -> None:
    save_sound(tmp_path, "places")
    place = folder / "decoder_model_merged.onnx"
    encoder = qglow.load_model(tmp_path / "sound.onnx")
    generator = qglow.load_generator(qglow.load_model(place), encoder=encoder, context=32)
    roles = find_roles(qglow.load_model(place).dimensions)
    states = {name: name.replace("past_key_values", "present") for name in made.OWN}
    names = EncodedNames(states, roles.source, "logits", "use_cache_branch", like_named)
    files = EncodedFiles(tmp_path / "sound.onnx", place, place)
    features = {"features": np.random.default_rng(1).normal(size=(1, 5, made.WIDTH)).astype(np.float32)}
    own = EncodedDecoder(generator, features)
    rival = EncodedDecoder(OnnxruntimeEncodedDecoder(files, names, None, roles.arrays), features)
    for part in ([0] * 5, [5], [11]):
        np.testing.assert_allclose(own.read(part), rival.read(part), rtol=1e-3, atol=1e-4)


def save_sound(place: Path, places: int | str) -> None:
    """An encoder that reads numbers, sound.onnx, and two samples for it, clips.npz, of 4 places."""
    (place / "sound.onnx").write_bytes(sound_file(places))
    clips = np.random.default_rng(0).normal(size=(2, 4, made.WIDTH)).astype(np.float32)
    np.savez(place / "clips.npz", features=clips)


def sound_encoder() -> qglow.Model:
    return qglow.load_model(sound_file(4))


def sound_file(places: int | str) -> bytes:
    shape = [1, places, made.WIDTH]
    kinds = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, shape) for n in ("features", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["features"], ["y"])], "sound", kinds[:1], kinds[1:])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()
