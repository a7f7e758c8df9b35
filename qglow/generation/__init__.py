"""Text generation with language models: roles of inputs, a cache of keys and values, sampling."""

from __future__ import annotations

from qglow.generation.generator import Generator
from qglow.generation.roles import Roles, find_roles, pair_states, scores_output
from qglow.generation.sampling import TokenSampling

__all__ = ["Generator", "Roles", "TokenSampling", "find_roles", "pair_states", "scores_output"]
