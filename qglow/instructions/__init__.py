"""The low-level IR: buffers and the instructions that read and write them.

Importing the package registers every operation with the text parser.
"""

from __future__ import annotations

from qglow.instructions import ops
from qglow.instructions.operation import OPERATIONS, Access, Operation
from qglow.instructions.program import Buffer, BufferKind, Instruction, Program

__all__ = ["OPERATIONS", "Access", "Buffer", "BufferKind", "Instruction", "Operation", "Program", "ops"]
