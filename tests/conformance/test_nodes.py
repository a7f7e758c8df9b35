"""The node tests that pass are those of the checked-in lists, no fewer and no more."""

from __future__ import annotations

import functools

import onnx
import pytest
from onnx.backend.test.case.test_case import TestCase

from scripts.write_conformance import PAGE, WAYS, is_plain, page, sums
from tests.conformance.nodes import RUNNERS, node_tests, passing, read_list

UPDATE = "python -m tests.conformance.nodes"


@functools.cache
def every_test() -> list[TestCase]:
    return node_tests()


@pytest.mark.slow
@pytest.mark.parametrize("way", RUNNERS)
def test_node_tests_that_pass_are_those_listed(way: str) -> None:
    version, listed = read_list(way)
    if onnx.__version__ != version:
        pytest.skip(f"the list was made with onnx {version}, installed is {onnx.__version__}: {UPDATE}")
    now = passing(every_test(), way)
    assert not set(listed) - now, f"no longer pass: {sorted(set(listed) - now)}"
    assert not now - set(listed), f"pass now and are not listed, run {UPDATE}: {sorted(now - set(listed))}"


@pytest.mark.parametrize("way", RUNNERS)
def test_list_is_sorted_and_has_no_name_twice(way: str) -> None:
    names = read_list(way)[1]
    assert names == sorted(set(names))


def test_page_has_the_numbers_of_the_lists() -> None:
    counts = [sum(map(is_plain, read_list(way)[1])) for way in WAYS]
    assert sums(PAGE.read_text(encoding="utf-8")) == counts, "python -m scripts.write_conformance"


@pytest.mark.slow
def test_page_is_current() -> None:
    if onnx.__version__ != read_list(WAYS[0])[0]:
        pytest.skip(f"the lists were made with another onnx than {onnx.__version__}")
    assert PAGE.read_text(encoding="utf-8") == page(every_test()), "python -m scripts.write_conformance"
