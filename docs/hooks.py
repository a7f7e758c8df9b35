"""MkDocs hook: replaces comments `<!-- generated: NAME ARGUMENT -->` by text that is made from the code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from reference_text import expand  # a sibling, wherever MkDocs is started


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with its generated parts."""
    return expand(markdown)
