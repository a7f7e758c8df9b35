"""Costs of an int8 program beside its accuracy: latency beside onnxruntime's, sizes and memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from qglow.baseline.entries import Entry, Measured
from qglow.core.errors import UsageError
from qglow.display.blocks import byte_count
from qglow.report.bench import RatioInterval
from qglow.report.latencies import QGLOW_INT8, RIVALS, measure_latencies
from qglow.report.parts import QuantizedParts, float_model
from qglow.targets.registry import find_or_select
from qglow.toolchain import CompileOptions
from qglow.toolchain.emulated import compile_or_emulate
from qglow.toolchain.files import write_graph

TURNS, MORE_TURNS = 50, 200
"""Turns of each program; more where the first do not settle that all limits are kept."""


@dataclass(frozen=True, slots=True)
class RivalLatency:
    """Median milliseconds of the int8 program and of onnxruntime's, and their ratio turn by turn."""

    milliseconds: float
    rival_milliseconds: float
    ratio: RatioInterval


@dataclass(frozen=True, slots=True)
class Costs:
    """Figures of one int8 program for one target, where its entry has limits for them.

    kernels: name of the target. latencies: beside onnxruntime's program, by the keys of RIVALS.
    """

    kernels: str
    latencies: Mapping[str, RivalLatency]
    artefact_bytes: int | None = None
    arena_bytes: int | None = None

    def added_to(self, measured: Measured) -> Measured:
        """The figures of an entry with these."""
        ratios = {f"ratio_{kind}": round(x.ratio.median, 4) for kind, x in self.latencies.items()}
        sizes = {"artefact_bytes": self.artefact_bytes, "arena_bytes": self.arena_bytes}
        return replace(measured, **ratios, **sizes, kernels=self.kernels)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Findings:
    """Limits that are broken, and those that the measurement cannot tell of, in words."""

    broken: tuple[str, ...] = ()
    open: tuple[str, ...] = ()


def measure_costs(entry: Entry, parts: QuantizedParts, options: CompileOptions) -> Costs | None:
    """Measure what the limits of an entry ask for; None without such limits.

    Latency is that of one thread unless the options say how many. What does not clearly keep its limit is
    measured again in more turns, and these count; so is what a baseline is made of. Raises UsageError for
    a limit that cannot apply.
    """
    limits = entry.limits
    if not limits.latency and limits.artefact_bytes is None and limits.arena_bytes is None:
        return None
    options = replace(options, isa=entry.target or options.isa)
    target = find_or_select(options.isa)
    costs = Costs(target.description.name, {})
    if limits.artefact_bytes is not None:
        costs = replace(costs, artefact_bytes=_artefact_bytes(parts, options))
    if limits.arena_bytes is not None:
        costs = replace(costs, arena_bytes=compile_or_emulate(parts.int8, options).arena_bytes)
    if not limits.latency:
        return costs
    if target.refusal() is not None:
        raise UsageError(f"max_latency_ratio: {costs.kernels} runs in an emulator here, which has no latency")
    kinds = _kinds(entry, parts)
    costs = replace(costs, latencies=_latencies(parts, kinds, options, TURNS))
    to_be_kept = limits.latency.baseline is not None and entry.measured is None
    if to_be_kept or _latency_findings(entry, costs) != Findings():
        costs = replace(costs, latencies=_latencies(parts, kinds, options, MORE_TURNS))
    return costs


def judge_costs(entry: Entry, now: Measured, costs: Costs | None) -> Findings:
    """Hold figures to the limits of an entry.

    A latency breaks its limit only where the whole interval of its ratio lies above it.
    """
    limits = entry.limits
    broken = [
        f"{what} {byte_count(size)}, over the limit of {byte_count(limit)}"
        for what, size, limit in (
            ("constants", now.bytes, limits.bytes),
            ("artefact", now.artefact_bytes, limits.artefact_bytes),
            ("arena", now.arena_bytes, limits.arena_bytes),
        )
        if size is not None and limit is not None and size > limit
    ]
    if costs is None:
        return Findings(tuple(broken))
    latency = _latency_findings(entry, costs)
    return Findings((*broken, *latency.broken), latency.open)


