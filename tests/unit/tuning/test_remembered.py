"""Answers that samples gave are kept between processes, and found again only for the same content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import qglow
from qglow.core.types import Array, ElementType, TensorType, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.fingerprint import fingerprint
from qglow.graph.graph import Graph
from qglow.graph.operator import Operator
from qglow.graph.ops.control import If
from qglow.graph.ops.conv import Conv
from qglow.graph.ops.functions import Sigmoid
from qglow.profiling.samples import Sample
from qglow.quantization.channel_factors import FactorSearch
from qglow.recipe.schema import Recipe
from qglow.toolchain import CompileOptions
from qglow.tuning import remembered, self_check, stage
from qglow.tuning.quantizer import Quantizer
from qglow.tuning.remembered import ENVIRONMENT_VARIABLE, Remembered, arrays_of
from qglow.tuning.repair import Decision, Repaired, repaired
from tests.unit.profiling.networks import samples as images
from tests.unit.tuning.test_repair import made, outliers
from tests.zoo import REPOSITORY

DIGITS = REPOSITORY / "calib_data" / "digits.onnx"
CALIBRATION = REPOSITORY / "calib_data" / "calib.npz"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, in which answers are kept."""
    monkeypatch.setenv("QGLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(ENVIRONMENT_VARIABLE)
    return tmp_path / "cache"


def answers(cache: Path) -> list[Path]:
    return sorted((cache / "answers").rglob("*.json"))


def forbid(monkeypatch: pytest.MonkeyPatch, *modules: object) -> None:
    """Let runs of the float model fail."""

    def fail(*_: object) -> None:
        raise AssertionError("the model ran again")

    for module in modules:
        monkeypatch.setattr(module, "float_runs", fail)


def bits(found: Repaired) -> tuple[object, ...]:
    assert found.result is not None
    return (
        found.recipe,
        found.recipe.calibration.stated,
        found.repairs,
        found.result.report,
        fingerprint(found.result.graph),
    )


def test_repair_looks_at_the_samples_once(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    kept = images(8)
    first = repaired(Recipe(), made(outliers(), kept), kept)
    assert first.repairs and len(answers(cache)) == 1
    forbid(monkeypatch, stage)
    again = repaired(Recipe(), made(outliers(), kept), kept)
    assert bits(again) == bits(first)


def test_factors_of_channels_are_searched_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, graph = images(8), network()
    first = repaired(Recipe(), made(graph, kept), kept)
    assert first.result is not None and first.result.rescaled

    def fail(*_: object) -> None:
        raise AssertionError("factors were searched for again")

    monkeypatch.setattr(FactorSearch, "best", fail)
    again = repaired(Recipe(), made(graph, kept), kept)
    assert bits(again) == bits(first)
    assert again.result is not None
    assert fingerprint(again.result.source) == fingerprint(first.result.source)
    with pytest.raises(AssertionError, match="searched for again"):
        repaired(Recipe(schema="symmetric"), made(graph, kept), kept)


def network() -> Graph:
    """A network of which channels of the first result are scaled."""
    b, random = GraphBuilder("scaled"), np.random.default_rng(3)
    x = b.input("x", float_type(1, 3, 6, 6))
    sizes = (10.0 ** np.linspace(-2.0, 1.0, 4)).reshape(4, 1, 1, 1)
    w = b.constant("w", (random.normal(size=(4, 3, 3, 3)) * sizes).astype(np.float32))
    inner = b.node(Conv(), x, w, name="inner")
    depthwise = b.constant("dw", random.normal(size=(4, 1, 3, 3)).astype(np.float32))
    return b.finish(b.node(Conv(group=4), inner, depthwise, name="y"))


def changed_weights(graph: Graph) -> Graph:
    value = next(v for v in graph.constants() if v.data is not None)
    assert value.data is not None
    value.data = value.data * np.float32(0.5)
    return graph


@pytest.mark.parametrize(
    "change",
    [
        lambda recipe, quantizer, kept: (recipe, quantizer, kept[1:]),
        lambda recipe, quantizer, kept: (recipe, quantizer, kept[::-1]),
        lambda recipe, quantizer, kept: (Recipe(schema="symmetric"), quantizer, kept),
        lambda recipe, quantizer, kept: (recipe.with_overrides(calibration="kl"), quantizer, kept),
        lambda recipe, quantizer, kept: (recipe, made(changed_weights(outliers()), kept), kept),
        lambda recipe, quantizer, kept: (recipe, replace(quantizer, samples=9), kept),
        lambda recipe, quantizer, kept: (recipe, made(outliers(), images(8, seed=9)), kept),
    ],
    ids=["samples", "order", "recipe", "stated", "weights", "number", "statistics"],
)
def test_other_content_is_looked_at_again(
    change: Callable[..., tuple[Recipe, Quantizer, list[Sample]]], cache: Path
) -> None:
    kept = images(8)
    repaired(Recipe(), made(outliers(), kept), kept)
    repaired(*change(Recipe(), made(outliers(), kept), kept))
    assert len(answers(cache)) == 2


@pytest.mark.parametrize("damage", [b"", b"nothing", None], ids=["empty", "other bytes", "one bit"])
def test_a_damaged_answer_is_none(damage: bytes | None, cache: Path) -> None:
    kept = images(8)
    first = repaired(Recipe(), made(outliers(), kept), kept)
    [path] = answers(cache)
    whole = path.read_bytes()
    path.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:] if damage is None else damage)
    assert bits(repaired(Recipe(), made(outliers(), kept), kept)) == bits(first)
    assert path.read_bytes() == whole


