"""Decoders that go on from what an encoder has read: merged, in two files, and without a cache."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import tokenizers
from onnx import helper

import qglow
from qglow.cli.main import main
from qglow.core.errors import DataError, UsageError
from tests.end_to_end import encoder_decoder_model as made
from tests.end_to_end.decoder_model import decoder
from tests.unit.importer.tiny import save, session

Capture = pytest.CaptureFixture[str]
START, COUNT = [2, 7], 10
ARGUMENTS = ["--context", "32", "--source", "24", "--count", str(COUNT), "--no-times"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.export(tmp_path_factory.mktemp("export"))


def expected(length: int, seed: int = 0) -> list[int]:
    """Likeliest tokens, each from all before it, by onnxruntime and the form without a cache."""
    given = made.source(length, seed)
    (hidden,) = session(made.encoder()).run(None, dict(given))
    running, seen = session(made.decoder_model()), list(START)
    for _ in range(COUNT):
        inputs = {
            "input_ids": np.array([seen]),
            "encoder_hidden_states": hidden,
            "encoder_attention_mask": given["attention_mask"],
        }
        seen.append(int(np.argmax(running.run(["logits"], inputs)[0][0, -1])))
    return seen[len(START) :]


@pytest.mark.parametrize("form", [*made.FORMS, "decoder_model"])
def test_all_forms_give_the_tokens_of_the_whole_answer(form: str, folder: Path) -> None:
    generator = made.load(folder, form)
    assert generator.has_cache == (form != "decoder_model")
    found = {}
    for length, seed in ((5, 0), (24, 1), (1, 2), (5, 0)):
        generator.begin(made.source(length, seed))
        tokens = list(generator.generate(START, COUNT))
        assert tokens == expected(length, seed)
        found[length, seed] = tuple(tokens)
    assert len(set(found.values())) > 1, "the source does not matter"


def test_a_source_is_needed_and_may_be_tokens(folder: Path) -> None:
    generator = made.load(folder, "decoder_model_merged")
    with pytest.raises(DataError, match="begin"):
        generator.read(START)
    given = made.source(7)
    generator.begin(given["input_ids"][0].tolist())
    assert list(generator.generate(START, COUNT)) == expected(7)
    generator.reset()
    with pytest.raises(DataError, match="begin"):
        generator.read(START)
    with pytest.raises(DataError):
        generator.begin(made.source(25))


def test_an_encoder_that_takes_few_lengths_says_so(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    """A file may be right for some lengths alone: this one has a constant of six places."""
    model = made.encoder()
    model.graph.node[0].output[0] = "embedded"
    model.graph.node.insert(1, helper.make_node("Add", ["embedded", "six"], ["x"]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((1, 6, 1), np.float32), "six"))
    decoder_file, encoder = folder / "decoder_model_merged.onnx", save(model, tmp_path)
    tokens = ",".join(map(str, made.source(6)["input_ids"][0]))
    given = ["--encoder", str(encoder), "--start", "2,7", *ARGUMENTS]
    assert main(["generate", str(decoder_file), "--tokens", tokens, *given]) == 0
    found = capsys.readouterr()
    assert found.out == ",".join(map(str, expected(6))) + "\n"
    assert "compiled for each length" in found.err
    assert main(["generate", str(decoder_file), "--tokens", "1,2,3,4", *given]) == 4
    assert "do not broadcast" in capsys.readouterr().err.splitlines()[-1]


def test_an_answer_may_be_as_long_as_the_table_of_positions(folder: Path) -> None:
    generator = made.load(folder, "decoder_model_merged", context=made.LONGEST)
    generator.begin(made.source(9))
    answer = list(generator.generate(START, made.LONGEST))
    assert len(generator.tokens) == made.LONGEST and len(answer) == made.LONGEST - len(START) + 1
    assert answer[:COUNT] == expected(9)


def test_the_cache_may_be_int8_and_streams_fork(folder: Path) -> None:
    generator = made.load(folder, "decoder_model_merged", cache="int8")
    generator.begin(made.source(9))
    whole = generator.read([2, 7, 1])
    generator.begin(made.source(9))
    for token in (2, 7, 1):
        scores = generator.read([token])
    assert scores.tobytes() == whole.tobytes()
    states = generator.executable.state
    assert {states[name].dtype for name in made.OWN} == {np.dtype(np.int8)}
    assert {states[name].dtype for name in made.CROSS} == {np.dtype(np.float32)}
    assert isinstance(generator.executable, qglow.StreamingExecutable)
    other = generator.executable.fork()
    step = {"input_ids": np.array([[3]])}
    assert other(step)["logits"].tobytes() == generator.executable(step)["logits"].tobytes()


def test_quantized_forms_go_on(folder: Path, tmp_path: Path) -> None:
    """A directory keeps the branch that it was quantized with, and its open dimensions."""
    cache = {**dict.fromkeys(made.OWN, (1, 2, 5, 8)), **dict.fromkeys(made.CROSS, (1, 2, 7, 8))}
    shapes = {"input_ids": (1, 1), "encoder_attention_mask": (1, 7), "encoder_hidden_states": (1, 7, 16)}
    values = {"use_cache_branch": [True]}
    model = qglow.load_model(folder / "decoder_model_merged.onnx", {**shapes, **cache}, values=values)
    model.quantize(dynamic=True).save(tmp_path / "decoder")
    given = {"input_ids": (1, 6), "attention_mask": (1, 6)}
    qglow.load_model(folder / "encoder_model.onnx", given).quantize(dynamic=True).save(tmp_path / "encoder")
    following, encoder = (qglow.load_quantized(tmp_path / name) for name in ("decoder", "encoder"))
    assert following.report is not None and following.report.quantized
    real = made.load(folder, "decoder_model_merged")
    generator = qglow.load_generator(following, encoder=encoder, **made.SIZES)
    for length in (3, 11, 24):
        for one in (real, generator):
            one.begin(made.source(length))
        wanted, found = real.read(START), generator.read(START)
        assert 0 < np.abs(wanted - found).max() < 0.1 * np.abs(wanted).max()


def test_a_merged_decoder_alone_reads_its_cache(tmp_path: Path) -> None:
    """The branch that reads a cache is taken, also where it is empty, unless the caller chooses the other."""
    path = save(made.merged_alone(), tmp_path, "merged.onnx")
    models = [qglow.load_model(path), qglow.load_model(save(decoder(), tmp_path, "plain.onnx"))]
    found, wanted = (qglow.load_generator(model, context=32, piece=8) for model in models)
    assert list(found.generate([3, 1, 4], 6)) == list(wanted.generate([3, 1, 4], 6))
    other = qglow.load_model(path, values={"use_cache_branch": [False]})
    assert set(qglow.load_generator(other, context=32, piece=8).read([3])) == {0.0}


@pytest.mark.parametrize("option", ["--dynamic", "--weights=int4"])
def test_a_form_of_one_token_a_call_is_quantized_without_sizes(
    option: str, folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    encoder, first = (qglow.load_model(folder / f"{name}_model.onnx") for name in ("encoder", "decoder"))
    found = {}
    for form in ("decoder_with_past_model", made.ONE):
        out = tmp_path / form
        assert main(["quantize", str(folder / f"{form}.onnx"), option, "-o", str(out)]) == 0
        quantized = qglow.load_quantized(out)
        generator = qglow.load_generator(quantized, encoder=encoder, first=first, **made.SIZES)
        generator.begin(made.source(11))
        found[form] = generator.read(START)
    assert found[made.ONE].tobytes() == found["decoder_with_past_model"].tobytes()
    real = made.load(folder, made.ONE)
    real.begin(made.source(11))
    wanted = real.read(START)
    assert 0 < np.abs(wanted - found[made.ONE]).max() < 0.2 * np.abs(wanted).max()
    capsys.readouterr()
    tokens = ",".join(map(str, made.source(11)["input_ids"][0]))
    given = ["--encoder", str(folder / "encoder_model.onnx"), "--start", "2,7", *ARGUMENTS]
    given += ["--first", str(folder / "decoder_model.onnx")]
    assert main(["generate", str(tmp_path / made.ONE), "--tokens", tokens, *given]) == 0
    assert len(capsys.readouterr().out.split(",")) == COUNT


def test_what_is_missing_is_named(folder: Path) -> None:
    encoder = qglow.load_model(folder / "encoder_model.onnx")
    model = qglow.load_model(folder / "decoder_with_past_model.onnx")
    with pytest.raises(UsageError, match="encoder"):
        qglow.load_generator(model, **made.SIZES)
    with pytest.raises(UsageError, match="`first`"):
        qglow.load_generator(model, encoder=encoder, **made.SIZES)
    with pytest.raises(UsageError, match="context is 8, it must be at least 9"):
        made.load(folder, "decoder_model_merged", context=8)
    with pytest.raises(UsageError, match="takes no encoder"):
        qglow.load_generator(encoder, encoder=encoder, **made.SIZES)
    two = qglow.load_model(save(made.decoder_with_past_model(2), folder, "two.onnx"))
    with pytest.raises(UsageError, match="'input_ids' has 2 tokens in the file, beside a cache"):
        qglow.load_generator(two, encoder=encoder, **made.SIZES)
    with pytest.raises(UsageError, match="gives nothing for input"):
        qglow.load_generator(model, encoder=encoder, first=model, **made.SIZES)


def test_a_form_of_one_token_a_call_answers_the_command(folder: Path, capsys: Capture) -> None:
    """It lies beside the form of the first token, and nothing else is named."""
    tokens = ",".join(map(str, made.source(6)["input_ids"][0]))
    given = ["--encoder", str(folder / "encoder_model.onnx"), "--start", "2,7", *ARGUMENTS]
    assert main(["generate", str(folder / f"{made.ONE}.onnx"), "--tokens", tokens, *given]) == 0
    assert capsys.readouterr().out == ",".join(map(str, expected(6))) + "\n"


@pytest.fixture(scope="module")
def configured(folder: Path) -> Path:
    """The same folder with a tokenizer and a configuration."""
    words = {f"w{number}": number for number in range(made.WORDS)}
    made_tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    made_tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made_tokenizer.save(str(folder / "tokenizer.json"))
    facts = {"decoder_start_token_id": START[0], "forced_bos_token_id": START[1], "eos_token_id": None}
    (folder / "config.json").write_text(json.dumps(facts))
    return folder


def test_the_command_answers_a_prompt_and_data(configured: Path, tmp_path: Path, capsys: Capture) -> None:
    encoder = ["--encoder", str(configured / "encoder_model.onnx")]
    decoder = str(configured / "decoder_with_past_model.onnx")
    tokens = made.source(6)["input_ids"][0].tolist()
    numbers = ",".join(map(str, tokens))
    assert main(["generate", decoder, *encoder, "--tokens", numbers, *ARGUMENTS]) == 0
    found = capsys.readouterr()
    assert found.out == ",".join(map(str, expected(6))) + "\n"
    assert "decoder_model.onnx" in found.err
    prompt = " ".join(f"w{token}" for token in tokens)
    assert main(["generate", decoder, *encoder, "--prompt", prompt, *ARGUMENTS]) == 0
    assert capsys.readouterr().out.split() == [f"w{token}" for token in expected(6)]
    samples = [made.source(8, seed) for seed in (0, 1)]
    data = {name: np.concatenate([one[name] for one in samples]) for name in samples[0]}
    np.savez(tmp_path / "data.npz", **data)
    given = ["--data", str(tmp_path / "data.npz"), "--start", "2,7"]
    assert main(["generate", decoder, *encoder, *given, *ARGUMENTS]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[1].split() for line in lines] == [
        [f"w{token}" for token in expected(8, seed)] for seed in (0, 1)
    ]


def test_what_belongs_to_a_model_may_lie_around_its_folder(
    configured: Path, tmp_path: Path, capsys: Capture
) -> None:
    """Published models have their graphs in a folder `onnx`."""
    (tmp_path / "onnx").mkdir()
    for name in ("decoder_model_merged.onnx", "encoder_model.onnx"):
        (tmp_path / "onnx" / name).write_bytes((configured / name).read_bytes())
    for name in ("tokenizer.json", "config.json"):
        (tmp_path / name).write_bytes((configured / name).read_bytes())
    files = [str(tmp_path / "onnx" / name) for name in ("decoder_model_merged.onnx", "encoder_model.onnx")]
    prompt = " ".join(f"w{token}" for token in made.source(6)["input_ids"][0])
    assert main(["generate", files[0], "--encoder", files[1], "--prompt", prompt, *ARGUMENTS]) == 0
    assert capsys.readouterr().out.split() == [f"w{token}" for token in expected(6)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tokens", "1"], "--encoder"),
        (["--tokens", "1", "--start", "2"], "--start goes with --encoder"),
        (["--chat", "--tokenizer", "{}/tokenizer.json", "--encoder", "{}/encoder_model.onnx"], "--chat"),
        (["--data", "x", "--tokens", "1", "--encoder", "{}/encoder_model.onnx"], "give one of them"),
        (["--tokens", "1", "--start", "x", "--encoder", "{}/encoder_model.onnx"], "--start x"),
    ],
)
def test_mistakes_are_named(arguments: list[str], message: str, configured: Path, capsys: Capture) -> None:
    words = [word.format(configured) for word in arguments]
    assert main(["generate", str(configured / "decoder_model_merged.onnx"), *words]) == 2
    assert message in capsys.readouterr().err


def test_a_damaged_configuration_is_named(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    for name in ("decoder_model_merged.onnx", "encoder_model.onnx"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "config.json").write_text("{")
    command = ["generate", str(tmp_path / "decoder_model_merged.onnx"), "--tokens", "1"]
    command += ["--encoder", str(tmp_path / "encoder_model.onnx")]
    assert main(command) == 4
    assert "config.json" in capsys.readouterr().err
    (tmp_path / "config.json").write_text("{}")
    assert main(command) == 2
    assert "--start" in capsys.readouterr().err
