"""What an operator costs: the files of qglow that name it.

A function of one variable needs a meaning, an operator and a line about ONNX; instruction, lowering, kernel,
importer and exporter derive from these. Other operators need one file a layer. Passes that look for an
operator by name are counted as well: all others ask its traits, and never for a class.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "qglow"

LIMITS = {
    "Mish": 3,
    "Gelu": 5,
    "HardSwish": 5,
    "AveragePool": 7,
    # exporter/sizes.py writes it to put computed sizes together, gguf/decoder.py in decoders, and
    # importer/last_selected.py knows a form of exporters by it, routed_experts.py stacks matrices by it.
    "Concat": 11,
    "Conv": 9,  # importer/control.py keeps loops with such layers inside
    "MaxPool": 7,
    "Softmax": 10,  # gguf/decoder.py writes it in decoders
}
"""The most files that may name an operator, as a word of code or prose."""


def files_naming(word: str) -> list[str]:
    """Files of the package with this word, by path."""
    pattern = re.compile(rf"\b{word}\b")
    paths = sorted(ROOT.rglob("*.py"))
    return [str(path.relative_to(ROOT)) for path in paths if pattern.search(path.read_text())]


@pytest.mark.parametrize("word", sorted(LIMITS))
def test_an_operator_is_named_in_few_files(word: str) -> None:
    found = files_naming(word)
    assert 0 < len(found) <= LIMITS[word], f"{word}: " + ", ".join(found)


ASKING = (
    "counts",
    "exporter",
    "graph",
    "lowering",
    "passes",
    "quantization",
    "report",
    "toolchain",
    "tuning",
)
CLASS_TEST = re.compile(r"isinstance\([^)]*operator")
MOST_CLASS_TESTS = 57
"""Lines that ask whether an operator is of a class: passes that match a pattern. May only fall."""


def test_passes_ask_for_traits_and_not_for_classes() -> None:
    paths = [path for package in ASKING for path in sorted((ROOT / package).rglob("*.py"))]
    counts = {path: sum(map(bool, map(CLASS_TEST.search, path.read_text().splitlines()))) for path in paths}
    shown = [f"{path.relative_to(ROOT)} {count}" for path, count in counts.items() if count]
    assert shown and sum(counts.values()) <= MOST_CLASS_TESTS, ", ".join(shown)
