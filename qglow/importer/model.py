"""An ONNX file as a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx

from qglow.core.errors import ModelError, UnboundError, UndecidedError, UnsupportedError, UsageError
from qglow.core.kept_imports import KeptImports
from qglow.core.model_place import ModelPlace, folder_of
from qglow.core.types import Array, Dimension, ElementType, Given, Quantization, TensorType
from qglow.graph.graph import Graph, mark_unsigned
from qglow.importer.binding import bind_inputs, real_inputs, tensor_shape
from qglow.importer.building import GraphImport
from qglow.importer.integer_inputs import INTEGERS, input_parameters, parameter_names
from qglow.importer.loading import ModelFile, check, load
from qglow.importer.node import CannotImport
from qglow.importer.refusal import Refusal, refuse
from qglow.importer.rules import OLDEST_OPSET, newest_opset
from qglow.importer.tensors import BORDER, ELEMENTS, QUANTIZED, element_name
from qglow.importer.unsupported import unsupported_operators
from qglow.importer.values import bind_values, given_arrays
from qglow.interchange.nodes import all_nodes, is_defined, is_deprecated

PLAIN = ELEMENTS | BORDER
"""Elements of inputs by ONNX's numbers."""


_MOST_NAMED = 3


@dataclass(frozen=True)
class ImportedModel:
    """A model as a graph, with what the import decided and where it came from.

    `bound_dimensions` are sentences on dimensions bound without being asked for, and on inputs and
    outputs that have another type here; `digest` is the SHA-256 of the model file in hexadecimal;
    `inputs` and `outputs` give names and types; `dimensions` and `output_dimensions` are those that the file
    declares, by name.
    """

    place: ModelPlace
    graph: Graph
    bound_dimensions: tuple[str, ...]
    opset: int
    digest: str
    inputs: tuple[tuple[str, TensorType], ...]
    outputs: tuple[tuple[str, TensorType], ...]
    dimensions: Mapping[str, Sequence[Dimension] | None] = field(default_factory=dict)
    output_dimensions: Mapping[str, Sequence[Dimension] | None] = field(default_factory=dict)


def import_model(
    place: ModelPlace | str,
    shapes: Mapping[str, Sequence[int]] | None = None,
    default_batch: int = 1,
    native: bool = False,
    values: Mapping[str, Given] | None = None,
    kept: KeptImports | None = None,
) -> ImportedModel:
    """Read an ONNX model with every dimension bound.

    `shapes` maps input names to shapes; a free symbolic first dimension becomes `default_batch`.
    `values` gives inputs that become constants, and so are no inputs of the graph.
    `kept` has what other imports of the same file made of it, whose arrays graphs then share.
    Nodes that qglow does not know run in onnxruntime, unless `native`: then they are refused.
    Values keep their ONNX names, nodes too where they have one, else `Op_k` with their position.
    Raises ModelError for a damaged or invalid file, UnsupportedError with the causes of all that
    is unsupported, UsageError for shapes and values that do not fit, UnboundError where dimensions are left,
    and UndecidedError with the names of inputs without whose values the rest cannot be imported.
    """
    place = Path(place) if isinstance(place, str) else place
    return import_file(place, load(place, kept), shapes, default_batch, native, values)


def import_file(
    place: ModelPlace,
    model: ModelFile,
    shapes: Mapping[str, Sequence[int]] | None = None,
    default_batch: int = 1,
    native: bool = False,
    values: Mapping[str, Given] | None = None,
) -> ImportedModel:
    """Import a model that has been read, see `import_model`."""
    _check_opset(place, model)
    every_input = real_inputs(model.proto.graph)
    constants = given_arrays(every_input, values or {})
    model = replace(model, proto=bind_values(model.proto, constants), given=frozenset(constants))
    declared = real_inputs(model.proto.graph)
    elements, parameters, refused, undecided = _input_elements(place, model, declared)
    try:
        bound = bind_inputs(every_input, _with_values(shapes or {}, constants), default_batch, model.nodes)
    except UsageError as error:
        # Shapes are no help to a model that is not supported in any of them.
        refuse(place, refused + (unsupported_operators(model) if native else []))
        if isinstance(error, UnboundError):
            free = {value.name: tensor_shape(value) for value in declared}
            raise UnboundError(str(error), free, elements, model.digest) from error
        raise
    types = {n: TensorType(elements[n], bound.shapes[n], parameters.get(n)) for n in elements}
    _ask(place, model, undecided, types)
    every = [*model.nodes, *(node for function in model.proto.functions for node in function.node)]
    opset = model.opset
    if all(is_defined(node, opset) and not is_deprecated(node, opset) for node in all_nodes(every)):
        check(place, model)
    kinds = {v.name: QUANTIZED.get(v.type.tensor_type.elem_type) for v in declared}
    unsigned = [name for name in parameters if kinds[name] == QUANTIZED[onnx.TensorProto.UINT8]]
    work, graph = _built(place, model, types, unsigned, native)
    mark_unsigned(graph, _unsigned_names(model))
    refused += [
        Refusal(
            f"output '{value.name}'",
            "of 16 bits",
            "supported within a model; let it end with DequantizeLinear",
        )
        for value in graph.outputs
        if value.type.element is ElementType.INT16 and value.type.is_quantized
    ]
    decided = work.deciding.positions
    refused += [work.problems[index] for index in sorted(work.problems) if index not in decided]
    refuse(place, refused)
    _ask(place, model, work.deciding.names, types)
    return ImportedModel(
        place,
        graph,
        (*bound.notes, *_opaque_notes(work.opaque)),
        model.opset,
        model.digest,
        tuple((v.name, v.type) for v in graph.inputs),
        tuple((v.name, v.type) for v in graph.outputs),
        {value.name: tensor_shape(value) for value in declared},
        {value.name: tensor_shape(value) for value in model.proto.graph.output},
    )


