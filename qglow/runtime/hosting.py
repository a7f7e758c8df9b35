"""Calls from machine code to Python, for the nodes of a program that onnxruntime executes.

An entry of a program with such nodes finds two more addresses at the end of its table: those of a function
and of the call's number, which it hands on in the tables of bodies. The function is given the number of the
node, the addresses of its results and arguments, and the number of the call. It runs on the thread that
reached the node. An exception cannot cross machine code: it is kept, results are zeros, and whoever started
the call raises it afterwards.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qglow.core.types import Array, Shape
from qglow.host.clock import in_host
from qglow.host.nodes import HostedNodes
from qglow.host.session import require_host
from qglow.instructions.ops.hosted import HostCall
from qglow.instructions.program import Program

_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64)


@dataclass(frozen=True)
class HostedNode:
    """A node that the host runs, with the name of the instruction."""

    name: str
    nodes: HostedNodes

    def to_plain(self) -> dict[str, object]:
        """Entry of a manifest."""
        nodes = self.nodes
        return {
            "name": self.name,
            "kinds": nodes.kinds,
            "model": nodes.model,
            "arguments": list(nodes.arguments),
            "results": list(nodes.results),
        }

    @staticmethod
    def from_plain(plain: Mapping[str, object]) -> HostedNode:
        """The inverse of `to_plain`. Raises KeyError, TypeError or ValueError for what is none."""
        arguments, results = plain["arguments"], plain["results"]
        if not isinstance(arguments, list) or not isinstance(results, list):
            raise TypeError("arguments and results of a node are lists")
        nodes = HostedNodes(str(plain["kinds"]), str(plain["model"]), tuple(arguments), tuple(results))
        return HostedNode(str(plain["name"]), nodes)


def hosted_nodes(program: Program) -> tuple[HostedNode, ...]:
    """The nodes of a program that the host runs, in the order of its instructions, which numbers them.

    Those of the programs inside of an instruction follow it.
    """
    found: list[HostedNode] = []
    for instruction in program.code:
        if isinstance(instruction.operation, HostCall):
            found.append(HostedNode(instruction.name, instruction.operation.nodes))
        for body in instruction.operation.bodies:
            found += hosted_nodes(body)
    return tuple(found)


class Host:
    """The function that machine code calls, and the exceptions of calls under way."""

    def __init__(self, hosted: Sequence[HostedNode], threads: int = 1) -> None:
        """threads: the most that one node runs on.

        Raises UsageError where onnxruntime is missing, ModelError for nodes that it refuses.
        """
        if hosted:
            require_host([node.name for node in hosted])
        self._hosted = [_Prepared.of(node.nodes, threads) for node in hosted]
        self._failed: dict[int, BaseException] = {}
        self._numbers = itertools.count(1)
        self._callback = _CALLBACK(self._call)
        self._address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def addresses(self) -> list[int]:
        """Addresses for the end of the table of a new call: none for a program without such nodes."""
        return [self._address, next(self._numbers)] if self._hosted else []

    def checked(self, addresses: Sequence[int], run: Callable[[], None]) -> Callable[[], None]:
        """`run`, which then raises what its nodes have raised. `addresses` are those of its table's end."""
        if not addresses:
            return run
        number = addresses[1]

        def call() -> None:
            run()
            error = self._failed.pop(number, None)
            if error is not None:
                raise error

        return call

    def _call(self, node: int, operands: int, call: int) -> None:
        with in_host():
            self._run(node, operands, call)

    def _run(self, node: int, operands: int, call: int) -> None:
        results: list[Array] = []
        try:
            prepared = self._hosted[node]
            arrays = prepared.arrays(operands)
            results, arguments = arrays[: prepared.results], arrays[prepared.results :]
            if call not in self._failed:
                for target, result in zip(results, prepared.run(arguments), strict=True):
                    target[...] = result
                return
        except BaseException as error:
            self._failed[call] = error
        for target in results:
            target[...] = 0


@dataclass(frozen=True)
class _Prepared:
    """Nodes that are ready to run on memory at addresses.

    operands: type of the addresses of all operands, results first. places: for each operand, the type of its
    memory, its shape, and its elements.
    """

    run: Callable[[Sequence[Array]], Sequence[Array]]
    results: int
    operands: Any
    places: tuple[tuple[Any, Shape, np.dtype[Any]], ...]

    @staticmethod
    def of(nodes: HostedNodes, threads: int) -> _Prepared:
        kinds = (*nodes.result_types, *nodes.argument_types)
        places = tuple((ctypes.c_uint8 * kind.byte_size, kind.shape, kind.element.dtype) for kind in kinds)
        return _Prepared(nodes.prepared(threads), len(nodes.results), ctypes.c_void_p * len(kinds), places)

    def arrays(self, operands: int) -> list[Array]:
        """Memory of the operands, whose addresses lie at an address, as arrays."""
        pointers = self.operands.from_address(operands)
        return [
            np.ndarray(shape, dtype, memory.from_address(pointer or 0))
            for pointer, (memory, shape, dtype) in zip(pointers, self.places, strict=True)
        ]
