"""Names in models and of files reach no terminal, report, XML or LLVM module as anything but text."""

from __future__ import annotations

import itertools
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from qglow.cli.main import main
from tests.fuzzing import examples
from tests.unit.importer.tiny import save, tiny_model

Capture = pytest.CaptureFixture[str]
EVIL = (
    "\x1b]0;title\x07\x1b[31m",
    "\rline",
    "\nqglow: error: forged\n# head\n- item\n",
    '"\n@evil = global i8 0 ; \\22 \\',
    "\u202ekcab\u2066\u2028\u2029",
    "\x9b2J\x85\x7f\x00\x08",
    "<script>&#x1b;</script>|`*_[a](b)",
    "]]>{% x %}{{ y }}$(z)`w`",
)


def drawn(seed: int) -> str:
    """A name of random characters, most of them of kinds that are not to be printed."""
    random = np.random.default_rng(seed)
    kinds = range(0x20), range(0x7F, 0xA1), range(0x200B, 0x2070), (0xFEFF, 0xAD), range(0x41, 0x7B)
    picked = (kinds[int(random.integers(len(kinds)))] for _ in range(24))
    return "".join(chr(kind[int(random.integers(len(kind)))]) for kind in picked)


def shown(text: str, lines: bool = True) -> None:
    """Hold a text to what may be printed. lines: where a line begins has a meaning."""
    odd = {character for character in text if not character.isprintable() and character not in "\n\t"}
    assert not odd, (odd, [line for line in text.splitlines() if any(one in line for one in odd)][:3])
    assert not lines or not [
        line for line in text.split("\n") if line.startswith(("qglow: error: forged", "# head"))
    ]


def hostile_model(folder: Path, evil: str) -> Path:
    rng = np.random.default_rng(5)
    constants = {
        f"w{evil}": rng.standard_normal((4, 6)).astype(np.float32),
        f"b{evil}": rng.standard_normal(6).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gemm", [f"x{evil}", f"w{evil}", f"b{evil}"], [f"g{evil}"], name=f"first{evil}"),
        helper.make_node("Relu", [f"g{evil}"], [f"r{evil}"], name=f"second{evil}"),
        helper.make_node("Erf", [f"r{evil}"], [f"e{evil}"], name=f"third{evil}"),
        helper.make_node("Softmax", [f"e{evil}"], [f"y{evil}"], name=f"last{evil}", axis=1),
    ]
    model = tiny_model(nodes, {f"x{evil}": (1, 4)}, [f"y{evil}"], constants)
    model.graph.name = f"graph{evil}"
    name = f"model{evil}".replace("/", "-").replace("\0", "")
    return save(model, folder, f"{name[:80]}.onnx")


def commands(model: Path, evil: str) -> Iterator[tuple[int, tuple[str | Path, ...]]]:
    """Command lines with the exit code of each."""
    folder, word = model.parent, evil.replace("\0", "")
    data, profile, out, recipe = (folder / name for name in ("data.npy", "p.yaml", "out", "recipe.yaml"))
    checked = ("check", "--baseline", folder / "b.yaml")
    yield 0, ("profile", model, "--data", data, "-o", profile)
    yield 0, ("quantize", "--profile", profile, "-o", out, "--recipe", recipe, "--data", data)
    yield 3, ("quantize", "--profile", profile, "-o", folder / "all", "--assert-all-quantized")
    yield 0, ("compare", out, "--data", data, "--layers", "-o", folder / "reports")
    yield 2 if "\0" in evil else 0, ("explain", out, f"third{word}")
    yield 2, ("explain", out, f"no{word}")
    for stage in ("graph", "quantized", "instructions", "kernels", "memory", "llvm", "asm"):
        yield 0, ("inspect", out, "--stage", stage)
    yield 0, ("inspect", out, "--dot")
    yield 0, ("opt", model, "--log")
    yield 2 if evil == "\rline" else 4, ("opt", model, "-p", f"no-such{word}")
    yield 0, ("compile", out, "-o", folder / "m.qglow")
    yield 0, ("run", out, "--data", data)
    yield 0, ("run", folder / "m.qglow", "--data", data)
    yield 0, ("bisect", out)
    limits = ("--min-sqnr", "1", "--calibration-data", data, "--data", data)
    yield 0, ("tune", "--profile", profile, *limits, "-o", folder / "tuned.yaml")
    yield 0, ("profile", "merge", profile, profile, "-o", folder / "merged.yaml")
    yield 0, ("profile", "sufficiency", model, "--data", data, "--resamples", "10")
    yield 0, ("profile", "drift", profile, "--data", data)
    yield 0, (*checked, "--junit", folder / "j.xml", "--markdown", folder / "c.md")
    yield 2, (*checked, "--entry", f"no{word}")
    yield 0, ("recipe", "show", recipe)
    yield 4, ("run", out, "--data", f"{word}.npz")
    yield 2, ("profile", model, "--data", data, f"--{word}")


def write_inputs(folder: Path, evil: str) -> None:
    """Data, a recipe with a rule that fits and one that does not, and a baseline with an entry."""
    np.save(folder / "data.npy", np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32))
    names = ("(?s)first.*", "no " + re.escape(evil.replace("\0", "")))
    rules = [{"match": {"name": name}, "dtype": "float"} for name in names]
    (folder / "recipe.yaml").write_text(json.dumps({"rules": rules}))
    entry = {"profile": "p.yaml", "data": "data.npy", "metric": "sqnr"}
    (folder / "b.yaml").write_text(json.dumps({"models": {f"entry{evil}": entry}}))


@pytest.mark.parametrize("evil", (*EVIL, *map(drawn, range(examples(3)))), ids=itertools.count())
def test_no_name_is_more_than_text(evil: str, tmp_path: Path, capsys: Capture) -> None:
    model = hostile_model(tmp_path, evil)
    write_inputs(tmp_path, evil)
    for code, line in commands(model, evil):
        found = main([str(word) for word in line])
        said = capsys.readouterr()
        assert found == code, (line, said.err)
        shown(said.out)
        shown(said.err)
        assert code == 0 or said.err.startswith("qglow: error: ") or "note: " in said.err
    for name in ("out/report.md", "out/report.html", "reports/report.md", "reports/report.html", "c.md"):
        shown((tmp_path / name).read_text(encoding="utf-8"), lines=name.endswith(".md"))
    assert "<script>" not in (tmp_path / "out/report.html").read_text()
    ET.parse(tmp_path / "j.xml")
