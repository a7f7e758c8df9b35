"""Bars of several models as one SVG, with a ground of its own: legible on light and on dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _NAMES, _GAP, _ROOM = 960.0, 178.0, 14.0, 66.0
_BAR, _ROW, _TOP, _BOTTOM = 11.0, 52.0, 58.0, 12.0
_FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
_STYLE = """
    .ground { fill: #fbfaf9; } text { fill: #292524; font-size: 12px; }
    .title { font-weight: 600; font-size: 13px; } .small { fill: #57534e; font-size: 10.5px; }
    .a { fill: #a8a29e; } .b { fill: #c2703d; } .c { fill: #0f9488; }
    @media (prefers-color-scheme: dark) {
      .ground { fill: #1c1f26; } text { fill: #e7e5e4; } .small { fill: #b4aea9; }
      .a { fill: #78716c; } .b { fill: #d08a5a; } .c { fill: #2dbfb0; }
    }"""


@dataclass(frozen=True)
class Bar:
    """A bar. kind: "a", "b" or "c", which colours it. share: its length, 0 to 1. text: stands behind it."""

    kind: str
    share: float
    text: str


@dataclass(frozen=True)
class Group:
    """A row of the plot: a model, what it is, and the bars of each panel."""

    name: str
    what: str
    panels: Sequence[Sequence[Bar]]


def to_svg(title: str, panels: Sequence[str], key: Sequence[tuple[str, str]], rows: Sequence[Group]) -> str:
    """The plot. panels: titles of the columns. key: kind of bar, and what it stands for."""
    width = (_WIDTH - _NAMES - 10.0 - _GAP * (len(panels) - 1)) / len(panels)
    lefts = [_NAMES + index * (width + _GAP) for index in range(len(panels))]
    height = _TOP + _ROW * len(rows) + _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {height:g}" role="img" '
        f'aria-labelledby="t d" font-family="{_FONT}">',
        f'<title id="t">{escape(title)}</title>',
        f'<desc id="d">{escape(_in_words(panels, key, rows))}</desc>',
        f"<style>{_STYLE}\n</style>",
        f'<rect class="ground" width="{_WIDTH:g}" height="{height:g}" rx="8"/>',
        *_key(key),
        *(_text(left, 46.0, name, "title") for left, name in zip(lefts, panels, strict=True)),
    ]
    for index, row in enumerate(rows):
        top = _TOP + index * _ROW
        parts += [_text(12.0, top + 20.0, row.name, "title"), _text(12.0, top + 35.0, row.what, "small")]
        for left, bars in zip(lefts, row.panels, strict=True):
            start = top + (_ROW - len(bars) * (_BAR + 2.0)) / 2.0
            for place, bar in enumerate(bars):
                parts += _bar(left, start + place * (_BAR + 2.0), width - _ROOM, bar)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bar(left: float, top: float, room: float, bar: Bar) -> list[str]:
    length = max(1.0, room * min(max(bar.share, 0.0), 1.0))
    place = f'x="{left:.1f}" y="{top:.1f}" width="{length:.1f}" height="{_BAR:g}"'
    drawn = f'<rect class="{bar.kind}" {place} rx="2"/>'
    return [drawn, _text(left + length + 5.0, top + _BAR - 1.5, bar.text, "small")]


def _key(key: Sequence[tuple[str, str]]) -> list[str]:
    parts, left = [], 12.0
    for kind, name in key:
        parts.append(f'<rect class="{kind}" x="{left:.1f}" y="11" width="12" height="12" rx="2"/>')
        parts.append(_text(left + 18.0, 21.0, name, ""))
        left += 40.0 + 6.6 * len(name)
    return parts


def _text(left: float, base: float, text: str, kind: str) -> str:
    styled = f' class="{kind}"' if kind else ""
    return f'<text{styled} x="{left:.1f}" y="{base:.1f}">{escape(text)}</text>'


def _in_words(panels: Sequence[str], key: Sequence[tuple[str, str]], rows: Sequence[Group]) -> str:
    names = dict(key)
    return " ".join(
        f"{row.name}, {panel}: {', '.join(f'{names[bar.kind]} {bar.text}' for bar in bars)}."
        for row in rows
        for panel, bars in zip(panels, row.panels, strict=True)
    )
