"""Sizes of 1 let more operators move past a reshape: what is quantized at other sizes takes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import qglow
from qglow.core.types import Array
from tests.end_to_end.test_dynamic_shapes import decibels
from tests.unit.importer.tiny import save, session, tiny_model

node = helper.make_node
HEARD, SPOKEN, WIDTH = 12, 10, 16


def joiner(folder: Path) -> qglow.Model:
    """Scores [N, T, U, 8] of frames heard [N, T, 12] with words spoken [N, U, 10], as transducers have it."""
    random = np.random.default_rng(4)
    constants: dict[str, Array] = {
        name: (random.normal(size=shape) / 3).astype(np.float32)
        for name, shape in {"a": (HEARD, WIDTH), "b": (SPOKEN, WIDTH), "c": (WIDTH, 8)}.items()
    }
    constants |= {"one": np.array([1]), "two": np.array([2])}
    nodes = [
        node("MatMul", ["heard", "a"], ["frames"]),
        node("Unsqueeze", ["frames", "two"], ["columns"]),
        node("MatMul", ["spoken", "b"], ["words"]),
        node("Unsqueeze", ["words", "one"], ["rows"]),
        node("Add", ["columns", "rows"], ["sum"]),
        node("Relu", ["sum"], ["joined"]),
        node("MatMul", ["joined", "c"], ["y"]),
    ]
    inputs = {"heard": ("N", "T", HEARD), "spoken": ("N", "U", SPOKEN)}
    return qglow.load_model(save(tiny_model(nodes, inputs, ["y"], constants), folder))


def drawn(frames: int, words: int, seed: int, batch: int = 1) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {
        "heard": random.normal(size=(batch, frames, HEARD)).astype(np.float32),
        "spoken": random.normal(size=(batch, words, SPOKEN)).astype(np.float32),
    }


@pytest.mark.parametrize("profiled", [(9, 5), (1, 1)])
def test_a_joiner_takes_one_frame_and_one_word(profiled: tuple[int, int], tmp_path: Path) -> None:
    model = joiner(tmp_path)
    quantized = model.quantize(model.profile([drawn(*profiled, seed) for seed in range(64)]))
    program, float_model = quantized.compile(threads=1), session(model.path)
    for frames, words, batch in ((9, 5, 1), (1, 1, 1), (1, 5, 1), (1, 1, 3)):
        inputs = drawn(frames, words, 99, batch)
        assert decibels(program(inputs)["y"], float_model.run(None, inputs)[0]) > 18
