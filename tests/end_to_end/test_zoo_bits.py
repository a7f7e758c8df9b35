"""Every int8 tensor of real models has the same bits in the interpreter and on every ISA."""

from __future__ import annotations

from functools import cache

import pytest

from tests.end_to_end.bits import Tensors, assert_compiled_tensors_equal, interpreted_tensors
from tests.end_to_end.zoo_flow import ALL_CASES, MODELS, RUNNABLE, inputs, quantized
from tests.runtimes import compare

LARGE = ("squeezenet1.1", "mobilenetv2_tin202", "resnet50v2s3_tin202")
FEWER = (RUNNABLE[0], RUNNABLE[-1])
"""The least that there is and the most: ISAs that large models run on with a batch of 4, and that every
model runs on as it is deployed, too. On others all activations are kept apart: half of the compiling."""


@cache
def reference(name: str, batch: int) -> Tensors:
    """What the interpreter gives."""
    return interpreted_tensors(quantized(name, batch).graph, inputs(name, batch))


@pytest.mark.parametrize("isa", RUNNABLE)
@pytest.mark.parametrize(("name", "batch"), ALL_CASES)
def test_every_int8_tensor_equals_the_interpreters(name: str, batch: int, isa: str) -> None:
    if name in LARGE and batch > 1 and isa not in FEWER:
        pytest.skip("large models run with a batch on two ISAs only, to save time")
    graph = quantized(name, batch).graph
    fed, wanted = inputs(name, batch), reference(name, batch)
    assert_compiled_tensors_equal(graph, fed, isa, wanted, deployed=isa in FEWER)


@pytest.mark.parametrize(("name", "batch"), ALL_CASES)
def test_int8_results_do_not_depend_on_batch(name: str, batch: int) -> None:
    """Samples of a batch do not see each other, whatever the kernels do with the rows."""
    if batch == 1 or len(MODELS[name].batches) < 2:
        pytest.skip("one sample, or the file fixes the batch")
    _, tensors = reference(name, 1)
    _, together = reference(name, batch)
    for key, array in tensors.items():
        compare(together[key][:1], array, f"{key} of the first sample")
