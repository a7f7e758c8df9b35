"""The memory that a command may take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qglow.core.errors import MemoryLimitError, UsageError
from qglow.core.memory import (
    allowed_memory,
    held_memory,
    parse_size,
    release_after,
    require_memory,
    require_more_memory,
    resident_memory,
    size_text,
)
from qglow.core.reading import map_part

MB, GB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2G", 2 * GB),
        ("512M", 512 * MB),
        (" 1.5GiB ", 3 * GB // 2),
        ("4096", 4096),
        ("100kB", 102400),
        ("1t", 1024 * GB),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "x", "-1G", "0", "0.0M", "nan", "inf", "1e9", "2 G B", "9" * 400, "٢G", "\x1b[1m"]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="QGLOW_MAX_MEMORY=.* is no size") as raised:
        parse_size(text)
    assert "\x1b" not in str(raised.value)


def test_the_limit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QGLOW_MAX_MEMORY", "64M")
    assert allowed_memory() == 64 * MB
    require_memory(64 * MB, "the model")
    with pytest.raises(
        MemoryLimitError, match=r"^the model needs about 65M of memory, and 64M are allowed; .*MAX_MEMORY"
    ):
        require_memory(64 * MB + 1, "the model")


def test_what_the_process_holds_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    held = held_memory()
    assert held > 4 * MB
    monkeypatch.setenv("QGLOW_MAX_MEMORY", str(held + 64 * MB))
    require_more_memory(32 * MB, "a result")
    with pytest.raises(MemoryLimitError, match="^a result needs about"):
        require_more_memory(128 * MB, "a result")


def test_without_a_limit_most_of_what_is_free_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QGLOW_MAX_MEMORY", raising=False)
    monkeypatch.setattr("qglow.core.memory._machine_free", lambda: 10 * GB)
    monkeypatch.setattr("qglow.core.memory._groups_free", lambda: [8 * GB, 20 * GB])
    monkeypatch.setattr("qglow.core.memory.held_memory", lambda: 2 * GB)
    assert allowed_memory() == 8 * GB
    monkeypatch.setattr("qglow.core.memory._machine_free", lambda: None)
    monkeypatch.setattr("qglow.core.memory._groups_free", lambda: [])
    assert allowed_memory() is None
    require_memory(1 << 62, "anything")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (1, "1M"),
        (300 * MB, "300M"),
        (GB, "1.0G"),
        (GB + 1, "1.1G"),
        (3 << 39, "1.5T"),
        (1 << 90, "1000000T and more"),
    ],
)
def test_text(size: int, text: str) -> None:
    assert size_text(size) == text


def test_mapped_files_are_not_held(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(64 * MB))
    before, resident = held_memory(), resident_memory()
    with (tmp_path / "data").open("rb") as stream:
        mapped = map_part(stream, 0, 64 * MB)
        assert sum(mapped[::4096]) == 0
        assert held_memory() < before + 32 * MB and resident_memory() > resident + 48 * MB


def test_what_only_refers_to_itself_is_given_back() -> None:
    before = held_memory()
    cycle: list[object] = [np.ones(64 * MB, np.uint8)]
    cycle.append(cycle)
    assert held_memory() > before + 48 * MB
    del cycle
    release_after(1)
    assert held_memory() > before + 48 * MB
    release_after(64 * MB)
    assert held_memory() < before + 16 * MB
