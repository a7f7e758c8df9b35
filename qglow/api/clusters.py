"""Connection to the machines that work is spread over."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from qglow.core.errors import QglowError
from qglow.core.jobs import Jobs
from qglow.host.libraries import loaded_libraries, use_libraries
from qglow.targets.registry import find_target, select_target


@contextmanager
def jobs_at(scheduler: str | None, isa: str | None) -> Iterator[Jobs | None]:
    """Jobs on the workers of a Dask scheduler; None without one.

    isa: as for `compile`; all workers run the target that this host would take. Raises UsageError and
    ClusterError.
    """
    if scheduler is None:
        yield None
        return
    from qglow.cluster.scheduler import cluster_jobs

    name = select_target(isa).description.name
    with cluster_jobs(scheduler, name, functools.partial(refusal_of, name, loaded_libraries())) as jobs:
        yield jobs


def refusal_of(target: str, libraries: Sequence[str] = ()) -> str:
    """Reason why the host cannot run a target or load libraries of custom operators; empty where it can."""
    try:
        use_libraries(libraries)
    except QglowError as error:
        return str(error)
    return find_target(target).refusal() or ""
