"""A metric of one's own, and a search for the nodes that have to stay more precise.

    python docs/examples/own_metric.py

Run it in the top folder of a checkout.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import qglow

DATA = Path("calib_data")


def confidence(outputs: dict[str, np.ndarray], labels: np.ndarray) -> float:
    """Return the mean probability of the right class, in per cent."""
    logits = outputs["logits"].astype(np.float64)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = weights / weights.sum(axis=1, keepdims=True)
    return 100.0 * float(probabilities[np.arange(len(labels)), labels].mean())


def main() -> None:
    """Measure the metric in float and int8, then search for a model that keeps to a goal."""
    model = qglow.load_model(DATA / "digits.onnx")
    profile = model.profile(DATA / "calib.npz")
    quantized = model.quantize(profile)
    comparison = qglow.compare(quantized, DATA / "test.npz", metric=confidence)
    if comparison.metric is not None:
        for program, value in comparison.metric.values.items():
            print(f"{program}: {value:.2f} %")

    samples = qglow.CalibrationSamples(DATA / "calib.npz")
    goal = qglow.Goal(min_sqnr_db=37.0)
    tuning = qglow.tune(model, profile, DATA / "test.npz", goal, calibration_data=samples)
    for trial in tuning.trials:
        figures = trial.figures
        print(f"{trial.steps} steps: {figures.sqnr_db:.1f} dB, {figures.latency_ms:.4f} ms")


if __name__ == "__main__":
    main()
