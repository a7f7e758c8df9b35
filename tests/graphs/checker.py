"""What must hold of a case: float results against onnxruntime, int8 results against each other.

Both in batches too: a batch of two has the bits of its samples one by one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

import qglow
from qglow.core.types import Array
from qglow.exporter.expose import expose_outputs, produced_names
from tests.graphs.builder import open_session
from tests.graphs.drawing import Case
from tests.runtimes import PLAIN

Results = Mapping[str, Array]
REFUSALS = (qglow.UnsupportedError, qglow.UsageError)
"""How a correct model may be refused."""


def check(case: Case) -> str:
    """Hold a case to the rules and say how far it came. Raises AssertionError."""
    with tempfile.TemporaryDirectory(prefix="qglow-graphs-") as name:
        folder = Path(name)
        (folder / "model.onnx").write_bytes(case.model)
        session = open_session(case.model)
        wanted = [dict(zip(outputs(session), session.run(None, s), strict=True)) for s in case.samples]
        try:
            model = qglow.load_model(folder / "model.onnx")
        except REFUSALS:
            return "refused"
        batches = [Batch.of(case.model, case.samples[i : i + 2]) for i in (0, 1)]
        _check_float(case, model, wanted, [_moved(session, s) for s in case.samples], batches)
        return _check_int8(case, model, folder, batches)


@dataclass(frozen=True)
class Batch:
    """Two samples as one. outputs: those in which each sample has a half of its own."""

    stacked: Results
    samples: tuple[Results, ...]
    outputs: tuple[str, ...]

    @staticmethod
    def of(model: bytes, samples: tuple[Results, ...]) -> Batch:
        """Stack samples; onnxruntime tells which outputs are theirs, none where it takes no batch."""
        stacked = {n: np.concatenate([s[n] for s in samples]) for n in samples[0]}
        session = open_session(expose_outputs(model, sorted(produced_names(model))))
        names = outputs(session)
        try:
            found = dict(zip(names, session.run(None, stacked), strict=True))
        except Exception:  # a fixed batch, or a node that has the batch of one in its parameters
            return Batch(stacked, samples, ())
        alone = [dict(zip(names, session.run(None, sample), strict=True)) for sample in samples]
        graph = onnx.load_model_from_string(model).graph
        mixed = _mixed(graph, found, alone)
        own = [v.name for v in graph.output if v.name not in mixed]
        return Batch(stacked, samples, tuple(n for n in own if _is_stacked(found[n], [r[n] for r in alone])))

    def check(self, executable: Callable[[Results], Results], runtime: str) -> None:
        """Hold the halves of a batch to the samples' own results."""
        if not self.outputs:
            return
        try:
            found = executable(self.stacked)
        except REFUSALS:
            return
        alone = [executable(sample) for sample in self.samples]
        for name in self.outputs:
            want = np.concatenate([results[name] for results in alone])
            np.testing.assert_array_equal(found[name], want, f"output {name!r} of a batch in {runtime}")


def _mixed(graph: onnx.GraphProto, found: Results, alone: list[Results]) -> set[str]:
    """Names of values in which one sample may change what the other gives, and all that is made of them.

    Values of results cannot tell: x / x is 1 in float, whatever the other sample does to x. So each value
    that depends on inputs has the elements of its samples, in whatever order, or is mixed.
    """
    dependent, mixed = {value.name for value in graph.input}, set[str]()
    for node in graph.node:
        if not dependent.intersection(node.input):
            continue
        dependent.update(node.output)
        for name in filter(None, node.output):
            parts = [np.ravel(results[name]) for results in alone]
            whole = np.sort(np.ravel(found[name])), np.sort(np.concatenate(parts))
            same = whole[0].shape == whole[1].shape and np.allclose(*whole, 1e-3, 1e-4, equal_nan=True)
            if not same or mixed.intersection(node.input):
                mixed.add(name)
    return mixed


def _is_stacked(found: Array, parts: list[Array]) -> bool:
    """Whether a result of two samples is theirs, one behind the other; NaN and infinities cannot tell."""
    if any(part.ndim == 0 or len(part) != 1 for part in parts) or len(found) != len(parts):
        return False
    if not all(np.isfinite(part).all() for part in parts):
        return False
    return bool(np.allclose(found, np.concatenate(parts), 1e-3, 1e-4, equal_nan=True))


def outputs(session: object) -> list[str]:
    """Names of a session's outputs."""
    return [output.name for output in session.get_outputs()]  # type: ignore[attr-defined]


