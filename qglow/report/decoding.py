"""Tokens per second and memory of language models that go on from a text, measured in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from qglow.core.errors import ModelError, UsageError
from qglow.core.memory import release_unused, resident_memory
from qglow.core.types import Array, Dimension
from qglow.display.blocks import Paragraph, Section, byte_count, table
from qglow.display.frames import frame
from qglow.display.lines import listed
from qglow.display.plots import draw_bars
from qglow.display.shown import Shown
from qglow.report.bench import Ratio
from qglow.report.oracle import ELEMENTS, open_session, session_options, where_of

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

Feeds = Callable[[Sequence[int], int, Mapping[str, np.dtype[np.generic]]], dict[str, Array]]
"""Inputs that are no states, for tokens behind so many others, in the types that are given by name."""
Dimensions = Mapping[str, Sequence[Dimension] | None]


class Decoder(Protocol):
    """A language model that keeps what it has read: `Generator` is one."""

    def reset(self) -> None:
        """Forget all tokens."""

    def read(self, tokens: Sequence[int]) -> Array:
        """Scores of the token behind these, which follow those before."""


class Session:
    """A session of onnxruntime, with the types of its inputs."""

    def __init__(self, model: Path | bytes, threads: int) -> None:
        """Raises ModelError where onnxruntime refuses the file."""
        self._session = open_session(model, session_options(threads), where_of(model))
        self.inputs = {value.name: value for value in self._session.get_inputs()}
        self.outputs = [value.name for value in self._session.get_outputs()]
        self.kinds = {name: np.dtype(ELEMENTS[v.type].dtype) for name, v in self.inputs.items()}

    def axes(self, name: str) -> int:
        """Axes of an input; 0 where there is none of this name."""
        return len(self.inputs[name].shape) if name in self.inputs else 0

    def run(
        self, feeds: Mapping[str, Array], outputs: list[str] | None, values: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Outputs by name for arrays and values of inputs, of which others are left out."""
        names = self.outputs if outputs is None else outputs
        given = {name: onnxruntime_value(array) for name, array in feeds.items() if name in self.inputs}
        given |= {name: value for name, value in (values or {}).items() if name in self.inputs}
        return dict(zip(names, self._session.run_with_ort_values(names, given), strict=True))

    def nothing(self, names: Iterable[str], known: Dimensions | None = None) -> dict[str, Any]:
        """Zeros for some inputs; none along axes that nothing gives a number, but for the batch.

        known: dimensions by name of an input; those of the others are the file's.
        """
        made = {}
        for name in names:
            shape = enumerate((known or {}).get(name) or self.inputs[name].shape)
            sizes = [size if isinstance(size, int) else int(axis == 0) for axis, size in shape]
            made[name] = onnxruntime_value(np.zeros(sizes, self.kinds[name]))
        return made


class OnnxruntimeDecoder:
    """A language model with a cache in onnxruntime, which keeps the cache in its own memory."""

    def __init__(
        self,
        model: Path | bytes,
        states: Mapping[str, str],
        scores: str,
        feeds: Feeds,
        threads: int = 1,
        dimensions: Dimensions | None = None,
    ) -> None:
        """states: outputs by the input that reads them in the next call. scores: the output of `read`.

        dimensions: of inputs by name, where more is known of them than the file says. Raises ModelError where
        onnxruntime refuses the file.
        """
        self._session = Session(model, threads)
        self._states, self._scores, self._feeds = dict(states), scores, feeds
        self._dimensions = dimensions
        self._kept: dict[str, Any] = {}
        self._past = 0
        self.reset()

    def reset(self) -> None:
        """Forget all tokens; states are empty along axes that nothing gives a number, but for the batch."""
        self._past, self._kept = 0, self._session.nothing(self._states, self._dimensions)

    def read(self, tokens: Sequence[int]) -> Array:
        """Scores of the token behind these."""
        feeds = self._feeds(tokens, self._past, self._session.kinds)
        found = self._session.run(feeds, [self._scores, *self._states.values()], self._kept)
        self._kept = {name: found[output] for name, output in self._states.items()}
        self._past += len(tokens)
        return np.asarray(found[self._scores].numpy()[0, -1])


