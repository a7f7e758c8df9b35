"""A report as sections, independent of the format it is shown in."""

from __future__ import annotations

from dataclasses import dataclass

from qglow.display.blocks import Section
from qglow.display.fragment import to_fragment
from qglow.display.node_panel import NodePanel


@dataclass(frozen=True, slots=True, repr=False)
class Document:
    """Title and sections of a report, in order. nodes: of the graph that it is about, for pages."""

    title: str
    sections: tuple[Section, ...]
    nodes: tuple[NodePanel, ...] = ()

    def __repr__(self) -> str:
        return f"Document({self.title!r}: {', '.join(section.title for section in self.sections)})"

    def _repr_html_(self) -> str:
        return to_fragment(self.sections)
