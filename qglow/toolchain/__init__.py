"""Joins the stages: graph to running code, and the compiled engine that profiles.

Every stage knows only the ones below it; this package is the one that calls them in order. Artefacts are
loaded without most of them, so its names import a stage when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qglow.core.lazy import lazy_names

if TYPE_CHECKING:
    from qglow.toolchain.compilation import (
        compile_graph,
        compile_lowered,
        compile_whole,
        lower_graph,
        selected_program,
    )
    from qglow.toolchain.engine import CompiledEngine
    from qglow.toolchain.options import CompileOptions

__all__ = [
    "CompileOptions",
    "CompiledEngine",
    "compile_graph",
    "compile_lowered",
    "compile_whole",
    "lower_graph",
    "selected_program",
]

_MODULES = {
    "CompileOptions": "options",
    "CompiledEngine": "engine",
    "compile_graph": "compilation",
    "compile_lowered": "compilation",
    "compile_whole": "compilation",
    "lower_graph": "compilation",
    "selected_program": "compilation",
}
__getattr__ = lazy_names(__name__, _MODULES)
