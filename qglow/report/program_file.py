"""The content of a model.qglow: the shapes that it has programs for, and the sizes of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from qglow.display.blocks import Section, byte_count, facts, table
from qglow.display.document import Document
from qglow.runtime.archive import Archive
from qglow.runtime.artefact import FORMATS, Artefact
from qglow.runtime.collection import FORMAT, Collection
from qglow.runtime.members import opened, refusing
from qglow.runtime.signature import Signature
from qglow.toolchain.form_facts import forms_from

_KINDS = {"programs": "programs as text", "constants": "constants", "tables": "tables of sizes"}


def program_file_document(path: Path) -> Document:
    """Document of a file. Raises ArtefactError for one that is damaged, or is none."""
    with refusing(path):
        archive = opened(path, (*FORMATS, FORMAT))
        programs = _ranges(archive) if archive.manifest["format"] == FORMAT else [_only(archive)]
        isas = ", ".join(sorted(archive.manifest["isas"])) or "none"
        about = [
            ("name", str(archive.manifest["name"])),
            ("format", str(archive.manifest["format"])),
            ("machine code for", isas),
            ("programs", str(len(programs))),
        ]
        sizes = _sizes(archive.sizes)
    rows = [(str(number), text) for number, text in enumerate(programs, 1)]
    parts = [(part, byte_count(size)) for part, size in sizes.items()]
    return Document(
        path.name,
        (
            Section("File", (facts(about),)),
            Section("Programs", (table(("#>", "inputs"), rows),)),
            Section("Parts", (table(("part", "size>"), parts),)),
        ),
    )


def _ranges(archive: Archive) -> list[str]:
    collection = Collection(archive)
    dimensions, forms = forms_from(collection.facts(), collection.table)
    return [dimensions.range_text(form.taken) for form in forms]


def _only(archive: Archive) -> str:
    inputs = Signature.of(Artefact(archive).program()).inputs
    return ", ".join(f"{name} [{', '.join(map(str, kind.shape))}]" for name, kind in inputs.items())


def _sizes(members: Mapping[str, int]) -> dict[str, int]:
    """Bytes by part, the order that of the file's members."""
    found: dict[str, int] = {}
    for name, size in members.items():
        folder, _, rest = name.rpartition("/")
        first = folder.split("/")[0]
        if not folder:
            part = "programs as text" if name == "program.txt" else "about the file"
        elif first in _KINDS:
            part = _KINDS[first]
        elif rest == "weights.bin":
            part = f"packed weights, {first}"
        else:
            part = f"machine code of {folder}" if rest.endswith(".o") else f"planned programs, {first}"
        found[part] = found.get(part, 0) + size
    return found
