"""All operators, one file a family; importing this package registers them."""

from qglow.graph.ops import (
    conv,
    elementwise,
    linear,
    normalization,
    pool,
    quantize,
    resize,
    shape,
    softmax,
)

__all__ = ["conv", "elementwise", "linear", "normalization", "pool", "quantize", "resize", "shape", "softmax"]
