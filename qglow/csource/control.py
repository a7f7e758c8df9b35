"""C of branches and loops: calls of the functions of their bodies, with tables of addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qglow.csource.writer import Writer
from qglow.instructions.ops.control import Branch, Loop, Structured, aligned_size
from qglow.instructions.program import Buffer, Instruction


def structured(instruction: Instruction, addresses: Sequence[str], bodies: Sequence[str]) -> list[str]:
    """Lines of an instruction with bodies. addresses: those of its operands; bodies: names of functions."""
    names = [spec.name for spec, _ in instruction.operands()]
    buffers = {spec.name: buffer for spec, buffer in instruction.operands()}
    operation = instruction.operation
    assert isinstance(operation, Structured)
    site = _Site(operation, dict(zip(names, addresses, strict=True)), buffers, bodies)
    with site.writer.block("/* Bodies. */"):
        if isinstance(operation, Loop):
            _loop(site, operation)
        else:
            assert isinstance(operation, Branch)
            _branch(site, operation)
    return site.writer.lines


@dataclass
class _Site:
    """An instruction with bodies: addresses and buffers of its operands by name, functions of its bodies."""

    operation: Structured
    at: Mapping[str, str]
    buffers: Mapping[str, Buffer]
    bodies: Sequence[str]

    def __post_init__(self) -> None:
        self.writer = Writer()
        whole = max(self.operation.places(number).whole for number in range(len(self.bodies)))
        self.table_size = max(whole, 1)

    def numbered(self, prefix: str, numbers: range) -> list[str]:
        """Addresses of the operands of this name and these numbers."""
        return [self.at[f"{prefix}{number}"] for number in numbers]

    def put_all(self, first: int, addresses: Sequence[str]) -> None:
        """Let placeholders from a number on be at addresses."""
        for number, address in enumerate(addresses, first):
            self.writer.line(f"inside[{number}] = (void *)({address});")

    def run(self, number: int) -> None:
        """Call a body."""
        arena = f"{self.at['scratch']} + {self.operation.arena_start}"
        self.writer.line(f"{self.bodies[number]}({arena}, weights, inside);")


def _branch(site: _Site, operation: Branch) -> None:
    given = site.numbered("captured", range(operation.captured))
    given += site.numbered("result", range(operation.results))
    site.writer.line(f"void *inside[{site.table_size}] = {{0}};")
    site.put_all(0, given)
    for number, head in enumerate((f"if (load_u8({site.at['condition']}, 0))", "else")):
        with site.writer.block(head):
            site.put_all(len(given), site.numbered("state", operation.places(number).state))
            site.run(number)


def _loop(site: _Site, operation: Loop) -> None:
    """Rounds. A carried value lies where it starts, then in its result and a spare by turns."""
    w, parts = site.writer, operation.places(0)
    starts, ends = (site.numbered(name, range(operation.carried)) for name in ("start", "result"))
    first_result = parts.inputs + int(operation.conditional)
    w.line(f"void *inside[{site.table_size}] = {{0}};")
    w.line("int64_t number = 0;")
    w.line(f"int64_t most = {'INT64_MAX' if operation.rounds is None else operation.rounds};")
    if operation.limited:
        w.line(f"if (load_i64({site.at['limit']}, 0) < most) most = load_i64({site.at['limit']}, 0);")
    if operation.started:
        w.line(f"if (!load_u8({site.at['condition']}, 0)) most = 0;")
    site.put_all(0, ["&number"])
    site.put_all(1, starts)
    first_source = 1 + operation.carried
    site.put_all(first_source + len(operation.scanned), site.numbered("captured", range(operation.captured)))
    if operation.conditional:
        w.line("unsigned char goes_on = 1;")
        site.put_all(parts.inputs, ["&goes_on"])
    site.put_all(first_result, ends)
    site.put_all(parts.inputs + parts.results, site.numbered("state", parts.state))
    with w.block("for (; number < most; number++)"):
        _put_slices(site, "source", operation.scanned, first_source)
        rows = parts.inputs + parts.results - len(operation.collected)
        _put_slices(site, "rows", operation.collected, rows)
        site.run(0)
        _turn(site, operation, ends, first_result)
        if operation.conditional:
            w.line("if (!goes_on) break;")
    for number, end in enumerate(ends):
        with w.block(f"if (inside[{1 + number}] != (void *)({end}))"):
            size = site.buffers[f"result{number}"].type.byte_size
            w.line(f"memcpy({end}, inside[{1 + number}], {size});")


def _turn(site: _Site, operation: Loop, ends: Sequence[str], first_result: int) -> None:
    """Let the next round read what this one wrote, and write the other place."""
    place = 0
    for number, (end, kind) in enumerate(zip(ends, operation.spares, strict=True)):
        spare, written = f"{site.at['scratch']} + {place}", f"inside[{first_result + number}]"
        place += aligned_size(kind)
        site.writer.line(f"inside[{1 + number}] = {written};")
        other = f"{written} == (void *)({end}) ? (void *)({spare}) : (void *)({end})"
        site.writer.line(f"{written} = {other};")


def _put_slices(site: _Site, prefix: str, back: Sequence[bool], first: int) -> None:
    """Let placeholders be at the slices of a round; where `back`, the first round has the last one."""
    for number, turned in enumerate(back):
        kind = site.buffers[f"{prefix}{number}"].type
        rounds = max(kind.shape[0], 1)
        place = f"({rounds - 1} - number)" if turned else "number"
        address = f"{site.at[f'{prefix}{number}']} + {place} * {kind.byte_size // rounds}"
        site.put_all(first + number, [address])
