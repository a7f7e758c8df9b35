"""The side of a worker: answers requests and times bursts of calls. Imports nothing of qglow, because some
workers have to choose first which one."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Mapping


def serve(handlers: Mapping[str, Callable[..., object]]) -> None:
    """Answer requests on standard input until it ends, one line of JSON each.

    A request is {"do": NAME, ...}: the handler of that name is called with the other fields. The reply is
    {"answer": what it returns}, or {"error": one line} where it raises. What handlers print goes to standard
    error, so that it cannot mix with replies.
    """
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as replies:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        for line in sys.stdin:
            reply: dict[str, object]
            try:
                request = json.loads(line)
                reply = {"answer": handlers[request.pop("do")](**request)}
            except Exception as error:
                first, _, _ = str(error).partition("\n")
                # Errors of qglow are sentences; others say little without their type.
                named = "" if type(error).__module__.startswith("qglow.") else f"{type(error).__name__}: "
                reply = {"error": f"{named}{first}"}
            print(json.dumps(reply), file=replies, flush=True)


def burst(run: Callable[[], None], repeats: int) -> float:
    """Milliseconds of one of `repeats` calls in a row, after an untimed one that fills the caches."""
    gc.disable()
    try:
        run()
        start = time.perf_counter_ns()
        for _ in range(repeats):
            run()
        return (time.perf_counter_ns() - start) / 1e6 / repeats
    finally:
        gc.enable()
