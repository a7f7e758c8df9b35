"""The rules that every answer to hostile input keeps."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OK, FAILED, USAGE, UNSUPPORTED, BAD_FILE, REGRESSION, MEMORY = 0, 1, 2, 3, 4, 5, 6
DOCUMENTED = frozenset({OK, FAILED, USAGE, UNSUPPORTED, BAD_FILE, REGRESSION, MEMORY})
REFUSALS = frozenset({USAGE, UNSUPPORTED, BAD_FILE, MEMORY})
OTHERS = frozenset({".ses"})
"""Temporary files of libraries: onnxruntime notes when it was used."""

LONGEST_LINE = 2000
"""Characters of a message after which nobody reads on."""

MEMORY_MARGIN = 300 << 20
"""Bytes above the budget that the process itself may take: code, caches, copies in use."""


@dataclass(frozen=True)
class Answer:
    """What one command line did."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str
    grown: int
    """Bytes that the process's memory grew at most."""


def broken_rules(answer: Answer, budget: int) -> Iterator[str]:
    """A sentence on each rule that the text, the exit code or the memory of an answer break."""
    text = answer.out + answer.err
    if answer.code not in DOCUMENTED:
        yield f"exit code {answer.code}: {answer.err.strip()[-400:]}"
    if "Traceback" in text:
        yield f"a traceback: {text[text.index('Traceback') :][-400:]}"
    strange = {
        c for c in text if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    }
    if strange:
        yield f"prints control characters: {sorted(map(ascii, strange))}"
    errors = [line for line in answer.err.splitlines() if line.startswith("qglow: ")]
    if answer.code in REFUSALS and not (len(errors) == 1 and errors[0].startswith("qglow: error: ")):
        yield f"{len(errors)} error lines with exit code {answer.code}: {answer.err[-400:]!r}"
    if answer.code in REFUSALS and errors and len(errors[0].rstrip()) < 20:
        yield f"an error that says nothing: {errors[0]!r}"
    listed = [line for line in answer.err.splitlines() if line.startswith("  ")]
    if answer.code in REFUSALS - {UNSUPPORTED} and listed:
        yield f"an error of {1 + len(listed)} lines: {answer.err[-400:]!r}"
    if answer.code == OK and errors:
        yield f"an error with exit code 0: {errors[0][:300]}"
    if errors and max(map(len, errors)) > LONGEST_LINE:
        yield f"an error of {max(map(len, errors))} characters: {errors[0][:120]} ..."
    if answer.grown > budget + MEMORY_MARGIN:
        yield f"took {answer.grown >> 20} MB where {budget >> 20} are allowed"


def broken_folders(answer: Answer, before: frozenset[str], out: Path, temporary: Path) -> Iterator[str]:
    """A sentence on each thing that a command left where it should not. `before`: what lay in `out`."""
    now = names_below(out)
    half = [name for name in now if name.endswith(".tmp") or Path(name).name.startswith(".")]
    if half:
        yield f"left unfinished files: {half[:3]}"
    if answer.code in REFUSALS and now - before:
        yield f"wrote {sorted(now - before)[:3]} and refused"
    wanted = answer.words[answer.words.index("-o") + 1] if "-o" in answer.words else None
    if answer.code == OK and wanted is not None and not (out / wanted).exists():
        yield f"succeeded without writing {wanted}"
    left = names_below(temporary) - OTHERS
    if left:
        yield f"left temporary files: {sorted(left)[:3]}"


def names_below(folder: Path) -> frozenset[str]:
    """Names of all files and folders in a folder."""
    return frozenset(str(path.relative_to(folder)) for path in folder.rglob("*"))


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file in a folder, but of those that are mere holes."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_blocks)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
