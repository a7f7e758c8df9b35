"""A model file as a canonical float graph, ready to be compiled, profiled and quantized."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qglow.core.batch import batch_of, common_batch, may_be_batch
from qglow.core.errors import ModelError, ProfileError, UsageError
from qglow.core.inputs import note_input
from qglow.core.kept_imports import KeptImports
from qglow.core.model_place import ModelPlace
from qglow.core.passes import LogEntry, parse_pipeline
from qglow.core.types import Dimension, Given, Shape, TensorType
from qglow.graph.graph import Graph, mark_unsigned, typed_outputs, unsigned_interface, untyped_outputs
from qglow.graph.verifier import verify_graph
from qglow.passes import ALL_PASSES, canonical_pipeline
from qglow.profiling.profile import ModelReference, Profile
from qglow.quantization.given import carries_parameters


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """An ONNX model with static shapes, its graph after `passes`.

    place: the file or the bytes. sha256: of the bytes. opset: of the model. bound: sentences on dimensions
    that were bound without being asked for. passes: the pipeline as text. log: what its passes did and did
    not do. native: whether nodes that qglow does not know were refused. values: inputs that were given and
    are constants. given: shapes that the caller gave. dimensions: those that the model declares, by input.
    output_dimensions: those that it declares by output.
    """

    place: ModelPlace
    sha256: str
    opset: int
    bound: tuple[str, ...]
    passes: str
    graph: Graph
    log: tuple[LogEntry, ...] = ()
    native: bool = False
    values: Mapping[str, Given] = field(default_factory=dict)
    given: Mapping[str, Shape] = field(default_factory=dict)
    dimensions: Mapping[str, Sequence[Dimension] | None] = field(default_factory=dict)
    output_dimensions: Mapping[str, Sequence[Dimension] | None] = field(default_factory=dict)

    @property
    def has_symbols(self) -> bool:
        """Whether the file leaves dimensions of inputs open."""
        return bool(self._open_inputs())

    @property
    def is_free(self) -> bool:
        """Whether the file leaves dimensions open that the caller has not bound."""
        return any(name not in self.given for name in self._open_inputs())

    def _open_inputs(self) -> list[str]:
        return [name for name, d in self.dimensions.items() if d is None or not all(map(_is_number, d))]

    @property
    def open_output_axes(self) -> dict[str, frozenset[int]]:
        """Axes of the outputs whose size the data decides, by name.

        They are those that the file states no number for, where it leaves more of the inputs open than
        their batch; with inputs of fixed sizes it could have stated all.
        """
        if all(dims is not None and all(map(_is_number, dims[1:])) for dims in self.dimensions.values()):
            return {}
        return {
            value.name: frozenset(_open_axes(self.output_dimensions.get(value.name), value.type))
            for value in self.graph.outputs
        }

    @property
    def source(self) -> ModelReference:
        """The model that profiles and quantized models refer to."""
        return ModelReference(self.place, self.sha256, self.values)

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Names and types of the inputs, in the model's order."""
        return {value.name: value.type for value in self.graph.inputs}

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Names and types of the outputs with static types, in the model's order."""
        return typed_outputs(self.graph)

    @property
    def untyped_outputs(self) -> tuple[str, ...]:
        """Names of the outputs whose shapes data decides."""
        return untyped_outputs(self.graph)

    @property
    def shapes(self) -> dict[str, Shape]:
        """Shapes of the inputs by name, the batch first."""
        return {name: kind.shape for name, kind in self.inputs.items()}

    @property
    def is_quantized(self) -> bool:
        """Whether the model brings its own quantization parameters."""
        return carries_parameters(self.graph)

    @property
    def batch_size(self) -> int:
        """The common first dimension of the inputs; 1 if there is none."""
        return batch_of(self.shapes)

    def with_batch(self, batch: int) -> LoadedModel:
        """The same model with another batch size; values keep their names.

        Raises UsageError if the file fixes the batch, ModelError if the file has changed.
        """
        if batch == self.batch_size:
            return self
        if common_batch(self.shapes) is None:
            listed = ", ".join(f"'{name}' {list(shape)}" for name, shape in self.shapes.items())
            raise UsageError(f"batch {batch}: the inputs have no common first dimension, the batch: {listed}")
        for name, sizes in self.dimensions.items():
            if sizes is not None and not isinstance(sizes[0], int) and not may_be_batch(sizes):
                raise UsageError(
                    f"batch {batch}: '{sizes[0]}', the first dimension of '{name}', counts no samples"
                )
        shapes = {name: (batch, *shape[1:]) for name, shape in self.shapes.items()}
        try:
            model = read_model(self.place, shapes, self.passes, self.native, self.values)
        except UsageError as error:
            raise UsageError(f"batch {batch} does not fit: {error}") from error
        if model.sha256 != self.sha256:
            raise ModelError(f"{self.place} has changed since it was loaded; load it again")
        return model

    def with_profiled_batch(self) -> LoadedModel:
        """The model with batch 1, or with its own where the file fixes that: profiles are keyed by it."""
        if self.batch_size == 1:
            return self
        try:
            return self.with_batch(1)
        except UsageError:
            return self

    def graph_for_batch(self, batch: int) -> Graph:
        """The graph for a batch size. Raises what `with_batch` does."""
        return self.with_batch(batch).graph


