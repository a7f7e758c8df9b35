"""Imports of all modules with kernels, which declare themselves when imported."""

from __future__ import annotations

from qglow.kernels.attention import blocked as blocked
from qglow.kernels.convolution import conv as conv
from qglow.kernels.convolution import depthwise as depthwise
from qglow.kernels.convolution import depthwise_float as depthwise_float
from qglow.kernels.elementwise import affine as affine
from qglow.kernels.elementwise import elementwise as elementwise
from qglow.kernels.movement import control as control
from qglow.kernels.movement import copy as copy
from qglow.kernels.movement import gather as gather
from qglow.kernels.movement import gather_packed as gather_packed
from qglow.kernels.movement import hosted as hosted
from qglow.kernels.movement import insert_at as insert_at
from qglow.kernels.movement import resize as resize
from qglow.kernels.movement import transpose as transpose
from qglow.kernels.pooling import pool as pool
from qglow.kernels.products import blocks as blocks
from qglow.kernels.products import experts as experts
from qglow.kernels.products import integer_blocks as integer_blocks
from qglow.kernels.products import integer_experts as integer_experts
from qglow.kernels.products import linear as linear
from qglow.kernels.products import matmul as matmul
from qglow.kernels.products import matmul_int8 as matmul_int8
from qglow.kernels.products import one_row_blocks as one_row_blocks
from qglow.kernels.products import recurrence as recurrence
from qglow.kernels.products import unpacked_blocks as unpacked_blocks
from qglow.kernels.reduction import normalization as normalization
from qglow.kernels.reduction import profile as profile
from qglow.kernels.reduction import ranking as ranking
from qglow.kernels.reduction import reduce as reduce
from qglow.kernels.reduction import rows as rows
from qglow.kernels.reduction import running_sum as running_sum
from qglow.kernels.reduction import softmax as softmax
from qglow.kernels.reduction import standardize as standardize
