"""The threads of this process that help with calls: one set for all programs.

Threads are started when a call first needs them, and sleep between calls. They know nothing of Python:
the C library makes them, and they run native code alone. A forked child has none of its parent's threads;
it starts its own when it first needs them.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import threading
from typing import Any

import numpy as np

from qglow.codegen.cache import ObjectCache, cache_key, default_folder
from qglow.codegen.jit import Linked, link
from qglow.codegen.memory import aligned_bytes
from qglow.codegen.target import object_code
from qglow.codegen.workers import LAUNCH, STOPPER, WORKER, WORKERS, WORKERS_BYTES, workers_module
from qglow.core.errors import UsageError
from qglow.core.types import Array
from qglow.kernels.emit.target import VectorTarget


class WorkerPool:
    """Worker threads and the memory through which they are called."""

    def __init__(self, target: VectorTarget) -> None:
        self._linked = _link(target)
        self._memory = aligned_bytes(WORKERS_BYTES)
        self._launch: Any = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(
            self._linked.addresses[LAUNCH]
        )
        self._threads: list[int] = []
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self._stop)

    def run(self, job: int, threads: int) -> None:
        """Run the job (codegen.workers) at this address; on one thread alone while another job runs.

        Releases Python's global lock. Raises UsageError if the system gives no more threads.
        """
        while self._launch(self._memory.ctypes.data, job):
            self._start(threads - 1)

    @property
    def size(self) -> int:
        """Threads that have been started."""
        return len(self._threads)

    def _start(self, count: int) -> None:
        with self._lock:
            while len(self._threads) < count:
                self._threads.append(_new_thread(self._linked.addresses[WORKER], self._memory))
            self._memory[WORKERS : WORKERS + 4].view(np.uint32)[0] = len(self._threads)

    def _forget(self) -> None:
        self._memory[:] = 0
        self._threads = []
        self._lock = threading.Lock()

    def _stop(self) -> None:
        """End all threads, before the code that they run is unloaded."""
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._linked.addresses[STOPPER])(self._memory.ctypes.data)
        for thread in self._threads:
            _libc().pthread_join(ctypes.c_ulong(thread), None)
        self._forget()


_workers: WorkerPool | None = None
_workers_lock = threading.Lock()


def workers(target: VectorTarget) -> WorkerPool:
    """The pool of this process, made at the first call; it serves all targets of that target's family."""
    global _workers
    with _workers_lock:
        if _workers is None:
            _workers = WorkerPool(target.base)
        return _workers


def _link(target: VectorTarget) -> Linked:
    text, cache = workers_module(target), ObjectCache(default_folder())
    key = cache_key(text, target)
    code = cache.get(key)
    if code is None:
        code = object_code(text, target)
        cache.put(key, code)
    return link([code], target, [WORKER, LAUNCH, STOPPER])


def _new_thread(function: int, memory: Array) -> int:
    """Start a thread that blocks all signals, which are Python's to handle. Raises UsageError."""
    handle = ctypes.c_ulong()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        error = _libc().pthread_create(
            ctypes.byref(handle), None, ctypes.c_void_p(function), ctypes.c_void_p(memory.ctypes.data)
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if error:
        raise UsageError(f"the system gives no more threads ({os.strerror(error)}); ask for fewer")
    return handle.value


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
