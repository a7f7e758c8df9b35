"""Texts of a bundle: header, example, bindings and build files."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from qglow.bundles.boards import BOARDS, Board
from qglow.bundles.interface import ELEMENTS, VERSION, BundleTensor, Interface
from qglow.codegen.memory import ALIGNMENT
from qglow.core.types import ElementType
from qglow.core.version import __version__
from qglow.kernels.emit.target import VectorTarget

_RUST = {
    ElementType.FLOAT: "f32",
    ElementType.DOUBLE: "f64",
    ElementType.FLOAT16: "u16",
    ElementType.BFLOAT16: "u16",
    ElementType.INT8: "i8",
    ElementType.INT16: "i16",
    ElementType.INT32: "i32",
    ElementType.INT64: "i64",
    ElementType.UINT8: "u8",
    ElementType.UINT16: "u16",
    ElementType.UINT32: "u32",
    ElementType.UINT64: "u64",
    ElementType.BOOL: "u8",
}
_RUST_KEYWORD_TEXT = """
abstract as async await become box dyn final fn gen impl in let loop macro match mod move mut override
priv pub ref trait type unsafe unsized use where yield
"""
_RUST_KEYWORDS = frozenset(_RUST_KEYWORD_TEXT.split())
_RUST_PATHS = frozenset({"crate", "self", "Self", "super"})
"""Keywords that are no names of fields even as r#NAME."""
_TEMPLATES = {
    "{}.h": "header.h.j2",
    "main.c": "main.c.j2",
    "{}.rs": "bindings.rs.j2",
    "{}-config.cmake": "config.cmake.j2",
    "{}.pc": "pkgconfig.pc.j2",
}
"""Templates by the names of the files, in which `{}` stands for the prefix."""

_OF_SOURCES = {
    "{}.h": "header.h.j2",
    "main.c": "main.c.j2",
    "{}.rs": "bindings.rs.j2",
    "{}-config.cmake": "source.cmake.j2",
}
_OF_THREADS = {"threads.c": "threads.c.j2"}
_OF_WASM = {"{}.mjs": "loader.mjs.j2", "{}.py": "loader.py.j2"}
_JAVASCRIPT = {
    ElementType.FLOAT: "Float32Array",
    ElementType.DOUBLE: "Float64Array",
    ElementType.FLOAT16: "Uint16Array",
    ElementType.BFLOAT16: "Uint16Array",
    ElementType.INT8: "Int8Array",
    ElementType.INT16: "Int16Array",
    ElementType.INT32: "Int32Array",
    ElementType.INT64: "BigInt64Array",
    ElementType.UINT8: "Uint8Array",
    ElementType.UINT16: "Uint16Array",
    ElementType.UINT32: "Uint32Array",
    ElementType.UINT64: "BigUint64Array",
    ElementType.BOOL: "Uint8Array",
}


_NUMPY = {ElementType.FLOAT16: "uint16", ElementType.BFLOAT16: "uint16", ElementType.BOOL: "uint8"}
"""Types of numpy where they are not those of the program."""


def texts(interface: Interface, title: str, target: VectorTarget, fingerprint: int) -> dict[str, str]:
    """Contents of the text files of a bundle by name. fingerprint: of the interface."""
    values = _values(interface, title, target.name, fingerprint) | {"asks_linux": target.linux_capabilities}
    wanted = _TEMPLATES | (_OF_WASM if is_wasm(target) else {}) | (_OF_THREADS if interface.parts else {})
    made = _rendered(wanted, interface, values)
    board = BOARDS.get(target.name)
    return made if board is None else made | board_texts(board, target.has_float_unit)


def source_files(interface: Interface) -> list[str]:
    """Names of the files of C sources, members of a library to be: what nothing calls is not linked."""
    parts = ["code", "check", "weights", "tensors", "selftest", *(["reset"] if interface.states else [])]
    return [f"{interface.prefix}_{part}.c" for part in parts]


def source_texts(interface: Interface, title: str, target: str, fingerprint: int) -> dict[str, str]:
    """Contents of the text files of a bundle of C sources beside these, by name. target: its name."""
    values = _values(interface, title, target, fingerprint)
    # The sources reach all memory byte by byte.
    values |= {"alignment": 1, "sources": " ".join(source_files(interface))}
    return _rendered(_OF_SOURCES, interface, values)


def _rendered(templates: dict[str, str], interface: Interface, values: dict[str, Any]) -> dict[str, str]:
    return {name.format(interface.prefix): _template(text).render(values) for name, text in templates.items()}


def _values(interface: Interface, title: str, target: str, fingerprint: int) -> dict[str, Any]:
    """Values that all templates have."""
    return {
        "interface": interface,
        "prefix": interface.prefix,
        "upper": interface.prefix.upper(),
        "title": _plain(title),
        "target": target,
        "asks_linux": 0,
        "sources": "",
        "version": __version__,
        "interface_version": VERSION,
        "alignment": ALIGNMENT,
        "fingerprint": fingerprint,
        "elements": ELEMENTS,
        "float": c_float,
        "shape": _shape,
        "room": lambda tensor: _room(interface, tensor),
        "quantization": _quantization,
        "rust": lambda tensor: _RUST[tensor.element],
        "rust_field": _rust_field,
        "numpy": lambda tensor: _NUMPY.get(tensor.element, str(tensor.element.dtype)),
        "js": lambda tensor: _JAVASCRIPT[tensor.element],
    }


def board_texts(board: Board, has_float_unit: bool) -> dict[str, str]:
    """Start-up code and linker script of a microcontroller board, by the names of their files."""
    values = {"board": board, "has_float_unit": has_float_unit}
    return {name: _template(f"{name}.j2").render(values) for name in ("startup.c", "board.ld")}


def is_wasm(target: VectorTarget) -> bool:
    """Whether bundles of a target are modules of WebAssembly too."""
    return target.triple.startswith("wasm32")


@cache
def _template(name: str) -> Any:
    from jinja2 import Environment, StrictUndefined  # where a bundle is written, not whenever qglow starts

    source = files("qglow.bundles").joinpath("templates", name).read_text(encoding="utf-8")
    environment = Environment(
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.from_string(source)


def _plain(title: str) -> str:
    """A name of a model as a comment or a C string may hold it: everything else becomes "_"."""
    return "".join(one if one.isascii() and (one.isalnum() or one in " ._-") else "_" for one in title)


def c_float(value: float) -> str:
    """A float32 as a constant of C, exactly."""
    return f"{value.hex()}f"


def _shape(tensor: BundleTensor) -> str:
    return f"[{', '.join(map(str, tensor.kind.shape))}]"


def _room(interface: Interface, tensor: BundleTensor) -> str:
    """Elements of an array of C for a tensor: C has none of zero elements."""
    count = f"{interface.prefix}_{tensor.field}_ELEMENTS".upper()
    return count if tensor.kind.size else f"{count} + 1u"


def _quantization(tensor: BundleTensor) -> str:
    if not tensor.scale:
        return ""
    return f", real = {tensor.scale!r} * (stored - {tensor.zero_point})"


def _rust_field(tensor: BundleTensor) -> str:
    if tensor.field in _RUST_PATHS:
        return f"{tensor.field}_"
    return f"r#{tensor.field}" if tensor.field in _RUST_KEYWORDS else tensor.field
