"""The packages of qglow import one another in one direction only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "qglow"

# What each package may import directly, besides itself and what those may import.
DIRECT: dict[str, set[str]] = {
    "core": set(),
    "numerics": {"core"},
    "graph": {"numerics"},
    "instructions": {"numerics"},
    "importer": {"graph"},
    "exporter": {"graph"},
    "passes": {"graph"},
    "recipe": {"core"},
    "profiling": {"passes", "recipe"},
    "quantization": {"profiling"},
    "lowering": {"passes", "instructions"},
    "kernels": {"instructions"},
    "codegen": {"kernels"},
    "runtime": {"codegen"},
    "toolchain": {"importer", "exporter", "quantization", "lowering", "runtime"},
    "report": {"toolchain"},
    "tuning": {"report"},
    "api": {"tuning"},
    "cli": {"api"},
}

# Heavy or special third-party packages and the only places that import them.
RESTRICTED: dict[str, set[str]] = {
    "onnx": {"importer", "exporter"},
    "onnxruntime": {"report"},
    "openvino": {"report"},
    "typer": {"cli"},
    "llvmlite": {"kernels", "codegen"},
}


def _allowed(package: str) -> set[str]:
    result = {package}
    for name in DIRECT[package]:
        result |= _allowed(name)
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
    """The package a module belongs to: qglow.api is one of its own, qglow itself is the api."""
    parts = module.split(".")
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


def test_modules_have_no_import_cycle() -> None:
    found = _cycle(_module_edges())
    assert found is None, " -> ".join(found or [])


def test_cycles_are_found() -> None:
    assert _cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert _cycle({"a": {"b", "c"}, "b": {"c"}}) is None


def test_imports_inside_functions_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("def f():\n    from qglow.core import types\n")
    assert ("qglow.core.types", 2) in set(_imports(path))
