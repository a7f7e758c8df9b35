"""Joins the stages: graph to running code, and the compiled engine that profiles.

Every stage knows only the ones below it; this package is the one that calls them in order.
"""

from qglow.toolchain.compilation import CompileOptions, compile_graph, compile_lowered, lower_graph
from qglow.toolchain.engine import CompiledEngine

__all__ = ["CompileOptions", "CompiledEngine", "compile_graph", "compile_lowered", "lower_graph"]
