"""Writing of a program as a bundle of C99 sources, which any C compiler builds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from qglow.bundles.code import crc32
from qglow.bundles.identifiers import identifier
from qglow.bundles.interface import Interface
from qglow.bundles.texts import source_files, source_texts
from qglow.bundles.write import (
    TargetFacts,
    as_callers_see,
    interface_fingerprint,
    make_vectors,
    manifest_of,
)
from qglow.core.files import write_atomically
from qglow.csource.parts import check_text, reset_text, selftest_text, tensors_text, weights_text
from qglow.csource.program import SourceProgram
from qglow.instructions.program import Program
from qglow.runtime.signature import Signature


def write_source_bundle(
    program: Program, name: str, folder: Path, states: Mapping[str, str] | None = None
) -> None:
    """Write a planned program into an empty folder. name: of the target.

    states: inputs that are states to the caller, each with the output that the next run reads there.

    The same program gives the same bytes. Raises UnsupportedError for what there is no C for, UsageError for
    states that the program does not have, InputFileError where a file cannot be written.
    """
    source = SourceProgram(program)
    weights, prefix = source.weights, identifier(program.name, "model")
    sizes = program.arena_size or 0, len(weights)
    interface = Interface.of(prefix, Signature.of(program), *sizes, 0, states)
    vectors = as_callers_see(interface, make_vectors(program, states or {}))
    target = TargetFacts(name)
    fingerprint = interface_fingerprint(interface, target)
    texts = source_texts(interface, program.name, name, fingerprint)
    texts |= {
        f"{prefix}_code.c": source.text(interface),
        f"{prefix}_check.c": check_text(interface, fingerprint, crc32(weights)),
        f"{prefix}_weights.c": weights_text(interface, weights),
        f"{prefix}_tensors.c": tensors_text(interface),
        f"{prefix}_selftest.c": selftest_text(interface, vectors),
    }
    if interface.states:
        texts[f"{prefix}_reset.c"] = reset_text(interface)
    written = {file: text.encode() for file, text in texts.items()}
    written[f"{prefix}.weights.bin"] = weights.tobytes()
    manifest = manifest_of(interface, target, program, written, fingerprint)
    manifest["sources"] = source_files(interface)
    written[f"{prefix}.json"] = (json.dumps(manifest, indent=2, ensure_ascii=True) + "\n").encode()
    for file, content in written.items():
        write_atomically(folder / file, content)
