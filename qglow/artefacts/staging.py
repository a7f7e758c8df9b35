"""A directory of results that appears whole: files first, the manifest that vouches for them last."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from qglow.core.errors import ArtefactError, InputFileError
from qglow.core.files import file_sha256, sha256_hex, write_atomically
from qglow.core.inputs import check_no_input
from qglow.core.reading import MALFORMED, parse_json, read_bytes, read_text

MANIFEST = "manifest.json"


def publish(
    folder: Path, target: Path, facts: Mapping[str, Any], known: Mapping[str, str] | None = None
) -> None:
    """Move every file of `folder` to `target`, which may exist, then write the manifest.

    An earlier manifest goes first: as long as there is one, it is true. The manifest holds
    `facts` and, under "files", the SHA-256 of every file; `known` has those that were already computed.
    It is written in `folder` too, so that not even a killed process leaves a temporary file in `target`.
    Raises InputFileError, and UsageError where a file there is an input of the command at hand.
    """
    files = sorted(path for path in folder.iterdir() if path.is_file())
    for path in files:
        check_no_input(target / path.name)
    known = known or {}
    try:
        digests = {path.name: known.get(path.name) or file_sha256(path) for path in files}
        write_atomically(folder / MANIFEST, _dump({**facts, "files": digests}))
        target.mkdir(parents=True, exist_ok=True)
        (target / MANIFEST).unlink(missing_ok=True)
        for path in files:
            os.replace(path, target / path.name)
        os.replace(folder / MANIFEST, target / MANIFEST)
    except OSError as error:
        raise InputFileError(f"cannot write to {target}: {error.strerror or error}") from error


@contextlib.contextmanager
def refreshed(folder: Path) -> Iterator[None]:
    """Replace files of a directory in the body; its manifest, if it has one, tells the truth afterwards.

    Meanwhile there is none, so that a reader who comes in between is refused. Raises InputFileError.
    """
    path = folder / MANIFEST
    try:
        manifest = parse_json(read_text(path))
        names = sorted(manifest["files"])
        path.unlink()
    except FileNotFoundError:
        names = []
    except (OSError, *MALFORMED) as error:
        raise InputFileError(f"cannot replace files in {folder}: its {MANIFEST}: {error}") from error
    yield
    if not names:
        return
    manifest["files"] = {name: file_sha256(folder / name) for name in names}
    write_atomically(path, _dump(manifest))


def read_manifest(folder: Path, form: str, version: int) -> dict[str, Any]:
    """The manifest of a directory that `publish` wrote. Raises ArtefactError if it is not whole."""
    path = folder / MANIFEST
    try:
        manifest = parse_json(read_text(path))
    except FileNotFoundError as error:
        raise ArtefactError(f"{folder} has no {MANIFEST}; quantize the model (again)") from error
    except (OSError, ValueError) as error:
        raise ArtefactError(f"cannot read {path}: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != form:
        raise ArtefactError(f"{path} is not the manifest of a {form}")
    if manifest.get("version") != version:
        raise ArtefactError(f"{path} has version {manifest.get('version')}; this qglow reads {version}")
    return manifest


def read_checked(folder: Path, manifest: Mapping[str, Any], name: str) -> bytes:
    """A file of the directory. Raises ArtefactError if it is missing or not what was written."""
    path = folder / name
    files = manifest.get("files")
    digest = files.get(name) if isinstance(files, dict) else None
    try:
        data = read_bytes(path)
    except OSError as error:
        raise ArtefactError(f"cannot read {path}: {error.strerror or error}") from error
    if sha256_hex(data) != digest:
        raise ArtefactError(f"{path} is damaged or changed: quantize the model again")
    return data


def _dump(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
