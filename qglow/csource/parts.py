"""Files of C beside the program: constants, the table of tensors, check and self-test."""

from __future__ import annotations

import numpy as np

from qglow.bundles.code import DIGEST, INTERFACE, OK, Vectors
from qglow.bundles.interface import BundleTensor, Interface, TensorRole
from qglow.core.types import Array, ElementType

_ROW = 20
"""Bytes in a line."""


def weights_text(interface: Interface, weights: Array) -> str:
    """The constants as an array."""
    name = f"const unsigned char {interface.prefix}_weights[{len(weights)}]"
    return _file(interface, f"{name} = {_bytes(weights)};\n")


def tensors_text(interface: Interface) -> str:
    """The table of tensors."""
    prefix, lines, entries = interface.prefix, [], []
    for number, tensor in enumerate(interface.tensors):
        shape = ", ".join(map(str, tensor.kind.shape)) or "0"
        lines.append(f"static const int32_t shape{number}[] = {{{shape}}};")
        role = list(TensorRole).index(tensor.role)
        numbers = f"{len(tensor.kind.shape)}u, {tensor.byte_size}u, {tensor.element_number}u, {role}u"
        last = f"{float(tensor.scale).hex()}f, {tensor.zero_point}"
        entries.append(f"    {{{_string(tensor.name)}, shape{number}, {numbers}, {last}}},")
    table = f"const {prefix}_tensor {prefix}_tensors[{prefix.upper()}_TENSORS] = {{"
    return _file(interface, "\n".join([*lines, "", table, *entries, "};", ""]))


def check_text(interface: Interface, fingerprint: int, digest: int) -> str:
    """The check: header and digest of the weights. Memory may have any alignment, and any processor fits."""
    return _file(
        interface,
        f"""\
int32_t {interface.prefix}_check_as(const void *arena, const void *weights, uint32_t interface)
{{
    const unsigned char *const bytes = weights;
    uint32_t crc = 0xFFFFFFFFu;
    (void)arena;
    if (interface != {fingerprint}u) {{
        return {INTERFACE};
    }}
    for (size_t i = 0; i < {interface.weights}u; i++) {{
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {{
            crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0xEDB88320u : 0u);
        }}
    }}
    return (crc ^ 0xFFFFFFFFu) == {digest}u ? {OK} : {DIGEST};
}}
""",
    )


def reset_text(interface: Interface) -> str:
    """The function with which states begin anew. Elements are bytes: memory may have any alignment."""
    prefix, lines = interface.prefix, []
    for number, tensor in enumerate(interface.states):
        start = f"start{number}"
        lines += [
            f"    static const unsigned char {start}[] = {_bytes(tensor.start)};",
            f"    for (size_t i = 0; i < {tensor.byte_size}u; i++) {{",
            f"        ((unsigned char *)io->{tensor.field})[i] = {start}[i % sizeof {start}];",
            "    }",
        ]
    return _file(interface, "\n".join([f"void {prefix}_reset(const {prefix}_io *io)", "{", *lines, "}", ""]))


def selftest_text(interface: Interface, vectors: Vectors) -> str:
    """The self-test with its vectors."""
    prefix, places = interface.prefix, interface.selftest_places()
    data, begin, compare = [], [], []
    for number, tensor in enumerate(interface.tensors):
        if tensor.role is TensorRole.INPUT:
            data.append(
                f"static const unsigned char given{number}[] = {_bytes(vectors.inputs[tensor.name])};"
            )
            begin.append(f"    io.{tensor.field} = (const void *)given{number};")
            continue
        place = f"bytes + {places[tensor.name]}"
        begin.append(f"    io.{tensor.field} = (void *)({place});")
    if interface.states:
        begin.append(f"    {prefix}_reset(&io);")
    for number, tensor in enumerate((*interface.outputs, *interface.declared)):
        content = _bytes(vectors.outputs[tensor.output or tensor.name])
        data.append(f"static const unsigned char expected{number}[] = {content};")
        compare += _comparison(tensor, f"bytes + {places[tensor.name]}", number, vectors)
    lines = [
        "#include <string.h>",
        "",
        *data,
        "",
        f"int32_t {prefix}_selftest(void *arena, const void *weights)",
        "{",
        "    unsigned char *const bytes = arena;",
        f"    {prefix}_io io;",
        "    (void)bytes;",
        *begin,
        f"    {prefix}_run(arena, weights, &io);",
        *compare,
        "    return 0;",
        "}",
        "",
    ]
    return _file(interface, "\n".join(lines))


def _comparison(tensor: BundleTensor, place: str, number: int, vectors: Vectors) -> list[str]:
    """Statements that return the number of an output that differs."""
    wrong = f"return {number + 1};"
    if tensor.element is not ElementType.FLOAT or tensor.byte_size == 0:
        return [f"    if (memcmp({place}, expected{number}, {tensor.byte_size}u) != 0) {wrong}"]
    tolerance = float(np.float32(vectors.tolerances.get(tensor.output or tensor.name, 0.0))).hex()
    return [
        f"    for (size_t i = 0; i < {tensor.kind.size}u; i++) {{",
        "        float got, wanted;",
        f"        memcpy(&got, {place} + 4 * i, 4);",
        f"        memcpy(&wanted, expected{number} + 4 * i, 4);",
        "        const float far = got < wanted ? wanted - got : got - wanted;",
        f"        if (!(far <= {tolerance}f) && got != wanted && (got == got || wanted == wanted)) {wrong}",
        "    }",
    ]


def _file(interface: Interface, text: str) -> str:
    return f'#include "{interface.prefix}.h"\n\n{text}'


def _bytes(data: Array) -> str:
    content = np.ascontiguousarray(data).reshape(-1).view(np.uint8).tolist() or [0]
    rows = [", ".join(map(str, content[i : i + _ROW])) for i in range(0, len(content), _ROW)]
    return "{\n    " + ",\n    ".join(rows) + "}"


def _string(text: str) -> str:
    """A string of C: every byte that is no plain letter in octal, so that no name ends it."""
    content = text.encode("utf-8", "backslashreplace")
    return '"' + "".join(chr(b) if chr(b).isalnum() and b < 128 else f"\\{b:03o}" for b in content) + '"'
