"""The manifest of a bundle, read as untrusted text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qglow.bundles.interface import BundleTensor, TensorRole
from qglow.bundles.write import MANIFEST_VERSION, fingerprint_of
from qglow.core.errors import ArtefactError, TextError
from qglow.core.files import sha256_hex
from qglow.core.text import Lexer, parse_type
from qglow.core.types import TensorType
from qglow.runtime.signature import Signature

_LARGEST = 1 << 20
"""Most bytes of a manifest."""


@dataclass(frozen=True)
class Manifest:
    """Contents of NAME.json.

    folder: where the bundle lies. target: name of its target. interface: number that `check` takes.
    kernels: bytes of every function of the code by name. sources: names of C files in place of a library.
    """

    folder: Path
    prefix: str
    target: str
    interface: int
    arena_bytes: int
    selftest_bytes: int
    weights_bytes: int
    code_bytes: int
    tensors: tuple[BundleTensor, ...]
    kernels: Mapping[str, int]
    sources: tuple[str, ...] = ()

    def path(self, name: str) -> Path:
        """Path of a file of the bundle."""
        return self.folder / name

    @property
    def library(self) -> Path:
        """The static library."""
        return self.path(f"lib{self.prefix}.a")

    @property
    def weights(self) -> Path:
        """The constants."""
        return self.path(f"{self.prefix}.weights.bin")

    @property
    def module(self) -> Path:
        """The module of WebAssembly, where the target has one."""
        return self.path(f"{self.prefix}.wasm")

    @property
    def signature(self) -> Signature:
        """Names and types in the model's order."""
        return Signature(
            *(self._types(role) for role in (TensorRole.INPUT, TensorRole.OUTPUT, TensorRole.STATE))
        )

    def of_role(self, role: TensorRole) -> list[BundleTensor]:
        """The tensors of a role, in the model's order."""
        return [tensor for tensor in self.tensors if tensor.role is role]

    def _types(self, role: TensorRole) -> dict[str, TensorType]:
        return {tensor.name: tensor.kind for tensor in self.of_role(role)}


def is_bundle(folder: Path) -> bool:
    """Whether a path looks like a bundle: a folder with a library and a header of one name."""
    return any((folder / f"{header.stem}.json").is_file() for header in folder.glob("*.h"))


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a bundle, and the digests of its files.

    Raises ArtefactError for a folder that is no bundle, and for one that is damaged.
    """
    if not folder.is_dir():
        raise ArtefactError(f"{folder}: no such directory; qglow compile --emit-bundle DIR makes a bundle")
    found = sorted(folder.glob("*.json"))
    if len(found) != 1:
        raise ArtefactError(f"{folder} is no bundle: it has {len(found)} files *.json, a bundle has one")
    path = found[0]
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError("it is too large")
        plain = json.loads(path.read_text(encoding="utf-8"))
        manifest = _parsed(folder, plain)
        digests = {str(name): str(digest) for name, digest in plain["sha256"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, TextError, OSError) as error:
        said = error if type(error) is ValueError else repr(error)
        raise ArtefactError(f"{path} is no manifest of a bundle, {said}: write the bundle again") from error
    _check_files(manifest, digests)
    return manifest


def _parsed(folder: Path, plain: dict[str, Any]) -> Manifest:
    if plain["format"] != MANIFEST_VERSION:
        raise ValueError(f"format {plain['format']!r}; this qglow reads {MANIFEST_VERSION}")
    tensors = tuple(
        BundleTensor(
            str(entry["name"]),
            _identifier(entry["field"]),
            parse_type(Lexer(str(entry["type"]))),
            TensorRole(entry["role"]),
        )
        for entry in plain["tensors"]
    )
    manifest = Manifest(
        folder,
        _identifier(plain["prefix"]),
        str(plain["target"]),
        _number(plain["interface"]),
        _number(plain["arena_bytes"]),
        _number(plain["selftest_bytes"]),
        _number(plain["weights_bytes"]),
        _number(plain["code_bytes"]),
        tensors,
        {str(name): _number(size) for name, size in plain.get("kernel_bytes", {}).items()},
        tuple(_source(name) for name in plain.get("sources", ())),
    )
    parts = tuple(_number(count) for count in plain.get("parts", ()))
    sizes = manifest.arena_bytes, manifest.weights_bytes, manifest.selftest_bytes, parts
    version = str(plain["qglow"])
    if manifest.interface != fingerprint_of(version, manifest.target, manifest.prefix, sizes, tensors):
        raise ValueError("its sizes and tensors are not those that its code was made for")
    return manifest


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no size")
    return value


def _source(value: object) -> str:
    return f"{_identifier(str(value).removesuffix('.c'))}.c"


def _identifier(value: object) -> str:
    text = str(value)
    if not (text.isascii() and text.isidentifier()):
        raise ValueError(f"{text!r} is no name in C")
    return text


def _check_files(manifest: Manifest, digests: dict[str, str]) -> None:
    used = [manifest.weights, manifest.path(f"{manifest.prefix}.h")]
    used += [manifest.path(name) for name in manifest.sources] or [manifest.library]
    for path in (*used, *([manifest.module] if manifest.module.exists() else [])):
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ArtefactError(f"{path} cannot be read: {error.strerror or error}") from error
        if digests.get(path.name) != sha256_hex(content):
            raise ArtefactError(f"{path} is not the file that its manifest names: write the bundle again")
