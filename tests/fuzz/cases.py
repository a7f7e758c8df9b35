"""Cases: a changed file among valid ones, and the command lines that read it. A seed and a number say all."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qglow.core.files import sha256_hex
from tests.fuzz.corpus import CORPUS
from tests.fuzz.mutators import arrays, artefacts, documents, gguf, images, models, raw
from tests.fuzz.mutators.raw import Random
from tests.fuzz.mutators.texts import HOSTILE
from tests.fuzz.networks import feeds, write_data
from tests.fuzz.workbench import FILES, Workbench

Words = tuple[str, ...]
Lines = list[Words]


@dataclass(frozen=True)
class Case:
    """Command lines to run in the folder `out` beside `folder`, which holds what they read."""

    number: int
    kind: str
    lines: tuple[Words, ...]
    writes: frozenset[str] = frozenset()
    """Names of files that the commands may change where they lie."""
    wanted: int | None = None
    """The exit code of the last command, where it is known."""


def make_case(bench: Workbench, seed: int, number: int, folder: Path) -> Case:
    """Write the files of a case into an empty folder; numbers below 0 count the corpus from its end."""
    for name in FILES:
        (folder / name).write_bytes(bench.bytes_of(name))
    if number < 0:
        name = list(CORPUS)[number]
        wanted, make = CORPUS[name]
        return Case(number, name, (make(bench.folder, folder),), wanted=wanted)
    rng = np.random.default_rng([seed, number])
    kinds = list(KINDS)
    weights = np.array([KINDS[kind][0] for kind in kinds], float)
    kind = kinds[int(rng.choice(len(kinds), p=weights / weights.sum()))]
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # of members of one name, and of numbers that overflow: so they should
        lines = KINDS[kind][1](rng, bench, folder)
    updated = frozenset({"baseline.yaml"} if any("--update" in line for line in lines) else ())
    return Case(number, kind, tuple(lines), updated)


def _one(rng: Random, lines: Lines) -> Lines:
    return [lines[int(rng.integers(len(lines)))]]


def _model(rng: Random, bench: Workbench, folder: Path) -> Lines:
    """A changed model, through everything that takes one."""
    names = list(bench.networks)
    name = names[int(rng.integers(len(names)))] if rng.random() < 0.7 else names[int(rng.integers(6))]
    valid = bench.networks[name]
    path, data = str(folder / "changed.onnx"), str(write_data(folder / "data.npz", feeds(valid)))
    Path(path).write_bytes(models.mutated(rng, valid))
    draw = rng.random()
    if draw < 0.12:
        return [("inspect", path, *(() if rng.random() < 0.5 else ("--stage", "instructions")))]
    if draw < 0.17:
        return [("inspect", path, "--dot")]
    if draw < 0.35:
        return [("compile", path, "-o", "made.qglow")]
    if draw < 0.40:
        return [("compile", path, "--dump-ir")]
    if draw < 0.60:
        return [("run", path, "--data", data, "--samples", "2", "-o", "made.npz")]
    if draw < 0.75:
        quantized: Words = ("quantize", "--profile", "made.yaml", "-o", "made.quantized")
        if (
            rng.random() < 0.8
        ):  # repairs try many models: most of the time of a case, and always of the same kind
            quantized = (*quantized, "--no-repair")
        return [("profile", path, "--data", data, "--engine", _engine(rng), "-o", "made.yaml"), quantized]
    if draw < 0.82:
        made: Lines = [("compile", path, "-o", "made.qglow")]
        if name.startswith("quantized"):
            made = [("quantize", path, "-o", "made.quantized")]
        return [*made, ("run", made[0][-1], "--data", data)]
    if draw < 0.88:
        return [("explain", path, "Conv_0")]
    if draw < 0.94:
        return [("opt", path, "--log", "-o", "made.txt")]
    return [("run", path, "--data", data, "--isa", "reference", "-o", "made.npz")]


def _engine(rng: Random) -> str:
    return "compiled" if rng.random() < 0.8 else "interpreter"


def _profile(rng: Random, bench: Workbench, folder: Path) -> Lines:
    path = folder / "profile.yaml"
    path.write_bytes(documents.mutated_yaml(rng, path.read_bytes()))
    data, model = str(folder / "image.npz"), str(folder / "image.onnx")
    return _one(
        rng,
        [
            ("quantize", model, "--profile", str(path), "-o", "made.quantized"),
            ("quantize", "--profile", str(path), "-o", "made.quantized"),
            ("profile", "merge", str(path), str(bench.folder / "profile.yaml"), "-o", "made.yaml"),
            ("profile", "drift", str(path), "--model", model, "--data", data, "-o", "made.json"),
            ("compare", model, "--profile", str(path), "--data", data),
        ],
    )


def _samples(rng: Random, bench: Workbench, folder: Path) -> Lines:
    """Changed samples beside a profile, whose digest is mostly made right."""
    path, profile = folder / "profile.samples.npz", folder / "profile.yaml"
    valid = bench.bytes_of(path.name)
    path.write_bytes(arrays.mutated_archive(rng, valid))
    if rng.random() < 0.8:
        digest = sha256_hex(path.read_bytes())
        profile.write_text(profile.read_text().replace(sha256_hex(valid), digest))
    model, words = str(folder / "image.onnx"), ("--profile", str(profile))
    return _one(
        rng,
        [
            ("quantize", *words, "-o", "made.quantized"),
            ("quantize", model, *words, "--no-repair", "-o", "made.quantized"),
            ("profile", "merge", str(profile), str(bench.folder / "profile.yaml"), "-o", "made.yaml"),
        ],
    )


def _recipe(rng: Random, bench: Workbench, folder: Path) -> Lines:
    path = folder / "recipe.yaml"
    path.write_bytes(documents.mutated_yaml(rng, path.read_bytes()))
    model, profile, pictures = (
        str(folder / "image.onnx"),
        str(folder / "profile.yaml"),
        str(bench.folder / "images"),
    )
    recipe = ("--recipe", str(path))
    return _one(
        rng,
        [
            ("recipe", "show", str(path)),
            ("quantize", model, "--profile", profile, *recipe, "-o", "made.quantized"),
            ("profile", model, "--data", pictures, *recipe, "-o", "made.yaml"),
            ("run", model, "--data", pictures, *recipe, "-o", "made.npz"),
        ],
    )


def _baseline(rng: Random, bench: Workbench, folder: Path) -> Lines:
    path = folder / "baseline.yaml"
    path.write_bytes(documents.mutated_yaml(rng, path.read_bytes()))
    shutil.copytree(bench.folder / "image.quantized", folder / "image.quantized")
    words = ("check", "--baseline", str(path))
    return _one(rng, [words, (*words, "--update"), (*words, "--junit", "made.xml", "--markdown", "made.md")])


def _data(rng: Random, bench: Workbench, folder: Path) -> Lines:
    model, path = str(folder / "image.onnx"), folder / "data.npz"
    if rng.random() < 0.6:
        path.write_bytes(arrays.mutated_archive(rng, bench.bytes_of("image.npz")))
    else:
        path = folder / "data.npy"
        path.write_bytes(arrays.mutated_array(rng, np.load(folder / "image.npz")["image"]))
    return _readers(rng, model, ("--data", str(path)), folder)


def _labels(rng: Random, bench: Workbench, folder: Path) -> Lines:
    model, quantized = str(folder / "image.onnx"), str(bench.folder / "image.quantized")
    if rng.random() < 0.5:
        path = folder / "labels.npy"
        path.write_bytes(arrays.mutated_array(rng, np.arange(6)))
        words = ("--data", str(folder / "image.npz"), "--labels", str(path))
    else:
        path = folder / "labels.csv"
        path.write_bytes(documents.mutated_csv(rng, (bench.folder / "images" / "labels.csv").read_bytes()))
        words = (
            "--data",
            str(bench.folder / "images"),
            "--labels",
            str(path),
            "--recipe",
            str(folder / "recipe.yaml"),
        )
    profile = str(folder / "profile.yaml")
    if "--recipe" in words:
        return [("compare", model, "--profile", profile, *words)]
    return _one(rng, [("compare", quantized, *words), ("compare", model, "--profile", profile, *words)])


def _readers(rng: Random, model: str, words: Words, folder: Path) -> Lines:
    profile = str(folder / "profile.yaml")
    return _one(
        rng,
        [
            ("profile", model, *words, "-o", "made.yaml"),
            ("run", model, *words, "-o", "made.npz"),
            ("compare", model, "--profile", profile, *words, "-o", "made.json"),
            ("profile", "sufficiency", model, *words, "--resamples", "10", "-o", "made.json"),
        ],
    )


def _image(rng: Random, bench: Workbench, folder: Path) -> Lines:
    pictures = folder / "pictures"
    pictures.mkdir()
    suffix, data = images.mutated(rng)
    (pictures / f"a.{suffix}").write_bytes(data)
    (pictures / "b.png").write_bytes((bench.folder / "images" / "b.png").read_bytes())
    data_words = ("--data", str(pictures), "--recipe", str(folder / "recipe.yaml"))
    return _readers(rng, str(folder / "image.onnx"), data_words, folder)


def _gguf(rng: Random, bench: Workbench, folder: Path) -> Lines:
    path = folder / "changed.gguf"
    path.write_bytes(gguf.mutated(rng))
    made: Lines = [("import-gguf", str(path), "-o", "made.onnx")]
    return (
        made if rng.random() < 0.8 else [*made, ("generate", "made.onnx", "--tokens", "1,3", "--count", "2")]
    )


def _program(rng: Random, bench: Workbench, folder: Path) -> Lines:
    path = folder / "model.qglow"
    path.write_bytes(artefacts.mutated_program(rng, path.read_bytes()))
    run = ("run", str(path), "--data", str(folder / "image.npz"), "--samples", "2")
    return _one(
        rng,
        [
            (*run, "-o", "made.npz"),
            (*run, "-o", "made.npz"),
            (*run, "--isa", "reference"),
        ],
    )


def _directory(rng: Random, bench: Workbench, folder: Path) -> Lines:
    path, data = folder / "changed.quantized", ("--data", str(folder / "image.npz"))
    shutil.copytree(bench.folder / "image.quantized", path)
    artefacts.mutate_directory(rng, path)
    target = str(path)
    return _one(
        rng,
        [
            ("run", target, *data, "-o", "made.npz"),
            ("compare", target, *data, "--model", str(folder / "image.onnx")),
            (
                "inspect",
                target,
                "--stage",
                str(rng.choice(["quantized", "instructions", "kernels", "memory"])),
            ),
            ("explain", target, "Conv_0"),
            ("compile", target, "-o", "made.qglow"),
            ("bisect", target, "--data", str(folder / "image.npz")),
        ],
    )


def _options(rng: Random, bench: Workbench, folder: Path) -> Lines:
    """Valid files and hostile words."""
    words = (
        "",
        "-",
        "nan",
        "inf",
        "-1",
        "0",
        "1e400",
        "9" * 400,
        "\x1b[1m",
        "a\nb",
        "--",
        "x=1,2",
        "image=0,1,8,8",
        "[",
        "re:(",
    )
    value = words[int(rng.integers(len(words)))]
    model, data, profile = (str(folder / name) for name in ("image.onnx", "image.npz", "profile.yaml"))
    quantize = ("quantize", model, "--profile", profile, "-o", "made.quantized")
    run = ("run", model, "--data", data, "-o", "made.npz")
    lines: Lines = [
        (*run, "--select", value),
        (*run, "--samples", value),
        (*run, "--top", value),
        (*run, "--shape", value),
        (*run, "--isa", value),
        (*run, "--threads", value),
        ("run", value, "--data", data),
        ("run", model, "--data", value),
        ("run", model, "--data", f"{data}[{value}]"),
        (*quantize, "--calibration", value),
        (*quantize, "--keep-float", value),
        (*quantize, "--effort", value),
        ("compare", model, "--profile", profile, "--data", data, "--min-sqnr", value),
        ("explain", model, value),
        ("opt", model, "-p", value),
        ("inspect", model, "--stage", value),
        ("profile", "drift", profile, "--data", data, "--threshold", value),
        ("profile", "sufficiency", model, "--data", data, "--tolerance", value, "--resamples", "10"),
        ("profile", model, "--data", data, "--batch-size", value, "-o", "made.yaml"),
    ]
    return _one(rng, lines)


def _names(rng: Random, bench: Workbench, folder: Path) -> Lines:
    """Valid, damaged and missing files under hostile names."""
    names = [name[:200] for name in HOSTILE if name.strip() and "/" not in name and "\0" not in name]
    path = folder / (names[int(rng.integers(len(names)))] + str(rng.choice(["", ".npz", ".onnx", ".yaml"])))
    made = f"made{path.name}"
    model, data, profile = (str(folder / name) for name in ("image.onnx", "image.npz", "profile.yaml"))
    readers: dict[str, Lines] = {
        "image.onnx": [
            ("inspect", str(path)),
            ("run", str(path), "--data", data, "-o", made),
            ("compile", str(path), "-o", made),
            ("profile", str(path), "--data", data, "-o", made),
        ],
        "image.npz": [
            ("run", model, "--data", str(path)),
            ("compare", model, "--profile", profile, "--data", str(path)),
        ],
        "profile.yaml": [
            ("quantize", model, "--no-repair", "--profile", str(path), "-o", made),
            ("profile", "drift", str(path), "--data", data),
        ],
        "recipe.yaml": [("recipe", "show", str(path))],
        "baseline.yaml": [("check", "--baseline", str(path))],
        "model.qglow": [("run", str(path), "--data", data, "-o", made), ("inspect", str(path))],
    }
    source = list(readers)[int(rng.integers(len(readers)))]
    draw = rng.random()
    if draw < 0.85:
        content = bench.bytes_of(source)
        path.write_bytes(raw.mutated(rng, content) if draw < 0.4 else content)
    return _one(rng, readers[source])


def _anything(rng: Random, bench: Workbench, folder: Path) -> Lines:
    """Bytes of one file under the name of another."""
    names = [name for name in FILES if name != "plain.yaml"]
    source, target = (names[int(rng.integers(len(names)))] for _ in range(2))
    (folder / target).write_bytes(raw.mutated(rng, (bench.folder / source).read_bytes()))
    readers: dict[str, Words] = {
        "image.onnx": ("inspect", str(folder / "image.onnx")),
        "image.npz": ("run", str(folder / "image.onnx"), "--data", str(folder / "image.npz")),
        "profile.yaml": ("quantize", "--profile", str(folder / "profile.yaml"), "-o", "made.quantized"),
        "recipe.yaml": ("recipe", "show", str(folder / "recipe.yaml")),
        "baseline.yaml": ("check", "--baseline", str(folder / "baseline.yaml")),
        "model.qglow": ("run", str(folder / "model.qglow"), "--data", str(folder / "image.npz")),
    }
    return [readers[target]]


Maker = Callable[[Random, Workbench, Path], Lines]
KINDS: dict[str, tuple[float, Maker]] = {
    "model": (36, _model),
    "profile": (8, _profile),
    "samples": (2, _samples),
    "recipe": (8, _recipe),
    "baseline": (6, _baseline),
    "arrays": (9, _data),
    "labels": (4, _labels),
    "image": (6, _image),
    "program": (8, _program),
    "directory": (5, _directory),
    "options": (4, _options),
    "gguf": (5, _gguf),
    "names": (3, _names),
    "anything": (1, _anything),
}
"""Makers of cases by kind, and how often each is drawn."""
