"""Writing of a program as a bundle of C99 sources, which any C compiler builds."""

from __future__ import annotations

import json
from pathlib import Path

from qglow.bundles.code import crc32
from qglow.bundles.identifiers import identifier
from qglow.bundles.interface import Interface
from qglow.bundles.texts import source_texts
from qglow.bundles.write import (
    TargetFacts,
    as_callers_see,
    interface_fingerprint,
    make_vectors,
    manifest_of,
)
from qglow.core.files import write_atomically
from qglow.csource.parts import check_text, selftest_text, tensors_text, weights_text
from qglow.csource.program import SourceProgram
from qglow.instructions.program import Program
from qglow.runtime.signature import Signature

PARTS = ("code", "check", "weights", "tensors", "selftest")
"""Ends of the names of the files, which are members of a library to be: what nothing calls is not linked."""


def write_source_bundle(program: Program, name: str, folder: Path) -> None:
    """Write a planned program into an empty folder. name: of the target.

    The same program gives the same bytes. Raises UnsupportedError for what there is no C for, InputFileError
    where a file cannot be written.
    """
    source = SourceProgram(program)
    weights, prefix = source.weights, identifier(program.name, "model")
    interface = Interface.of(prefix, Signature.of(program), program.arena_size or 0, len(weights), 0)
    target = TargetFacts(name)
    fingerprint = interface_fingerprint(interface, target)
    texts = source_texts(interface, program.name, name, fingerprint)
    texts |= {
        f"{prefix}_code.c": source.text(interface),
        f"{prefix}_check.c": check_text(interface, fingerprint, crc32(weights)),
        f"{prefix}_weights.c": weights_text(interface, weights),
        f"{prefix}_tensors.c": tensors_text(interface),
        f"{prefix}_selftest.c": selftest_text(interface, as_callers_see(interface, make_vectors(program))),
    }
    written = {file: text.encode() for file, text in texts.items()}
    written[f"{prefix}.weights.bin"] = weights.tobytes()
    manifest = manifest_of(interface, target, program, written, fingerprint)
    manifest["sources"] = [f"{prefix}_{part}.c" for part in PARTS]
    written[f"{prefix}.json"] = (json.dumps(manifest, indent=2, ensure_ascii=True) + "\n").encode()
    for file, content in written.items():
        write_atomically(folder / file, content)
