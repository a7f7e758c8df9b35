"""Decoders as exporters write them: names of the cache, positions of one axis, scores of the last token."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime.transformers.float16 import convert_float_to_float16

import qglow
from qglow.cli.main import main
from qglow.core.errors import UsageError
from qglow.generation.roles import find_roles, pair_states
from tests.end_to_end.decoder_model import STATES, decoder
from tests.end_to_end.test_generation import BEGIN, COUNT, expected, without_cache
from tests.unit.importer.tiny import save

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def with_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(decoder(), tmp_path_factory.mktemp("decoder"), "decoder.onnx")


def last_scores(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the scores of the last token alone, [1, 1, words]."""
    graph = model.graph
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1]), "last_place"))
    graph.node.insert(
        len(graph.node) - 1, helper.make_node("Gather", ["y", "last_place"], ["y_last"], axis=1)
    )
    graph.node[-1].input[0] = "y_last"
    return model


def renamed(model: onnx.ModelProto, names: Mapping[str, str]) -> onnx.ModelProto:
    """The model with other names of its inputs and outputs."""
    graph = model.graph
    for value in (*graph.input, *graph.output):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        for tensors in (node.input, node.output):
            tensors[:] = [names.get(name, name) for name in tensors]
    return model


def of_other_rows(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with outputs that are twice the keys and values, of names that tell nothing."""
    graph = model.graph
    graph.initializer.append(onnx.numpy_helper.from_array(np.array(2, np.float32), "two"))
    for number, output in enumerate(list(graph.output)[1:]):
        graph.node.append(helper.make_node("Mul", [output.name, "two"], [f"mul_{number}"]))
        output.name = f"mul_{number}"
    return model


def test_positions_of_one_axis_are_given(tmp_path: Path) -> None:
    model = renamed(decoder(given=True), {"position_ids": "cache_position"})
    value = next(value for value in model.graph.input if value.name == "cache_position")
    value.CopyFrom(helper.make_tensor_value_info("cache_position", TensorProto.INT64, ["new"]))
    path = save(model, tmp_path)
    generator = qglow.load_generator(qglow.load_model(path), context=32, piece=8)
    assert list(generator.generate(BEGIN, COUNT)) == expected()
    found = qglow.bench_decoding(qglow.load_model(path), prefill=9, decode=2, texts=1, threads=1)
    assert list(found.speeds) == ["qglow", "onnxruntime"]


@pytest.mark.parametrize("piece", [8, 32])
def test_scores_may_be_those_of_the_last_token_alone(
    piece: int, with_cache: Path, tmp_path: Path, capsys: Capture
) -> None:
    path = save(last_scores(decoder()), tmp_path)
    model, all_scores = qglow.load_model(path), qglow.load_model(with_cache)
    qglow.save_generator(model, tmp_path / "last.qglow", context=32, piece=piece)
    loaded = qglow.load_generator(qglow.load(tmp_path / "last.qglow", trust=True))
    wanted = qglow.load_generator(all_scores, context=32, piece=piece)
    for generator in (qglow.load_generator(model, context=32, piece=piece), loaded):
        assert list(generator.generate(BEGIN, COUNT)) == expected()
        for count in (1, 7, 21):
            generator.reset(), wanted.reset()
            assert generator.read(BEGIN[:1] * count).tobytes() == wanted.read(BEGIN[:1] * count).tobytes()
    found = qglow.bench_decoding(model, prefill=9, decode=2, texts=1, threads=1, piece=piece)
    assert list(found.speeds) == ["qglow", "onnxruntime"]
    given = ["--tokens", ",".join(map(str, BEGIN)), "--count", "5", "--no-times", "--context", "32"]
    assert main(["generate", str(path), *given, "--piece", str(piece)]) == 0
    assert capsys.readouterr().out == ",".join(map(str, expected()[:5])) + "\n"


def test_scores_of_the_last_place_alone_need_texts_of_any_length(tmp_path: Path) -> None:
    model = qglow.load_model(save(last_scores(without_cache("n")), tmp_path))
    assert list(qglow.load_generator(model, context=40).generate(BEGIN, COUNT)) == expected()
    model = qglow.load_model(save(last_scores(without_cache(32)), tmp_path, "fixed.onnx"))
    with pytest.raises(UsageError, match="'logits' has scores of the last 1 of 32 tokens"):
        qglow.load_generator(model, context=40)


NAMES = {
    "layers": (
        {"past_key": "past_key_values.layers.0.keys", "past_value": "past_key_values.layers.0.values"},
        {"present_key": "cache.layers.0.keys", "present_value": "cache.layers.0.values"},
    ),
    "flat": (
        {"past_key": "past_key_values_key_cache_0", "past_value": "past_key_values_value_cache_0"},
        {
            "present_key": "present_key_values_key_cache_0",
            "present_value": "present_key_values_value_cache_0",
        },
    ),
    "none": ({}, {"present_key": "cat_17", "present_value": "cat_16"}),
    "exchanged": ({}, {"present_key": "present_value", "present_value": "present_key"}),
}


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("options", [{}, {"cache": "int8"}])
def test_the_cache_may_have_other_names(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    """An output that is the state followed by new rows continues it, whatever it is called."""
    taken, given = NAMES[kind]
    path = save(renamed(decoder(), {**taken, **given}), tmp_path)
    states = {taken.get(name, name): given[output] for name, output in STATES.items()}
    model = qglow.load_model(path)
    qglow.save_generator(model, tmp_path / "decoder.qglow", context=32, piece=8, **options)
    program = qglow.load(tmp_path / "decoder.qglow", trust=True)
    for generator in (
        qglow.load_generator(model, context=32, piece=8, **options),
        qglow.load_generator(program, **options),
    ):
        assert {name: generator.states[name] for name in states} == states
        assert list(generator.generate(BEGIN, COUNT)) == expected()


@pytest.mark.parametrize("options", [{}, {"cache": "int8"}])
def test_every_input_may_have_its_own_names_of_dimensions(options: dict[str, Any], tmp_path: Path) -> None:
    """As transformers' exporter names them, which writes fixed sizes as names too."""
    made = decoder()
    for number, value in enumerate(made.graph.input):
        for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
            if dimension.dim_param == "past":
                dimension.dim_param = f"s{10 * number + axis}"
            elif dimension.dim_value:
                dimension.dim_param = str(dimension.dim_value)
    path = save(made, tmp_path)
    model = qglow.load_model(path)
    assert {sizes[1:] for name, sizes in model.dimensions.items() if name in STATES} == {
        (2, "s12", 8),
        (2, "s22", 8),
    }
    qglow.save_generator(model, tmp_path / "decoder.qglow", context=32, piece=8, **options)
    for generator in (
        qglow.load_generator(model, context=32, piece=8, **options),
        qglow.load_generator(qglow.load(tmp_path / "decoder.qglow", trust=True), **options),
    ):
        assert list(generator.generate(BEGIN, COUNT)) == expected()
    quantized = tmp_path / "int8"
    assert main(["quantize", str(path), "--weights", "int8", "-o", str(quantized)]) == 0
    generator = qglow.load_generator(qglow.load_quantized(quantized), context=32, piece=8)
    assert len(list(generator.generate(BEGIN, COUNT))) == COUNT


def test_a_cache_in_16_bits_may_have_other_names(tmp_path: Path) -> None:
    model = convert_float_to_float16(renamed(decoder(), NAMES["none"][1]))
    generator = qglow.load_generator(qglow.load_model(save(model, tmp_path)), context=32, piece=8)
    assert list(generator.states.values()) == list(NAMES["none"][1].values())
    assert list(generator.generate(BEGIN, COUNT)) == expected()


def test_pairs_that_nothing_tells_are_named(tmp_path: Path, capsys: Capture) -> None:
    """Twice the cache is no cache that a model of use has; what is named runs, and is compiled so."""
    path, sizes = save(of_other_rows(decoder()), tmp_path), ["--context", "32", "--piece", "8"]
    states = ["--state", "past_key=mul_0", "--state", "past_value=mul_1"]
    begin = ["--tokens", "1,2", "--count", "3", "--no-times"]
    out = tmp_path / "decoder.qglow"
    assert main(["generate", str(path), *begin, *sizes]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("name it: --state past_key=OUTPUT")
    with pytest.raises(UsageError, match="name it: `states=past_key=OUTPUT`"):
        qglow.load_generator(qglow.load_model(path), context=32, piece=8)
    assert main(["generate", str(path), *begin, *sizes, *states]) == 0
    wanted = capsys.readouterr().out
    assert main(["compile", str(path), *sizes, "-o", str(out)]) == 2
    assert not out.exists()
    assert main(["compile", str(path), *sizes, *states, "-o", str(out)]) == 0
    capsys.readouterr()
    assert main(["generate", str(out), *begin, *states, "--trust"]) == 0
    assert capsys.readouterr().out == wanted


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("past_key=presnt_key", "--state: no output is called 'presnt_key', .* did you mean 'present_key'"),
        ("pst_key=present_key", "--state: no input that is a state is called 'pst_key', .* 'past_key'"),
        ("tokens=present_key", "--state: no input that is a state is called 'tokens', there are past_key, "),
    ],
)
def test_states_that_the_model_lacks_are_refused(
    state: str, message: str, with_cache: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "decoder.qglow"
    for words in (
        ["generate", str(with_cache), "--tokens", "1", "--context", "32"],
        ["bench", str(with_cache), "--prefill", "2", "--decode", "2"],
        ["compile", str(with_cache), "--context", "32", "-o", str(out)],
    ):
        assert main([*words, "--state", state]) == UsageError.exit_code
        assert re.search(message, capsys.readouterr().err.splitlines()[-1])
    assert not out.exists()
    name, _, output = state.partition("=")
    with pytest.raises(UsageError, match="states: no "):
        qglow.save_generator(qglow.load_model(with_cache), out, {name: output}, context=32)
    fixed = qglow.load_model(save(without_cache(16), tmp_path))
    with pytest.raises(UsageError, match="there are none"):
        qglow.load_generator(fixed, {"past_key": "logits"})


def test_states_are_paired_by_names() -> None:
    pairs = {
        "past_key_values.3.key": "present.3.key",
        "past_key_values.3.decoder.value": "present.3.decoder.value",
        "past_key": "present_key",
        "cache_k_0": "new_cache_k_0",
        "in_h": "out_h",
        "past_key_values.layers.1.keys": "cache.layers.1.keys",
        "past_key_values.layers.1.values": "cache.layers.1.values",
        "past_key_values_value_cache_2": "present_key_values_value_cache_2",
        "past_values_5": "present_values_5",
    }
    assert pair_states(list(pairs), [*pairs.values(), "logits"]) == pairs
    assert pair_states(["a"], ["b"], {"a": "b"}) == {"a": "b"}
    assert pair_states(["past_a"], ["b", "a"], None, {"past_a": "b"}) == {"past_a": "a"}
    crossed = {"past_a": "present_b", "past_b": "present_a"}
    assert pair_states(list(crossed), ["present_a", "present_b"], None, crossed) == crossed
    assert pair_states(["past_a"], ["new_a", "out_a"], None, {"past_a": "out_a"}) == {"past_a": "out_a"}
    for states, outputs in ((["past_a"], ["new_a", "out_a"]), (["past_a", "old_a"], ["new_a"])):
        with pytest.raises(UsageError, match="has no output of a like name"):
            pair_states(states, outputs)
    with pytest.raises(UsageError, match="input 'a' has no output of a like name"):
        pair_states(["a"], ["b"])
    with pytest.raises(UsageError, match="no input is called as tokens are; the inputs are image"):
        find_roles({"image": [1, 3, 8, 8]})