class SingleDecoder:
    """A language model that reads one token a call, as its file fixes it."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def reset(self) -> None:
        """Forget all tokens."""
        self._decoder.reset()

    def read(self, tokens: Sequence[int]) -> Array:
        """Scores of the token behind these, which are read one by one."""
        *before, last = tokens
        for token in before:
            self._decoder.read([token])
        return self._decoder.read([last])


def onnxruntime_value(array: Array) -> Any:
    """An array as onnxruntime holds it."""
    import onnxruntime

    return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))


@dataclass(frozen=True, slots=True)
class DecodingSpeed:
    """Medians of tokens per second that a program reads and adds; bytes that it and its states take."""

    name: str
    prefill: float
    decode: float
    memory: int


@dataclass(frozen=True, repr=False)
class DecodingResult(Shown):
    """Speeds of programs that took turns.

    prefill, decode: tokens of a text, and those that were added. prefill_s, decode_s: seconds
    [programs, texts], rows in the order of `speeds`. threads: how many each program may use. refused: why
    rivals did not take part, by name. rounded: products whose rows onnxruntime rounds to int8, as the file
    allows, where qglow computes with the reals.
    """

    speeds: dict[str, DecodingSpeed]
    prefill: int
    decode: int
    prefill_s: Array
    decode_s: Array
    threads: int
    refused: dict[str, str] = field(default_factory=dict)
    rounded: int = 0

    def __repr__(self) -> str:
        speeds = listed((f"{x.name} {x.decode:.1f} tokens/s" for x in self.speeds.values()), most=8)
        return f"DecodingResult({speeds}; {self.prefill} read, {self.decode} added)"

    def _sections(self) -> tuple[Section, ...]:
        return (decoding_section(self),)

    def to_frame(self) -> pandas.DataFrame:
        """One row for each program, tokens per second. Raises UsageError if pandas is not installed."""
        rows = ((x.name, x.prefill, x.decode, x.memory) for x in self.speeds.values())
        return frame(("program", "prefill", "decode", "memory"), rows)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the tokens per second that each program adds, into `axes` or a new figure.

        Raises UsageError if matplotlib is not installed.
        """
        speeds = [x.decode for x in self.speeds.values()]
        return draw_bars(axes, list(self.speeds), {"decode": speeds}, "tokens added per second")

    def ratio(self, name: str, base: str, part: str = "decode") -> Ratio:
        """Time of `name` relative to `base` to decode, or to `prefill`; below 1 is faster."""
        names = list(self.speeds)
        seconds = self.prefill_s if part == "prefill" else self.decode_s
        one, other = seconds[names.index(name)], seconds[names.index(base)]
        low, high = np.percentile(one / other, [10, 90])
        return Ratio(name, base, float(np.median(one) / np.median(other)), float(low), float(high))


def measure_decoding(
    programs: Mapping[str, Callable[[], Decoder]],
    draw: Callable[[], Sequence[int]],
    prefill: int,
    texts: int,
    *,
    threads: int,
    optional: Collection[str] = (),
    advance: Callable[[int], None] = lambda done: None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> DecodingResult:
    """Let every program read the first `prefill` tokens of a text at once, and then the others one by one.

    programs: by name, each a function that makes it ready, one after the other: its memory is by how much
    that of this process has grown when it has read a text. draw: gives the text, when the first program is
    ready. optional: programs without which the others are measured where they raise ModelError. Programs
    take turns, text by text. Raises UsageError for no programs.
    """
    if not programs:
        raise UsageError("decoding is measured with at least one program")
    memory: dict[str, int] = {}
    ready: dict[str, Decoder] = {}
    refused: dict[str, str] = {}
    tokens: Sequence[int] = ()
    for name, make in programs.items():
        before = _held()
        try:
            ready[name] = make()
        except ModelError as error:
            if name not in optional:
                raise
            refused[name] = str(error)
            continue
        tokens = tokens or draw()
        _timed(ready[name], tokens, prefill, clock)
        memory[name] = max(0, _held() - before)
    seconds = np.zeros((2, len(ready), texts))
    for text in range(texts):
        for row, decoder in enumerate(ready.values()):
            seconds[:, row, text] = _timed(decoder, tokens, prefill, clock)
        advance(1)
    medians = np.median(seconds, axis=2)
    speeds = {
        name: DecodingSpeed(
            name,
            float(prefill / medians[0, row]),
            float((len(tokens) - prefill) / medians[1, row]),
            memory[name],
        )
        for row, name in enumerate(ready)
    }
    added = len(tokens) - prefill
    return DecodingResult(speeds, prefill, added, seconds[0], seconds[1], threads, refused)


def decoding_section(result: DecodingResult) -> Section:
    """Tokens per second and memory, and how many times as long each program takes as the first."""
    base = next(iter(result.speeds))
    rows = []
    for name, speed in result.speeds.items():
        ratios = [result.ratio(name, base, part).ratio for part in ("prefill", "decode")]
        rows.append(
            (
                name,
                f"{speed.prefill:.0f}",
                f"{speed.decode:.1f}",
                byte_count(speed.memory),
                *("1" if name == base else f"{ratio:.2f}" for ratio in ratios),
            )
        )
    titles = (
        "program",
        "prefill, tokens/s>",
        "decode, tokens/s>",
        "memory>",
        f"prefill, time relative to {base}>",
        "decode>",
    )
    threads = "one thread" if result.threads == 1 else f"up to {result.threads} threads"
    texts = result.decode_s.shape[1]
    caption = f"{result.prefill} tokens read, {result.decode} added one by one, {texts} texts, {threads}"
    notes = [Paragraph(f"{name} did not take part: {reason}") for name, reason in result.refused.items()]
    if result.rounded:
        products = "one product" if result.rounded == 1 else f"{result.rounded} products"
        notes.append(
            Paragraph(
                f"The file lets onnxruntime round the rows of {products} to int8 (accuracy_level 4), which "
                "is quicker for many rows; qglow does so in a model of `qglow quantize --dynamic`."
            )
        )
    return Section("Decoding", (table(titles, rows, caption), *notes))


def _timed(
    decoder: Decoder, tokens: Sequence[int], prefill: int, clock: Callable[[], int]
) -> tuple[float, float]:
    """Seconds to read the first tokens, and to read all others one by one."""
    decoder.reset()
    start = clock()
    decoder.read(tokens[:prefill])
    middle = clock()
    for token in tokens[prefill:]:
        decoder.read([token])
    return (middle - start) / 1e9, (clock() - middle) / 1e9


def _held() -> int:
    """Bytes that this process holds, without what its allocator keeps for later."""
    release_unused()
    return resident_memory()
