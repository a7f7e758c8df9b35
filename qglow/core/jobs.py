"""Independent jobs that run in this process or elsewhere, with results in a fixed order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Item_contra = TypeVar("Item_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)


class JobWork(Protocol[Item_contra, Result_co]):
    """Preparation that jobs have in common, such as a model; it is pickled for jobs in other processes."""

    def begin(self) -> Callable[[Item_contra], Result_co]:
        """Prepare to run jobs, once in each process; the result of a job depends on its item alone."""


class Pending(Protocol[Result_co]):
    """A job that was begun."""

    def result(self) -> Result_co:
        """Wait for the job, and return its result. Raises what the job raised."""


class Jobs(Protocol):
    """Place where jobs run."""

    @property
    def ahead(self) -> int:
        """Number of jobs that are worth beginning before the first is done."""

    @property
    def isa(self) -> str | None:
        """Target that code of jobs is compiled for; None where each process chooses."""

    def submit(self, work: JobWork[Item, Result], item: Item) -> Pending[Result]:
        """Begin a job."""


def spread(jobs: Jobs, work: JobWork[Item, Result], items: Iterable[Item]) -> Iterator[Result]:
    """Run a job for each item; yield the results in the order of the items.

    No more than `jobs.ahead` jobs wait at a time, so that items may be many.
    """
    waiting: deque[Pending[Result]] = deque()
    for item in items:
        waiting.append(jobs.submit(work, item))
        if len(waiting) >= max(jobs.ahead, 1):
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


class Done(Generic[Result]):
    """A job that has run."""

    def __init__(self, result: Result) -> None:
        self._result = result

    def result(self) -> Result:
        """The result."""
        return self._result


class HereJobs:
    """Jobs that run in this process, at once."""

    ahead = 1
    isa = None

    def __init__(self) -> None:
        self._begun: tuple[object, Callable[..., object]] | None = None

    def submit(self, work: JobWork[Item, Result], item: Item) -> Pending[Result]:
        """Run a job."""
        if self._begun is None or self._begun[0] is not work:
            self._begun = work, work.begin()
        run: Callable[[Item], Result] = self._begun[1]  # type: ignore[assignment]
        return Done(run(item))
