"""Language models that go on from tokens: with a cache and without one, in float and int8."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tokenizers
from onnx import TensorProto, helper
from onnxruntime.quantization import quantize_dynamic
from onnxruntime.transformers.float16 import convert_float_to_float16

import qglow
from qglow.api.quantized import load_quantized
from qglow.cli.main import main
from qglow.core.errors import DataError, InputFileError, UsageError
from qglow.generation.text import TextTokens
from qglow.toolchain.growing import GrowingExecutable
from tests.end_to_end.decoder_model import DEPTH, HEADS, LONGEST, STATES, WORDS, decoder, tokens, without_past
from tests.unit.importer.tiny import save, session, tiny_model

Capture = pytest.CaptureFixture[str]
BEGIN = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
COUNT = 12


def without_cache(length: int | str) -> onnx.ModelProto:
    """The decoder as a model of tokens alone: the cache is empty, and not given on."""
    model = decoder()
    graph = model.graph
    empty = helper.make_tensor("empty", TensorProto.FLOAT, [1, HEADS, 0, DEPTH], [])
    for name in STATES:
        tensor = onnx.TensorProto()
        tensor.CopyFrom(empty)
        tensor.name = name
        graph.initializer.append(tensor)
    inputs, outputs = [graph.input[0]], [graph.output[0]]
    inputs[0].CopyFrom(helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, length]))
    del graph.input[:], graph.output[:]
    graph.input.extend(inputs)
    graph.output.extend(outputs)
    return model


def of_one_token(model: onnx.ModelProto) -> onnx.ModelProto:
    """The decoder as a file that fixes one token a call."""
    for value in model.graph.input:
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param == "new":
                dimension.dim_value = 1
    return model


def expected() -> list[int]:
    """Likeliest tokens, each from the whole text before it, by onnxruntime."""
    running, seen = session(decoder()), list(BEGIN)
    for _ in range(COUNT):
        logits = running.run(["logits"], dict(without_past(np.array([seen]))))[0]
        seen.append(int(np.argmax(logits[0, -1])))
    return seen[len(BEGIN) :]


@pytest.fixture(scope="module")
def with_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(decoder(), tmp_path_factory.mktemp("generation"), "decoder.onnx")


@pytest.fixture(scope="module")
def int8(with_cache: Path) -> Path:
    cache = np.random.default_rng(1).normal(size=(12, HEADS, 6, DEPTH)).astype(np.float32)
    data = {"tokens": np.concatenate([tokens(5, seed) for seed in range(12)]), **dict.fromkeys(STATES, cache)}
    model = qglow.load_model(with_cache)
    model.quantize(model.profile(data), repair=False).save(with_cache.parent / "int8")
    return with_cache.parent / "int8"


def test_the_cache_gives_the_tokens_of_the_whole_text(with_cache: Path) -> None:
    generator = qglow.load_generator(qglow.load_model(with_cache), context=32, piece=8)
    assert generator.has_cache
    assert list(generator.generate(BEGIN, COUNT)) == expected()
    assert generator.tokens == (*BEGIN, *expected()[:-1])
    generator.reset()
    assert list(generator.generate(BEGIN[:4], 1)) and generator.tokens == tuple(BEGIN[:4])


def test_positions_and_a_mask_are_given(tmp_path: Path) -> None:
    model = qglow.load_model(save(decoder(given=True), tmp_path))
    generator = qglow.load_generator(model, context=32, piece=8)
    assert list(generator.generate(BEGIN, COUNT)) == expected()
    generator.reset()
    (wanted,) = session(decoder()).run(["logits"], dict(without_past(np.array([BEGIN]))))
    np.testing.assert_allclose(generator.read(BEGIN), wanted[0, -1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("given", [False, True])
def test_a_prompt_is_read_token_by_token_where_the_file_fixes_one(given: bool, tmp_path: Path) -> None:
    """Some exporters write the form with a cache for one token a call; its total has a name of its own."""
    opened = qglow.load_model(save(decoder(given), tmp_path, "open.onnx"))
    model = qglow.load_model(save(of_one_token(decoder(given)), tmp_path, "one.onnx"))
    open_one = qglow.load_generator(opened, context=LONGEST, piece=8)
    # Where positions are no input, each size has a row of its own of the file's table.
    qglow.save_generator(model, tmp_path / "one.qglow", context=LONGEST)
    stored = qglow.load_generator(qglow.load(tmp_path / "one.qglow"), context=4096)
    generators = [qglow.load_generator(model, context=LONGEST), stored]
    running = session(of_one_token(decoder()))
    kept = {name: array for name, array in without_past(tokens(1)).items() if name in STATES}
    for token in BEGIN:
        logits, *present = running.run(["logits", *STATES.values()], {"tokens": np.array([[token]]), **kept})
        kept = dict(zip(STATES, present, strict=True))
    whole = open_one.read(BEGIN)
    for generator in generators:
        scores = generator.read(BEGIN)
        np.testing.assert_allclose(scores, logits[0, -1], rtol=1e-4, atol=1e-4)
        assert scores.tobytes() == whole.tobytes()
        generator.reset()
        assert list(generator.generate(BEGIN, COUNT)) == expected()
        generator.reset()
        generator.read([1] * LONGEST)
        with pytest.raises(DataError, match="65 tokens are more than the context of 64"):
            generator.read([1])
    small = qglow.load_generator(model, context=32, cache="int8")
    assert len(list(small.generate(BEGIN, COUNT))) == COUNT
    with pytest.raises(UsageError, match="at least 9 where the file fixes one token a call"):
        qglow.save_generator(model, tmp_path / "x.qglow", context=8)
    measured = qglow.bench_decoding(model, prefill=4, decode=2, texts=1, threads=1)
    assert list(measured.speeds) == ["qglow", "onnxruntime"]


@pytest.mark.parametrize("options", [{}, {"cache": "int8"}])
def test_a_model_in_16_bits_keeps_its_cache_in_float(options: dict[str, Any], tmp_path: Path) -> None:
    """Its states are float16; rows would have other bits in the call that makes them than in later ones."""
    model = convert_float_to_float16(decoder())
    assert all(value.type.tensor_type.elem_type == TensorProto.FLOAT16 for value in model.graph.output)
    loaded = qglow.load_model(save(model, tmp_path))
    generator = qglow.load_generator(loaded, context=32, piece=8, **options)
    assert list(generator.generate(BEGIN, COUNT)) == expected()
    assert isinstance(generator.executable, GrowingExecutable)
    kinds = {generator.executable.state[name].dtype for name in STATES}
    assert kinds == {np.dtype(np.int8 if options else np.float32)}
    generator.reset()
    whole = generator.read(BEGIN)
    generator.reset()
    assert whole.tobytes() == [generator.read([token]) for token in BEGIN][-1].tobytes()
    qglow.save_generator(loaded, tmp_path / "decoder.qglow", context=32, piece=8, **options)
    again = qglow.load_generator(qglow.load(tmp_path / "decoder.qglow"), **options)
    assert list(again.generate(BEGIN, COUNT)) == expected()


def half_cache(taken: set[str], given: set[str]) -> onnx.ModelProto:
    """The decoder in float32 whose cache is float16 in these inputs and outputs."""
    model = decoder()
    half, graph = TensorProto.FLOAT16, model.graph
    for node in graph.node:
        node.input[:] = [f"{name}__read" if name in taken else name for name in node.input]
        written = [f"{name}__wide" if name in given else name for name in node.output]
        node.output[:] = written
        node.input[:] = [f"{name}__wide" if name in given else name for name in node.input]
    casts = [helper.make_node("Cast", [n], [f"{n}__read"], to=TensorProto.FLOAT) for n in sorted(taken)]
    for place, cast in enumerate(casts):
        graph.node.insert(place, cast)
    graph.node.extend(helper.make_node("Cast", [f"{n}__wide"], [n], to=half) for n in sorted(given))
    for value in (*graph.input, *graph.output):
        if value.name in taken | given:
            value.type.tensor_type.elem_type = half
    return model


@pytest.mark.parametrize("options", [{}, {"cache": "int8"}])
@pytest.mark.parametrize(
    ("taken", "given"),
    [({"past_key", "past_value"}, {"present_key"}), ({"past_value"}, {"present_key", "present_value"})],
)
def test_a_cache_that_is_half_in_16_bits_is_kept_in_float(
    taken: set[str], given: set[str], options: dict[str, Any], tmp_path: Path
) -> None:
    """torch's exporter casts what is computed of a half model from the second layer on to float32."""
    path = save(half_cache(taken, given), tmp_path)
    loaded = qglow.load_model(path)
    generator = qglow.load_generator(loaded, context=32, piece=8, **options)
    assert list(generator.generate(BEGIN, COUNT)) == expected()
    assert isinstance(generator.executable, GrowingExecutable)
    kinds = {generator.executable.state[name].dtype for name in STATES}
    assert kinds == {np.dtype(np.int8 if options else np.float32)}
    qglow.save_generator(loaded, tmp_path / "decoder.qglow", context=32, piece=8, **options)
    again = qglow.load_generator(qglow.load(tmp_path / "decoder.qglow"), **options)
    assert list(again.generate(BEGIN, COUNT)) == expected()