def place(graph: Graph, options: CompileOptions | None = None) -> Remembered:
    return Remembered.of("tests", [graph], arrays_of(images(1)), options or CompileOptions())


def test_an_answer_of_another_form_is_none() -> None:
    here = place(outliers())
    here.keep(Decision("schema: symmetric", False, ()))
    assert here.get(Decision) == Decision("schema: symmetric", False, ())
    assert here.get(self_check.OutputErrors) is None


@pytest.mark.parametrize("word", ["0", "no", "OFF", "false"])
def test_it_can_be_turned_off(word: str, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    assert place(outliers(), CompileOptions(cache=False)).place is None
    assert place(outliers()).place is not None
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, word)
    kept = images(8)
    repaired(Recipe(), made(outliers(), kept), kept)
    assert place(outliers()).place is None and not answers(cache)


def of_one(operator: Operator) -> Graph:
    b = GraphBuilder("one")
    return b.finish(b.node(operator, b.input("x", float_type(1, 4)), name="y"))


def test_operators_of_other_packages_are_not_covered_by_the_key() -> None:
    class Foreign(Sigmoid):
        pass

    graph = of_one(Sigmoid())
    assert place(graph).place is not None
    Foreign.__module__ = "elsewhere.operators"
    graph.nodes[0].operator = Foreign()
    assert place(graph).place is None
    b = GraphBuilder("branches")
    flag, x = b.input("flag", TensorType(ElementType.BOOL, ())), b.input("x", float_type(1, 4))
    branches = b.finish(b.node(If(of_one(Sigmoid()), of_one(Sigmoid())), flag, x, name="y"))
    assert place(branches).place is not None
    [region, _] = branches.regions()
    region.nodes[0].operator = Foreign()
    assert place(branches).place is None, "nor are those inside of regions"


def test_libraries_of_custom_operators_are_not_covered_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "loaded_libraries", lambda: ("/lib/custom.so",))
    assert place(outliers()).place is None


def test_another_version_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    before = place(outliers()).key
    assert place(outliers()).key == before
    monkeypatch.setattr(remembered, "_version", lambda: "another")
    assert place(outliers()).key != before


def test_names_are_part_of_the_key() -> None:
    """Recipes name values."""
    other = outliers()
    next(value for value in other.values() if value.name == "total").name = "sum"
    assert fingerprint(other) == fingerprint(outliers()) and place(other).key != place(outliers()).key


@pytest.mark.parametrize("repairs", [True, False])
def test_a_warm_directory_has_the_bytes_of_a_cold_one(
    repairs: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    profile = qglow.load_model(DIGITS).profile(CALIBRATION, samples=40, threads=1)

    def directory(name: str) -> dict[str, bytes]:
        folder = tmp_path / name
        model = qglow.load_model(DIGITS)
        model.quantize(profile, repair=repairs, threads=1).save(folder)
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    cold = directory("cold")
    assert len(answers(cache)) == (2 if repairs else 1)
    forbid(monkeypatch, stage, self_check)
    assert directory("warm") == cold


def test_large_arrays_stay_writable() -> None:
    array: Array = np.zeros(1 << 17, np.int64)
    keys = []
    for place_of_one in (5, 6):
        array[:] = 0
        array[place_of_one] = 1
        keys.append(Remembered.of("tests", [], [array], CompileOptions()).key)
    assert keys[0] != keys[1]


def test_samples_without_axes_are_part_of_a_key(cache: Path) -> None:
    """An input of rank 0 is a number of numpy in a sample."""
    graph = made(outliers(), images(1)).graph
    places = [
        Remembered.of("numbers", [graph], [[("x", np.float32(number))]], CompileOptions(threads=1))
        for number in (1.0, 1.0, 2.0)
    ]
    assert places[0] == places[1] != places[2]
