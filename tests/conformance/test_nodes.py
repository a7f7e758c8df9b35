"""The node tests that pass are those of the checked-in lists, no fewer and no more."""

from __future__ import annotations

import functools

import onnx
import pytest
from onnx.backend.test.case.test_case import TestCase

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
