"""Importing this module declares every kernel."""

from __future__ import annotations

from qglow.kernels import affine as affine
from qglow.kernels import amx_kernels as amx_kernels
from qglow.kernels import conv as conv
from qglow.kernels import copy as copy
from qglow.kernels import depthwise as depthwise
from qglow.kernels import depthwise_float as depthwise_float
from qglow.kernels import elementwise as elementwise
from qglow.kernels import gather as gather
from qglow.kernels import linear as linear
from qglow.kernels import listed as listed
from qglow.kernels import matmul as matmul
from qglow.kernels import matmul_int8 as matmul_int8
from qglow.kernels import normalization as normalization
from qglow.kernels import pool as pool
from qglow.kernels import profile as profile
from qglow.kernels import ranking as ranking
from qglow.kernels import reduce as reduce
from qglow.kernels import resize as resize
from qglow.kernels import softmax as softmax
from qglow.kernels import transpose as transpose
