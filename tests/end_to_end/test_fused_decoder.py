"""Decoders in onnxruntime's own operators: their cache is kept by the program, as everywhere."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import qglow
from qglow.core.errors import UnsupportedError
from qglow.instructions.program import Instruction
from tests.end_to_end.fused_llama import DEPTH, GROUPS, HEADS, LAYERS, LONGEST, WORDS, fused_llama
from tests.end_to_end.test_decoding import in_onnxruntime
from tests.unit.importer.tiny import save

TOKENS = np.random.default_rng(0).integers(0, WORDS, 36).tolist()


def operation_name(step: object) -> str:
    """Class of an instruction's operation."""
    return type(step.operation).__name__ if isinstance(step, Instruction) else ""


FORMS = {"float": (None, -1), "int4": (4, -1), "window": (None, 6)}


@pytest.mark.parametrize("form", FORMS)
def test_a_decoder_goes_on_as_in_onnxruntime(form: str, tmp_path: Path) -> None:
    path = save(fused_llama(*FORMS[form]), tmp_path)
    generator = qglow.load_generator(qglow.load_model(path, native=True), context=40, piece=32)
    assert generator.has_cache and len(generator.states) == 2 * LAYERS
    rival = in_onnxruntime(path)
    for begin, end in itertools.pairwise((0, 5, 6, 7, 25, 36)):
        found, wanted = generator.read(TOKENS[begin:end]), rival.read(TOKENS[begin:end])
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)
    generator.reset()
    whole = generator.read(TOKENS)
    np.testing.assert_allclose(whole, found, rtol=1e-3, atol=1e-5)


def by_the_builder(form: str, window: int) -> onnx.ModelProto:
    """A decoder as onnxruntime-genai's builder writes it: the width of its cache has a name alone.

    The first layer's cache is one of a sliding window where there is a window.
    """
    proto = fused_llama(FORMS[form][0], window)
    caches = [v for v in (*proto.graph.input, *proto.graph.output) if v.name.startswith(("past", "present"))]
    for value in caches:
        dims = value.type.tensor_type.shape.dim
        dims[-1].dim_param = "kv_cache_dim"
        if window > 0 and ".0." in value.name:
            dims[2].dim_param = dims[2].dim_param.replace("sequence", "sliding")
    if window > 0:
        first = next(node for node in proto.graph.node if node.op_type == "GroupQueryAttention")
        first.attribute.append(helper.make_attribute("sliding_window_cache", 1))
    return proto


@pytest.mark.parametrize(("form", "window"), [("float", -1), ("int4", -1), ("float", 6)])
def test_decoders_of_the_builder_go_on_as_in_onnxruntime(form: str, window: int, tmp_path: Path) -> None:
    path = save(by_the_builder(form, window), tmp_path)
    model = qglow.load_model(path, native=True)
    past = [dims for name, dims in model.dimensions.items() if name.startswith("past") and dims]
    assert all(dims[-1] == DEPTH for dims in past)
    generator = qglow.load_generator(model, context=40, piece=16)
    rival = in_onnxruntime(save(fused_llama(FORMS[form][0], window), tmp_path, "plain.onnx"))
    for begin, end in itertools.pairwise((0, 5, 6, 25, 36)):
        found, wanted = generator.read(TOKENS[begin:end]), rival.read(TOKENS[begin:end])
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("window", [-1, 6])
def test_decoders_of_the_builder_are_measured_beside_onnxruntime(window: int, tmp_path: Path) -> None:
    model = qglow.load_model(save(by_the_builder("float", window), tmp_path))
    result = qglow.bench_decoding(model, prefill=8, decode=2, texts=1)
    assert list(result.speeds) == ["qglow", "onnxruntime"]


def test_a_context_ends_with_the_tables_of_angles(tmp_path: Path) -> None:
    """Positions behind them would have angles of others; onnxruntime refuses such calls."""
    model = qglow.load_model(save(fused_llama(), tmp_path))
    with pytest.raises(UnsupportedError, match="give a smaller `context`"):
        qglow.load_generator(model, context=LONGEST + 8, piece=8)
    assert qglow.load_generator(model, context=LONGEST, piece=8).read(TOKENS).size


@pytest.mark.parametrize("sinks", [True, False])
def test_bits_with_a_sink_do_not_depend_on_the_calls(sinks: bool, tmp_path: Path) -> None:
    """Every head has one score more than there are places, whatever the size of the program is."""
    proto = fused_llama()
    random = np.random.default_rng(8)
    for node in proto.graph.node:
        if node.op_type == "GroupQueryAttention":
            if not sinks:
                node.attribute.append(helper.make_attribute("smooth_softmax", 1))
                continue
            sink = random.normal(size=HEADS).astype(np.float32)
            proto.graph.initializer.append(numpy_helper.from_array(sink, f"{node.name}.sink"))
            node.input.extend(["", "", f"{node.name}.sink"])
    generator = qglow.load_generator(qglow.load_model(save(proto, tmp_path)), context=40, piece=16)
    found = set()
    for sizes in ([36], [17, 3, 16], [1] * 36, [4] * 9):
        generator.reset()
        ends = list(itertools.accumulate(sizes, initial=0))
        rows = [generator.read(TOKENS[begin:end]) for begin, end in itertools.pairwise(ends)]
        found.add(rows[-1].tobytes())
    assert len(found) == 1


def test_a_written_decoder_begins_at_once_with_the_same_bits(tmp_path: Path) -> None:
    model = qglow.load_model(save(fused_llama(), tmp_path))
    qglow.save_generator(model, tmp_path / "l.qglow", context=40, piece=32)
    written = qglow.load_generator(qglow.load(tmp_path / "l.qglow"))
    made = qglow.load_generator(model, context=40, piece=32)
    for begin, end in ((0, 20), (20, 21), (21, 36)):
        np.testing.assert_array_equal(written.read(TOKENS[begin:end]), made.read(TOKENS[begin:end]))


SIZES = {
    "input_ids": (1, 8),
    "attention_mask": (1, 16),
    **{
        f"past_key_values.{i}.{kind}": (1, GROUPS, 8, DEPTH)
        for i in range(LAYERS)
        for kind in ("key", "value")
    },
}


def test_attention_of_a_decoder_is_one_instruction(tmp_path: Path) -> None:
    model = qglow.load_model(save(fused_llama(), tmp_path), SIZES)
    operations = [operation_name(step) for step in model.compile().program.code]
    assert operations.count("Attention") == LAYERS
    # Masks and rotations are made once, not for every layer.
    assert operations.count("Compare") == 1 and operations.count("Gather") == 3


@pytest.mark.parametrize("form", [{"weights": "int8"}, {"weights": "int4"}, {"dynamic": True}])
def test_integers_keep_what_a_decoder_says(form: dict[str, Any], tmp_path: Path) -> None:
    path = save(fused_llama(), tmp_path)
    exact = qglow.load_generator(qglow.load_model(path), context=40, piece=8)
    quantized = qglow.load_model(path, SIZES).quantize(**form)
    rounded = qglow.load_generator(quantized, context=40, piece=8)
    wanted, found = exact.read(TOKENS), rounded.read(TOKENS)
    noise = float(np.square(found - wanted).sum() / np.square(wanted).sum())
    assert 0 < noise < (0.1 if form.get("weights") == "int4" else 1e-3)
