"""Graph to graph: one pass a file, and the pipeline that makes a graph canonical."""

from qglow.passes.pipeline import ALL_PASSES, canonical_pipeline, canonicalize

__all__ = ["ALL_PASSES", "canonical_pipeline", "canonicalize"]
