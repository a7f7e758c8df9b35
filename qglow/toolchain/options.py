"""Options of compiling and loading programs."""

from __future__ import annotations

from dataclasses import dataclass

from qglow.runtime.cores import choose_threads


@dataclass(frozen=True)
class CompileOptions:
    """Options of compilation.

    isa: name of a target, which is mostly an instruction set; None for QGLOW_ISA or the best that the
        host has.
    threads: how many threads may share a call; None for QGLOW_THREADS or the physical cores that
        the process may use. The code is the same for every number; where there is much of it, it is
        generated in as many processes, but no more than there are cores.
    observe: keep every activation in memory of its own, so that it can be read after a call.
    cache: use the object cache of the user, and the kernels that were measured to be best.
    """

    isa: str | None = None
    threads: int | None = None
    observe: bool = False
    cache: bool = True

    def __post_init__(self) -> None:
        choose_threads(self.threads)
