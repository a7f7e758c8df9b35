"""Errors of a program that takes its own states again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from qglow.core.types import Array, TensorType, float_type
from qglow.tuning.stream_check import CALLS, stream_errors

STATES = {"h": "next_h"}


@dataclass
class Counter:
    """Adds x to its state, and `drift` in each call; gives the sum too, always in the same array."""

    drift: float = 0.0
    seen: list[float] = field(default_factory=list)
    inputs: Mapping[str, TensorType] = field(
        default_factory=lambda: {"x": float_type(1, 2), "h": float_type(1, 2)}
    )
    room: Array = field(default_factory=lambda: np.zeros((1, 2), np.float32))

    def __call__(self, inputs: Mapping[str, Array], /) -> Mapping[str, Array]:
        self.seen.append(float(inputs["h"][0, 0]))
        self.room[...] = inputs["h"] + inputs["x"] + self.drift
        return {"y": self.room.copy(), "next_h": self.room}


def steps(count: int) -> list[dict[str, Array]]:
    return [
        {"x": np.full((1, 2), (-1.0) ** i, np.float32), "h": np.full((1, 2), 10.0 + i, np.float32)}
        for i in range(count)
    ]


def test_each_program_goes_on_from_its_own_states() -> None:
    ours, theirs = Counter(0.1), Counter()
    found = stream_errors(theirs, ours, steps(4), STATES)
    assert found.calls == CALLS and found.first.samples == found.last.samples == CALLS // 4
    assert ours.seen[:3] == pytest.approx([10.0, 11.1, 10.2], abs=1e-4)
    assert theirs.seen[-3:] == [11.0, 10.0, 11.0]
    assert [output.name for output in found.last.outputs] == ["y"]
    assert found.first.sqnr_db is not None and found.last.sqnr_db is not None
    assert found.first.sqnr_db > 20.0 > 10.0 > found.last.sqnr_db
    assert found.last.outputs[0].max_abs == pytest.approx(0.1 * CALLS, rel=1e-3)


def test_long_streams_are_not_cut() -> None:
    theirs = Counter()
    assert stream_errors(theirs, Counter(), steps(100), STATES).calls == 100


class OnlyStates(Counter):
    def __call__(self, inputs: Mapping[str, Array], /) -> Mapping[str, Array]:
        return {"next_h": super().__call__(inputs)["next_h"]}


def test_programs_of_states_alone_are_measured_by_them() -> None:
    found = stream_errors(OnlyStates(), OnlyStates(0.1), steps(4), STATES)
    assert [output.name for output in found.last.outputs] == ["next_h"]
