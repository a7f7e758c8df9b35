"""One meaning for each name: no two public classes of the package have the same."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1] / "qglow"

ONE_OPERATOR = ("graph/ops/", "instructions/ops/", "numerics/scalar/")
"""An operator, its instruction and its scalar meaning have the name that the operator has in ONNX."""


def classes() -> dict[str, list[str]]:
    """The files that define each public class, without those of operators beyond the first."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        name = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(name)
    return found


def test_public_classes_have_names_of_their_own() -> None:
    found = classes()
    assert {"Refused", "Rule", "Profile", "Limits"} <= set(found)
    for name, files in found.items():
        folders = [next((f for f in ONE_OPERATOR if file.startswith(f)), file) for file in files]
        shared = len(set(folders)) < len(folders) or not set(folders) <= set(ONE_OPERATOR)
        assert len(files) == 1 or not shared, f"{name}: {', '.join(files)}"