def read_model(
    place: ModelPlace,
    shapes: Mapping[str, Sequence[int]] | None = None,
    passes: str | None = None,
    native: bool = False,
    values: Mapping[str, Given] | None = None,
    kept: KeptImports | None = None,
) -> LoadedModel:
    """Import an ONNX model and run a pipeline over its graph (default: the one that makes it canonical).

    native: whether nodes that qglow does not know are refused instead of left to onnxruntime.
    values: inputs that become constants. kept: what other imports of the same file made of it.

    Raises ModelError, UnsupportedError, UsageError for shapes, values or a pipeline that do not fit,
    UnboundError where dimensions are free, and UndecidedError where values are missing.
    """
    from qglow.importer import import_model  # needs onnx, which running int8 programs does without

    if isinstance(place, Path):
        note_input(place)
    imported = import_model(place, shapes, native=native, values=values, kept=kept)
    pipeline = canonical_pipeline() if passes is None else parse_pipeline(passes, ALL_PASSES)
    graph = imported.graph
    unsigned = unsigned_interface(graph)
    log = pipeline.run(graph, verify_graph)
    mark_unsigned(graph, unsigned)
    bound = imported.bound_dimensions
    return LoadedModel(
        place,
        imported.digest,
        imported.opset,
        bound,
        str(pipeline),
        graph,
        tuple(log.entries),
        native,
        dict(values or {}),
        {name: tuple(int(size) for size in shape) for name, shape in (shapes or {}).items()},
        imported.dimensions,
        imported.output_dimensions,
    )


def _open_axes(declared: Sequence[Dimension] | None, kind: TensorType) -> Iterator[int]:
    """The axes of an output that the file states no number for."""
    for axis in range(len(kind.shape)):
        if declared is None or len(declared) != len(kind.shape) or not _is_number(declared[axis]):
            yield axis


def _is_number(dimension: Dimension) -> bool:
    return isinstance(dimension, int)


def read_profiled_model(profile: Profile, place: ModelPlace | None = None) -> LoadedModel:
    """The model of a profile, with its shapes and values; `place` says where it is now, if it has moved.

    Raises ModelError if it is missing, ProfileError if it is another model.
    """
    place = profile.model.required if place is None else place
    if isinstance(place, Path) and not place.exists():
        raise ModelError(f"the profile was taken of {place}, which is missing; say where it is (`model`)")
    try:
        return read_model(place, profile.shapes, values=profile.model.values)
    except UsageError as error:
        raise ProfileError(f"the profile was taken of another model than {place}: {error}") from error
