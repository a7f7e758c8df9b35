"""A model file, or its bytes, as a checked ModelProto. It is untrusted: every defect is a ModelError."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Mapping, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import onnx
from google.protobuf.message import DecodeError, Message
from onnx import ModelProto, NodeProto, TensorProto, helper

from qglow.core.errors import ModelError
from qglow.core.kept_imports import KeptImports
from qglow.core.model_place import ModelPlace, read_place
from qglow.importer.cache_sizes import settle_cache_widths
from qglow.importer.filled_places import with_filled_places
from qglow.importer.inlining import with_functions_inlined
from qglow.importer.last_selected import with_last_selected
from qglow.importer.routed_experts import with_routed_experts
from qglow.importer.sparse import make_dense
from qglow.importer.steps import name_steps
from qglow.importer.wire import without_large_data
from qglow.interchange.nodes import outer_inputs

# A text of more than this many characters in a message hides what the message says.
_LONGEST = 300

_FOR_PEOPLE = frozenset({"doc_string", "domain", "metadata_props", "producer_name", "producer_version"})
"""Fields of a model and its graph that mean nothing to a graph; they may hold bytes that are no text."""

_LARGE_DATA = 1 << 16
"""Bytes of a tensor's data from which the message and the checker do without them."""


_UNLISTED = {"LayerNormalization": 17, "SimplifiedLayerNormalization": None}
"""Operators that onnxruntime's optimizer writes as ONNX's own, and the operator set that has them, if any."""
_CONTRIBUTED = "com.microsoft"


@dataclass(frozen=True)
class ModelFile:
    """A parsed model and its nodes in topological order.

    large: data of initializers by name, which their raw data in `proto` leaves out. given: names of
    initializers that are no part of the file. kept: what other imports of the file know of it; then nothing
    of all this may be changed.
    """

    proto: ModelProto
    nodes: tuple[NodeProto, ...]
    opset: int
    large: Mapping[str, memoryview]
    hashed: Future[str]
    given: Set[str] = frozenset()
    kept: KeptImports | None = None

    @property
    def digest(self) -> str:
        """The SHA-256 of the file in hexadecimal, computed while the model is imported."""
        return self.hashed.result()


def load(place: ModelPlace, kept: KeptImports | None = None) -> ModelFile:
    """Read and check a model file, without its external data; once with `kept`.

    Raises ModelError if the file is missing, is no ONNX model, is cut short, or describes
    no valid graph: duplicate or unknown names, cycles.
    """
    return _load(place) if kept is None else replace(kept.parsed(place, _load), kept=kept)


def _load(place: ModelPlace) -> ModelFile:
    data = _read(place)
    proto, large = _parse(place, data)
    opset = _opset(place, proto)
    _name_domains(proto, opset)
    try:
        make_dense(proto)
    except ModelError as error:
        raise ModelError(f"{place}: {error}") from error
    nodes = _sorted_nodes(place, proto.graph)
    try:
        inlined = with_functions_inlined(proto, nodes)
    except ModelError as error:
        raise ModelError(f"{place}: {error}") from error
    changed = inlined
    for form in (with_last_selected, with_filled_places, with_routed_experts):
        changed = form(changed, nodes if changed is proto else changed.graph.node, opset)
    if changed is not proto:
        proto, nodes = changed, _sorted_nodes(place, changed.graph)
    name_steps(proto, nodes)
    settle_cache_widths(proto, nodes)
    beside = ThreadPoolExecutor(1)
    hashed = beside.submit(lambda: hashlib.sha256(data).hexdigest())
    beside.shutdown(wait=False)
    return ModelFile(proto, tuple(nodes), opset, large, hashed)


def _name_domains(proto: ModelProto, opset: int) -> None:
    """Give operators that onnxruntime has in ONNX's domain, without a definition there, its own domain."""
    unlisted = {name for name, since in _UNLISTED.items() if since is None or opset < since}
    moved = [n for n in proto.graph.node if n.op_type in unlisted and n.domain in ("", "ai.onnx")]
    for node in moved:
        node.domain = _CONTRIBUTED
    if moved and not any(entry.domain == _CONTRIBUTED for entry in proto.opset_import):
        proto.opset_import.append(helper.make_opsetid(_CONTRIBUTED, 1))


def check(place: ModelPlace, model: ModelFile) -> None:
    """Let onnx judge the model's details: attributes, arity, types. Raises ModelError.

    Done after operators are known to be supported, because the checker stops at the first
    operator it does not know.
    """
    ordered = ModelProto()
    _copy_fields(model.proto, ordered, without={"graph", *_FOR_PEOPLE})
    _copy_fields(model.proto.graph, ordered.graph, without={"node", "initializer", *_FOR_PEOPLE})
    ordered.graph.node.extend(model.nodes)
    ordered.graph.initializer.extend(
        _without_data(tensor, tensor.name in model.large) for tensor in model.proto.graph.initializer
    )
    for value in [*ordered.graph.input, *ordered.graph.output]:
        # Runtimes do without declared shapes; the checker does not.
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(ordered, full_check=False)
    except (onnx.checker.ValidationError, ValueError) as error:
        raise ModelError(f"{place} is not a valid ONNX model: {first_line(error)}") from error


