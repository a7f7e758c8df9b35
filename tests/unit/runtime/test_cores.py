"""How many threads: what is asked for, affinity, cores with two processors, quotas of cgroups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qglow.core.errors import UsageError
from qglow.runtime.cores import ENVIRONMENT_VARIABLE, available_cores, choose_processes, choose_threads


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of four cores with two processors each, all of them allowed."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    for processor in range(8):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{processor}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{processor % 4},{processor % 4 + 4}\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    return tmp_path


def limit(root: Path, place: str, quota: str) -> None:
    folder = root / "sys/fs/cgroup" / place
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.max").write_text(quota)
    (root / "proc/self/cgroup").write_text("0::/outer/inner\n")


def test_processors_of_one_core_count_once(root: Path) -> None:
    assert available_cores(root) == 4


def test_affinity_counts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 5, 6})
    assert available_cores(root) == 2


@pytest.mark.parametrize(("quota", "cores"), [("max 100000", 4), ("250000 100000", 2), ("50000 100000", 1)])
@pytest.mark.parametrize("place", ["outer/inner", "outer", ""])
def test_whole_processors_of_the_quota_count(root: Path, place: str, quota: str, cores: int) -> None:
    limit(root, place, quota)
    assert available_cores(root) == cores


def test_the_quota_of_the_first_version_of_cgroups_counts(root: Path) -> None:
    folder = root / "sys/fs/cgroup/cpu/outer"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("300000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    (root / "proc/self/cgroup").write_text("4:cpu,cpuacct:/outer\n2:memory:/\n")
    assert available_cores(root) == 3


def test_what_is_asked_for_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "3")
    assert choose_threads() == 3
    assert choose_threads(5) == 5
    monkeypatch.delenv(ENVIRONMENT_VARIABLE)
    assert choose_threads() == available_cores()


@pytest.mark.parametrize("wrong", ["0", "-1", "two", "1.5", "5000"])
def test_wrong_numbers_are_refused(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, wrong)
    with pytest.raises(UsageError, match=ENVIRONMENT_VARIABLE):
        choose_threads()


def test_processes_are_threads_for_which_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qglow.runtime.cores.available_cores", lambda: 3)
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    assert [choose_processes(threads) for threads in (None, 1, 2, 64)] == [3, 1, 2, 3]
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "1")
    assert choose_processes() == 1
