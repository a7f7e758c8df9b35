"""A quantized model as ONNX with the dimensions that the float model leaves open.

The int8 graph is had for a few other sizes, and one model is made of the exports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations

import numpy as np

from qglow.artefacts.replay import graph_at
from qglow.core.errors import DataError, MemoryLimitError, ModelError, UnsupportedError, UsageError
from qglow.core.kept_imports import KeptImports
from qglow.core.memory import release_after
from qglow.core.types import Array, Dimension, Quantization, Shape
from qglow.exporter import FiledModel, export_qdq, filed, quantized_constants, quantized_value_names
from qglow.exporter.apart import DataApart
from qglow.exporter.lasting import Parts
from qglow.exporter.ranged import FORMS, Ranged
from qglow.exporter.sized_parts import SizedPart, SizeList
from qglow.exporter.sizes import AmbiguityError
from qglow.exporter.unify import SizedModel, StructureError, check_constants, unify
from qglow.graph.graph import Graph, Value
from qglow.importer import declared_dimensions, import_model, sized_part, stating_tensors, stored_arrays
from qglow.numerics.quantize import quantize_by
from qglow.numerics.schema import choose_parameters
from qglow.quantization.rewrite import real_name
from qglow.report.parts import QuantizedParts, source_place
from qglow.toolchain.shape_constants import computed_array

_Dimensions = Mapping[str, Sequence[Dimension]]
_Sizes = Mapping[str, int]
MANY = 6
"""Dimensions up to which their sizes are multiplied, each by a factor of its own."""


@dataclass(frozen=True)
class OpenModel:
    """A model as ONNX. refusal: why open dimensions have sizes of the profile in it, or ""."""

    files: FiledModel
    refusal: str = ""


def open_qdq_model(
    parts: QuantizedParts, activations: str | None = None, name: str = "model.qdq.onnx"
) -> OpenModel:
    """The model as standard ONNX, in which dimensions that the float model's file leaves open stay open.

    name: of its file. The same as `QuantizedParts.qdq_files` for a model of static shapes. Dimensions are
    bound where no single ONNX model stands for all their sizes: all but the batch, or all. Raises ModelError
    if the float model is missing or has changed, UsageError for activations of another name.
    """
    if parts.profile is None:
        return OpenModel(parts.qdq_files(activations, name))
    reasons: list[str] = []
    beyond: list[str] = []
    declared = declared_dimensions(source_place(parts))
    for inputs in _named_inputs(declared, parts.shapes):
        exports = _Exports(parts, inputs, activations)
        for trials in _trials(inputs, parts.shapes):
            try:
                files = _unified(exports, *trials, name)
            except (DataError, ModelError, MemoryLimitError, AmbiguityError) as error:
                beyond.append(_line(error))  # the model takes no such sizes, or they do not tell: others may
            except UnsupportedError as error:
                reasons.append(_line(error))
                break
            else:
                return OpenModel(files, "" if _is_open(inputs, declared) else (reasons + beyond)[0])
    return OpenModel(parts.qdq_files(activations, name), (reasons + beyond)[0])


def _is_open(inputs: _Dimensions, declared: Mapping[str, Sequence[Dimension] | None]) -> bool:
    """Whether each dimension that the file leaves open has a name."""
    return all(
        isinstance(d, str) or found is None or isinstance(found[axis], int)
        for name, dimensions in inputs.items()
        for found in (declared.get(name),)
        for axis, d in enumerate(dimensions)
    )


@dataclass(frozen=True)
class _Exports:
    """Exports of a model for sizes of the dimensions that `inputs` names."""

    parts: QuantizedParts
    inputs: _Dimensions
    activations: str | None
    apart: DataApart = field(default_factory=DataApart)
    kept: KeptImports = field(default_factory=KeptImports)
    float_shapes: dict[tuple[int, ...], Mapping[str, Shape]] = field(default_factory=dict)
    quantized: dict[tuple[str | int, ...], Value] = field(default_factory=dict)

    @property
    def own(self) -> SizedModel:
        """The export for the shapes that the model was quantized with."""
        return self._export(self.parts.int8, _sizes(self.inputs, self.parts.shapes))

    def at(self, sizes: _Sizes) -> SizedModel:
        """The export for other sizes.

        Raises what `graph_at` does, and DataError where the graph has no such sizes, as with more places than
        a table has.
        """
        try:
            graph = graph_at(self.parts, self._shapes(sizes))
        except UnsupportedError as error:
            raise DataError(_line(error)) from error
        try:
            return self._export(graph, sizes)
        finally:
            # Nodes and values refer to one another: without this a second large model stays for a while.
            release_after(sum(value.type.byte_size for value in self.parts.int8.constants()))

    def part(self, every: Sequence[_Sizes], name: str, arrays: Sequence[Array]) -> SizedPart | None:
        """The part of the float model that computes a constant from sizes alone; None where there is none.

        arrays: what the constant is in exports for each of these sizes, which may be integers of what the
        float model has.
        """
        known = [self.quantized.get((name, *sizes.values())) for sizes in every]
        given = [None if value is None else value.type.quantization for value in known]
        if known[0] is not None and given[0] is not None:
            name = real_name(known[0].name, given[0])
        place, values = source_place(self.parts), self.parts.source.values
        tensors = stating_tensors(place, name, values, self.kept)
        found = (self._part_of(every, tensor, arrays, given) for tensor in tensors)
        return next((part for part in found if part is not None), None)

    def _part_of(
        self,
        every: Sequence[_Sizes],
        tensor: str,
        arrays: Sequence[Array],
        given: Sequence[Quantization | None],
    ) -> SizedPart | None:
        """The part that computes a tensor; None where there is none, or it is not what the exports have.

        given: parameters of `arrays` that are its integers.
        """
        place, values = source_place(self.parts), self.parts.source.values
        try:
            part = sized_part(place, tensor, values, self.kept)
            if part is None:
                return None
            shapes = [self._float_shapes(sizes) for sizes in every]
            lists = {
                entry: [read.of(found[read.tensor]) for found in shapes]
                for entry, read in part.shapes.items()
            }
            reals = [
                computed_array(part.at({entry: values[number] for entry, values in lists.items()}))
                for number in range(len(every))
            ]
        except (KeyError, UnsupportedError, UsageError):
            return None
        form = _form(reals, given)
        for real, array, quantization in zip(reals, arrays, given, strict=True):
            real = _as_often(real, array)
            found = real if quantization is None else quantize_by(real, quantization)
            if found.dtype != array.dtype or not np.array_equal(found, array):
                return None
        if form is None and any(quantization != given[0] for quantization in given):
            return None
        return SizedPart(
            part.model,
            {
                entry: SizeList(
                    lists[entry], (read.tensor, *read.near), read.start % len(shapes[0][read.tensor])
                )
                for entry, read in part.shapes.items()
            },
            form or given[0],
        )

    def _float_shapes(self, sizes: _Sizes) -> Mapping[str, Shape]:
        """Shapes of the float model's tensors for sizes of the dimensions."""
        key = tuple(sizes.values())
        if key not in self.float_shapes:
            place, values = source_place(self.parts), self.parts.source.values
            given = {n: shape for n, shape in self._shapes(sizes).items() if n not in (values or {})}
            graph = import_model(place, given, values=values, kept=self.kept).graph
            self.float_shapes[key] = {value.name: value.type.shape for value in graph.values()}
        return self.float_shapes[key]

    def _shapes(self, sizes: _Sizes) -> dict[str, Shape]:
        """Shapes of the inputs for sizes of the dimensions."""
        return {
            name: tuple(sizes[d] if isinstance(d, str) else int(d or 0) for d in dimensions)
            for name, dimensions in self.inputs.items()
        }

    def _export(self, graph: Graph, sizes: _Sizes) -> SizedModel:
        shapes = {value.name: value.type.shape for value in graph.values()}
        model = export_qdq(graph, None, self.parts.activations(self.activations), self.apart)
        for name, value in quantized_constants(graph).items():
            self.quantized[name, *sizes.values()] = Value(value.name, value.type)
        return SizedModel(sizes, model, shapes, self.apart, quantized_value_names(graph))


