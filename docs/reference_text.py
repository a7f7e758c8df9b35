"""Text of the reference that is made from the code: commands, operators, instructions, errors, public names.

A page asks for it by a comment on a line of its own, `<!-- generated: NAME ARGUMENT -->`. `expand` replaces
all of them; it is what the MkDocs hook and the tests of the documentation call.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, is_typeddict

import typer

import qglow
import qglow.api.keywords
from qglow import metrics
from qglow.cli.failure import BROKEN_PIPE, INTERRUPTED, TERMINATED
from qglow.cli.main import app
from qglow.cli.reference import commands_markdown
from qglow.core.errors import QglowError
from qglow.core.passes import Pass
from qglow.graph.operator import OPERATORS, Operator
from qglow.instructions import passes as instruction_passes
from qglow.instructions.operation import OPERATIONS, Operand, Operation
from qglow.passes import ALL_PASSES
from qglow.report.metrics import ErrorSummary
from qglow.report.operator_matrix import operator_matrix, policy_text

REPOSITORY = Path(__file__).resolve().parents[1]
MARKER = re.compile(r"^<!-- generated: ([a-z-]+)(?: (.+?))? -->$", re.MULTILINE)


def expand(markdown: str) -> str:
    """Replace every marker of a page. Raises KeyError for a name that there is no generator for."""
    return MARKER.sub(lambda match: GENERATORS[match[1]](*filter(None, [match[2]])), markdown)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a Markdown table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def commands() -> dict[str, Any]:
    """Return every command of the command line by its full name, such as "profile merge"."""
    return dict(_leaves(typer.main.get_command(app), ""))


def _leaves(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            if command.invoke_without_command:
                yield prefix + name, command
            yield from _leaves(command, f"{prefix}{name} ")
        else:
            yield prefix + name, command


def command_table() -> str:
    """List the commands with their first sentences and links to their sections."""
    rows = [(f"[`qglow {name}`](#qglow-{name.replace(' ', '-')})", _first_line(command.help))
            for name, command in commands().items()]  # fmt: skip
    return table(("command", "what it does"), rows)


def command_reference(name: str) -> str:
    """Describe how a command is called: usage, arguments and options by group, examples."""
    sections = re.split(r"^## qglow (.+)$", commands_markdown(), flags=re.MULTILINE)
    text = sections[sections.index(name) + 1]
    usage, rest = text.split("\n```\n", 1)
    listed = re.search(r"^(\||```)", rest, re.MULTILINE)
    return f"{usage}\n```\n\n{rest[listed.start() :]}".strip() if listed else text.strip()


def exit_codes() -> str:
    """List every exit code with the errors that give it."""
    by_code: dict[int, list[type[QglowError]]] = {}
    for error in _errors(QglowError):
        by_code.setdefault(error.exit_code, []).append(error)
    rows = [("0", "success", "")]
    for code, errors in sorted(by_code.items()):
        top = next((error for error in errors if error is not QglowError), QglowError)
        rows.append((str(code), _first_line(top.__doc__), ", ".join(f"`{e.__name__}`" for e in errors)))
    signals = f"{INTERRUPTED}, {BROKEN_PIPE}, {TERMINATED}"
    rows.append((signals, "interrupted (Ctrl-C); the reader of the output went away; terminated", ""))
    return table(("code", "meaning", "errors in Python"), rows)


def _errors(base: type[QglowError]) -> Iterator[type[QglowError]]:
    yield base
    for error in base.__subclasses__():
        yield from _errors(error)


def operator_table() -> str:
    """Say for every operator of graphs what each layer does with it."""
    rows = [
        (
            f"[`{f.name}`](graph-ir.md#{f.name.lower()})",
            _yes(f.imported),
            f.policy,
            _yes(f.exported),
            f.lowering,
        )
        for f in operator_matrix()
    ]
    return table(("operator", "in ONNX", "under quantization", "exported", "lowering"), rows)


def _linked(operator: str) -> str:
    return f"[`{operator}`](graph-ir.md#{operator.lower()})"


def graph_operators() -> str:
    """Describe every operator of the graph IR."""
    return "\n\n".join(_graph_operator(cls) for _, cls in sorted(OPERATORS.items()))


def _graph_operator(cls: type[Operator]) -> str:
    lines = [f"- operands: {_names(cls.operands)}", *_fields(cls), f"- quantization: {policy_text(cls)}"]
    return "\n\n".join([f"### {cls.name}", _document(cls), "\n".join(lines)])


def instructions() -> str:
    """Describe every instruction."""
    return "\n\n".join(_instruction(cls) for _, cls in sorted(OPERATIONS.items()))


def _instruction(cls: type[Operation]) -> str:
    operands = cls.operand_words if cls.varies else [*map(_operand, cls.signature)]
    properties = [
        ("data-parallel", cls.data_parallel),
        ("may carry an epilogue", cls.has_epilogue),
        ("keeps state between calls", cls.updates_state),
        ("only says where buffers are", not cls.touches_memory),
    ]
    lines = [f"- operands: {', '.join(operands) or 'none'}", *_fields(cls)]
    if cls.in_place:
        shared = ", ".join(f"`{a}` with `{b}`" for a, b in cls.in_place)
        lines.append(f"- may share a buffer: {shared}")
    held = [text for text, holds in properties if holds]
    if held:
        lines.append(f"- properties: {', '.join(held)}")
    return "\n\n".join([f"### {cls.opcode}", _document(cls), "\n".join(lines)])


def _operand(operand: Operand) -> str:
    properties = [word for word in ("optional", "strided") if getattr(operand, word)]
    return f"`{operand.access.value} {operand.name}`" + (f" ({', '.join(properties)})" if properties else "")


def graph_passes() -> str:
    """List the passes over graphs."""
    return _passes(ALL_PASSES)


def program_passes() -> str:
    """List the passes over instruction programs."""
    return _passes(instruction_passes.ALL_PASSES)


def _passes(classes: Iterable[type[Pass[Any]]]) -> str:
    rows = [
        (f"`{cls.name}`", _first_line(cls.__doc__), ", ".join(f"`{f.name}`" for f in dataclasses.fields(cls)))
        for cls in classes
    ]
    return table(("pass", "what it does", "options"), rows)


def packages() -> str:
    """List the packages: what each holds, by its docstring, and what it may import, by the test of layers."""
    source = (REPOSITORY / "tests" / "test_layers.py").read_text(encoding="utf-8")
    declared = source.split("DIRECT: ", 1)[1].split("\n}\n", 1)[0]
    rows = []
    for name, below in re.findall(r'^    "(\w+)": (set\(\)|\{.*?\}),', declared, re.MULTILINE | re.DOTALL):
        imported = ", ".join(f"`{other}`" for other in re.findall(r'"(\w+)"', below))
        rows.append((f"`{name}`", _package_summary(name), imported or "numpy"))
    return table(("package", "holds", "may import, besides what those import"), rows)


def _package_summary(name: str) -> str:
    return _first_line(importlib.import_module(f"qglow.{name}").__doc__)


def instruction_sets() -> str:
    """List the targets, slowest first, with what each needs."""
    rows = [(f"`{t.name}`", t.summary, t.cpu, ", ".join(t.features)) for t in qglow.list_targets()]
    return table(("target", "what it is", "processor", "features beyond it"), rows)


def error_figures() -> str:
    """Explain the figures of a comparison, as the class that holds them does."""
    return _document(ErrorSummary)


def public_api() -> str:
    """List every public name, and the keywords of functions, for mkdocstrings, in groups."""
    objects = {name: getattr(qglow, name) for name in qglow.__all__ if not name.startswith("__")}
    errors = {n: o for n, o in objects.items() if inspect.isclass(o) and issubclass(o, QglowError)}
    functions = {n: o for n, o in objects.items() if inspect.isfunction(o)}
    classes = {n: o for n, o in objects.items() if inspect.isclass(o) and n not in errors}
    keywords = {n: o for n, o in vars(qglow.api.keywords).items() if is_typeddict(o) and n != "TypedDict"}
    groups = {"Functions": functions, "Keywords": keywords, "Classes": classes, "Errors": errors}
    return "\n\n".join(
        f"## {title}\n\n" + "\n\n".join(_identifier(name, members[name]) for name in sorted(members))
        for title, members in groups.items()
    )


def metric_functions() -> str:
    """List the public names of qglow.metrics for mkdocstrings."""
    objects = {name: getattr(metrics, name) for name in metrics.__all__}
    return "\n\n".join(_identifier(n, o) for n, o in objects.items() if hasattr(o, "__qualname__"))


def _identifier(name: str, member: Any) -> str:
    options = f"    options:\n      heading: {name}\n      toc_label: {name}"
    return f"::: {member.__module__}.{member.__qualname__}\n{options}"


def top_level_file(name: str) -> str:
    """Copy a file of the repository's top level, its links made to fit the site."""
    text = (REPOSITORY / name).read_text(encoding="utf-8")
    text = re.sub(r"\]\(docs/", "](../", text)
    return re.sub(r"\]\(([A-Z]+)\.md", lambda match: f"]({match[1].lower()}.md", text)


