"""The packages of qglow import one another in one direction only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "qglow"

# What each package may import directly, besides itself and what those may import.
DIRECT: dict[str, set[str]] = {
    "core": set(),
    "cluster": {"core"},
    "display": {"core"},
    "numerics": {"core"},
    "host": {"core"},
    "graph": {"numerics", "host"},
    "instructions": {"numerics", "host"},
    "interchange": {"graph"},
    "importer": {"interchange"},
    "exporter": {"interchange"},
    "gguf": {"exporter"},
    "passes": {"graph"},
    "recipe": {"core"},
    "metrics": {"core"},
    "profiling": {"passes", "recipe", "display"},
    "quantization": {"profiling"},
    "counts": {"graph"},
    "lowering": {"passes", "instructions"},
    "kernels": {"instructions"},
    "codegen": {"kernels"},
    "runtime": {"codegen", "display"},
    "bundles": {"runtime"},
    "csource": {"bundles"},
    "targets": {"lowering", "csource"},
    "emulation": {"targets"},
    "toolchain": {"importer", "exporter", "counts", "quantization", "emulation"},
    "generation": {"toolchain"},
    "report": {"toolchain", "metrics"},
    "bisection": {"toolchain"},
    "artefacts": {"report"},
    "tuning": {"artefacts"},
    "baseline": {"tuning"},
    "api": {"baseline", "generation", "cluster", "gguf"},
    "cli": {"api", "bisection"},
}

# Rooms of one package: what each may import directly, besides itself and what those may import.
ROOMS: dict[str, dict[str, set[str]]] = {
    "kernels": {
        "emit": set(),
        "arithmetic": {"emit"},
        "tiles": {"arithmetic"},
        "tiled": {"tiles"},
        "elementwise": {"tiles"},
        "movement": {"arithmetic"},
        "reduction": {"arithmetic"},
        "pooling": {"tiles"},
        "convolution": {"tiled"},
        "products": {"convolution"},
        "attention": {"movement", "products", "reduction"},
        "selection": {"attention", "elementwise", "movement", "reduction", "pooling", "products"},
    },
    "targets": {
        "protocol": set(),
        "rooms": {"protocol"},
        "capabilities": {"protocol"},
        "registry": {"rooms", "capabilities"},
        "listing": {"registry"},
        "native": {"protocol"},
        "kernelless": set(),
        "reference": {"protocol", "kernelless"},
        "c_source": {"protocol", "kernelless"},
        "portable": {"protocol"},
        "x86": {"native"},
        "arm": {"native", "portable"},
        "riscv": {"native", "portable"},
        "wasm": {"native", "portable"},
    },
}

# Heavy or special third-party packages and the only places that import them.
RESTRICTED: dict[str, set[str]] = {
    "onnx": {"importer", "exporter", "interchange", "gguf"},
    "onnxruntime": {"report", "host"},
    "distributed": {"cluster"},
    "openvino": {"report"},
    "typer": {"cli"},
    "llvmlite": {"kernels", "codegen", "targets", "bundles"},
    "jinja2": {"display", "bundles"},
    "matplotlib": {"display", "profiling", "report", "tuning", "api"},
    "pandas": {"display", "profiling", "report", "tuning", "api"},
}


# Words of one family of processors in names and strings of code, and where they may stand beside its room.
X86_ROOM = ROOT / "targets" / "x86"
X86_WORDS = re.compile(
    r"llvm\.x86|avx|\bsse|sse\d|\bamx|_amx|vnni|vbmi|mxcsr|futex|\bpause\b|pmadd|vpdp|vperm|pshuf|\bpack[su]s|tdpb|[xyz]mm\d",
    re.IGNORECASE,
)
X86_ALLOWED = {
    "cli/bisect.py": "an example of a command in its help",
    "targets/rooms.py": "names of targets, so that a room is imported only when one of them is asked for",
    "targets/registry.py": "the name of the target that estimates are made for on every machine",
}


def _allowed(package: str, direct: dict[str, set[str]] = DIRECT) -> set[str]:
    result = {package}
    for name in direct[package]:
        result |= _allowed(name, direct)
    return result


def _modules() -> dict[str, Path]:
    """Dotted module name to file, a package under its own name."""
    modules = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


MODULES = _modules()


def _imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every imported name with its line: top of the file, in functions, and for type checking alike."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{path}:{node.lineno}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            # "from package import module" means the modules, not what the package re-exports.
            if not all(name in MODULES for name in names):
                yield node.module, node.lineno
            yield from ((name, node.lineno) for name in names)


def _package(module: str) -> str:
    """The package a module belongs to: qglow itself is the api, qglow.__main__ the command line."""
    parts = module.split(".")
    if module == "qglow.__main__":
        return "cli"
    return parts[1] if len(parts) > 1 else "api"


def _module_edges() -> dict[str, set[str]]:
    return {
        name: {target for target, _ in _imports(path) if target in MODULES and target != name}
        for name, path in MODULES.items()
    }


def _cycle(edges: dict[str, set[str]]) -> list[str] | None:
    """One cycle of a directed graph as a list of names, or None."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str] | None:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return None
        for target in sorted(edges.get(name, ())):
            found = visit(target, [*path, name])
            if found:
                return found
        done.add(name)
        return None

    for name in sorted(edges):
        found = visit(name, [])
        if found:
            return found
    return None


