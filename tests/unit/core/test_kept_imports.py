"""What imports of one file have in common, by the file and by the arrays that it is made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qglow.core.kept_imports import KeptImports
from qglow.core.model_place import ModelBytes
from qglow.core.types import Array


def numbers() -> Array:
    return np.arange(4.0)


def test_what_is_made_of_kept_arrays_is_made_once() -> None:
    kept, calls = KeptImports(), []
    own = kept.initializer("w", numbers)

    def doubled() -> Array:
        calls.append("doubled")
        return 2 * own

    first, second = (kept.derived(("times", 2), [own], doubled) for _ in range(2))
    assert first is second and len(calls) == 1
    assert kept.initializer("w", numbers) is own
    kept.derived(("times", 2), [own, first], doubled)
    kept.derived("other", [own], doubled)
    assert len(calls) == 3 and kept.held == 4 * own.nbytes


def test_what_is_made_of_other_arrays_is_the_caller_s() -> None:
    kept, own = KeptImports(), numbers()
    assert kept.derived("copy", [own], own.copy) is not kept.derived("copy", [own], own.copy)
    assert kept.derived("copy", [], own.copy).flags.writeable
    assert kept.derived("none", [kept.initializer("w", numbers)], lambda: None) is None
    assert kept.held == own.nbytes


def test_nobody_writes_to_shared_arrays() -> None:
    kept = KeptImports()
    own = kept.initializer("w", numbers)
    for array in (own, kept.derived("copy", [own], own.copy)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0


def test_a_changed_file_is_read_again_and_nothing_of_it_is_known(tmp_path: Path) -> None:
    path, kept = tmp_path / "model", KeptImports()
    path.write_text("one")
    assert [kept.parsed(path, Path.read_text) for _ in range(2)] == ["one", "one"]  # type: ignore[arg-type]
    own = kept.initializer("w", numbers)
    path.write_text("other")
    assert kept.parsed(path, Path.read_text) == "other"  # type: ignore[arg-type]
    assert kept.initializer("w", numbers) is not own
    assert kept.parsed(ModelBytes(b"bytes"), str) == "the model in memory"


def test_forgotten_arrays_are_made_anew() -> None:
    kept = KeptImports()
    own = kept.initializer("w", numbers)
    kept.forget()
    assert not kept.held and kept.initializer("w", numbers) is not own
