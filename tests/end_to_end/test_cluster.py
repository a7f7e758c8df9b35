"""Work on a Dask cluster gives the bytes of one process, also where a worker dies."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import distributed
import numpy as np
import pytest
from onnx import helper

import qglow
from qglow.api.clusters import jobs_at, refusal_of
from qglow.cluster import scheduler as cluster_module
from qglow.cluster.worker import software
from qglow.core.errors import ClusterError
from qglow.core.jobs import HereJobs, spread
from qglow.graph.text import print_graph
from qglow.targets.registry import select_target
from scripts.benchmarks.measurements.accuracy import RowWork
from scripts.benchmarks.models.labelled import MODELS
from scripts.benchmarks.rivals.cache import RivalCache
from tests.end_to_end.conftest import Run
from tests.unit.importer.tiny import save, tiny_model

DIGITS = Path(__file__).parents[2] / "calib_data" / "digits.onnx"
ENDED = "QGLOW_TEST_ENDED"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as made:
        yield made.scheduler_address


def images(count: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    return {"input": random.uniform(0.0, 1.0, (count, 1, 8, 8)).astype(np.float32)}


def saved(profile: qglow.Profile, folder: Path) -> list[bytes]:
    """The bytes of all files of a profile."""
    folder.mkdir()
    qglow.save_profile(profile, folder / "p.yaml")
    return [path.read_bytes() for path in sorted(folder.iterdir())]


@pytest.mark.parametrize("batch_size", [1, 48])
def test_a_profile_of_a_cluster_is_that_of_one_process(address: str, batch_size: int, tmp_path: Path) -> None:
    model, data = qglow.load_model(DIGITS), images(300)
    alone = model.profile(data, batch_size=batch_size)
    spread_out = model.profile(data, batch_size=batch_size, scheduler=address)
    assert saved(spread_out, tmp_path / "a") == saved(alone, tmp_path / "b")


def test_a_profile_of_several_shapes_too(address: str, tmp_path: Path) -> None:
    w = np.random.default_rng(2).normal(size=(8, 8)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    path = save(tiny_model(nodes, {"x": ["N", "T", 8]}, ["y"], {"w": w}, opset=17), tmp_path, "free.onnx")
    random = np.random.default_rng(1)
    samples = [{"x": random.normal(size=(3 + number % 3, 8)).astype(np.float32)} for number in range(9)]
    model = qglow.load_model(path)
    found = [
        saved(model.profile(samples, scheduler=where), tmp_path / str(where)[:4]) for where in (address, None)
    ]
    assert found[0] == found[1]


@dataclass(frozen=True)
class Mortal:
    """Doubles numbers; the first process that meets the number 5 ends at once."""

    mark: Path

    def begin(self) -> Callable[[int], int]:
        def job(number: int) -> int:
            if number == 5 and not self.mark.exists():
                self.mark.write_text("")
                os._exit(1)
            return 2 * number

        return job


@dataclass(frozen=True)
class Fatal:
    """Ends every process."""

    def begin(self) -> Callable[[int], int]:
        def job(number: int) -> int:
            os._exit(1)

        return job


@dataclass(frozen=True)
class Refusing:
    """Raises an error of qglow."""

    def begin(self) -> Callable[[int], int]:
        def job(number: int) -> int:
            raise qglow.DataError(f"sample {number} is not good", field="data", details=("it is odd",))

        return job


def test_results_come_in_order_though_a_worker_ends(address: str, tmp_path: Path) -> None:
    with jobs_at(address, None) as jobs:
        assert jobs is not None
        assert list(spread(jobs, Mortal(tmp_path / "ended"), range(40))) == [2 * n for n in range(40)]
    assert (tmp_path / "ended").exists()


def test_jobs_here_give_the_same(tmp_path: Path) -> None:
    (tmp_path / "ended").write_text("")
    assert list(spread(HereJobs(), Mortal(tmp_path / "ended"), range(7))) == [2 * n for n in range(7)]


def test_a_profile_survives_a_worker_that_ends_half_way(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data = qglow.load_model(DIGITS), images(700)
    alone = saved(model.profile(data), tmp_path / "alone")
    submitted: list[object] = []
    ended: list[str] = []
    held: list[distributed.Future] = []
    submit = cluster_module.ClusterJobs.submit

    def submit_and_end(jobs: cluster_module.ClusterJobs, work: object, item: object) -> object:
        """Begin a job; with the tenth one, end a worker."""
        pending = submit(jobs, work, item)  # type: ignore[arg-type]
        submitted.append(item)
        if len(submitted) == 10:
            ended.append(next(iter(jobs._client.scheduler_info()["workers"])))
            # A job that nobody holds is dropped, and without priority it may be the last of all.
            held.append(jobs._client.submit(os._exit, 1, workers=ended, pure=False, retries=0, priority=100))
        return pending

    monkeypatch.setattr(cluster_module.ClusterJobs, "submit", submit_and_end)
    assert saved(model.profile(data, scheduler=address), tmp_path / "spread") == alone
    assert len(submitted) > 10
    with distributed.Client(address, set_as_default=False) as client:
        assert ended[0] not in client.scheduler_info()["workers"]


def test_errors_of_jobs_come_back_as_they_are(address: str) -> None:
    with (
        jobs_at(address, None) as jobs,
        pytest.raises(qglow.DataError, match="sample 0 is not good") as caught,
    ):
        assert jobs is not None
        list(spread(jobs, Refusing(), range(3)))
    assert caught.value.field == "data" and caught.value.details == ("it is odd",)


def test_work_that_ends_every_worker_is_given_up(address: str) -> None:
    with jobs_at(address, None) as jobs, pytest.raises(ClusterError, match="end while they run one job"):
        assert jobs is not None
        list(spread(jobs, Fatal(), range(1)))


@dataclass(frozen=True)
class Slow:
    """Sleeps."""

    def begin(self) -> Callable[[float], None]:
        return time.sleep


def test_a_cluster_that_loses_all_workers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "LOST", 2.0)
    with (
        distributed.LocalCluster(n_workers=1, dashboard_address=None, host="127.0.0.1") as made,
        jobs_at(made.scheduler_address, None) as jobs,
        pytest.raises(ClusterError, match="all workers of .* are gone"),
    ):
        assert jobs is not None
        waiting = jobs.submit(Slow(), 60.0)
        made.scale(0)
        waiting.result()


def test_a_scheduler_without_workers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "CONNECTING", 0.5)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=None, host="127.0.0.1") as empty,
        pytest.raises(ClusterError, match="has no worker; start some with `dask worker tcp://"),
        jobs_at(empty.scheduler_address, None),
    ):
        pass


def test_other_versions_are_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qglow.cluster.worker.__version__", "99.0")
    assert software()["qglow"] == "99.0"
    with (
        pytest.raises(ClusterError, match=r"worker tcp://\S+ has qglow \S+, this process 99.0"),
        jobs_at(address, None),
    ):
        pass


def test_a_target_that_a_worker_lacks_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qglow.api.clusters.refusal_of", _lacking)
    with (
        pytest.raises(ClusterError, match=r"cannot run \S+ \(no such instructions\)"),
        jobs_at(address, None),
    ):
        pass


def _lacking(target: str, libraries: Sequence[str] = ()) -> str:
    return "no such instructions"


def test_a_scheduler_that_is_not_there_is_told_in_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster_module, "CONNECTING", 0.5)
    np.savez(tmp_path / "data.npz", **images(4))
    output, where = tmp_path / "p.yaml", "tcp://127.0.0.1:9"
    assert run("profile", DIGITS, "--data", tmp_path / "data.npz", "--scheduler", where, "-o", output) == 7
    told = capsys.readouterr().err
    note, error = told.splitlines()
    assert note.startswith("note:") and f"error: no scheduler answers at {where}" in error
    assert not output.exists()


def test_what_is_no_address_is_told_in_one_line(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "data.npz", **images(4))
    words = ("profile", DIGITS, "--data", tmp_path / "data.npz", "--scheduler", "no::address")
    assert run(*words, "-o", tmp_path / "p.yaml") == 2
    told = capsys.readouterr().err
    assert "error: --scheduler 'no::address': not an address" in told.splitlines()[-1]


def test_an_effort_chooses_the_same_on_a_cluster(address: str) -> None:
    model, data = qglow.load_model(DIGITS), images(24)
    profile = model.profile(data)
    alone, spread_out = (
        model.quantize(profile, effort="best", calibration_data=data, scheduler=where)
        for where in (None, address)
    )
    assert spread_out.recipe == alone.recipe and alone.recipe.rules
    assert print_graph(spread_out.graph) == print_graph(alone.graph)


def test_tuning_takes_the_same_steps_on_a_cluster(address: str, tmp_path: Path) -> None:
    model, data = qglow.load_model(DIGITS), images(24)
    profile, goal = model.profile(data), qglow.Goal(min_sqnr_db=45.0)
    found = [
        qglow.tune(model, profile, data, goal, calibration_data=data, scheduler=where, threads=1)
        for where in (None, address)
    ]
    steps = [[(t.steps, t.keep_float, t.int16, t.figures.sqnr_db) for t in each.trials] for each in found]
    assert steps[0] == steps[1] and len(steps[0]) > 1


def test_a_cluster_for_nothing_is_refused(address: str) -> None:
    model = qglow.load_model(DIGITS)
    with pytest.raises(qglow.UsageError, match="nothing that a cluster helps with"):
        model.quantize(model.profile(images(8)), scheduler=address)


def test_models_of_the_accuracy_benchmark_can_be_sent() -> None:
    work = RowWork(("fast",), 10, RivalCache(Path("cache"), 1.0))
    assert pickle.loads(pickle.dumps(work)) == work
    assert pickle.loads(pickle.dumps(MODELS)) == MODELS


def test_workers_need_the_libraries_of_this_process(tmp_path: Path) -> None:
    assert "no such file" in refusal_of(select_target(None).description.name, [str(tmp_path / "lib.so")])
