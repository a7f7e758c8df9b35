"""OpenVINO as a rival: a model made ready by it, after a trial in a process of its own.

On some models OpenVINO does not refuse but crashes (seen on a DenseNet in QDQ form), which no exception
can tell.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from qglow.core.errors import ModelError, UsageError

Shapes = Mapping[str, Sequence[int]]
Precision = Literal["f32", "bf16"]
TRIAL_SECONDS = 600.0


def has_bfloat16() -> bool:
    """Whether OpenVINO computes in bfloat16 here. Raises UsageError if it is not installed."""
    return "BF16" in installed_openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def openvino_request(
    model: Path | bytes, shapes: Shapes, threads: int = 1, precision: Precision = "f32"
) -> Any:
    """An inference request, tuned for latency.

    precision: of floats; OpenVINO's own default depends on the processor (on AMX it is bfloat16).
    Raises UsageError if OpenVINO is not installed, ModelError if it refuses the model or crashes.
    """
    openvino = installed_openvino()
    with TemporaryDirectory(prefix="qglow-openvino-") as folder:
        path = model if isinstance(model, Path) else Path(folder) / "model.onnx"
        if not isinstance(model, Path):
            path.write_bytes(model)
        _try(path, shapes, threads, precision)
        try:
            return _request(openvino, path, shapes, threads, precision)
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:300]
            raise ModelError(f"OpenVINO cannot load the model: {reason}") from error


def installed_openvino() -> Any:
    """The module. Raises UsageError if it is not installed."""
    try:
        import openvino
    except ImportError as error:
        raise UsageError('OpenVINO is not installed: pip install "qglow[bench]"') from error
    return openvino


def _try(path: Path, shapes: Shapes, threads: int, precision: Precision) -> None:
    given = json.dumps({name: [int(size) for size in shape] for name, shape in shapes.items()})
    module = "qglow.report.openvino_model"
    command = [sys.executable, "-m", module, str(path), given, str(threads), precision]
    try:
        done = subprocess.run(command, capture_output=True, timeout=TRIAL_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"OpenVINO takes more than {TRIAL_SECONDS:g} s to load the model") from error
    if done.returncode < 0:
        raise ModelError(f"OpenVINO crashes on the model (signal {-done.returncode})")


def _request(openvino: Any, path: Path, shapes: Shapes, threads: int, precision: str) -> Any:
    options = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision,
    }
    core = openvino.Core()
    source = core.read_model(str(path))
    source.reshape({name: [int(size) for size in shape] for name, shape in shapes.items()})
    with _own_signal_stack():
        return core.compile_model(source, "CPU", options).create_infer_request()


class _SignalStack(ctypes.Structure):
    """The `stack_t` of sigaltstack(2)."""

    _fields_ = (("pointer", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


@contextmanager
def _own_signal_stack() -> Iterator[None]:
    """Give the thread back the stack that its signal handlers had.

    On a processor with AMX, OpenVINO leaves one that is too small for the registers, so that the next signal,
    such as that of Ctrl-C, would end the process.
    """
    change = getattr(ctypes.CDLL(None), "sigaltstack", None)
    before = _SignalStack()
    if change is not None:
        change(None, ctypes.byref(before))
    try:
        yield
    finally:
        if change is not None:
            change(ctypes.byref(before), None)


def main(arguments: Sequence[str]) -> int:
    """Compile and run a model once. Return 1 if OpenVINO refuses it; the caller's own attempt tells why."""
    import openvino

    path, shapes, threads, precision = arguments
    try:
        _request(openvino, Path(path), json.loads(shapes), int(threads), precision).infer()
    except RuntimeError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
