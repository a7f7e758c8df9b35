"""Results as data frames, for who has pandas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from qglow.core.errors import UsageError

if TYPE_CHECKING:
    import pandas


def frame(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> pandas.DataFrame:
    """A data frame of these rows; columns are there without rows too.

    Raises UsageError if pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise UsageError('pandas is not installed: pip install "qglow[frames]"') from error
    return pandas.DataFrame.from_records([tuple(row) for row in rows], columns=list(columns))