def _latency_findings(entry: Entry, costs: Costs) -> Findings:
    broken, untold = [], list(_incomparable(entry, costs))
    for kind, limit, why in _ratio_limits(entry, costs):
        ratio = costs.latencies[kind].ratio
        said = (
            f"latency {ratio.median:.3g} of {RIVALS[kind]}'s "
            f"(99 % interval {ratio.low:.3g} to {ratio.high:.3g} of {ratio.turns} turns)"
        )
        if not ratio.low <= limit:
            broken.append(f"{said}, over the limit of {limit:.3g}{why}")
        elif not ratio.high <= limit:
            untold.append(
                f"{said} cannot be told from the limit of {limit:.3g}{why}: the turns differ too much"
            )
    return Findings(tuple(broken), tuple(untold))


def _ratio_limits(entry: Entry, costs: Costs) -> Iterator[tuple[str, float, str]]:
    """Kind of rival, largest ratio, and where the limit is from."""
    latency, before = entry.limits.latency, entry.measured
    for kind, limit in (("float32", latency.float32), ("int8", latency.int8)):
        if limit is not None:
            yield kind, limit, ""
    if latency.baseline is None or before is None or before.kernels != costs.kernels:
        return
    for kind in costs.latencies:
        ratio = getattr(before, f"ratio_{kind}")
        if ratio is not None:
            yield kind, ratio * latency.baseline, f" ({latency.baseline:g} times the baseline's {ratio:.3g})"


def _incomparable(entry: Entry, costs: Costs) -> Iterator[str]:
    """Reasons why ratios are not held to those of the baseline, where they should be."""
    before = entry.measured
    if entry.limits.latency.baseline is None or before is None:
        return
    if before.ratio_float32 is None and before.ratio_int8 is None:
        yield "the baseline has no latency yet; an update writes it"
    elif before.kernels != costs.kernels:
        yield (
            f"latency is not held to the baseline, which was measured with kernels for {before.kernels}; "
            f"these are for {costs.kernels}"
        )


def _kinds(entry: Entry, parts: QuantizedParts) -> list[str]:
    """Programs of onnxruntime that the limits speak of. Raises UsageError for one that does not exist."""
    latency, quantized = entry.limits.latency, float_model(parts).is_quantized
    if quantized and latency.float32 is not None:
        raise UsageError("max_latency_ratio: the model is quantized already; hold it to int8, not to float32")
    kinds = []
    if not quantized and (latency.float32 is not None or latency.baseline is not None):
        kinds.append("float32")
    if latency.int8 is not None or quantized:
        kinds.append("int8")
    return kinds


def _latencies(
    parts: QuantizedParts, kinds: list[str], options: CompileOptions, turns: int
) -> dict[str, RivalLatency]:
    wanted = {QGLOW_INT8, *(RIVALS[kind] for kind in kinds)}
    options = replace(options, threads=options.threads or 1)
    result = measure_latencies(parts, options, alternations=turns, only=wanted)
    medians = {name: latency.median_ms for name, latency in result.latencies.items()}
    return {
        kind: RivalLatency(
            medians[QGLOW_INT8], medians[RIVALS[kind]], result.interval(QGLOW_INT8, RIVALS[kind])
        )
        for kind in kinds
    }


def _artefact_bytes(parts: QuantizedParts, options: CompileOptions) -> int:
    """Size of what `qglow compile` writes: one file, or all of a folder."""
    with tempfile.TemporaryDirectory(prefix="qglow-check-") as folder:
        made = Path(folder) / "model.qglow"
        write_graph(made, parts.int8, options)
        files = [made] if made.is_file() else made.rglob("*")
        return sum(path.stat().st_size for path in files if path.is_file())
