"""An executable with the nodes behind it whose results have a shape that data decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from qglow.core.errors import UnsupportedError
from qglow.core.types import Array, TensorType
from qglow.host.session import prepare, require_host
from qglow.host.tail import HostedTail
from qglow.runtime.delegating import DelegatingExecutable
from qglow.runtime.executable import Executable


class TailedExecutable(DelegatingExecutable):
    """A program, and a tail that onnxruntime runs on what it takes and gives.

    A call gives all outputs of the model. `outputs` has those of static types; `untyped_outputs` names the
    others, whose shapes data decides. `bind` is refused, because such outputs fit no array. `program`, sizes
    and activations are those of the program.
    """

    def __init__(self, program: Executable, tail: HostedTail) -> None:
        """Raise UsageError where onnxruntime is missing, ModelError for nodes that it refuses."""
        require_host(tail.nodes)
        prepare(tail.model, program.threads)
        self._program = program
        self._tail = tail

    @property
    def _one(self) -> Executable:
        return self._program

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Names and types of the outputs with static types, in the model's order."""
        given = self._program.outputs
        return {name: given[name] for name in self._tail.outputs if name in given}

    @property
    def untyped_outputs(self) -> tuple[str, ...]:
        """Names of the outputs whose shapes data decides."""
        return tuple(name for name in self._tail.outputs if name in self._tail.results)

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once. Raises DataError for missing, unknown or misshapen inputs."""
        return self._tail.completed(inputs, self._program(inputs), self.threads)

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Callable[[], None]:
        """Refuse to bind arrays. Raises UnsupportedError."""
        raise UnsupportedError(
            f"data decides the shape of output '{self._tail.results[0]}', so that no array can be bound to "
            "it; call the program, or end the model before it (qglow cut)"
        )


def with_tail(program: Executable, tail: HostedTail | None) -> Executable:
    """The program, with a tail where the model has one. Raises as `TailedExecutable`."""
    return program if tail is None else TailedExecutable(program, tail)
