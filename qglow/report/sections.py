"""Sections of a document for each result: comparison, latency, model, settings, layers."""

from __future__ import annotations

from qglow.display.blocks import (
    Block,
    Listing,
    Paragraph,
    Section,
    facts,
)


def model_section(file: str, pairs: list[tuple[str, str]]) -> Section:
    """Section that names the model's file, with further facts."""
    return Section("Model", (facts([("file", file), *pairs]),))


def settings_section(recipe: str, pipeline: str) -> Section:
    """The effective recipe and the passes, as they can be given again."""
    blocks: list[Block] = [Paragraph("Effective recipe:"), Listing(recipe)] if recipe else []
    if pipeline:
        blocks += [Paragraph("Graph passes:"), Listing(pipeline)]
    return Section("Settings", tuple(blocks))
