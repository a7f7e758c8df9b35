"""The recipes that are shipped prepare data as the models were trained: float accuracy is as published."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from qglow.profiling.datasets import open_data
from qglow.profiling.samples import InputSpec, batches
from qglow.recipe import load_recipe
from tests.zoo import REPOSITORY, zoo_model, zoo_path

# model, data, selection, float32 top-1 in per cent of exactly these samples
CASES = [
    ("digits", "calib_data/test.npz", None, 99.16),
    ("mlkws_ds_cnn_l", "data/speech_commands_350.npz", None, 84.86),
    ("cifar10_resnet20", "data/cifar10.npz[input=x_test,label=y_test]", None, 81.30),
    ("squeezenet1.1", "data/imagenet_sample", None, 61.10),
    ("mobilenetv2_tin202", "data/tin202/test", "::2", 56.93),
    ("resnet50v2s3_tin202", "data/tin202/test", "::4", 42.97),
]


def _data(relative: str) -> str:
    if relative.startswith("calib_data/"):
        return str(REPOSITORY / relative)
    path, bracket, mapping = relative.partition("[")
    return f"{zoo_path(path)}{bracket}{mapping}"


def _session(model: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(model), options)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "data", "select", "expected"), CASES, ids=[case[0] for case in CASES])
def test_recipe_gives_the_float_accuracy(model: str, data: str, select: str | None, expected: float) -> None:
    session = _session(zoo_model(model))
    model_input = session.get_inputs()[0]
    specs = {model_input.name: InputSpec(tuple(model_input.shape[1:]), np.dtype(np.float32))}
    recipe = load_recipe(REPOSITORY / "recipes" / f"{model}.yaml")
    right = []
    for batch in batches(open_data(_data(data), specs, recipe=recipe, select=select), 10):
        predicted = session.run(None, batch.inputs)[0].argmax(1)
        right += [int(a) == b for a, b in zip(predicted, batch.labels, strict=True)]
    # A sample or two may flip between versions of the image decoder and of onnxruntime.
    assert 100 * np.mean(right) == pytest.approx(expected, abs=0.4)
