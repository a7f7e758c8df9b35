"""Names that reports print are names that recipes and commands take, however odd they are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.cli.main import main
from qglow.core.printable import printable
from qglow.recipe.loading import parse_recipe
from qglow.recipe.matching import exactly

ODD = (
    *(
        "plain",
        " led by a space",
        "two words",
        "a/b.c/conv",
        "\u5c42/\u5377\u79ef \u00e9",
        "it's",
        '"quoted"',
        "back\\slash",
    ),
    *(
        "conv[0]",
        "glob*?",
        "jit(main)/dot+general",
        "a|b",
        "{x}",
        "$100%",
        "#tag",
        "-option",
        "key: value",
        "1e5",
        "null",
    ),
    *("re:first.*", "op:Conv", "line\nbreak", "\x1b[31m", "\u202ehidden", "~", "\\x1b", "a,b", "x=1"),
)
UNNAMED = 2
SIZE = 8
NAMES = (*ODD, *(f"Gemm_{len(ODD) + number}" for number in range(UNNAMED)))
"""Names of the layers in their order; those of unnamed ones are given by their position."""
BROKEN = ("conv[", "(", "*x", "a{2,1}")
"""Names that are no regular expressions."""


def chain(names: tuple[str, ...]) -> onnx.ModelProto:
    """Linear layers one behind the other, each with a name of these; the results have other names."""
    rng = np.random.default_rng(1)
    nodes, weights, value = [], [], "x"
    for number, name in enumerate(names):
        array = np.linalg.qr(rng.normal(size=(SIZE, SIZE)))[0].astype(np.float32)
        weights += [numpy_helper.from_array(array, f"w{number}")]
        weights += [numpy_helper.from_array(np.full(SIZE, 0.1, np.float32), f"b{number}")]
        inputs = [value, f"w{number}", f"b{number}"]
        value = f"value of {number}"
        nodes.append(helper.make_node("Gemm", inputs, [value], name=name))
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, SIZE])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, [1, SIZE])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@dataclass(frozen=True)
class Chain:
    """The model in a file, and its profile."""

    path: Path
    model: qglow.Model
    profile: qglow.Profile

    @staticmethod
    def of(folder: Path, names: tuple[str, ...]) -> Chain:
        path = folder / "chain.onnx"
        onnx.save(chain(names), path)
        model = qglow.load_model(path)
        data = np.random.default_rng(2).normal(size=(16, SIZE)).astype(np.float32)
        return Chain(path, model, model.profile({"x": data}))

    def kept(self, recipe: qglow.Recipe | None = None, **choices: object) -> set[str]:
        """Names of the nodes that the report calls float."""
        made = self.model.quantize(self.profile, recipe, check=False, repair=False, **choices)  # type: ignore[arg-type]
        assert made.report is not None
        return {node.name for node in made.report.float_nodes}


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    return Chain.of(tmp_path_factory.mktemp("names"), (*ODD, *[""] * UNNAMED))


def test_names_are_those_of_the_model(odd: Chain) -> None:
    assert [node.name for node in odd.model.graph.nodes] == list(NAMES)
    assert not odd.kept()


@pytest.mark.parametrize("name", NAMES)
def test_printed_name_keeps_its_node_float(name: str, odd: Chain) -> None:
    assert odd.kept(keep_float=printable(name)) == {name, *also(name)}
    assert odd.kept(keep_float=[exactly(name)]) == {name, *also(exactly(name))}


def also(written: str) -> set[str]:
    """Names of other nodes that print alike."""
    return {name for name in NAMES if printable(name) == written or name == written}


def as_expression(name: str) -> str:
    """Return a name, or where it is no expression, what the error says to write."""
    try:
        qglow.Match(name=name)
    except ValueError as error:
        return str(error).rpartition("is written ")[2]
    return name


@pytest.mark.parametrize("name", NAMES)
def test_printed_name_is_that_of_a_rule_in_a_file(name: str, odd: Chain) -> None:
    expression = as_expression(printable(name))
    rule = {"match": {"name": expression}, "dtype": "float"}
    recipe = parse_recipe(yaml.safe_dump({"rules": [rule]}, allow_unicode=True), "recipe.yaml")
    assert parse_recipe(recipe.to_yaml(), "again") == recipe
    expected = {name, *also(printable(name))}
    assert expected <= odd.kept(recipe) <= expected | {n for n in NAMES if re.fullmatch(expression, n)}


@pytest.mark.parametrize("name", NAMES)
def test_printed_name_is_explained(name: str, odd: Chain) -> None:
    assert repr(odd.model.explain(printable(name), isa="reference")).startswith("Document(")
    title = odd.model.explain(name, isa="reference").title
    assert title == f"Gemm '{name}'" or name in also(printable(name))


def test_rule_from_a_node_to_a_node(odd: Chain) -> None:
    first, last = NAMES.index("conv[0]"), NAMES.index("a|b")
    match = qglow.Match(start=NAMES[first], end=NAMES[last])
    recipe = qglow.Recipe(rules=(qglow.Rule(match, dtype="float"),))
    assert odd.kept(recipe) == set(NAMES[first + 1 : last + 1])
    by_value = qglow.Match(start=f"value of {first}", end=f"value of {last}")
    assert odd.kept(qglow.Recipe(rules=(qglow.Rule(by_value, dtype="float"),))) == odd.kept(recipe)


def test_expression_fits_names_with_line_breaks(odd: Chain) -> None:
    assert odd.kept(keep_float="re:.*") == set(NAMES)
    recipe = qglow.Recipe(rules=(qglow.Rule(qglow.Match(name="line.*"), dtype="float"),))
    assert odd.kept(recipe) == {"line\nbreak"}


def test_commands_take_what_they_print(
    odd: Chain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile, directory = tmp_path / "p.yaml", tmp_path / "out"
    qglow.save_profile(odd.profile, profile)
    assert main(["quantize", "--profile", str(profile), "-o", str(directory), "--no-repair"]) == 0
    capsys.readouterr()
    assert main(["inspect", str(odd.path), "--stage", "graph"]) == 0
    kept = [f"--keep-float={printable(name)}" for name in NAMES]
    command = ["quantize", "--profile", str(profile), "-o", str(directory), "--no-repair", *kept]
    assert main(command) == 0
    quantized = qglow.load_quantized(directory)
    assert quantized.report is not None
    assert {node.name for node in quantized.report.float_nodes} == set(NAMES)
    for name in NAMES:
        capsys.readouterr()
        assert main(["explain", str(directory), "--", printable(name)]) == 0
        assert "keep_float" in capsys.readouterr().out


@pytest.mark.parametrize("name", BROKEN)
def test_name_that_is_no_expression_says_how_it_is_written(name: str, tmp_path: Path) -> None:
    made = Chain.of(tmp_path, ("first", name, "last"))
    with pytest.raises(ValueError, match="not a regular expression") as found:
        qglow.Match(name=name)
    remedy = str(found.value).rpartition("is written ")[2]
    assert made.kept(qglow.Recipe(rules=(qglow.Rule(qglow.Match(name=remedy), dtype="float"),))) == {name}
    assert made.kept(keep_float=name) == {name}
    with pytest.raises(qglow.UsageError, match="not a regular expression.*is written"):
        made.kept(keep_float=f"re:{name}")
