"""Items in an order that is edited in the middle: every edit and every comparison takes constant time."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar, overload

T = TypeVar("T", bound=Hashable)

_GAP = 1 << 64
"""Between the labels of neighbours: so wide that 64 edits at one place do not use it up."""


class Ordered(Generic[T]):
    """A sequence of different items that knows of each item its neighbours and what comes before it.

    Items are linked, and carry labels that grow along the sequence. An item by its number takes a walk
    over all of them, once after each edit, except for the first and the last. Compare: Dietz and Sleator,
    Two Algorithms for Maintaining Order in a List, 1987.
    """

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._next: dict[T, T | None] = {}
        self._previous: dict[T, T | None] = {}
        self._labels: dict[T, int] = {}
        self._first: T | None = None
        self._last: T | None = None
        self._listed: list[T] | None = None
        for item in items:
            self.append(item)

    def __len__(self) -> int:
        return len(self._labels)

    def __contains__(self, item: object) -> bool:
        return item in self._labels

    def __iter__(self) -> Iterator[T]:
        item = self._first
        while item is not None:
            yield item
            item = self._next[item]

    def __reversed__(self) -> Iterator[T]:
        item = self._last
        while item is not None:
            yield item
            item = self._previous[item]

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        end = self._first if index == 0 else self._last if index == -1 else None
        if end is not None:
            return end
        if self._listed is None:
            self._listed = list(self)
        return self._listed[index]

    def next(self, item: T) -> T | None:
        """The item behind this one; None at the end. Raises KeyError for one that is not there."""
        return self._next[item]

    def previous(self, item: T) -> T | None:
        """The item before this one; None at the beginning. Raises KeyError for one that is not there."""
        return self._previous[item]

    def following(self, item: T) -> Iterator[T]:
        """The items behind this one, in order."""
        after = self._next[item]
        while after is not None:
            yield after
            after = self._next[after]

    def place(self, item: T) -> int:
        """A number that is greater than those of all items before this one, until the next edit."""
        return self._labels[item]

    def append(self, item: T) -> None:
        """Put an item at the end. Raises ValueError for one that is there already."""
        self._insert(self._last, item, None)

    def insert_before(self, anchor: T | None, item: T) -> None:
        """Put an item before another one, or last for None. Raises KeyError, and what `append` raises."""
        self._insert(self._last if anchor is None else self._previous[anchor], item, anchor)

    def insert_after(self, anchor: T | None, item: T) -> None:
        """Put an item behind another one, or first for None. Raises KeyError, and what `append` raises."""
        self._insert(anchor, item, self._first if anchor is None else self._next[anchor])

    def remove(self, item: T) -> None:
        """Take an item out. Raises KeyError for one that is not there."""
        before, after = self._previous.pop(item), self._next.pop(item)
        del self._labels[item]
        self._link(before, after)
        self._listed = None

    def clear(self) -> None:
        """Take all items out."""
        for item in list(self):
            self.remove(item)

    def replace(self, item: T, items: Iterable[T]) -> None:
        """Put items in the place of one. Raises as `append`, and KeyError."""
        after = self._next[item]
        self.remove(item)
        for part in items:
            self.insert_before(after, part)

    def _insert(self, before: T | None, item: T, after: T | None) -> None:
        if item in self._labels:
            raise ValueError(f"{item!r} is there already")
        self._labels[item] = self._label_between(before, after)
        self._link(before, item)
        self._link(item, after)
        self._listed = None

    def _link(self, before: T | None, after: T | None) -> None:
        if before is None:
            self._first = after
        else:
            self._next[before] = after
        if after is None:
            self._last = before
        else:
            self._previous[after] = before

    def _label_between(self, before: T | None, after: T | None) -> int:
        if before is None:
            return 0 if after is None else self._labels[after] - _GAP
        if after is None:
            return self._labels[before] + _GAP
        low, high = self._labels[before], self._labels[after]
        if high - low < 2:
            self._labels = {item: number * _GAP for number, item in enumerate(self)}
            low, high = self._labels[before], self._labels[after]
        return (low + high) // 2
