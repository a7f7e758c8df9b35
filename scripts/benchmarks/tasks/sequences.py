"""Tasks over sequences whose length a call decides, and over streams: no dataset of fixed shapes has them.

Text is prose of Python's own manual, and images are drawn with their labels, so that nothing is downloaded.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

import matplotlib
import numpy as np
import onnxruntime
from PIL import Image, ImageDraw, ImageFont

import qglow
from qglow.core.types import Array
from scripts.benchmarks.models.evaluated import ZOO
from scripts.benchmarks.models.wild import WILD

Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""A program over inputs with their batch axes."""
Samples = Sequence[Mapping[str, Array]]

SENTENCE = re.compile(r"[A-Z][A-Za-z ,'()-]{20,120}[.!?]")
PIECE = 128
"""Bytes of which the length of a text is a multiple."""
SIDE, DIGIT, SIZE = 64, 30, 44
"""Height of a drawn image, the width that a digit takes, and the size of its font."""
FONT = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"
BLANK = 10
RATE, CHUNK, CONTEXT = 16_000, 512, 64
"""Samples a second of the detector of voices, new ones in each call, and those that it sees again."""
SPOKEN = 0.5


@dataclass(frozen=True)
class SequenceTask:
    """A model, how it is loaded, samples to calibrate on, and a metric over what a program does.

    calibration: made with the float program. metric: of a program, and of the float one to compare with; in
    per cent, over so many samples; `labelled`: whether it has labels of its own.
    """

    name: str
    path: Path
    title: str
    calibration: Callable[[Run], Samples]
    metric: Callable[[Run, Run, int], float]
    count: int
    labelled: bool = True
    shapes: Mapping[str, Sequence[int]] | None = None
    values: Mapping[str, int] | None = None

    def load(self) -> qglow.Model:
        """The float model."""
        return qglow.load_model(self.path, self.shapes, values=self.values)

    def in_onnxruntime(self) -> Run:
        """The float model in onnxruntime."""
        session = onnxruntime.InferenceSession(str(self.path), providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        given = {name: np.array(value, np.int64) for name, value in (self.values or {}).items()}
        return lambda inputs: dict(zip(names, session.run(None, {**inputs, **given}), strict=True))


def texts(count: int, seed: int) -> Iterator[tuple[Array, set[int]]]:
    """Sentences in a row as bytes [1, length], and the positions at which one is over; a few lengths."""
    prose = " ".join(" ".join(topics[name].split()) for name in sorted(topics))
    sentences = sorted(set(SENTENCE.findall(prose)))
    rng = np.random.default_rng(seed)
    for _ in range(count):
        chosen = [sentences[i] for i in rng.choice(len(sentences), rng.integers(3, 7), replace=False)]
        ends = {end - 1 for end in itertools.accumulate(len(sentence) + 1 for sentence in chosen)}
        text = " ".join(chosen) + " "
        size = len(text) // PIECE * PIECE
        yield np.frombuffer(text.encode(), np.uint8)[None, :size], {end for end in ends if end < size}


def sentence_f1(run: Run, _: Run, count: int) -> float:
    """F1 of the ends of sentences, in per cent."""
    right = found = wanted = 0
    for text, ends in texts(count, 1):
        (scores,) = run({"input": text}).values()
        seen = set(np.flatnonzero(scores[0, :, 0] > 0.0).tolist())
        right, found, wanted = right + len(seen & ends), found + len(seen), wanted + len(ends)
    return 200.0 * right / max(found + wanted, 1)


def digits(count: int, seed: int) -> Iterator[tuple[Array, str]]:
    """Drawn digits as images [1, 3, 64, width] from -1 to 1, and what they say."""
    rng, font = np.random.default_rng(seed), ImageFont.truetype(FONT, SIZE)
    for _ in range(count):
        text = "".join(map(str, rng.integers(0, 10, rng.integers(4, 7))))
        image = Image.new("RGB", (DIGIT * len(text) + 24, SIDE), "white")
        pen = ImageDraw.Draw(image)
        for number, digit in enumerate(text):
            shade = tuple(int(c) for c in rng.integers(0, 90, 3))
            place = 12 + DIGIT * number + int(rng.integers(-2, 3)), int(rng.integers(6, 13))
            pen.text(place, digit, fill=shade, font=font)
        pixels = np.asarray(image, np.float32).transpose(2, 0, 1)[None]
        noisy = pixels + rng.normal(0.0, 6.0, pixels.shape)
        yield (np.clip(noisy, 0.0, 255.0) / 127.5 - 1.0).astype(np.float32), text


def digit_accuracy(run: Run, _: Run, count: int) -> float:
    """Digits that are read as they are, in per cent: less edits, as far as there are digits."""
    wrong = total = 0
    for image, text in digits(count, 1):
        (scores,) = run({"x": image}).values()
        wrong, total = wrong + min(_edits(_decoded(scores[0]), text), len(text)), total + len(text)
    return 100.0 * (1.0 - wrong / total)


def _decoded(scores: Array) -> str:
    """Greedy CTC: the best class of each step, repeats merged, blanks left out."""
    best = [int(each) for each, _ in itertools.groupby(scores.argmax(-1).tolist())]
    return "".join(str(each) for each in best if each != BLANK)


def _edits(found: str, wanted: str) -> int:
    """The Levenshtein distance."""
    row = list(range(len(wanted) + 1))
    for i, mine in enumerate(found, 1):
        row, before = [i], row
        for j, other in enumerate(wanted, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (mine != other)))
    return row[-1]


