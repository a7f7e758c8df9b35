"""The first int8 node that makes a model miss an accuracy."""

from __future__ import annotations

import math

import numpy as np

import qglow
from qglow.bisection.nodes import first_node, worst_sqnr
from qglow.recipe.choices import Calibration
from tests.zoo import REPOSITORY

DIGITS = REPOSITORY / "calib_data" / "digits.onnx"


def test_node_that_a_bad_range_ruins_is_found() -> None:
    model = qglow.load_model(DIGITS)
    with np.load(REPOSITORY / "calib_data" / "calib.npz") as data:
        images = np.asarray(data["input"])
    profile = model.profile({"input": images[:32]})
    statistics = profile.check_matches(model.graph)
    nodes = [node for node in model.graph.nodes if node.operator.name == "Conv"]
    ruined = nodes[len(nodes) // 2]
    rule = qglow.Rule(qglow.Match(name=ruined.name), calibration=Calibration.parse("percentile:51"))
    runs = [{"input": images[number : number + 1]} for number in range(2)]
    recipe = qglow.Recipe(equalize=False, smooth=False)
    assert first_node(model.graph, statistics, profile.samples, recipe, runs, 15.0) is None
    bad = qglow.Recipe(equalize=False, smooth=False, rules=(rule,))
    found = first_node(model.graph, statistics, profile.samples, bad, runs, 15.0)
    # A range counts where a value is int8: between the node and the next one that is int8 too.
    assert found is not None and found.node in [node.name for node in (ruined, *ruined.output.users())]
    assert found.after < 15.0 <= found.before


def test_worst_sqnr_is_that_of_the_worst_output() -> None:
    expected = [{"a": np.ones(4, np.float32), "b": np.ones(4, np.float32)}]
    actual = [{"a": np.ones(4, np.float32), "b": np.full(4, 1.1, np.float32)}]
    assert math.isclose(worst_sqnr(expected, actual), 20.0, abs_tol=0.01)
    assert worst_sqnr(expected, expected) == math.inf
