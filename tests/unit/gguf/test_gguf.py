"""GGUF files: weights to the last bit, language models that compute what the file says, and damaged files."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import qglow
from qglow.cli.main import main
from qglow.core.errors import ModelError, UnsupportedError
from qglow.gguf.file import read_gguf
from tests.unit.gguf.writer import (
    DEPTH,
    GROUPS,
    LAYERS,
    SIZES,
    Stored,
    drawn,
    gguf,
    llama,
    logits,
    qwen,
    weights,
    write,
)

TOKENS = [7, 3, 31, 12, 5, 5, 30, 1, 19]


@pytest.mark.parametrize("size", [0.02, 500.0])
@pytest.mark.parametrize("kind", SIZES)
def test_every_format_is_read_to_the_last_bit(kind: str, size: float, tmp_path: Path) -> None:
    stored = drawn(kind, (3, 512), np.random.default_rng(2), size)
    (tmp_path / "a.gguf").write_bytes(gguf({"general.alignment": 64}, {"x": stored}))
    tensor = read_gguf(tmp_path / "a.gguf").tensors["x"]
    assert tensor.shape == (3, 512) and tensor.format.name == kind
    found = tensor.format.read_floats(tensor.data).reshape(3, 512)
    np.testing.assert_array_equal(found, weights(stored))


@pytest.mark.parametrize("kind", ["Q4_0", "Q5_0", "Q8_0", "Q6_K"])
def test_formats_without_offsets_are_blocks_of_integers_alone(kind: str, tmp_path: Path) -> None:
    write(tmp_path / "a.gguf", kind)
    forms = qglow.import_gguf(tmp_path / "a.gguf", tmp_path / "a.onnx")
    block = 16 if kind == "Q6_K" else 32
    assert forms["output.weight"] == f"{kind}: int{4 if kind == 'Q4_0' else 8} in blocks of {block}"


@pytest.mark.parametrize("tied", [False, True], ids=["head", "tied"])
@pytest.mark.parametrize("kind", SIZES)
def test_a_llama_computes_what_its_file_says(kind: str, tied: bool, tmp_path: Path) -> None:
    tensors = write(tmp_path / "a.gguf", kind, tied)
    assert main(["import-gguf", str(tmp_path / "a.gguf"), "-o", str(tmp_path / "a.onnx")]) == 0
    wanted = logits(tensors, TOKENS)
    feeds: dict[str, Any] = {"input_ids": [TOKENS], "attention_mask": np.ones((1, 9), np.int64)}
    feeds = {name: np.asarray(value, np.int64) for name, value in feeds.items()}
    feeds["position_ids"] = np.arange(9)[None]
    for layer in range(LAYERS):
        for what in ("key", "value"):
            feeds[f"past_key_values.{layer}.{what}"] = np.zeros((1, GROUPS, 0, DEPTH), np.float32)
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx", providers=["CPUExecutionProvider"])
    (there,) = session.run(["logits"], feeds)
    size = np.abs(wanted).max()
    np.testing.assert_allclose(there[0] / size, wanted / size, atol=2e-4)
    generator = qglow.load_generator(qglow.load_model(tmp_path / "a.onnx"), context=16, piece=8)
    generator.read(TOKENS[:4])
    np.testing.assert_allclose(generator.read(TOKENS[4:6]) / size, wanted[5] / size, atol=2e-4)
    np.testing.assert_allclose(generator.read(TOKENS[6:]) / size, wanted[8] / size, atol=2e-4)


@pytest.mark.parametrize("tied", [False, True], ids=["head", "tied"])
@pytest.mark.parametrize("kind", ["F16", "BF16"])
def test_weights_of_16_bits_stay_so_in_the_model_and_give_the_bits_of_float32(
    kind: str, tied: bool, tmp_path: Path
) -> None:
    metadata, tensors = llama(kind, tied)
    wide: dict[str, Stored] = {
        name: ("F32", stored[1], weights(stored).astype("<f4").tobytes()) for name, stored in tensors.items()
    }
    found = {}
    for name, held in (("half", tensors), ("wide", wide)):
        path = tmp_path / f"{name}.onnx"
        path.with_suffix(".gguf").write_bytes(gguf(metadata, held))
        forms = qglow.import_gguf(path.with_suffix(".gguf"), path)
        generator = qglow.load_generator(qglow.load_model(path), context=16, piece=8)
        read = [generator.read(TOKENS[:6]), generator.read(TOKENS[6:7])]
        found[name] = np.stack(read), path.stat().st_size, forms["blk.0.attn_q.weight"]
    assert found["half"][0].tobytes() == found["wide"][0].tobytes()
    assert found["half"][1] < 0.55 * found["wide"][1]
    assert found["half"][2] == ("F16: float16" if kind == "F16" else "BF16: bfloat16")


def test_biases_norms_of_heads_halves_and_angles_are_those_of_the_file(tmp_path: Path) -> None:
    metadata, tensors = qwen()
    (tmp_path / "a.gguf").write_bytes(gguf(metadata, tensors))
    qglow.import_gguf(tmp_path / "a.gguf", tmp_path / "a.onnx")
    wanted = logits(tensors, TOKENS, base=500.0, slower=4.0, near=False)[-1]
    generator = qglow.load_generator(qglow.load_model(tmp_path / "a.onnx"), context=16, piece=8)
    np.testing.assert_allclose(generator.read(TOKENS), wanted, atol=2e-4 * np.abs(wanted).max())


def test_a_version_2_is_read_and_others_are_refused(tmp_path: Path) -> None:
    metadata, tensors = llama("Q4_0")
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf(metadata, tensors, version=2))
    assert set(read_gguf(path).tensors) == set(tensors)
    for version, what in ((1, "version 1"), (3 << 24, "big-endian")):
        path.write_bytes(gguf(metadata, tensors, version=version))
        with pytest.raises(UnsupportedError, match=what):
            read_gguf(path)


def test_a_file_that_is_cut_anywhere_is_damaged(tmp_path: Path) -> None:
    data = gguf({"a": "b", "c": ["d", "e"]}, {"x": drawn("Q8_0", (2, 32), np.random.default_rng(0))})
    path = tmp_path / "a.gguf"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(ModelError):
            read_gguf(path)


@pytest.mark.parametrize("place", [8, 16])
def test_counts_that_are_more_than_the_file_are_refused_at_once(place: int, tmp_path: Path) -> None:
    data = bytearray(gguf({"a": 1}, {"x": drawn("F32", (2,), np.random.default_rng(0))}))
    data[place : place + 8] = struct.pack("<Q", 1 << 62)
    (tmp_path / "a.gguf").write_bytes(data)
    with pytest.raises(ModelError, match="more than its bytes"):
        read_gguf(tmp_path / "a.gguf")


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"general.architecture": "mamba"}, 3, "its architecture is 'mamba'"),
        ({"llama.expert_count": 8}, 3, "llama.expert_count is 8"),
        ({"llama.rope.scaling.type": "yarn"}, 3, "llama.rope.scaling.type is 'yarn'"),
        ({"llama.attention.head_count": 0}, 4, "llama.attention.head_count is 0"),
        ({"llama.embedding_length": 512}, 4, "'token_embd.weight' is [40, 256]"),
        ({"llama.block_count": 3}, 4, "no tensor 'blk.2.attn_norm.weight'"),
        ({"llama.block_count": 1}, 3, "9 tensors that are not known, such as 'blk.1"),
    ],
)
def test_what_is_not_known_is_refused_in_one_line(
    change: dict[str, Any], code: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata, tensors = llama("Q4_0")
    (tmp_path / "a.gguf").write_bytes(gguf({**metadata, **change}, tensors))
    assert main(["import-gguf", str(tmp_path / "a.gguf"), "-o", str(tmp_path / "a.onnx")]) == code
    told = capsys.readouterr().err
    assert words in told and told.count("\n") == 1
    assert not (tmp_path / "a.onnx").exists()


def test_scales_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    metadata, tensors = llama("Q4_0")
    kind, shape, data = tensors["output.weight"]
    tensors["output.weight"] = kind, shape, b"\x00\x7c" + data[2:]
    (tmp_path / "a.gguf").write_bytes(gguf(metadata, tensors))
    with pytest.raises(ModelError, match=r"'output\.weight' has numbers that are not finite"):
        qglow.import_gguf(tmp_path / "a.gguf", tmp_path / "a.onnx")


def test_hostile_numbers_give_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metadata, tensors = llama("Q4_K")
    kind, shape, data = tensors["output.weight"]
    infinite = np.frombuffer(data, np.uint8).copy()
    infinite.reshape(-1, SIZES[kind][2])[0, :16] = [0x00, 0x7C, 0x00, 0x7C, *[0] * 12]
    tensors["output.weight"] = kind, shape, infinite.tobytes()
    (tmp_path / "a.gguf").write_bytes(gguf(metadata, tensors))
    (tmp_path / "b.gguf").write_bytes(gguf({**metadata, "general.architecture": np.zeros(3)}, tensors))
    for name, code in (("a", 4), ("b", 3)):
        assert main(["import-gguf", str(tmp_path / f"{name}.gguf"), "-o", str(tmp_path / "a.onnx")]) == code
        assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "a.onnx").exists()


@pytest.mark.parametrize(("kind", "most"), [("F32", 4.0), ("Q8_0", 1.4), ("Q4_0", 0.8), ("Q4_K", 0.95)])
def test_a_tied_head_is_held_once(kind: str, most: float, tmp_path: Path) -> None:
    metadata, tensors = llama(kind, tied=True)
    words = 9000
    tensors["token_embd.weight"] = drawn(kind, (words, 256), np.random.default_rng(3), 1e-3)
    (tmp_path / "a.gguf").write_bytes(gguf(metadata, tensors))
    qglow.import_gguf(tmp_path / "a.gguf", tmp_path / "a.onnx")
    generator = qglow.load_generator(qglow.load_model(tmp_path / "a.onnx"), context=16, piece=16)
    others = sum(int(np.prod(shape)) for name, (_, shape, _) in tensors.items() if name.startswith("blk"))
    assert generator.executable.weight_bytes < most * 1.05 * (words * 256 + others)
