"""Connection to the machines that work is spread over."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from qglow.core.jobs import Jobs
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
    with cluster_jobs(scheduler, name, functools.partial(refusal_of, name)) as jobs:
        yield jobs


def refusal_of(target: str) -> str:
    """Reason why the host cannot run a target; empty where it can."""
    return find_target(target).refusal() or ""
