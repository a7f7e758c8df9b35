"""Work on several threads."""

from __future__ import annotations

import threading

import pytest

from qglow.core.threads import WORTHWHILE, each


@pytest.mark.parametrize("elements", [0, WORTHWHILE])
def test_results_are_in_the_order_of_the_items(elements: int) -> None:
    assert each(lambda item: item * item, range(50), elements) == [item * item for item in range(50)]


def test_little_work_stays_on_the_thread_that_has_it() -> None:
    assert each(lambda _: threading.get_ident(), range(4), WORTHWHILE - 1) == [threading.get_ident()] * 4


@pytest.mark.parametrize("elements", [0, WORTHWHILE])
def test_the_first_failure_in_order_is_raised(elements: int) -> None:
    def failing(item: int) -> int:
        if item % 3 == 2:
            raise ValueError(f"item {item}")
        return item

    with pytest.raises(ValueError, match="item 2"):
        each(failing, range(9), elements)