def _moved(session: object, sample: Results) -> Results:
    """Results for inputs that differ a little: how much rounding may change them."""
    signs = np.random.default_rng(0)
    near = {n: (a * (1 + signs.choice([-3e-7, 3e-7], a.shape))).astype(a.dtype) for n, a in sample.items()}
    return dict(zip(outputs(session), session.run(None, near), strict=True))  # type: ignore[attr-defined]


def _check_float(
    case: Case, model: qglow.Model, wanted: list[Results], near: list[Results], batches: list[Batch]
) -> None:
    try:
        executable = model.compile()
    except REFUSALS:
        executable = None
    for sample, want, moved in zip(case.samples, wanted, near, strict=True):
        _check_close(case, model.interpret(sample), want, moved, "the interpreter")
        if executable is not None:
            _check_close(case, executable(sample), want, moved, "compiled code")
    for batch in batches if executable is not None else ():
        batch.check(executable, "compiled code")


def _check_close(case: Case, got: Results, wanted: Results, moved: Results, runtime: str) -> None:
    assert list(got) == list(wanted), (list(got), list(wanted))
    for name, want in wanted.items():
        found, place = got[name], f"output {name!r} of {runtime}"
        assert found.shape == want.shape, f"{place} has shape {found.shape}, not {want.shape}"
        assert found.dtype == want.dtype, f"{place} has type {found.dtype}, not {want.dtype}"
        if want.dtype == np.float32:
            # Maxima of NaN, which ONNX leaves open: onnxruntime passes over NaN, or gives the least float.
            open_ended = np.isnan(found) & (case.may_lose_nan | (want == np.finfo(np.float32).min))
            want = np.where(open_ended, np.float32(np.nan), want)
            want = np.where(np.isnan(want) & case.may_lose_numbers, found, want)
        if name in case.exact or want.dtype.kind != "f":
            np.testing.assert_array_equal(found, want, place)
            continue
        with np.errstate(all="ignore"):
            apart = np.abs(np.asarray(moved[name], float) - want)
            steady = np.isfinite(want) & np.isfinite(apart)
            odd = ~np.isfinite(want) & ~np.isfinite(moved[name])
            np.testing.assert_array_equal(found[odd], want[odd], place)
            size = np.abs(want[steady]).max(initial=0.0)
            allowed = 1e-4 * (1 + size) + 1000 * apart[steady].max(initial=0.0)
            worst = np.abs(np.asarray(found, float) - want)[steady].max(initial=0.0)
        assert worst <= allowed, f"{place} is off by {worst}, {allowed} is allowed"


def _check_int8(case: Case, model: qglow.Model, folder: Path, batches: list[Batch]) -> str:
    arrays = {n: np.concatenate([s[n] for s in case.samples]) for n in case.samples[0]}
    if any(a.size == 0 for a in arrays.values()) or not all(np.isfinite(a).all() for a in arrays.values()):
        return "float"
    try:
        profile = model.profile(arrays)
        quantized = model.quantize(profile, repair=case.choices % 16 == 0)
        executable = quantized.compile(isa=PLAIN) if case.choices % 4 == 1 else quantized.compile()
    except (*REFUSALS, qglow.ProfileError, qglow.DataError):
        return "float"
    if _has_float_products(quantized):
        return "float"
    reread = None
    try:
        exported = quantized.qdq_bytes()
    except REFUSALS:
        exported = b""
    if exported and case.choices % 8 == 2:
        quantized.save(folder / "model.quantized")
        reread = qglow.load_quantized(folder / "model.quantized")
    for sample in case.samples:
        want = quantized.interpret(sample)
        _check_same(executable(sample), want, "compiled int8 code")
        if reread is not None:
            _check_same(reread.interpret(sample), want, "the model read back")
    for batch in batches:
        batch.check(executable, "compiled int8 code")
    if not exported:
        return "int8"
    open_session(exported)
    return "exported"


def _has_float_products(quantized: qglow.QuantizedModel) -> bool:
    """Whether products are in float, whose last bits are the interpreter's own (rule 9 of the contract)."""
    report = quantized.report
    return report is not None and any(
        node.operator in ("Conv", "Gemm", "MatMul") for node in report.float_nodes
    )


def _check_same(got: Results, wanted: Results, runtime: str) -> None:
    for name, want in wanted.items():
        np.testing.assert_array_equal(got[name], want, f"output {name!r} of {runtime}")
