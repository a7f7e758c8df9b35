"""What must hold of a case: float results against onnxruntime, int8 results against each other."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import qglow
from qglow.core.types import Array
from tests.graphs.builder import open_session
from tests.graphs.drawing import Case

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
        _check_float(case, model, wanted, [_moved(session, s) for s in case.samples])
        return _check_int8(case, model, folder)


def outputs(session: object) -> list[str]:
    """Names of a session's outputs."""
    return [output.name for output in session.get_outputs()]  # type: ignore[attr-defined]


def _moved(session: object, sample: Results) -> Results:
    """Results for inputs that differ a little: how much rounding may change them."""
    signs = np.random.default_rng(0)
    near = {n: (a * (1 + signs.choice([-3e-7, 3e-7], a.shape))).astype(a.dtype) for n, a in sample.items()}
    return dict(zip(outputs(session), session.run(None, near), strict=True))  # type: ignore[attr-defined]


def _check_float(case: Case, model: qglow.Model, wanted: list[Results], near: list[Results]) -> None:
    try:
        executable = model.compile()
    except REFUSALS:
        executable = None
    for sample, want, moved in zip(case.samples, wanted, near, strict=True):
        _check_close(case, model.interpret(sample), want, moved, "the interpreter")
        if executable is not None:
            _check_close(case, executable(sample), want, moved, "compiled code")


def _check_close(case: Case, got: Results, wanted: Results, moved: Results, runtime: str) -> None:
    assert list(got) == list(wanted), (list(got), list(wanted))
    for name, want in wanted.items():
        found, place = got[name], f"output {name!r} of {runtime}"
        assert found.shape == want.shape, f"{place} has shape {found.shape}, not {want.shape}"
        assert found.dtype == want.dtype, f"{place} has type {found.dtype}, not {want.dtype}"
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


def _check_int8(case: Case, model: qglow.Model, folder: Path) -> str:
    arrays = {n: np.concatenate([s[n] for s in case.samples]) for n in case.samples[0]}
    if any(a.size == 0 for a in arrays.values()) or not all(np.isfinite(a).all() for a in arrays.values()):
        return "float"
    try:
        profile = model.profile(arrays)
        quantized = model.quantize(profile, repair=case.choices % 16 == 0)
        executable = quantized.compile(isa="generic") if case.choices % 4 == 1 else quantized.compile()
    except (*REFUSALS, qglow.ProfileError, qglow.DataError):
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
    if not exported:
        return "int8"
    open_session(exported)
    return "exported"


def _check_same(got: Results, wanted: Results, runtime: str) -> None:
    for name, want in wanted.items():
        np.testing.assert_array_equal(got[name], want, f"output {name!r} of {runtime}")