def test_a_quantized_model_keeps_a_cache_that_is_half_in_16_bits(tmp_path: Path, capsys: Capture) -> None:
    path, out = save(half_cache({"past_key", "past_value"}, {"present_key"}), tmp_path), tmp_path / "q"
    assert main(["quantize", str(path), "--weights", "int4", "--dynamic", "-o", str(out)]) == 0
    quantized = qglow.load_generator(load_quantized(out), context=32, piece=8)
    assert len(list(quantized.generate(BEGIN, COUNT))) == COUNT


def test_a_model_that_is_quantized_already_generates(with_cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "dynamic.onnx"
    quantize_dynamic(with_cache, path)
    loaded = qglow.load_model(path)
    wanted = list(qglow.load_generator(loaded, context=32, piece=8).generate(BEGIN, COUNT))
    given = dict.fromkeys(STATES, (1, HEADS, 6, DEPTH))
    loaded.at({"tokens": (1, 5), **given}).quantize().save(tmp_path / "int8")
    quantized = qglow.load_quantized(tmp_path / "int8")
    assert quantized.report is not None and quantized.report.quantized
    found = list(qglow.load_generator(quantized, context=32, piece=8).generate(BEGIN, COUNT))
    assert found == wanted
    with pytest.raises(UsageError, match="quantized already: leave `dynamic` and `weights` out"):
        loaded.at({"tokens": (1, 5), **given}).quantize(dynamic=True)


@pytest.mark.parametrize("given", [False, True])
def test_weights_are_quantized_for_a_short_text(given: bool, tmp_path: Path, capsys: Capture) -> None:
    """Sizes that neither file nor command has are those of a text; other lengths have the same weights."""
    save(decoder(given), tmp_path, "decoder.onnx")
    assert main(["quantize", str(tmp_path / "decoder.onnx"), "--dynamic", "-o", str(tmp_path / "d")]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "model.qglow is for the sizes new 8, " in told and "past 8" in told
    found = qglow.load_generator(qglow.load_quantized(tmp_path / "d"), context=32, piece=8)
    shapes = {"tokens": (1, 3), **dict.fromkeys(STATES, (1, HEADS, 9, DEPTH))}
    if given:
        shapes |= {"position_ids": (1, 3), "attention_mask": (1, 12)}
    other = qglow.load_model(tmp_path / "decoder.onnx").at(shapes).quantize(dynamic=True)
    wanted = qglow.load_generator(other, context=32, piece=8)
    assert found.read(BEGIN).tobytes() == wanted.read(BEGIN).tobytes()


def test_sizes_that_go_together_are_found(tmp_path: Path) -> None:
    """A mask of `past + 1` places allows for one new token; a model of other than text is refused."""
    model = decoder(given=True)
    mask = next(value for value in model.graph.input if value.name == "attention_mask")
    mask.type.tensor_type.shape.dim[1].dim_param = "past + 1"
    quantized = qglow.load_model(save(model, tmp_path)).quantize(dynamic=True)
    assert {name: kind.shape for name, kind in quantized.inputs.items() if name not in STATES} == {
        "tokens": (1, 1),
        "position_ids": (1, 1),
        "attention_mask": (1, 16),
    }
    sound = tiny_model([helper.make_node("Relu", ["x"], ["y"])], {"x": (1, "samples")}, ["y"])
    with pytest.raises(UsageError, match="bind its dimensions"):
        qglow.load_model(sound.SerializeToString()).quantize(dynamic=True)


@pytest.mark.parametrize("length", ["n", 32])
def test_a_model_without_a_cache_gives_the_same(length: int | str, tmp_path: Path) -> None:
    model = qglow.load_model(save(without_cache(length), tmp_path))
    generator = qglow.load_generator(model, context=40)
    assert not generator.has_cache
    assert list(generator.generate(BEGIN, COUNT)) == expected()
    with pytest.raises(DataError, match="more than the context of"):
        generator.read([0] * 40)


def test_int8_gives_the_tokens_of_its_own_whole_text(int8: Path) -> None:
    quantized = qglow.load_quantized(int8)
    generator = qglow.load_generator(quantized, context=32, piece=8)
    found = list(generator.generate(BEGIN, 6))
    whole, seen = quantized.compile(), list(BEGIN)
    for _ in range(6):
        seen.append(int(np.argmax(whole(dict(without_past(np.array([seen]))))["logits"][0, -1])))
    assert found == seen[len(BEGIN) :]


@pytest.mark.parametrize("kind", ["float", "int8"])
def test_scores_of_long_prompts_are_those_of_the_last_token(kind: str, with_cache: Path, int8: Path) -> None:
    """Programs for long pieces have no scores; the bits of the last token's are the same."""
    model = qglow.load_model(with_cache) if kind == "float" else qglow.load_quantized(int8)
    short, long = (qglow.load_generator(model, context=32, piece=piece) for piece in (24, 32))
    for count in (1, 16, 17, 31):
        short.reset()
        long.reset()
        prompt = [int(token) for token in np.random.default_rng(count).integers(0, WORDS, count)]
        assert long.read(prompt).tobytes() == short.read(prompt).tobytes()
        assert long.read([1]).tobytes() == short.read([1]).tobytes()
        assert long.tokens == short.tokens == (*prompt, 1)
        executable = long.executable
        assert isinstance(executable, GrowingExecutable)
        programs = executable._executable._programs
        given = {one.form.taken.sizes["new"]: long.scores in one.form.outputs for one in programs}
        assert given == {1: True, 16: True, 32: False}
        assert long.scores in executable.outputs


def test_chance_is_repeatable_and_keeps_to_the_likeliest(with_cache: Path) -> None:
    generator = qglow.load_generator(qglow.load_model(with_cache), context=32, piece=8)

    def drawn(**rules: float) -> list[int]:
        generator.reset()
        return list(generator.generate(BEGIN, COUNT, qglow.TokenSampling(**rules)))  # type: ignore[arg-type]

    assert drawn(temperature=3.0, seed=1) == drawn(temperature=3.0, seed=1) != drawn(temperature=3.0, seed=2)
    assert drawn(temperature=3.0, top_k=1, seed=1) == expected()
    with pytest.raises(UsageError, match="temperature is nan"):
        qglow.TokenSampling(temperature=float("nan"))


@pytest.mark.parametrize("kind", ["float", "int8"])
def test_a_file_of_programs_begins_at_once(
    kind: str, with_cache: Path, int8: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = qglow.load_model(with_cache) if kind == "float" else qglow.load_quantized(int8)
    monkeypatch.setenv("QGLOW_CACHE", str(tmp_path / "cache"))
    wanted = qglow.load_generator(model, context=32, piece=32)
    qglow.save_generator(model, tmp_path / "decoder.qglow", context=32, piece=32)

    def refuse(*arguments: object) -> object:
        raise AssertionError("nothing is to be compiled")

    for trust in (True, False):  # the file's own code, and that of the cache
        with monkeypatch.context() as patched:
            patched.setattr("qglow.codegen.compiler.compile_modules", refuse)
            patched.setattr("qglow.artefacts.replay.quantize_with", refuse)
            program = qglow.load(tmp_path / "decoder.qglow", trust=trust)
            found = qglow.load_generator(program, context=4096)
            assert found.has_cache and found.states == STATES
            for count in (1, 12, 20, 31):
                prompt = [int(token) for token in np.random.default_rng(count).integers(0, WORDS, count)]
                found.reset(), wanted.reset()
                assert found.read(prompt).tobytes() == wanted.read(prompt).tobytes()
                assert found.read([1]).tobytes() == wanted.read([1]).tobytes()
            found.reset()
            with pytest.raises(DataError, match="more than the context of 32"):
                found.read([1] * 33)


def test_other_programs_are_no_generators(with_cache: Path, tmp_path: Path) -> None:
    model = qglow.load_model(save(without_cache(16), tmp_path))
    with pytest.raises(UsageError, match="one number of tokens alone"):
        qglow.load_generator(model.compile())
    with pytest.raises(UsageError, match="fixed number of tokens"):
        qglow.save_generator(model, tmp_path / "x.qglow")
    shapes = {"tokens": (1, 4), "past_key": (1, HEADS, 8, DEPTH)}
    qglow.load_model(with_cache).save_program(tmp_path / "one.qglow", shapes=[shapes])
    program = qglow.load(tmp_path / "one.qglow")
    with pytest.raises(DataError):
        qglow.load_generator(program).read([1])


def test_commands_compile_for_generation(with_cache: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "decoder.qglow"
    assert main(["compile", str(with_cache), "--context", "32", "--piece", "8", "-o", str(out)]) == 0
    capsys.readouterr()
    given = ["--tokens", ",".join(map(str, BEGIN)), "--count", "5", "--no-times"]
    for trust in ([], ["--trust"]):
        assert main(["generate", str(out), *given, *trust]) == 0
        assert capsys.readouterr().out == ",".join(map(str, expected()[:5])) + "\n"
    assert main(["generate", str(out), *given, "--shape", "tokens=1,1"]) == 2
    assert main(["generate", str(with_cache), *given, "--trust"]) == 2
    assert main(["compile", str(with_cache), "--context", "4", "-o", str(out)]) == 2
    assert main(["compile", str(with_cache), "--context", "32", "--shape", "tokens=1,1", "-o", str(out)]) == 2


def test_generation_ends_at_stop_tokens_and_at_the_context(with_cache: Path) -> None:
    generator = qglow.load_generator(qglow.load_model(with_cache), context=16, piece=8)
    assert list(generator.generate(BEGIN, COUNT)) == expected()[: 16 - len(BEGIN) + 1]
    generator.reset()
    last = expected()[2]
    assert list(generator.generate(BEGIN, COUNT, stop={last})) == expected()[: expected().index(last)]
    with pytest.raises(DataError, match="no token to go on from"):
        generator.read([])


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    words = {f"w{number}": number for number in range(WORDS - 1)} | {"</s>": WORDS - 1}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_the_command_prints_the_text(with_cache: Path, tokenizer: Path, capsys: Capture) -> None:
    prompt = " ".join(f"w{token}" for token in BEGIN)
    sizes = ["--context", "32", "--piece", "8", "--count", "5"]
    given = [str(with_cache), "--tokenizer", str(tokenizer), "--prompt", prompt]
    assert main(["generate", *given, *sizes, "--stop", "999"]) == 0
    found = capsys.readouterr()
    words = [f"w{t}" if t < WORDS - 1 else "</s>" for t in expected()[:5]]
    assert found.out == " ".join([prompt, *words]) + "\n"
    assert "tokens/s added, with a cache" in found.err
    assert (
        main(["generate", str(with_cache), "--tokens", ",".join(map(str, BEGIN)), *sizes, "--no-times"]) == 0
    )
    found = capsys.readouterr()
    assert found.out == ",".join(map(str, expected()[:5])) + "\n" and "tokens/s" not in found.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--prompt", "x"], 2, "--prompt needs the tokenizer"),
        ([], 2, "give --prompt with --tokenizer, or --tokens"),
        (["--tokens", "1,x"], 2, "--tokens 1,x: write numbers"),
        (["--tokens", "1", "--count", "0"], 2, "--count is 0, it must be at least 1"),
        (["--tokens", "1", "--context", "4"], 2, "--context is 4, it must be at least 8"),
        (["--tokens", "1", "--temperature", "-1"], 2, "--temperature is -1.0"),
        (["--tokens", "99999", "--context", "8"], 4, "99999 is no token; the model has 20"),
        (["--tokens", "1", "--context", "4000"], 3, "no program has a --context 4000 and a --piece "),
        (["--tokens", "1", "--tokenizer", "missing.json"], 4, "missing.json is no file"),
    ],
)
def test_mistakes_are_told(
    arguments: list[str], code: int, message: str, with_cache: Path, capsys: Capture
) -> None:
    assert main(["generate", str(with_cache), *arguments]) == code
    assert message in capsys.readouterr().err


def test_what_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(InputFileError, match="is no tokenizer"):
        TextTokens(tmp_path / "t.json")


def test_characters_of_several_tokens_are_printed_whole(tmp_path: Path) -> None:
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(tokenizers.models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.save(str(tmp_path / "bytes.json"))
    text = TextTokens(tmp_path / "bytes.json")
    given = text.encode("aé€b")
    assert len(given) == 7
    assert list(text.pieces([], given)) == ["a", "é", "€", "b"]
