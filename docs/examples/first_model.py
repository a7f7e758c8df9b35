"""From a float model to a checked int8 program, on the example of the repository.

    python docs/examples/first_model.py

Run it in the top folder of a checkout. It prints the accuracy in float and int8, and the speed of both.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import qglow

DATA = Path("calib_data")
REPEATS = 200


def milliseconds(program: qglow.Executable, inputs: dict[str, np.ndarray]) -> float:
    """Return the median time of a call."""
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        program(inputs)
        times.append(time.perf_counter() - begin)
    return 1e3 * float(np.median(times))


def main() -> None:
    """Profile, quantize, compare, and run both programs."""
    model = qglow.load_model(DATA / "digits.onnx")
    profile = model.profile(DATA / "calib.npz")
    quantized = model.quantize(profile)
    print(quantized.report.summary())

    comparison = qglow.compare(quantized, DATA / "test.npz")
    print(f"top-1 accuracy drops by {comparison.top1_drop():.2f} points")
    qglow.check_limits(comparison, qglow.Limits(top1_drop=1.0, agreement=98.0))

    with np.load(DATA / "test.npz") as data:
        image, label = data["input"][:1], int(data["label"][0])
    int8, float32 = quantized.compile(), model.compile()
    answer = int(np.argmax(int8({"input": image})["logits"]))
    print(f"the first test image is a {label}, and int8 says {answer}")
    for name, program in (("int8", int8), ("float", float32)):
        print(f"{name} takes {milliseconds(program, {'input': image}):.4f} ms")


if __name__ == "__main__":
    main()
