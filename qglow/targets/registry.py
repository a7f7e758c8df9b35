"""Targets by name: those of qglow and those that other packages register.

Other packages register a target with an entry point of the group `qglow.targets`, whose name is the
target's:

    [project.entry-points."qglow.targets"]
    name = "package.module:TARGET"
"""

from __future__ import annotations

import os
import platform
from importlib.metadata import EntryPoint, entry_points

from qglow.core.errors import UsageError
from qglow.kernels.emit.target import VectorTarget
from qglow.targets import capabilities
from qglow.targets.protocol import RunningTarget, Target
from qglow.targets.rooms import ROOMS, builtin_names

ENVIRONMENT_VARIABLE = "QGLOW_ISA"
GROUP = "qglow.targets"
HOST = "host"
"""Name that stands for the fastest of qglow's own targets that this processor runs."""
_FOR_ESTIMATES = "avx512vnni"


def target_names() -> list[str]:
    """Names of all targets, qglow's own first. Imports none of them."""
    return list(dict.fromkeys([*builtin_names(), *sorted(_registered())]))


def find_target(name: str) -> Target:
    """The target of this name, whether or not the host can run it; "host" is the fastest that it runs.

    Raises UsageError for an unknown name, for a package whose registered target cannot be used, and for
    "host" where there is none.
    """
    if name == HOST:
        return _fastest()
    for room in ROOMS:
        if name in (*room.names, *room.for_bundles, *room.for_tests):
            return room.targets()[name]
    found = _registered().get(name)
    if found is None:
        raise UsageError(f"no target is called '{name}'; there are {', '.join(target_names())}", field="isa")
    return _loaded(found)


def select_target(name: str | None = None) -> RunningTarget:
    """The named target, or the one in QGLOW_ISA, or the fastest that the host runs.

    Raises UsageError for an unknown name, for a target that the host cannot run, and where there is none
    for the host.
    """
    wanted = name or os.environ.get(ENVIRONMENT_VARIABLE)
    if wanted:
        target = find_target(wanted)
        refused = target.refusal()
        if refused is not None:
            names = ", ".join(running_names()) or "none"
            raise UsageError(f"this host cannot run ISA '{wanted}'; it has {names} ({refused})")
        return capabilities.running(target)
    return _fastest()


def _fastest() -> RunningTarget:
    own = running_targets()
    if own:
        return own[-1]
    raise UsageError(
        f"there are kernels for no {platform.machine()} processor yet; name a target, such as 'reference'"
    )


def find_or_select(name: str | None = None) -> Target:
    """Find a target as `select_target` does, but accept a named one that this host cannot run.

    Texts and files can be made for it all the same.

    Raises UsageError for an unknown name, and where none is named and there is none for the host.
    """
    wanted = name or os.environ.get(ENVIRONMENT_VARIABLE)
    return find_target(wanted) if wanted else select_target()


def running_targets(for_tests: bool = False) -> list[RunningTarget]:
    """qglow's own targets for this kind of processor whose code runs here, the slowest first.

    With `for_tests` also those that are never listed.
    """
    found: list[RunningTarget] = []
    for room in ROOMS:
        if platform.machine() not in room.processors:
            continue
        targets = room.targets()
        for name in (*room.names, *(room.for_tests if for_tests else ())):
            target = targets[name]
            if isinstance(target, RunningTarget) and target.refusal() is None:
                found.append(target)
    return found


def running_names(for_tests: bool = False) -> list[str]:
    """Names of `running_targets`."""
    return [target.description.name for target in running_targets(for_tests)]


def machine_for_estimates() -> VectorTarget:
    """The description of one fixed target, so that estimates do not depend on the host."""
    return capabilities.machine(find_target(_FOR_ESTIMATES))


def _registered() -> dict[str, EntryPoint]:
    """Entry points by name; of several with one name the first in the order of `importlib.metadata`."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, point)
    return found


def _loaded(point: EntryPoint) -> Target:
    where = f"target '{point.name}' ({point.value})"
    try:
        target = point.load()
    except Exception as error:
        raise UsageError(f"{where} cannot be loaded: {error}") from error
    if not isinstance(target, Target):
        raise UsageError(f"{where} is no qglow.targets.protocol.Target")
    if target.description.name != point.name:
        raise UsageError(
            f"{where} calls itself '{target.description.name}'; its entry point must do the same"
        )
    return target