def _fields(cls: type[Any]) -> list[str]:
    fields = [
        f"`{f.name}: {f.type}`" + ("" if f.default is dataclasses.MISSING else f" = `{f.default}`")
        for f in dataclasses.fields(cls)
    ]
    return [f"- attributes: {', '.join(fields)}"] if fields else []


def _names(operands: Sequence[str]) -> str:
    meanings = {"?": " (optional)", "*": " (any number)"}
    return ", ".join(f"`{o.rstrip('?*')}`" + meanings.get(o[-1], "") for o in operands) or "none"


def _document(cls: type[Any]) -> str:
    return inspect.cleandoc(cls.__doc__ or "").replace("*", r"\*").replace("<", "&lt;")


def _first_line(text: str | None) -> str:
    return _sentence(inspect.cleandoc(text or "").splitlines()[0] if text else "")


def _sentence(text: str | None) -> str:
    return (text or "").replace("<", "&lt;").replace("[", "\\[")


def _yes(present: bool) -> str:
    return "yes" if present else ""


GENERATORS: dict[str, Callable[..., str]] = {
    "command-table": command_table,
    "command": command_reference,
    "exit-codes": exit_codes,
    "operator-table": operator_table,
    "graph-operators": graph_operators,
    "instructions": instructions,
    "graph-passes": graph_passes,
    "program-passes": program_passes,
    "packages": packages,
    "instruction-sets": instruction_sets,
    "error-figures": error_figures,
    "metric-functions": metric_functions,
    "public-api": public_api,
    "file": top_level_file,
}
