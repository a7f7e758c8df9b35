"""Integers for weights chosen by what the layer computes, from data, and not each by itself."""

from qglow.quantization.reconstruction.rounding import Tensors, round_weights

__all__ = ["Tensors", "round_weights"]
