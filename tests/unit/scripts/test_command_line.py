"""The command line of the benchmarks: a list, one parser each, and errors for other names."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.benchmarks.__main__ import main
from scripts.benchmarks.catalogue import ENTRIES
from scripts.benchmarks.models.opened import NAMES, TIMED_NAMES
from tests.zoo import REPOSITORY


def test_without_a_name_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    for entry in ENTRIES:
        [line] = [line for line in listed.splitlines() if line.startswith(f"  {entry.name} ")]
        assert entry.summary in line and all(need in line for need in entry.needs)


def test_every_measurement_is_in_the_catalogue() -> None:
    folder = REPOSITORY / "scripts" / "benchmarks" / "measurements"
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert files == {entry.name.replace("-", "_") for entry in ENTRIES}


@pytest.mark.parametrize("name", [entry.name for entry in ENTRIES])
def test_every_benchmark_describes_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: python -m scripts.benchmarks {name}") and len(said) > 200


def test_unknown_names_and_options_are_usage_errors(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["sped"], ["half", "--models", "digits"], ["half", "--update-docs"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
    assert "invalid choice: 'sped'" in capsys.readouterr().err


def test_networks_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["networks", str(tmp_path / "new"), "--models", "squeezenet"]) == 0
    assert capsys.readouterr().out.split() == [
        str(tmp_path / "new" / f"squeezenet.{kind}") for kind in ("onnx", "npz")
    ]
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"squeezenet.onnx", "squeezenet.npz"}
    assert main(["networks", str(tmp_path), "--models", "squeeze"]) == 2
    assert "squeeze; there are bvlc_alexnet" in capsys.readouterr().err


def test_names_are_unique() -> None:
    assert len(set(TIMED_NAMES)) == len(TIMED_NAMES) and set(NAMES) < set(TIMED_NAMES)
