"""Changes of model.qglow and of quantized directories: with digests that tell, or that do not."""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path

import numpy as np

from qglow.core.files import sha256_hex
from qglow.runtime.archive import MANIFEST
from tests.fuzz.mutators import raw
from tests.fuzz.mutators.arrays import mutated_archive, mutated_array
from tests.fuzz.mutators.documents import changed, mutated_json, mutated_yaml
from tests.fuzz.mutators.models import SIZES
from tests.fuzz.mutators.raw import Random
from tests.fuzz.mutators.texts import HOSTILE

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_WORD = re.compile(r"[A-Za-z_][\w.]*")


def mutated_text(rng: Random, data: bytes) -> bytes:
    """A listing of an IR with other numbers, words, names, lines or bytes."""
    text = data.decode()
    draw = int(rng.integers(6))
    if draw == 0:
        return raw.mutated(rng, data)
    if draw in (1, 2):
        pattern = _NUMBER if draw == 1 else _WORD
        found = list(pattern.finditer(text))
        place = found[int(rng.integers(len(found)))]
        word = str(SIZES[int(rng.integers(len(SIZES)))])
        if draw == 2:
            word = found[int(rng.integers(len(found)))].group()
        elif rng.random() < 0.2:
            word = str(rng.choice(["nan", "inf", "-inf", "1e999", "0x0", "1e-320"]))
        return (text[: place.start()] + word + text[place.end() :]).encode()
    lines = text.splitlines(keepends=True)
    index = int(rng.integers(len(lines)))
    if draw == 3:
        del lines[index]
    elif draw == 4:
        lines.insert(int(rng.integers(len(lines))), lines[index])
    else:
        name = json.dumps(HOSTILE[int(rng.integers(len(HOSTILE)))], ensure_ascii=bool(rng.random() < 0.5))
        lines[index] = re.sub(r'%(\w|")[^ ,)=]*', lambda _: "%" + name, lines[index], count=1)
    return "".join(lines).encode("utf-8", "surrogatepass")


def _member(rng: Random, name: str, data: bytes) -> bytes:
    if name.endswith(".npy"):
        return mutated_array(rng, np.load(io.BytesIO(data)))
    if name.endswith(".txt"):
        return mutated_text(rng, data)
    if name.endswith(".json"):
        return mutated_json(rng, data)
    if name.endswith(".yaml"):
        return mutated_yaml(rng, data)
    return mutated_archive(rng, data) if name.endswith(".npz") else raw.mutated(rng, data)


def mutated_program(rng: Random, data: bytes) -> bytes:
    """A model.qglow with a changed member or manifest; its digests are made right three times of four."""
    if rng.random() < 0.15:
        return raw.mutated(rng, data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    names = [name for name in members if name != MANIFEST]
    wanted = "program.txt" if rng.random() < 0.5 else names[int(rng.integers(len(names)))]
    members[wanted] = _member(rng, wanted, members[wanted])
    manifest = json.loads(members[MANIFEST])
    if rng.random() < 0.75:
        manifest["sha256"][wanted] = sha256_hex(members[wanted])
    content = json.dumps(manifest).encode()
    if rng.random() < 0.2:
        content = mutated_json(rng, members[MANIFEST])
    return _zipped({**members, MANIFEST: content}, rng)


def _zipped(members: dict[str, bytes], rng: Random) -> bytes:
    stream = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if rng.random() < 0.05 else zipfile.ZIP_STORED
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in members.items():
            if rng.random() > 0.01:
                archive.writestr(name, data)
    return stream.getvalue()


def mutate_directory(rng: Random, folder: Path) -> None:
    """Change a file of a quantized directory or its manifest in place, mostly with a digest made right."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    if rng.random() < 0.15:
        path.write_bytes(mutated_json(rng, path.read_bytes()))
        return
    names = sorted(manifest["files"])
    name = names[int(rng.integers(len(names)))]
    data = (folder / name).read_bytes()
    if name.endswith(".qglow"):
        data = mutated_program(rng, data)
    elif rng.random() < 0.05:
        (folder / name).unlink()
        return
    else:
        data = _member(rng, name, data)
    (folder / name).write_bytes(data)
    if rng.random() < 0.75:
        manifest["files"][name] = sha256_hex(data)
    if rng.random() < 0.1:
        manifest["model"] = changed(rng, manifest["model"])
    path.write_text(json.dumps(manifest, default=str))