def _built(
    place: ModelPlace,
    model: ModelFile,
    types: Mapping[str, TensorType],
    unsigned: Sequence[str],
    native: bool,
) -> tuple[GraphImport, Graph]:
    """An import and its graph. Where a text decides, all that decides is data, if that can be executed."""
    work = GraphImport(place, model, types, unsigned, native)
    graph = work.build()
    if work.deciding.names and work.deciding.is_text(graph.nodes):
        other = GraphImport(place, model, types, unsigned, native, decided_by_data=True)
        found = other.build()
        if not other.problems:
            return other, found
    return work, graph


def _with_values(
    shapes: Mapping[str, Sequence[int]], values: Mapping[str, Array]
) -> dict[str, Sequence[int]]:
    """The shapes of inputs, those of given values among them. Raises UsageError where both are given."""
    for name, array in values.items():
        if name in shapes and tuple(shapes[name]) != array.shape:
            stated = ",".join(map(str, shapes[name]))
            raise UsageError(f"shape {name}={stated} contradicts its value, of shape {list(array.shape)}")
    return {**shapes, **{name: array.shape for name, array in values.items()}}


def _ask(place: ModelPlace, model: ModelFile, names: Sequence[str], types: Mapping[str, TensorType]) -> None:
    """Raise UndecidedError where there are inputs whose values are missing."""
    if names:
        listed = ", ".join(f"'{name}'" for name in names[:_MOST_NAMED])
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        inputs = f"input {listed}" if len(names) == 1 else f"inputs {listed}{more}"
        raise UndecidedError(
            f"{place}: the values of {inputs} decide shapes or parameters; give them, as in "
            f"`values={names[0]}=...`",
            names,
            types,
            model.digest,
        )


def _unsigned_names(model: ModelFile) -> set[str]:
    """Names of the inputs and outputs that are uint8 in the file."""
    declared = (*model.proto.graph.input, *model.proto.graph.output)
    return {v.name for v in declared if v.type.tensor_type.elem_type == onnx.TensorProto.UINT8}


def _opaque_notes(opaque: Sequence[tuple[str, str, tuple[str, ...]]]) -> Iterator[str]:
    """Sentences on the nodes that run in onnxruntime, and on what would bring them into the program."""
    if opaque:
        listed = ", ".join(f"'{name}' ({kinds})" for name, kinds, _ in opaque[:_MOST_NAMED])
        more = f" and {len(opaque) - _MOST_NAMED} more" if len(opaque) > _MOST_NAMED else ""
        count = "one node runs" if len(opaque) == 1 else f"{len(opaque)} nodes run"
        yield f"{count} in onnxruntime, in float: {listed}{more}"
    for name, kinds, deciding in opaque:
        if deciding:
            inputs = ", ".join(f"'{one}'" for one in deciding)
            yield (
                f"'{name}' ({kinds}) becomes part of the program where {inputs} is a constant: "
                f"--value {deciding[0]}=1 on the command line, values= in Python"
            )


def _check_opset(place: ModelPlace, model: ModelFile) -> None:
    """Refuse operator sets that are too new, and old ones that define the model's operators otherwise."""
    newest, opset = newest_opset(), model.opset
    if opset > newest or (opset < OLDEST_OPSET and not all(_is_lasting(n, opset) for n in model.nodes)):
        raise UnsupportedError(
            f"{place} uses opset {opset}; supported are {OLDEST_OPSET} to {newest}: "
            "convert it with onnx.version_converter or export it again"
        )


def _is_lasting(node: onnx.NodeProto, opset: int) -> bool:
    """Whether an operator of an old operator set has the same definition in the oldest that is supported."""
    versions = (opset, OLDEST_OPSET)
    try:
        schemas = [onnx.defs.get_schema(node.op_type, version, node.domain) for version in versions]
    except onnx.defs.SchemaError:
        return False
    return schemas[0].since_version == schemas[1].since_version


def _input_elements(
    place: ModelPlace, model: ModelFile, inputs: Sequence[onnx.ValueInfoProto]
) -> tuple[dict[str, ElementType], dict[str, Quantization], list[Refusal], list[str]]:
    """Element types of the inputs, parameters of integers, refusals of those that are not supported.

    Last are names of inputs that give such parameters.
    """
    undecided: dict[str, None] = {}
    given_by_callers = {value.name for value in inputs}
    elements: dict[str, ElementType] = {}
    parameters: dict[str, Quantization] = {}
    refused: list[Refusal] = []
    for value in inputs:
        if not value.type.HasField("tensor_type"):
            raise ModelError(
                f"{place}: input '{value.name}' is no tensor, as inputs have to be; "
                "begin the model behind it with qglow cut"
            )
        number = value.type.tensor_type.elem_type
        elements[value.name] = PLAIN.get(number, ElementType.FLOAT)
        try:
            if number in INTEGERS:
                unsigned = number == onnx.TensorProto.UINT8
                computed = [n for n in parameter_names(model, value.name) if n in given_by_callers]
                undecided.update(dict.fromkeys(computed))
                if computed:
                    continue
                given = input_parameters(model, value.name, unsigned, folder_of(place))
                if given is not None:
                    elements[value.name], parameters[value.name] = ElementType.INT8, given
            elif number not in PLAIN:
                raise CannotImport(
                    "inputs of reals of 16 to 64 bits, integers and bool are supported; "
                    "begin the model behind it with qglow cut"
                )
        except CannotImport as refusal:
            refused.append(Refusal(f"input '{value.name}'", f"of {element_name(number)}", str(refusal)))
    return elements, parameters, refused, list(undecided)
