"""Text generation with language models: roles of inputs, a cache of keys and values, sampling."""

from __future__ import annotations

from qglow.generation.generator import Generator
from qglow.generation.roles import (
    Roles,
    ascending_bounds,
    find_branch,
    find_roles,
    like_named,
    pair_states,
    scores_output,
)
from qglow.generation.sampling import TokenSampling
from qglow.generation.source import EncoderReader

__all__ = [
    "Generator",
    "Roles",
    "EncoderReader",
    "TokenSampling",
    "ascending_bounds",
    "find_branch",
    "find_roles",
    "like_named",
    "pair_states",
    "scores_output",
]
