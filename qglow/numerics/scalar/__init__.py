"""Functions of numbers, written once over a small algebra: float32 and int32 operations, one at a time.

A meaning (polynomials, clamps, half, and the declared functions of elementary, angles and activations) takes
and returns `Real`s of algebra.py. What a Real is, an evaluator says: arrays.py computes with numpy,
c_source.py writes C, and the kernels emit LLVM. So all of them do the same operations in the same order
(rule 8 of the numeric contract) and give the same bits. Importing the package declares every function.
"""

from __future__ import annotations

from qglow.numerics.scalar import activations, angles, elementary

__all__ = ["activations", "angles", "elementary"]