def voices(seconds: float, seed: int) -> Array:
    """Noise with bursts of harmonics, shaped by three resonances, as voices have them: float32 samples."""
    rng, size = np.random.default_rng(seed), int(RATE * seconds)
    signal = rng.standard_normal(size) * 0.003
    start = 0.3
    while start + 1.3 < seconds:
        length = rng.uniform(0.3, 1.2)
        time = np.arange(int(RATE * length)) / RATE
        pitch = rng.uniform(90, 220) * (1 + 0.1 * np.sin(2 * np.pi * rng.uniform(1, 4) * time))
        phase, peaks = 2 * np.pi * np.cumsum(pitch) / RATE, rng.uniform([300, 900, 2300], [800, 2200, 3000])
        burst = np.zeros_like(time)
        for harmonic in range(1, int(7000 / pitch.mean())):
            away = (harmonic * pitch.mean() - peaks) / (90, 120, 160)
            burst += (1 / (1 + away**2)).sum() / harmonic**0.3 * np.sin(harmonic * phase)
        burst *= np.abs(np.sin(2 * np.pi * rng.uniform(2, 4) * time)) ** 0.5
        begin = int(RATE * start)
        signal[begin : begin + len(time)] += 0.3 * burst / np.abs(burst).max()
        start += length + rng.uniform(0.3, 1.0)
    return signal.astype(np.float32)


def voice_steps(run: Run, seconds: float, seed: int) -> Iterator[tuple[dict[str, Array], float]]:
    """A stream through the detector of voices: the inputs of each call, and the probability of a voice."""
    signal, state = voices(seconds, seed), np.zeros((2, 1, 128), np.float32)
    for start in range(CONTEXT, len(signal) - CHUNK, CHUNK):
        inputs = {"input": signal[None, start - CONTEXT : start + CHUNK], "state": state}
        results = run(inputs)
        state = np.array(results["stateN"])
        yield inputs, float(results["output"].reshape(-1)[0])


def voice_agreement(run: Run, exact: Run, seconds: int) -> float:
    """F1 of the steps with a voice against those of the float model, each with its own state, in per cent."""
    mine, theirs = ([p > SPOKEN for _, p in voice_steps(each, seconds, 1)] for each in (run, exact))
    both = sum(a and b for a, b in zip(mine, theirs, strict=True))
    return 200.0 * both / max(sum(mine) + sum(theirs), 1)


def _calls(run: Run) -> Samples:
    """Every fifth call of a stream, without the batch axis that only the signal has."""
    taken = list(itertools.islice(voice_steps(run, 30.0, 0), 0, None, 5))
    return [{"input": inputs["input"][0], "state": inputs["state"]} for inputs, _ in taken]


SEQUENCE_TASKS = (
    SequenceTask(
        "nnsplit_en_old",
        WILD / "nnsplit_en_old.onnx",
        "F1 of sentences, %",
        lambda _: [{"input": text[0]} for text, _ in texts(16, 0)],
        sentence_f1,
        100,
    ),
    SequenceTask(
        "kaptch_captcha",
        WILD / "kaptch_captcha.onnx",
        "digits, %",
        lambda _: [{"x": image[0]} for image, _ in digits(16, 0)],
        digit_accuracy,
        100,
    ),
    SequenceTask(
        "silero_vad_16k_op15",
        ZOO / "models/unlabelled/silero_vad_16k_op15.onnx",
        "F1 with float, %",
        _calls,
        voice_agreement,
        60,
        labelled=False,
        shapes={"input": (1, CONTEXT + CHUNK), "state": (2, 1, 128)},
        values={"sr": RATE},
    ),
)
"""A recurrent layer over text, one behind images of any width, and a stream that hands its state on."""
