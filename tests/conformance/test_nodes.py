"""The node tests that pass are those of the checked-in list, no fewer and no more."""

from __future__ import annotations

import onnx
import pytest

from tests.conformance.nodes import node_tests, passing, read_list

UPDATE = "python -m tests.conformance.nodes"


@pytest.mark.slow
def test_node_tests_that_pass_are_those_listed() -> None:
    version, listed = read_list()
    if onnx.__version__ != version:
        pytest.skip(f"the list was made with onnx {version}, installed is {onnx.__version__}: {UPDATE}")
    now = passing(node_tests())
    assert not set(listed) - now, f"no longer pass: {sorted(set(listed) - now)}"
    assert not now - set(listed), f"pass now and are not listed, run {UPDATE}: {sorted(now - set(listed))}"


def test_list_is_sorted_and_has_no_name_twice() -> None:
    names = read_list()[1]
    assert names == sorted(set(names))
