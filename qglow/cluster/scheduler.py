"""Jobs that a Dask scheduler gives to its workers."""

from __future__ import annotations

import hashlib
import logging
import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from qglow.core.errors import ClusterError, UsageError
from qglow.core.jobs import Item, JobWork, Pending, Result

if TYPE_CHECKING:
    from distributed import Client, Future

CONNECTING = 10.0
"""Seconds that a scheduler and its first worker may take to answer."""
LOST = 60.0
"""Seconds that a cluster may be without any worker before a run is given up."""
_ADDRESS = re.compile(r"((tcp|tls|ws|wss)://)?([^\s:/\[\]]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}")
"""Addresses of schedulers: a protocol (tcp without), a host and a port."""
_LOOK = 1.0
"""Seconds between looks at whether workers are there, while a result is waited for."""
_AHEAD = 2
"""Jobs for each worker that wait while one runs."""
Answer = TypeVar("Answer")


@contextmanager
def cluster_jobs(address: str, isa: str, refusal: Callable[[], str]) -> Iterator[ClusterJobs]:
    """Connect to a Dask scheduler; jobs that are left when the body ends are cancelled.

    address: of the scheduler, such as tcp://10.0.0.1:8786. isa: target that every worker has to run, so that
    results are the same bits. refusal: is called on the workers; why one cannot run it, empty where it can.

    Raises UsageError where the extra is not installed or the address has no form of one, and ClusterError
    where the scheduler or a worker cannot be reached, or a worker has other versions or another processor.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise UsageError(
            "a cluster needs the package distributed: pip install 'qglow[cluster]'", field="scheduler"
        ) from error
    if not _ADDRESS.fullmatch(address):
        raise UsageError(
            f"scheduler {address!r}: not an address such as tcp://10.0.0.1:8786", field="scheduler"
        )
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # what it would tell of lost workers is told, or made good, here
    try:
        with _connected(Client, address) as client:
            jobs = ClusterJobs(client, address, isa)
            try:
                jobs.check(refusal)
                yield jobs
            finally:
                jobs.close()
    finally:
        logger.setLevel(level)


@contextmanager
def _connected(client_type: Callable[..., Client], address: str) -> Iterator[Client]:
    try:
        client = client_type(address, timeout=CONNECTING, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise ClusterError(
            f"no scheduler answers at {address} within {CONNECTING:g} s; start one with `dask scheduler`"
        ) from error
    except (TypeError, ValueError, RuntimeError) as error:
        raise ClusterError(f"cannot connect to {address}: {error}") from error
    try:
        yield client
    finally:
        client.close(timeout=CONNECTING)


class ClusterJobs:
    """Jobs on the workers of one scheduler."""

    def __init__(self, client: Client, address: str, isa: str) -> None:
        self._client, self._address, self.isa = client, address, isa
        self._keys: dict[int, tuple[str, object]] = {}
        self._futures: set[Future[Any]] = set()

    def check(self, refusal: Callable[[], str]) -> None:
        """Raise ClusterError where there are no workers, or one that cannot give the same results."""
        from qglow.cluster.worker import software

        try:
            self._client.wait_for_workers(1, timeout=CONNECTING)
        except TimeoutError as error:
            raise ClusterError(
                f"the scheduler at {self._address} has no worker; "
                f"start some with `dask worker {self._address}`"
            ) from error
        own = software()
        for worker, found in self._asked(software).items():
            for name, wanted in own.items():
                if found[name] != wanted:
                    raise ClusterError(
                        f"worker {worker} has {name} {found[name]}, this process {wanted}: "
                        "install the same versions everywhere"
                    )
        for worker, reason in self._asked(refusal).items():
            if reason:
                raise ClusterError(
                    f"worker {worker} cannot run {self.isa} ({reason}); all workers need the target "
                    "(`isa`) and the libraries of this process"
                )

    def _asked(self, question: Callable[[], Answer]) -> dict[str, Answer]:
        """Results of a function on each worker, by its address."""
        try:
            return dict(self._client.run(question))
        except ImportError as error:
            raise ClusterError(f"a worker of {self._address} lacks a package: {error}") from error
        except OSError as error:
            raise ClusterError(f"a worker of {self._address} was lost: {error}") from error

    @property
    def ahead(self) -> int:
        """See Jobs."""
        return _AHEAD * max(len(self._client.scheduler_info()["workers"]), 1)

    def submit(self, work: JobWork[Item, Result], item: Item) -> Pending[Result]:
        """Give a job to the scheduler."""
        from qglow.cluster.worker import run_job

        key = self._key(work)
        with warnings.catch_warnings():
            # Items hold samples, which are as large as they are; a lost worker's can be sent again.
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            future = self._client.submit(run_job, key, item, pure=False)
        self._futures.add(future)
        return _Remote(self, future)

    def _key(self, work: JobWork[Item, Result]) -> str:
        """The key of work, which all workers get when it is first used."""
        if id(work) not in self._keys:
            from qglow.cluster.worker import WorkPlugin

            payload = pickle.dumps(work)
            key = f"qglow-{hashlib.sha256(payload).hexdigest()}"
            self._client.register_plugin(WorkPlugin(key, payload), name=key)
            self._keys[id(work)] = key, work
        return self._keys[id(work)][0]

    def wait(self, future: Future[Any]) -> Any:
        """Wait for a job. Raises what it raised, and ClusterError where no worker can run it any more."""
        from distributed import KilledWorker

        alone = 0.0
        while True:
            try:
                return future.result(timeout=_LOOK)
            except TimeoutError:
                if self._client.status != "running":
                    raise ClusterError(f"the scheduler at {self._address} is gone") from None
                alone = 0.0 if self._client.scheduler_info()["workers"] else alone + _LOOK
                if alone >= LOST:
                    raise ClusterError(
                        f"all workers of {self._address} are gone, and none has come back for {LOST:g} s"
                    ) from None
            except KilledWorker as error:
                raise ClusterError(
                    f"workers of {self._address} end while they run one job: {error}; "
                    "see their logs, memory may be short"
                ) from error
            except CancelledError as error:
                raise ClusterError(f"the scheduler at {self._address} is gone") from error
            finally:
                if future.done():
                    self._futures.discard(future)

    def close(self) -> None:
        """Cancel what is left, and let workers forget the work."""
        if self._client.status == "running":
            self._client.cancel(list(self._futures))
            for key, _ in self._keys.values():
                self._client.unregister_worker_plugin(key)


class _Remote(Generic[Result]):
    def __init__(self, jobs: ClusterJobs, future: Future[Any]) -> None:
        self._jobs, self._future = jobs, future

    def result(self) -> Result:
        from qglow.cluster.worker import Failure

        found = self._jobs.wait(self._future)
        if isinstance(found, Failure):
            raise found.error()
        result: Result = found
        return result
