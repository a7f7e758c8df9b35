"""Names that are imported when they are used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from qglow.core.lazy import lazy_names


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "sleepy_package"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from qglow.core.lazy import lazy_names\n"
        "__getattr__ = lazy_names(__name__, {'answer': 'numbers', 'absent': 'numbers'})\n"
    )
    (folder / "numbers.py").write_text("answer = 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "sleepy_package"
    for name in [name for name in sys.modules if name.startswith("sleepy_package")]:
        del sys.modules[name]


def test_module_is_imported_at_the_first_use(package: str) -> None:
    made = __import__(package)
    assert f"{package}.numbers" not in sys.modules
    assert made.answer == 42 and vars(made)["answer"] == 42
    assert f"{package}.numbers" in sys.modules


def test_other_names_are_no_attributes(package: str) -> None:
    made = __import__(package)
    assert not hasattr(made, "question") and not hasattr(made, "absent")
    with pytest.raises(AttributeError, match="module 'p' has no attribute 'x'"):
        lazy_names("p", {})("x")
