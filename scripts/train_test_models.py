"""Makes tests/models/: three tiny trained models of different kinds, with labelled data.

    pip install -e .[train] && python scripts/train_test_models.py

- sorter: a transformer encoder that sorts ten digits; the data are random digits.
- denoiser: a U-shaped convolutional network that takes noise out of images of handwritten digits.
- wine: a perceptron with tanh and softmax that names the grower of a wine from thirteen measurements.

Writes NAME.onnx and NAME.npz, whose arrays are `calibration` and `test` inputs and the `label` of the
latter. The same versions of torch and scikit-learn give the same files.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import torch
from sklearn.datasets import load_digits, load_wine
from torch import nn

from qglow.core.files import atomic_writer
from qglow.core.types import Array

SEED = 11
DIGITS, LENGTH, WIDTH, HEADS = 10, 10, 32, 4
NOISE = 0.25

Made = tuple[nn.Module, Array, Array, Array]
"""A trained network, calibration inputs, test inputs, and what belongs to the latter."""


class Attention(nn.Module):
    """Self-attention of [N, T, WIDTH] as exporters write it: products, a softmax, transposes."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Give [N, T, WIDTH]."""
        q, k, v = self.into(x).reshape(-1, LENGTH, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        scores = torch.softmax(q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5, -1)
        return self.out((scores @ v).transpose(1, 2).reshape(-1, LENGTH, WIDTH))


class Layer(nn.Module):
    """A transformer layer that normalizes before attention and before its perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.perceptron = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Give [N, T, WIDTH]."""
        x = x + self.attention(self.first(x))
        return x + self.perceptron(self.second(x))


class Sorter(nn.Module):
    """Digits int64 [N, LENGTH] to logits [N, LENGTH, DIGITS] of the sorted digits."""

    def __init__(self) -> None:
        super().__init__()
        self.digit, self.place = nn.Embedding(DIGITS, WIDTH), nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.1)
        self.layers = nn.Sequential(Layer(), Layer())
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, DIGITS))

    def forward(self, digits: torch.Tensor) -> torch.Tensor:
        """Give the logits."""
        result: torch.Tensor = self.head(self.layers(self.digit(digits) + self.place))
        return result


class Denoiser(nn.Module):
    """Images [N, 1, 8, 8] in 0..1 with noise, to images without."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU())
        self.down = nn.Sequential(nn.Conv2d(12, 24, 3, stride=2, padding=1), nn.BatchNorm2d(24), nn.ReLU())
        self.deep = nn.Sequential(
            nn.Conv2d(24, 24, 3, padding=1, groups=24), nn.BatchNorm2d(24), nn.Conv2d(24, 24, 1), nn.ReLU()
        )
        self.up = nn.Sequential(nn.ConvTranspose2d(24, 12, 2, stride=2), nn.ReLU())
        self.leave = nn.Conv2d(24, 1, 3, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Give the image."""
        wide = self.enter(image)
        deep = self.up(self.deep(self.down(wide)))
        return torch.sigmoid(self.leave(torch.cat([wide, deep], 1)))


def optimise(net: nn.Module, steps: int, loss: Callable[[], torch.Tensor]) -> None:
    """Take `steps` steps of AdamW with a one-cycle learning rate."""
    optimizer = torch.optim.AdamW(net.parameters(), weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=steps)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        schedule.step()
    net.eval()


def sorter() -> Made:
    """Train the sorter; the label of a sample is the sorted digits."""
    net = Sorter()

    def loss() -> torch.Tensor:
        digits = torch.randint(0, DIGITS, (128, LENGTH))
        return nn.functional.cross_entropy(net(digits).flatten(0, 1), digits.sort(1).values.flatten())

    optimise(net, 2500, loss)
    random = np.random.default_rng(SEED)
    calibration, test = (random.integers(0, DIGITS, (count, LENGTH)) for count in (64, 200))
    return net, calibration, test, np.sort(test, 1)


def denoiser() -> Made:
    """Train the denoiser; the label of a sample is the image without noise."""
    random = np.random.default_rng(SEED)
    images = (load_digits().images / 16.0).astype(np.float32)[:, None]
    images = images[random.permutation(len(images))]
    clean = torch.from_numpy(images[300:])
    net = Denoiser()

    def loss() -> torch.Tensor:
        chosen = clean[torch.randint(0, len(clean), (64,))]
        return nn.functional.mse_loss(net(chosen + NOISE * torch.randn_like(chosen)), chosen)

    optimise(net, 1500, loss)
    noisy = images[:300] + NOISE * random.standard_normal(images[:300].shape).astype(np.float32)
    return net, noisy[:100], noisy[100:], images[100:300]


def wine() -> Made:
    """Train the perceptron on half of the wines; the label is the number of the grower."""
    random = np.random.default_rng(SEED)
    data = load_wine()
    order = random.permutation(len(data.target))
    values = ((data.data - data.data.mean(0)) / data.data.std(0)).astype(np.float32)[order]
    growers = data.target.astype(np.int64)[order]
    x, y = torch.from_numpy(values[:89]), torch.from_numpy(growers[:89])
    net = nn.Sequential(
        nn.Linear(13, 24), nn.Tanh(), nn.Linear(24, 12), nn.Tanh(), nn.Linear(12, 3), nn.Softmax(1)
    )
    optimise(net, 300, lambda: nn.functional.nll_loss(torch.log(net(x) + 1e-6), y))
    return net, values[:89], values[89:], growers[89:]


def to_onnx(net: nn.Module, sample: Array) -> onnx.ModelProto:
    """Export with a symbolic batch, opset 17."""
    buffer = io.BytesIO()
    torch.onnx.export(
        net,
        (torch.from_numpy(sample),),
        buffer,
        input_names=["input"],
        output_names=["output"],
        dynamic_axes={"input": {0: "N"}, "output": {0: "N"}},
        opset_version=17,
        dynamo=False,
    )
    return onnx.load_from_string(buffer.getvalue())


def main() -> None:
    """Train all three and write their files."""
    parser = argparse.ArgumentParser(description="Train the tiny models of the tests.")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parents[1] / "tests" / "models")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for make in (sorter, denoiser, wine):
        torch.manual_seed(SEED)
        net, calibration, test, label = make()
        name = make.__name__
        with atomic_writer(options.output / f"{name}.onnx") as stream:
            stream.write(to_onnx(net, test[:2]).SerializeToString(deterministic=True))
        with atomic_writer(options.output / f"{name}.npz") as stream:
            np.savez_compressed(stream, calibration=calibration, test=test, label=label)
        print(f"{name}: {options.output / name}.onnx")


if __name__ == "__main__":
    main()
