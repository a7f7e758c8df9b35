"""Decoders in onnxruntime's own operators: their cache is kept by the program, as everywhere."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
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
