"""Nodes of a graph as a reader sees them: a box in a drawing, and the panel that a click on it opens."""

from __future__ import annotations

from dataclasses import dataclass

_COLOURS = {
    "int8": "int8",
    "int16": "int16",
    "float32": "float",
    "float16": "half",
    "bfloat16": "half",
    "onnxruntime": "hosted",
    "conversion": "conversion",
}


@dataclass(frozen=True, slots=True)
class ChannelPlot:
    """Ranges and scales of a constant by channel: the smallest and largest real, and the scale, of each.

    channels: number of channels; where that is larger than the number of entries, each entry is for several
    that follow one another, and has the widest range and the largest scale of them.
    """

    name: str
    channels: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    scale: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class NodePanel:
    """Facts of a node that is drawn.

    results: names of the values that it gives. shape: of the first of them. precision: a word, such as int8.
    moves: whether it only moves data. region: number of its int8 region, from 1; 0 for none. db: SQNR of
    its result in dB; None if unknown. error: the same in words. facts: names and texts, for people.
    histograms: of its values, as numbers in the document's gallery. weights: its constants by channel.
    sources, targets: nodes before and behind it, by their numbers.
    """

    name: str
    operator: str
    results: tuple[str, ...]
    shape: str
    precision: str
    moves: bool = False
    region: int = 0
    db: float | None = None
    error: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    histograms: tuple[int, ...] = ()
    weights: tuple[ChannelPlot, ...] = ()
    sources: tuple[int, ...] = ()
    targets: tuple[int, ...] = ()

    @property
    def colour(self) -> str:
        """Name of the colour that stands for its precision."""
        return _COLOURS.get(self.precision, "other")
