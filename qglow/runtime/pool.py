"""The threads of this process that help with calls: one pool for all programs.

Threads are made when a call first wants them and wait, asleep, for the next one. They know
nothing of Python: the C library makes them, and all they do is native code. A forked child has
none of its parent's threads; it starts its own when it first needs them.
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
from qglow.codegen.pool import LAUNCH, POOL_BYTES, STOPPER, WORKER, WORKERS, pool_module
from qglow.codegen.target import object_code
from qglow.core.errors import UsageError
from qglow.core.types import Array
from qglow.kernels.isa import GENERIC


class Pool:
    """Worker threads and the memory through which they are called."""

    def __init__(self) -> None:
        self._linked = _link()
        self._memory = aligned_bytes(POOL_BYTES)
        self._launch: Any = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(
            self._linked.addresses[LAUNCH]
        )
        self._threads: list[int] = []
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self._stop)

    def run(self, job: int, threads: int) -> None:
        """Run the job (codegen.pool) at this address, on one thread where another job runs.

        Releases Python's global lock. Raises UsageError where the system gives no more threads.
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
        """End all threads, before the code that they run goes."""
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._linked.addresses[STOPPER])(self._memory.ctypes.data)
        for thread in self._threads:
            _libc().pthread_join(ctypes.c_ulong(thread), None)
        self._forget()


_pool: Pool | None = None
_pool_lock = threading.Lock()


def pool() -> Pool:
    """The one of this process, made at the first call."""
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = Pool()
        return _pool


def _link() -> Linked:
    text, cache = pool_module(), ObjectCache(default_folder())
    key = cache_key(text, GENERIC)
    code = cache.get(key)
    if code is None:
        code = object_code(text, GENERIC)
        cache.put(key, code)
    return link([code], GENERIC, [WORKER, LAUNCH, STOPPER])


def _new_thread(function: int, memory: Array) -> int:
    """A thread that takes no signals: they are Python's. Raises UsageError."""
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
