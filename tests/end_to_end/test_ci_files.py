"""The pre-commit hook and the action for GitHub: what they declare is run as they would run it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.zoo import REPOSITORY

ACTION = REPOSITORY / ".github" / "actions" / "check"
TUTORIAL = REPOSITORY / "docs" / "tutorials" / "accuracy-in-ci.md"
SHELL = ["bash", "--noprofile", "--norc", "-eo", "pipefail"]
"""What `shell: bash` means on GitHub."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with the example and its baseline."""
    made = tmp_path / "repository"
    made.mkdir()
    for name in ("digits.onnx", "calib.npz", "test.npz", "accuracy.yaml"):
        shutil.copy(REPOSITORY / "calib_data" / name, made / name)
    return made


def run(words: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    given = {"PATH": paths, "PYTHONPATH": str(REPOSITORY), **environment}
    known = {key: value for key, value in os.environ.items() if not key.startswith("GITHUB_")}
    return subprocess.run(words, cwd=folder, env=known | given, capture_output=True, text=True, check=False)


def action() -> dict[str, Any]:
    document = yaml.safe_load((ACTION / "action.yml").read_text())
    assert isinstance(document, dict)
    return document


def step(name: str) -> dict[str, Any]:
    [found] = [step for step in action()["runs"]["steps"] if step["name"] == name]
    assert isinstance(found, dict)
    return found


def run_step(name: str, folder: Path, path: str = "", **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub's runner does: inputs by their defaults, files for outputs and the summary."""
    declared = action()["inputs"]
    assert set(inputs) <= set(declared)
    values = {key: inputs.get(key, entry["default"]) for key, entry in declared.items()}
    found = step(name)
    assert found["shell"] == "bash"
    environment = {}
    for key, text in found["env"].items():
        expression = re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", text)
        assert expression, text
        environment[key] = values[expression[1]]
    files = {key: str(folder.parent / key) for key in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    script = folder.parent / "step.sh"
    script.write_text(found["run"])
    environment |= files | {"GITHUB_ACTION_PATH": str(ACTION)}
    if path:
        environment["PATH"] = os.pathsep.join((path, os.environ["PATH"]))
    return run([*SHELL, str(script)], folder, **environment)


def test_no_expression_is_written_into_a_script() -> None:
    """An input that stood in a script would be run as part of it."""
    steps = action()["runs"]["steps"]
    assert len(steps) == 2 and action()["runs"]["using"] == "composite"
    assert not any("${{" in step["run"] for step in steps)
    assert step("Install qglow")["if"] == "inputs.install == 'true'"
    [output] = action()["outputs"].values()
    assert output["value"] == f"${{{{ steps.{step('Check the models')['id']}.outputs.exit-code }}}}"


@pytest.mark.parametrize(("extras", "ending"), [("", ""), ("images,text", "[images,text]")])
def test_the_action_installs_the_checkout_that_it_is_part_of(
    extras: str, ending: str, folder: Path, tmp_path: Path
) -> None:
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "python").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (shims / "python").chmod(0o755)
    done = run_step("Install qglow", folder, str(shims), extras=extras)
    assert done.returncode == 0, done.stderr
    *words, place = done.stdout.splitlines()
    assert words == ["-m", "pip", "install"] and place.endswith(ending)
    assert Path(place.removesuffix(ending)).resolve() == REPOSITORY
    assert (REPOSITORY / "pyproject.toml").exists()


def test_extras_are_names(folder: Path) -> None:
    done = run_step("Install qglow", folder, extras="images] evil")
    assert done.returncode == 2 and done.stdout.startswith("::error::extras are names")


@pytest.mark.slow
def test_the_action_checks_and_tells_github(folder: Path) -> None:
    done = run_step("Check the models", folder, entries="digits\n")
    assert done.returncode == 0, done.stderr
    assert (folder.parent / "GITHUB_OUTPUT").read_text() == "exit-code=0\n"
    summary = (folder.parent / "GITHUB_STEP_SUMMARY").read_text()
    assert summary == (folder / "qglow.md").read_text() and "No figure has changed." in summary
    suite = ET.parse(folder / "qglow.xml").getroot().find("testsuite")
    assert suite is not None and suite.get("tests") == "1" and float(str(suite.get("time"))) > 0.0


@pytest.mark.slow
def test_the_action_fails_as_the_check_does(folder: Path) -> None:
    path = folder / "my accuracy.yaml"
    text = (folder / "accuracy.yaml").read_text().replace("value: 99.1625", "value: 99.9")
    path.write_text(text.replace("  digits:", "  two words:", 1))
    inputs = {"baseline": path.name, "entries": "two words", "require-baseline": "true", "threads": "1"}
    done = run_step("Check the models", folder, junit="a b.xml", **inputs)
    assert done.returncode == 5 and "two words: top1 99.9 -> 99.1625" in done.stderr
    assert (folder.parent / "GITHUB_OUTPUT").read_text() == "exit-code=5\n"
    assert 'failures="1"' in (folder / "a b.xml").read_text()
    assert "| two words | top1 | 99.9 | 99.1625 |" in (folder.parent / "GITHUB_STEP_SUMMARY").read_text()


def hook() -> dict[str, Any]:
    [found] = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text())
    assert isinstance(found, dict)
    return found


def test_the_hook_is_one_that_pre_commit_knows() -> None:
    assert {"id", "name", "entry", "language"} <= set(hook())
    assert hook()["pass_filenames"] is False and hook()["language"] == "python"
    seen = [
        name
        for name in ("m.onnx", "a/calib.npz", "accuracy.yaml", "r.yml")
        if re.search(hook()["files"], name)
    ]
    assert len(seen) == 4
    assert not re.search(hook()["files"], "README.md")


@pytest.mark.slow
def test_the_hook_passes_and_fails_with_the_models(folder: Path) -> None:
    words = [*shlex.split(hook()["entry"]), *hook()["args"]]
    text = (folder / "accuracy.yaml").read_text()
    text = text[: text.index("  digits-per-tensor")]
    (folder / "accuracy.yaml").write_text(text)
    assert run(words, folder).returncode == 0
    (folder / "accuracy.yaml").write_text(text.replace("bytes: 22536", "bytes: 22535"))
    done = run(words, folder)
    assert done.returncode == 5 and "bytes 22535 -> 22536" in done.stderr


def test_the_tutorial_shows_what_there_is() -> None:
    text = TUTORIAL.read_text()
    snippets = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    [configured] = [snippet["repos"] for snippet in snippets if "repos" in snippet]
    [used] = configured[0]["hooks"]
    assert used["id"] == hook()["id"] and set(used) <= {"id", "args", "stages", "additional_dependencies"}
    [job] = [snippet["jobs"]["int8"] for snippet in snippets if "jobs" in snippet]
    [given] = [s for s in job["steps"] if "/.github/actions/" in s.get("uses", "")]
    place = given["uses"].split("@")[0].split("/", 2)[2]
    assert REPOSITORY / place == ACTION
    assert set(given["with"]) <= set(action()["inputs"])
