"""Real models of four kinds from profile to int8, measured by what they are for."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from qglow.core.types import Array
from qglow.report.comparison import compare
from qglow.report.comparison_result import FLOAT, INT8
from qglow.report.oracle import OnnxruntimeModel
from qglow.report.task_metric import open_metric
from tests.zoo import ZOO, wild_path, zoo_path

pytest.importorskip("PIL")
pytest.importorskip("matplotlib")

from scripts.benchmarks.measurements.tasks import TASKS
from scripts.benchmarks.models.labelled import TASK_MODELS
from scripts.benchmarks.tasks.sequences import SEQUENCE_TASKS, SequenceTask

pytestmark = pytest.mark.slow

FEWER = {"nnsplit_en_old": 12, "kaptch_captcha": 12, "silero_vad_16k_op15": 60}
"""Samples, or seconds of a stream, that a test takes."""
LEAST = {"nnsplit_en_old": 65.0, "kaptch_captcha": 60.0, "silero_vad_16k_op15": 100.0}
"""What the float model reaches at least, so that the metric is one."""


LOST = {"nnsplit_en_old": 5.0, "kaptch_captcha": 5.0, "silero_vad_16k_op15": 10.0}
"""What int8 may lose. States of a stream drift apart, and many probabilities are near the threshold."""


@pytest.mark.parametrize("task", SEQUENCE_TASKS, ids=lambda task: task.name)
def test_int8_does_what_a_model_over_sequences_is_for(task: SequenceTask) -> None:
    place = zoo_path if ZOO in task.path.parents else wild_path
    place(str(task.path.relative_to(ZOO)) if ZOO in task.path.parents else task.path.name)
    exact, count = task.in_onnxruntime(), FEWER[task.name]
    model = task.load()
    program = model.quantize(model.profile(task.calibration(exact))).compile()
    before, after = task.metric(exact, exact, count), task.metric(program, exact, count)
    assert before >= LEAST[task.name] and after >= before - LOST[task.name]


def test_int8_does_what_a_detector_is_for() -> None:
    (model,) = (each for each in TASK_MODELS if each.name == "fastestdet")
    zoo_path(model.file)
    task, loaded = TASKS[model.name], model.load()
    program = model.quantize(loaded, model.profile(loaded, 16), "fast").compile()
    found = compare(
        program,
        OnnxruntimeModel(model.path, shapes=loaded.shapes),
        task.samples(model, 32),
        metric=open_metric(task.metric),
    )
    assert found.metric is not None
    assert found.metric.values[FLOAT] > 25.0
    assert found.metric.values[INT8] > found.metric.values[FLOAT] - 5.0


def test_kept_states_give_the_bits_of_states_that_are_handed_over() -> None:
    (task,) = (each for each in SEQUENCE_TASKS if each.name == "silero_vad_16k_op15")
    zoo_path(str(task.path.relative_to(ZOO)))
    model = task.load()
    quantized = model.quantize(model.profile(task.calibration(task.in_onnxruntime())), repair=False)
    by_hand, kept = quantized.compile(), quantized.compile(states={"state": "stateN"})

    def streamed(inputs: Mapping[str, Array]) -> dict[str, Array]:
        results = kept({"input": inputs["input"]})
        return {**results, "stateN": kept.state["state"]}

    assert task.metric(streamed, by_hand, 10) == 100.0
