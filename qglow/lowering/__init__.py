"""The waist: graph to instructions. The one package that sees both IRs.

`lower(graph, backend)` decomposes operators that the back end does not want whole, orders
the nodes for peak memory, chooses the axis order of every tensor and emits instructions.
"""

from qglow.lowering.backend import CPU, REFERENCE, Backend
from qglow.lowering.lower import lower

__all__ = ["CPU", "REFERENCE", "Backend", "lower"]