def _as_often(real: Array, array: Array) -> Array:
    """The first part of what repeats along the first axis, where `array` has that alone.

    Constants that repeat for each sample are there once in a graph. Their readers broadcast, so that the
    whole stands for them too.
    """
    is_once = array.shape == (1, *real.shape[1:]) and len(real) > 1 and np.all(real == real[:1])
    return real[:1] if is_once else real


def _form(reals: Sequence[Array], given: Sequence[Quantization | None]) -> Ranged | None:
    """The form of parameters that ranges of constants have in all exports; None where there is none."""
    if None in given or not all(np.isfinite(real).all() for real in reals):
        return None  # floats, such as a mask of infinities, have no parameters
    for form in FORMS:
        chosen = [
            choose_parameters(float(real.min()), float(real.max()), form.schema, form.element)
            for real in reals
            if real.size and real.dtype == np.float32
        ]
        if chosen == list(given):
            return form
    return None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _unified(exports: _Exports, first: _Sizes, second: _Sizes, name: str) -> FiledModel:
    def tables() -> Iterator[Array]:
        return stored_arrays(exports.parts.source.required)

    def parts(*models: SizedModel) -> Parts:
        return partial(exports.part, [entry.sizes for entry in models])

    own, other = exports.own, exports.at(first)
    try:
        model = unify([own, other], exports.inputs, tables, parts(own, other))
    except AmbiguityError:
        further = exports.at(second)
        model = unify([own, other, further], exports.inputs, tables, parts(own, other, further))
    except StructureError:
        # The own sizes may be special: a batch of 1 lets passes leave out what other batches need.
        others = [other, exports.at(second)]
        try:
            model = unify(others, exports.inputs, tables, parts(*others))
        except AmbiguityError:
            others.append(exports.at(_beyond(first, second)))
            model = unify(others, exports.inputs, tables, parts(*others))
        check_constants(model, other, own)
    return filed(exports.apart.restore(model), name)


