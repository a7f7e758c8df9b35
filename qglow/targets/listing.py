"""Description of all targets, for listings."""

from __future__ import annotations

from dataclasses import dataclass

from qglow.core.errors import UsageError
from qglow.targets.protocol import BundleTarget, Target
from qglow.targets.registry import find_target, select_target, target_names


@dataclass(frozen=True)
class TargetInfo:
    """A target that programs are compiled for.

    name: what `isa=` takes. summary: what it is, in a line. cpu: the processor by LLVM's name,
    empty where code is for none. features: features that code uses beyond it, by LLVM's names. refusal: why
    this host cannot run it, empty where it can. is_default: whether it is taken when no target is named.
    writes_bundles: whether programs are written as files that run without qglow.
    """

    name: str
    summary: str
    cpu: str
    features: tuple[str, ...]
    refusal: str
    is_default: bool
    writes_bundles: bool

    @property
    def runs_here(self) -> bool:
        """Whether this host runs its programs."""
        return not self.refusal


def list_targets() -> tuple[TargetInfo, ...]:
    """Every target: qglow's own, then those that installed packages register under `qglow.targets`.

    A registered target that cannot be loaded is listed with the reason. The default is what QGLOW_ISA names,
    else the fastest that this host runs.
    """
    default = _default()
    return tuple(_info(name, default) for name in target_names())


def _default() -> str:
    """The name of the target that is taken when none is named; empty where there is none."""
    try:
        return select_target().description.name
    except UsageError:
        return ""


def _info(name: str, default: str) -> TargetInfo:
    try:
        target: Target = find_target(name)
    except UsageError as error:
        return TargetInfo(name, "", "", (), str(error), False, False)
    said, refusal = target.description, target.refusal() or ""
    bundles = isinstance(target, BundleTarget)
    return TargetInfo(name, said.summary, said.cpu, said.features, refusal, name == default, bundles)
