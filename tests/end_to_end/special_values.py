"""Networks of a few nodes with values that int8 does not suit: masks, combs, rare extremes, positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import NodeProto, helper

from qglow import Array
from tests.unit.importer.tiny import tiny_model

SAMPLES, LENGTH, WIDTH, HEADS = 8, 6, 8, 2
FLOAT_MIN = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Case:
    """A model, and samples for it by the name of the input."""

    model: onnx.ModelProto
    feeds: Mapping[str, Array]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


node = helper.make_node


def _attention(layer: int, x: str, y: str, masked: Callable[[str, str], list[NodeProto]]) -> list[NodeProto]:
    """One layer of attention over `x`; `masked` gives the nodes between the scores and the mask."""

    def at(name: str) -> str:
        return f"{name}{layer}"

    nodes = []
    for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            node("MatMul", [x, at(f"w{name}")], [at(f"{name}_rows")]),
            node("Reshape", [at(f"{name}_rows"), "heads"], [at(f"{name}_heads")]),
            node("Transpose", [at(f"{name}_heads")], [at(name)], perm=perm),
        ]
    return [
        *nodes,
        node("MatMul", [at("q"), at("k")], [at("scores")]),
        node("Mul", [at("scores"), "factor"], [at("scaled")]),
        *masked(at("scaled"), at("masked")),
        node("Softmax", [at("masked")], [at("weights")], axis=-1),
        node("MatMul", [at("weights"), at("v")], [at("mixed")]),
        node("Transpose", [at("mixed")], [at("back")], perm=[0, 2, 1, 3]),
        node("Reshape", [at("back"), "joined"], [at("rows")]),
        node("MatMul", [at("rows"), at("wo")], [at("out")]),
        node("Add", [at("out"), x], [y]),
    ]


def attention(
    kind: str, lowest: float = -10000.0, layers: int = 2, masked: int = 4, spread: float = 1.0
) -> Case:
    """Layers of attention that share a mask.

    kind: "input", `(1 - mask) * lowest` of an input; "constant", an upper triangle; "where", a choice by an
    input; "added", an input that is the mask itself. masked: at most so many tokens of a sample. spread:
    factor of the scores.
    """
    constants = {
        f"w{name}{layer}": normal(WIDTH, WIDTH, seed=7 * layer + i) / np.float32(4.0)
        for layer in range(layers)
        for i, name in enumerate("qkvo")
    } | {
        "heads": np.array([0, 0, HEADS, WIDTH // HEADS]),
        "joined": np.array([0, 0, WIDTH]),
        "factor": np.float32(spread * (WIDTH / HEADS) ** -0.5),
        "one": np.float32(1.0),
        "lowest": np.float32(lowest),
    }
    before: list[NodeProto] = []
    feeds: dict[str, Array] = {"x": normal(SAMPLES, LENGTH, WIDTH, seed=9)}
    inputs: dict[str, list[int | str | None]] = {"x": ["N", LENGTH, WIDTH]}
    operands = ["bias"]
    if kind == "constant":
        constants["bias"] = np.triu(np.full((LENGTH, LENGTH), lowest, np.float32), 1)
    else:
        inputs["mask"] = ["N", 1, 1, LENGTH]
        lengths = np.random.default_rng(3).integers(LENGTH - masked, LENGTH + 1, SAMPLES)
        real = np.arange(LENGTH) < lengths[:, None]
        feeds["mask"] = real[:, None, None].astype(np.float32)
        if kind == "added":
            feeds["mask"] = np.where(feeds["mask"] > 0, np.float32(0), np.float32(lowest))
            operands = ["mask"]
        elif kind == "where":
            before = [node("Greater", ["mask", "half"], ["real"])]
            constants["half"] = np.float32(0.5)
        else:
            before = [node("Sub", ["one", "mask"], ["hidden"]), node("Mul", ["hidden", "lowest"], ["bias"])]

    def masking(scores: str, result: str) -> list[NodeProto]:
        if kind == "where":
            return [node("Where", ["real", scores, "lowest"], [result])]
        return [node("Add", [scores, *operands], [result])]

    names = ["x", *(f"x{layer}" for layer in range(1, layers)), "y"]
    nodes = [n for i in range(layers) for n in _attention(i, names[i], names[i + 1], masking)]
    return Case(tiny_model([*before, *nodes], inputs, ["y"], constants), feeds)


COUNT = 24


def _drawn_weights(*names: str, width: int = COUNT) -> dict[str, Array]:
    return {name: normal(width, width, seed=i) / np.float32(width**0.5) for i, name in enumerate(names)}


def missing_features() -> Case:
    """Features of which -9999 stands for a missing one, clipped before they are used."""
    x = normal(SAMPLES, COUNT, seed=1)
    x[np.random.default_rng(2).random(x.shape) < 0.1] = -9999.0
    nodes = [
        node("Add", ["x", "shift"], ["shifted"]),
        node("Max", ["shifted", "least"], ["known"]),
        node("MatMul", ["known", "w0"], ["h"]),
        node("Relu", ["h"], ["r"]),
        node("MatMul", ["r", "w1"], ["y"]),
    ]
    constants = {**_drawn_weights("w0", "w1"), "shift": normal(COUNT, seed=5), "least": np.float32(-3.0)}
    return Case(tiny_model(nodes, {"x": ["N", COUNT]}, ["y"], constants), {"x": x})


def masked_gates() -> Case:
    """Results of a product of which a mask switches off some, before a Sigmoid."""
    off = (np.random.default_rng(2).random((SAMPLES, COUNT)) < 0.2).astype(np.float32)
    nodes = [
        node("MatMul", ["x", "w0"], ["h"]),
        node("Mul", ["off", "lowest"], ["bias"]),
        node("Add", ["h", "bias"], ["masked"]),
        node("Sigmoid", ["masked"], ["gates"]),
        node("Mul", ["x", "gates"], ["gated"]),
        node("MatMul", ["gated", "w1"], ["y"]),
    ]
    constants = {**_drawn_weights("w0", "w1"), "lowest": np.float32(-10000.0)}
    model = tiny_model(nodes, {"x": ["N", COUNT], "off": ["N", COUNT]}, ["y"], constants)
    return Case(model, {"x": normal(SAMPLES, COUNT, seed=1), "off": off})


def comb() -> Case:
    """A detector's head: offsets, which are small, are added to the places of columns."""
    side, channels = 6, 4
    columns = np.array([5.6055, 13.0, 30.0, 45.0, 62.0, 90.0], np.float32)
    nodes = [
        node("Conv", ["x", "w"], ["h"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Sigmoid", ["h"], ["s"]),
        node("Mul", ["s", "small"], ["offsets"]),
        node("Add", ["offsets", "columns"], ["places"]),
        node("Conv", ["places", "v"], ["y"], kernel_shape=[1, 1]),
    ]
    constants = {
        "w": normal(6, channels, 3, 3, seed=1) / np.float32(6.0),
        "v": np.abs(normal(2, 6, 1, 1, seed=3)),
        "small": np.float32(0.015),
        "columns": columns,
    }
    x = normal(SAMPLES, channels, side, side, seed=2)
    return Case(tiny_model(nodes, {"x": ["N", channels, side, side]}, ["y"], constants), {"x": x})


def rare_extremes() -> Case:
    """A learned constant with one huge element, which the next Tanh makes 1."""
    constants = {**_drawn_weights("w0", "w1"), "c": normal(COUNT, COUNT, seed=5)}
    constants["c"][3, 7] = 400.0
    nodes = [
        node("MatMul", ["x", "w0"], ["h"]),
        node("Add", ["h", "c"], ["sums"]),
        node("Tanh", ["sums"], ["t"]),
        node("MatMul", ["t", "w1"], ["y"]),
    ]
    x = normal(SAMPLES, COUNT, COUNT, seed=2)
    return Case(tiny_model(nodes, {"x": ["N", COUNT, COUNT]}, ["y"], constants), {"x": x})


def positions() -> Case:
    """Places within cells are added to the places of the cells, and choose rows of a table."""
    rows = 200
    nodes = [
        node("MatMul", ["x", "w0"], ["h"]),
        node("Sigmoid", ["h"], ["s"]),
        node("Mul", ["s", "most"], ["within"]),
        node("Add", ["within", "cells"], ["places"]),
        node("Cast", ["places"], ["index"], to=onnx.TensorProto.INT64),
        node("Gather", ["table", "index"], ["found"], axis=0),
        node("MatMul", ["found", "w1"], ["y"]),
    ]
    constants = {
        **_drawn_weights("w0", "w1"),
        "most": np.float32(0.9),
        "cells": np.random.default_rng(3).permutation(rows * 5)[:COUNT].astype(np.float32),
        "table": normal(rows * 5, COUNT, seed=6),
    }
    return Case(
        tiny_model(nodes, {"x": ["N", COUNT]}, ["y"], constants), {"x": normal(SAMPLES, COUNT, seed=2)}
    )


def places_of_the_largest() -> Case:
    """Places from an ArgMax become floats, of which only the nearness to others is used, for channels."""
    places = 400
    nodes = [
        node("MatMul", ["x", "w0"], ["scores"]),
        node("ArgMax", ["scores"], ["best"], axis=-1, keepdims=1),
        node("Cast", ["best"], ["place"], to=onnx.TensorProto.FLOAT),
        node("Sub", ["place", "others"], ["apart"]),
        node("Mul", ["apart", "apart"], ["squares"]),
        node("Mul", ["squares", "factor"], ["exponents"]),
        node("Exp", ["exponents"], ["near"]),
        node("MatMul", ["x", "w1"], ["h"]),
        node("Add", ["h", "near"], ["sums"]),
        node("Relu", ["sums"], ["r"]),
        node("MatMul", ["r", "w2"], ["y"]),
    ]
    constants = {
        **_drawn_weights("w1", "w2"),
        "w0": normal(COUNT, places, seed=7),
        "others": np.linspace(0, places, COUNT, dtype=np.float32),
        "factor": np.float32(-0.01),
    }
    constants["w1"] /= np.float32(3.0)
    x = constants["w0"][:, np.random.default_rng(3).integers(places, size=SAMPLES)].T
    return Case(tiny_model(nodes, {"x": ["N", COUNT]}, ["y"], constants), {"x": np.ascontiguousarray(x)})


def clipped_outliers() -> Case:
    """Few elements of a value carry the answer: a spike in some pixels, far above noise."""
    x = np.abs(normal(SAMPLES, 4, 16, 16, seed=2)) * np.float32(0.05)
    random = np.random.default_rng(3)
    for sample in x:
        for _ in range(2):
            sample[:, random.integers(16), random.integers(16)] = random.uniform(1.0, 40.0, 4)
    nodes = [
        node("Conv", ["x", "w"], ["h"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Relu", ["h"], ["r"]),
        node("Conv", ["r", "v"], ["g"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("GlobalMaxPool", ["g"], ["y"]),
    ]
    constants = {
        "w": normal(8, 4, 3, 3, seed=1) / np.float32(6.0),
        "v": normal(4, 8, 3, 3, seed=3) / np.float32(8.0),
    }
    return Case(tiny_model(nodes, {"x": ["N", 4, 16, 16]}, ["y"], constants), {"x": x})
