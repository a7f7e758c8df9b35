"""Rounding of weights that minimizes the error of a layer's result on data, not of each weight alone."""

from qglow.quantization.reconstruction.blocks import block_products_of, round_blocks
from qglow.quantization.reconstruction.rounding import Tensors, round_weights
from qglow.quantization.reconstruction.scaled_inputs import scale_inputs

__all__ = ["Tensors", "block_products_of", "round_blocks", "round_weights", "scale_inputs"]