def _beyond(first: _Sizes, second: _Sizes) -> _Sizes:
    """Sizes as far behind the second as these are behind the first, so that sums and multiples stay such.

    Raises DataError where they end before 1.
    """
    sizes = {name: 2 * size - first[name] for name, size in second.items()}
    if min(sizes.values(), default=1) < 1:
        raise DataError(f"sizes {sizes} are none")
    return sizes


def _named_inputs(
    declared: Mapping[str, Sequence[Dimension] | None], shapes: Mapping[str, Shape]
) -> list[_Dimensions]:
    """Dimensions of the inputs with a name for each open one, in ways to be tried one after the other.

    First every unnamed dimension is one of its own; then unnamed ones of equal axis and size are one; then
    all of equal axis and size; then only first dimensions stay open.
    """
    ways: list[dict[str, list[Dimension]]] = [{}, {}, {}, {}]
    names: dict[tuple[int, int], str] = {}
    for name, shape in shapes.items():
        found = declared.get(name) or [None] * len(shape)
        own: list[Dimension] = [f"{name}_{axis}" if d is None else d for axis, d in enumerate(found)]
        one: list[Dimension] = [
            names.setdefault((axis, shape[axis]), d) if isinstance(d, str) else d
            for axis, d in enumerate(own)
        ]
        ways[0][name] = own
        ways[1][name] = [own[axis] if isinstance(d, str) else one[axis] for axis, d in enumerate(found)]
        ways[2][name] = one
        ways[3][name] = [d if axis == 0 else shape[axis] for axis, d in enumerate(one)]
    return [way for place, way in enumerate(ways) if way not in ways[:place] and _sizes(way, shapes)]


def _sizes(inputs: _Dimensions, shapes: Mapping[str, Shape]) -> dict[str, int]:
    """Sizes of the named dimensions in these shapes."""
    return {
        dimension: size
        for name, dimensions in inputs.items()
        for dimension, size in zip(dimensions, shapes[name], strict=True)
        if isinstance(dimension, str)
    }


def _trials(inputs: _Dimensions, shapes: Mapping[str, Shape]) -> Iterator[tuple[_Sizes, _Sizes]]:
    """Pairs of other sizes, each dimension changed in a way of its own; the first that the model takes do.

    Multiples come first, since images are often taken in multiples of their strides alone. Lengths may be
    limited from above, so that smaller sizes come later, and sizes that others add up to last. A size of 0
    grows too: what does not change tells nothing.
    """
    own = _sizes(inputs, shapes)
    count = len(own)
    numbered = list(enumerate(own.items()))
    if count <= MANY:
        yield (
            {name: (size or 1) * (2 + i) for i, (name, size) in numbered},
            {name: (size or 1) * (3 + 2 * i) for i, (name, size) in numbered},
        )
    yield (
        {name: size + 1 + i for i, (name, size) in numbered},
        {name: size + 1 + count + 2 * i for i, (name, size) in numbered},
    )
    # A batch of 1 cannot be less.
    if all(size == 1 or size > 3 * count + 2 for size in own.values()):
        yield (
            {name: 2 + i if size == 1 else size - 1 - i for i, (name, size) in numbered},
            {name: 3 + 2 * i if size == 1 else size - 1 - count - 2 * i for i, (name, size) in numbered},
        )
    for total, parts in _sums(own):
        first = {name: size + 1 + i for i, (name, size) in numbered}
        second = {name: size + 1 + count + 3 * i for i, (name, size) in numbered}
        yield (
            first | {total: sum(first[part] for part in parts)},
            second | {total: sum(second[part] for part in parts)},
        )


def _sums(own: _Sizes) -> Iterator[tuple[str, tuple[str, str]]]:
    """Dimensions that are as large as two others together, the last ones first.

    Such is that of a mask: places of a cache, and new tokens.
    """
    for total in reversed(list(own)):
        for parts in combinations([name for name in own if name != total], 2):
            if sum(own[part] for part in parts) == own[total]:
                yield total, parts
