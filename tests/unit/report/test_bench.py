from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

import qglow
from qglow.core.errors import ModelError, UsageError
from qglow.report.bench import MIN_ALTERNATIONS, TURN_NS, bench, result_of_turns
from qglow.report.contenders import of_onnxruntime, of_openvino, random_inputs
from qglow.report.openvino_model import Precision, has_bfloat16, openvino_request
from tests.unit.report.models import linear_model
from tests.zoo import REPOSITORY


class FakeTime:
    """A clock that programs move on by what they cost."""

    def __init__(self) -> None:
        self.now = 0
        self.order: list[str] = []

    def program(self, name: str, cost_ns: int) -> Callable[[], None]:
        def run() -> None:
            self.now += cost_ns
            self.order.append(name)

        return run

    def clock(self) -> int:
        return self.now


def test_contenders_take_turns() -> None:
    time = FakeTime()
    programs = {name: time.program(name, 2 * TURN_NS) for name in "ABC"}
    bench(programs, alternations=3, warmup=0, clock=time.clock)
    # One call each to find the repeats, then an untimed and a timed one each turn.
    assert "".join(time.order) == "ABC" + "AABBCC" * 3


def test_medians_and_ratios() -> None:
    time = FakeTime()
    programs = {"slow": time.program("slow", 3_000_000), "fast": time.program("fast", 2_000_000)}
    result = bench(programs, alternations=MIN_ALTERNATIONS, clock=time.clock)
    assert result.latencies["slow"].median_ms == 3.0
    ratio = result.ratio("slow", "fast")
    assert (ratio.ratio, ratio.low, ratio.high) == (1.5, 1.5, 1.5)


def test_an_interval_of_the_ratio_lies_between_ordered_turns() -> None:
    turns = np.stack([np.arange(1.0, 21.0), np.ones(20)])
    found = result_of_turns({"a": 1, "b": 1}, turns).interval("a", "b")
    # Of 20 turns three may be left out at each end: 2 * (1 + 20 + 190 + 1140) / 2^20 = 0.0026.
    assert (found.median, found.low, found.high, found.turns) == (10.5, 4.0, 17.0, 20)
    assert 2 * (1 + 20 + 190 + 1140) / 2**20 <= 0.01 < 2 * (1 + 20 + 190 + 1140 + 4845) / 2**20
    with pytest.raises(UsageError, match="alternations are too few"):
        result_of_turns({"a": 1, "b": 1}, turns[:, :19]).interval("a", "b")
    with pytest.raises(UsageError, match="'c' was not measured"):
        result_of_turns({"a": 1, "b": 1}, turns).interval("a", "c")


def test_short_calls_are_timed_together() -> None:
    time = FakeTime()
    result = bench({"short": time.program("short", 1_000)}, alternations=2, clock=time.clock)
    assert result.latencies["short"].repeats == TURN_NS // 1_000
    assert result.latencies["short"].median_ms == pytest.approx(0.001)


def test_few_alternations_give_no_ratio() -> None:
    time = FakeTime()
    programs = {name: time.program(name, TURN_NS) for name in "AB"}
    result = bench(programs, alternations=MIN_ALTERNATIONS - 1, clock=time.clock)
    with pytest.raises(UsageError, match="too few"):
        result.ratio("A", "B")


def test_unknown_names_and_empty_benchmarks_are_errors() -> None:
    time = FakeTime()
    result = bench({"A": time.program("A", 10)}, alternations=MIN_ALTERNATIONS, clock=time.clock)
    with pytest.raises(UsageError, match="'B' was not measured"):
        result.ratio("A", "B")
    with pytest.raises(UsageError, match="at least one program"):
        bench({})


def test_garbage_collection_is_off_while_timing_and_on_again() -> None:
    seen: list[bool] = []
    bench({"A": lambda: seen.append(gc.isenabled())}, alternations=1, warmup=0)
    assert seen[0] and not seen[-1]
    assert gc.isenabled()


def test_rivals_run() -> None:
    model = linear_model().SerializeToString()
    run = of_onnxruntime(model, {"x": np.ones((2, 4), np.float32)})
    run()
    pytest.importorskip("openvino")
    of_openvino(model, {"x": np.ones((2, 4), np.float32)})()


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_openvino_computes_in_the_precision_that_is_asked_for(precision: Precision) -> None:
    pytest.importorskip("openvino")
    if precision == "bf16" and not has_bfloat16():
        pytest.skip("the processor has no bfloat16")
    request = openvino_request(linear_model().SerializeToString(), {"x": (2, 4)}, 1, precision)
    used = request.get_compiled_model().get_property("INFERENCE_PRECISION_HINT")
    assert used.to_string() == precision


def test_bfloat16_is_measured_where_the_processor_has_it() -> None:
    pytest.importorskip("openvino")
    model = qglow.load_model(REPOSITORY / "calib_data" / "digits.onnx")
    measured = qglow.bench(model, openvino=True, threads=1, alternations=1).latencies
    assert "OpenVINO float32" in measured and ("OpenVINO bfloat16" in measured) is has_bfloat16()


INTERRUPTED = """
import os, signal, sys, qglow
received = []
signal.signal(signal.SIGINT, lambda number, _: received.append(number))
qglow.bench(qglow.load_model(sys.argv[1]), openvino=True, threads=1, alternations=1)
os.kill(os.getpid(), signal.SIGINT)
sys.exit(len(received) - 1)
"""


def test_a_signal_after_openvino_reaches_its_handler() -> None:
    pytest.importorskip("openvino")
    model = REPOSITORY / "calib_data" / "digits.onnx"
    assert subprocess.run([sys.executable, "-c", INTERRUPTED, str(model)], check=False).returncode == 0


@pytest.mark.parametrize(
    ("done", "said"),
    [
        (subprocess.CompletedProcess([], -11), "crashes on the model \\(signal 11\\)"),
        (subprocess.TimeoutExpired([], 1.0), "takes more than"),
    ],
)
def test_a_rival_that_would_end_the_process_is_an_error(
    monkeypatch: pytest.MonkeyPatch, done: object, said: str
) -> None:
    pytest.importorskip("openvino")

    def run(*_: object, **__: object) -> object:
        if isinstance(done, Exception):
            raise done
        return done

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(ModelError, match=said):
        of_openvino(linear_model().SerializeToString(), {"x": np.ones((2, 4), np.float32)})


def test_random_integers_are_rows_that_every_table_has() -> None:
    from qglow.core.types import ElementType, TensorType, float_type

    drawn = random_inputs({"ids": TensorType(ElementType.INT64, (1, 1000)), "x": float_type(5)})
    assert set(np.unique(drawn["ids"])) == {0, 1} and drawn["ids"].dtype == np.int64
    assert drawn["x"].dtype == np.float32


def test_random_inputs_are_reproducible() -> None:
    from qglow.core.types import float_type

    first, second = (random_inputs({"x": float_type(2, 3)}) for _ in range(2))
    assert first["x"].dtype == np.float32 and np.array_equal(first["x"], second["x"])
