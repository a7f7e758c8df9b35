"""Makes calib_data/: scikit-learn's handwritten digits in three splits and a network trained on one.

    pip install -e .[train] && python -m scripts.train_example

Writes calib.npz and test.npz (keys `input` and `label`) and digits.onnx. The rest of the digits,
1000 images, is what the network is trained on; it is not shipped because this script derives it.
The same versions of torch and scikit-learn give the same files.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

from qglow.core.files import atomic_writer
from qglow.core.types import Array
from scripts.example_network import DigitNet, to_onnx

SEED = 7
CALIBRATION_SAMPLES = 200
TEST_SAMPLES = 597


def split_digits() -> tuple[tuple[Array, Array], tuple[Array, Array], tuple[Array, Array]]:
    """(calibration, test, training), each (float32 [N,1,8,8] in 0..1, int64 labels [N]); disjoint."""
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[:, None]
    labels = digits.target.astype(np.int64)
    order = np.random.default_rng(SEED).permutation(len(labels))
    parts = np.split(order, [CALIBRATION_SAMPLES, CALIBRATION_SAMPLES + TEST_SAMPLES])
    calibration, test, training = ((images[part], labels[part]) for part in parts)
    return calibration, test, training


def train(images: Array, labels: Array, epochs: int) -> DigitNet:
    """Adam with a one-cycle learning rate; images are shifted by up to one pixel at random."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    net = DigitNet()
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    batch = 50
    optimizer = torch.optim.AdamW(net.parameters(), weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=5e-3, total_steps=epochs * (len(y) // batch)
    )
    for _ in range(epochs):
        order = torch.randperm(len(y))
        for start in range(0, len(y) - batch + 1, batch):
            chosen = order[start : start + batch]
            loss = torch.nn.functional.cross_entropy(net(_shift(x[chosen])), y[chosen], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def _shift(x: torch.Tensor) -> torch.Tensor:
    """Each image moved by -1, 0 or 1 pixels along both axes; what enters is background."""
    padded = torch.nn.functional.pad(x, (1, 1, 1, 1))
    moves = torch.randint(0, 3, (len(x), 2)).tolist()
    return torch.stack([image[:, r : r + 8, c : c + 8] for image, (r, c) in zip(padded, moves, strict=True)])


def main() -> None:
    """Train, report the accuracy on the test split, write the three files."""
    parser = argparse.ArgumentParser(description="Train the example network and write calib_data/.")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parents[1] / "calib_data")
    options = parser.parse_args()

    calibration, test, training = split_digits()
    net = train(*training, epochs=options.epochs)
    with torch.no_grad():
        predicted = net(torch.from_numpy(test[0])).argmax(1).numpy()
    print(f"top-1 on {len(test[1])} test images: {100 * np.mean(predicted == test[1]):.2f} %")

    for name, (images, labels) in {"calib.npz": calibration, "test.npz": test}.items():
        with atomic_writer(options.output / name) as stream:
            np.savez_compressed(stream, input=images, label=labels)
    with atomic_writer(options.output / "digits.onnx") as stream:
        stream.write(to_onnx(net).SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