def test_table_names_every_package() -> None:
    present = {_package(name) for name in MODULES if name != "qglow"}
    assert present <= set(DIRECT), f"not in the table: {sorted(present - set(DIRECT))}"


def test_table_has_no_cycle() -> None:
    assert _cycle(DIRECT) is None


@pytest.mark.parametrize("package", sorted(DIRECT))
def test_package_imports_only_what_lies_below(package: str) -> None:
    allowed = _allowed(package)
    wrong = [
        f"{path.relative_to(ROOT.parent)}:{line} imports {target}"
        for name, path in MODULES.items()
        if _package(name) == package
        for target, line in _imports(path)
        if target.startswith("qglow.") and target in MODULES and _package(target) not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def _room(module: str) -> str:
    """The room of a package that a module is in: qglow.kernels.tiles.output is in tiles."""
    return (module.split(".") + ["", ""])[2]


@pytest.mark.parametrize("package", sorted(ROOMS))
def test_rooms_have_no_cycle_and_name_every_module(package: str) -> None:
    assert _cycle(ROOMS[package]) is None
    present = {_room(name) for name in MODULES if _package(name) == package and _room(name)}
    assert present == set(ROOMS[package])


@pytest.mark.parametrize(("package", "room"), [(p, r) for p in ROOMS for r in ROOMS[p]])
def test_room_imports_only_what_lies_below(package: str, room: str) -> None:
    allowed = _allowed(room, ROOMS[package])
    wrong = [
        f"{path.relative_to(ROOT.parent)}:{line} imports {target}"
        for name, path in MODULES.items()
        if _package(name) == package and _room(name) == room
        for target, line in _imports(path)
        if target in MODULES and _package(target) == package and _room(target) not in allowed
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("library", sorted(RESTRICTED))
def test_library_is_imported_only_where_it_belongs(library: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT.parent)}:{line}"
        for name, path in MODULES.items()
        if _package(name) not in RESTRICTED[library]
        for target, line in _imports(path)
        if target.split(".")[0] == library
    ]
    assert not wrong, f"{library} is imported by " + ", ".join(sorted(set(wrong)))


def test_targets_are_known_by_name_only() -> None:
    """Outside of `targets` nobody imports a room of it: what is there goes through protocol and registry."""
    shared = {"protocol", "registry", "rooms", "capabilities", "listing"}
    wrong = [
        f"{path.relative_to(ROOT.parent)}:{line} imports {target}"
        for name, path in MODULES.items()
        if _package(name) != "targets"
        for target, line in _imports(path)
        if target in MODULES and _package(target) == "targets" and _room(target) not in shared
    ]
    assert not wrong, "\n".join(wrong)


def test_modules_have_no_import_cycle() -> None:
    found = _cycle(_module_edges())
    assert found is None, " -> ".join(found or [])


def _words(path: Path) -> Iterator[tuple[str, int]]:
    """Names and strings of code with their lines; not comments, nor strings that only describe."""
    tree = ast.parse(path.read_text(), str(path))
    described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described:
            yield node.value, node.lineno
        for field in ("name", "id", "attr", "arg", "module"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                yield value, getattr(node, "lineno", 0)


def test_one_room_knows_x86() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in MODULES.values()
        if not path.is_relative_to(X86_ROOM) and str(path.relative_to(ROOT)) not in X86_ALLOWED
        for word, line in _words(path)
        if X86_WORDS.search(word)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", sorted(X86_ALLOWED))
def test_what_may_name_x86_does(name: str) -> None:
    assert any(X86_WORDS.search(word) for word, _ in _words(ROOT / name)), f"{name} needs no permission"


def test_words_of_x86_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text('"""AVX is described."""\nx = f"llvm.x86.{y}"\ndef amx_tile(): ...\n')
    assert sorted(line for word, line in _words(path) if X86_WORDS.search(word)) == [2, 3]


def test_cycles_are_found() -> None:
    assert _cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert _cycle({"a": {"b", "c"}, "b": {"c"}}) is None


def test_imports_inside_functions_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("def f():\n    from qglow.core import types\n")
    assert ("qglow.core.types", 2) in set(_imports(path))
