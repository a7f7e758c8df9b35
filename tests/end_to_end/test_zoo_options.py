"""Whatever a user chooses: interpreters and compiled code agree, and the result is a working model."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import numpy as np
import pytest

from qglow.core.types import Array
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.instructions.interpreter import ArenaInterpreter
from qglow.instructions.plan import plan_memory
from qglow.numerics.schema import Schema
from qglow.profiling.samples import Sample, batches
from qglow.recipe.choices import Calibration
from qglow.recipe.schema import Recipe
from qglow.report.layers import compare_layers
from qglow.toolchain import CompileOptions, compile_graph, lower_graph
from tests.end_to_end.zoo_flow import MODELS, RUNNABLE, WITH_FMA, float_graph, inputs, quantized, samples
from tests.runtimes import compare

CALIBRATIONS = ("minmax", "kl", "percentile:99.9", "mse")
WORKS = {"digits": 20.0, "cifar10_resnet20": 12.0}
"""Decibels of SQNR that every choice reaches; good ones reach 10 more."""
SMALL = [pytest.param(n, marks=[] if n == "digits" else pytest.mark.slow) for n in WORKS]
ISLANDS = [
    ("digits", "block1.1.conv/Conv"),
    ("digits", "block2.2.conv/Conv"),
    ("digits", "block2.add/Add"),
    ("digits", "op:Add"),
    ("digits", "op:GlobalAveragePool"),
    ("digits", "re:.*Gemm"),
    pytest.param("cifar10_resnet20", "conv_37", marks=pytest.mark.slow),
]


def interpreted(graph: Graph, fed: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs of the graph interpreter, which the arena interpreter has to give, too."""
    outputs = Interpreter(graph).run(fed)
    program = lower_graph(graph)
    plan_memory(program)
    for name, array in ArenaInterpreter(program).run(fed).items():
        compare(array, outputs[name], f"{name} on the arena")
    return outputs


def compiled(graph: Graph, fed: Mapping[str, Array], isa: str | None = None) -> dict[str, Array]:
    return compile_graph(graph, CompileOptions(isa=isa))(fed)


def assert_works(name: str, batch: int, fed: Mapping[str, Array], found: Mapping[str, Array]) -> None:
    for output, wanted in Interpreter(float_graph(name, batch)).run(fed).items():
        error = np.square(wanted.astype(np.float64) - found[output]).sum()
        level = 10 * np.log10(np.square(wanted.astype(np.float64)).sum() / max(float(error), 1e-30))
        assert level >= WORKS[name], f"{output}: {level:.1f} dB"


@pytest.mark.parametrize("per_tensor", [False, True], ids=["per-channel", "per-tensor"])
@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize("schema", Schema)
@pytest.mark.parametrize("name", SMALL)
def test_every_schema_and_calibration_works(
    name: str, schema: Schema, calibration: str, per_tensor: bool
) -> None:
    if name != "digits" and per_tensor != (calibration == "kl"):
        pytest.skip("half of the choices, to save time")
    options = Recipe(schema=schema.value, calibration=Calibration.parse(calibration), per_tensor=per_tensor)
    graph, fed = quantized(name, 1, options).graph, inputs(name, 1)
    wanted = interpreted(graph, fed)
    assert_works(name, 1, fed, wanted)
    for output, array in compiled(graph, fed).items():
        compare(array, wanted[output], output)


@pytest.mark.parametrize("per_tensor", [False, True], ids=["per-channel", "per-tensor"])
@pytest.mark.parametrize("schema", Schema)
def test_nodes_of_every_schema_agree_with_onnxruntime(schema: Schema, per_tensor: bool) -> None:
    options = Recipe(schema=schema.value, calibration=Calibration("minmax"), per_tensor=per_tensor)
    model, fed = quantized("digits", 1, options), inputs("digits", 1)
    rows = [Sample("only", {k: array[0] for k, array in fed.items()})]
    matches = {x.node: x.match for x in compare_layers(model.source, model.graph, rows).layers if x.match}
    assert len(matches) > 10
    apart = {node: match.max_step for node, match in matches.items() if match.max_step > 1}
    assert not apart
    assert sum(m.different for m in matches.values()) <= 1e-3 * sum(m.elements for m in matches.values())


@pytest.mark.parametrize(("name", "pattern"), ISLANDS)
def test_float_islands_agree(name: str, pattern: str) -> None:
    """Where a Conv or Gemm is float, ISAs with fused multiply-add agree in bits, numpy within a step."""
    batch = 3
    graph = quantized(name, batch, Recipe(keep_float=(pattern,))).graph
    fed = next(iter(batches(islice(samples(name, MODELS[name].fed), batch), batch))).inputs
    wanted = interpreted(graph, fed)
    assert_works(name, batch, fed, wanted)
    chains = any(n.operator.name in ("Conv", "Gemm") and not _is_integer(n.inputs) for n in graph.nodes)
    found = {isa: compiled(graph, fed, isa) for isa in RUNNABLE}
    for isa, outputs in found.items():
        for output, array in outputs.items():
            compare(array, wanted[output], f"{output} on {isa}", 0.02 if chains else 0.0)
    for isa in WITH_FMA[1:]:
        for output, array in found[isa].items():
            compare(array, found[WITH_FMA[0]][output], f"{output} on {isa}")


def _is_integer(operands: object) -> bool:
    assert isinstance(operands, list | tuple)
    return bool(operands[0].type.is_quantized)


@pytest.mark.parametrize("batch", [2, 3, 5, 13])
@pytest.mark.parametrize("isa", RUNNABLE)
def test_odd_batches_give_the_rows_of_single_samples(batch: int, isa: str) -> None:
    fed = next(iter(batches(islice(samples("digits", MODELS["digits"].fed), batch), batch))).inputs
    together = compiled(quantized("digits", batch).graph, fed, isa)
    single = compile_graph(quantized("digits", 1).graph, CompileOptions(isa=isa))
    for row in range(batch):
        alone = single({name: array[row : row + 1] for name, array in fed.items()})
        for output, array in alone.items():
            compare(together[output][row : row + 1], array, f"{output}, sample {row} of {batch}")


@pytest.mark.parametrize("isa", RUNNABLE)
@pytest.mark.parametrize("name", SMALL)
def test_inputs_out_of_all_bounds_give_the_same_bits(name: str, isa: str) -> None:
    """Infinities, NaN, denormals and huge values saturate, or become zero, alike."""
    random = np.random.default_rng(9)
    odd = [np.nan, np.inf, -np.inf, 1e30, -3e38, 1e-42, -1e-42, 0.0, -0.0]
    fed = {key: array.copy() for key, array in inputs(name, 1).items()}
    for array in fed.values():
        places = random.integers(0, array.size, array.size // 8)
        array.reshape(-1)[places] = random.choice(np.array(odd, np.float32), places.size)
    graph = quantized(name, 1).graph
    wanted = interpreted(graph, fed)
    for output, array in compiled(graph, fed, isa).items():
        assert np.all(np.isfinite(array))
        compare(array, wanted[output], f"{output} on {isa}")
