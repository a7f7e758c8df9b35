"""Which scalar functions there are, whatever is imported first."""

from __future__ import annotations

import subprocess
import sys

from qglow.graph.operator import OPERATORS
from qglow.graph.ops.functions import Function

ALONE = "from qglow.instructions.ops.functions import FUNCTIONS; print(*sorted(FUNCTIONS))"


def test_instructions_alone_know_every_function_of_graphs() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    wanted = {cls.opcode for cls in OPERATORS.values() if issubclass(cls, Function)}
    assert {"sine", "exp"} <= wanted <= set(done.stdout.split())