def _copy_fields(source: Message, target: Message, without: Set[str]) -> None:
    """Everything in a message except for some fields, which are not copied even for a moment."""
    for field, value in source.ListFields():
        if field.name in without:
            continue
        if isinstance(value, Message):
            getattr(target, field.name).CopyFrom(value)
        elif hasattr(value, "extend"):
            getattr(target, field.name).extend(value)
        else:
            setattr(target, field.name, value)


def _without_data(tensor: TensorProto, large: bool) -> TensorProto:
    """Copy an initializer without its data for the checker; `large` ones have none anyway.

    Data is checked where it is read; the checker would look for external files itself, and it gets the
    whole model as one string.
    """
    if not large and tensor.data_location != TensorProto.EXTERNAL:
        return tensor
    light = TensorProto()
    _copy_fields(tensor, light, without={"external_data", "data_location", "raw_data", "dims"})
    light.raw_data = b""
    light.dims[:] = [0]
    return light


def first_line(error: BaseException) -> str:
    """An exception's message as one line of bounded length."""
    text = " ".join(str(error).split("==> Context")[0].split())
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."


def _read(place: ModelPlace) -> memoryview:
    """The model in memory; a large file is mapped, and what stays of it is copied where it is used."""
    try:
        return read_place(place)
    except OSError as error:
        raise ModelError(f"cannot read {place}: {error.strerror or error}") from error


def _parse(place: ModelPlace, data: memoryview) -> tuple[ModelProto, dict[str, memoryview]]:
    """The message without the data of large initializers, and these data by name."""
    proto = ModelProto()
    advice = "export it again, or copy it again if it was cut short"
    serialized, large = without_large_data(data, _LARGE_DATA)
    try:
        proto.ParseFromString(serialized)
    except DecodeError as error:
        raise ModelError(f"{place} is not an ONNX model or is damaged; {advice}") from error
    if not proto.ir_version or not proto.HasField("graph"):
        raise ModelError(f"{place} is not an ONNX model (no graph, or no version); {advice}")
    if not proto.graph.output:
        raise ModelError(f"{place} has no outputs; {advice}")
    for name in _texts(proto):
        if isinstance(name, bytes):  # what protobuf gives where the standard has text
            raise ModelError(f"{place} has a name that is no text, {name!r:.60}; {advice}")
    return proto, {proto.graph.initializer[index].name: part for index, part in large.items()}


def _texts(proto: ModelProto) -> Iterator[object]:
    """Every name in a model that its graph can come to depend on."""
    graph = proto.graph
    yield graph.name
    yield from (entry.domain for entry in proto.opset_import)
    yield from (tensor.name for tensor in graph.initializer)
    for value in (*graph.input, *graph.output):
        yield value.name
        yield from (dimension.dim_param for dimension in value.type.tensor_type.shape.dim)
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)


def _opset(place: ModelPlace, proto: ModelProto) -> int:
    versions = {entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")}
    if not versions and all(node.domain not in ("", "ai.onnx") for node in proto.graph.node):
        return int(onnx.defs.onnx_opset_version())  # no node is of any
    if len(versions) != 1:
        raise ModelError(
            f"{place} imports {len(versions)} versions of the standard operator set; one is valid"
        )
    return int(versions.pop())


def _sorted_nodes(place: ModelPlace, graph: onnx.GraphProto) -> list[NodeProto]:
    """Nodes in topological order, which ONNX demands and some exporters do not keep."""
    defined = _unique(place, (v.name for v in graph.input), "inputs")
    defined |= _unique(place, (t.name for t in graph.initializer), "initializers")
    produced = _unique(place, (o for n in graph.node for o in n.output if o), "node outputs")
    clash = sorted(defined & produced)
    if clash:
        raise ModelError(f"{place}: '{clash[0]}' is both a node's output and an input or initializer")
    _check_known(place, graph, defined | produced)
    return _topological(place, graph)


def _unique(place: ModelPlace, names: Iterable[str], kind: str) -> set[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ModelError(f"{place}: two {kind} are named '{name}'; export the model again")
        seen.add(name)
    return seen


def _check_known(place: ModelPlace, graph: onnx.GraphProto, known: set[str]) -> None:
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                raise ModelError(
                    f"{place}: node '{node.name}' ({node.op_type}) reads '{name}', which nothing gives"
                )
    for value in graph.output:
        if value.name not in known:
            raise ModelError(f"{place}: nothing gives the model's output '{value.name}'")


def _topological(place: ModelPlace, graph: onnx.GraphProto) -> list[NodeProto]:
    producer = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    needs = [{producer[name] for name in outer_inputs([node]) if name in producer} for node in graph.node]
    readers: list[list[int]] = [[] for _ in graph.node]
    for index, sources in enumerate(needs):
        for source in sources:
            readers[source].append(index)
    missing = [len(sources) for sources in needs]
    # The file's own order is kept wherever it is valid: indices are taken smallest first.
    ready = [index for index, count in enumerate(missing) if count == 0]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers[index]:
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) < len(graph.node):
        stuck = graph.node[min(set(range(len(graph.node))) - set(order))]
        raise ModelError(f"{place}: the graph has a cycle through '{stuck.name}' ({stuck.op_type})")
    return [graph.node[index] for index in order]
