"""The high-level IR: declarations of operators, values and nodes, text, rewriting, interpreter.

Importing the package registers every operator.
"""

from qglow.graph import ops
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.operator import OPERATORS, Operator

__all__ = ["OPERATORS", "Graph", "Node", "Operator", "Value", "constant", "ops"]
