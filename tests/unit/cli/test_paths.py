"""No command writes over what it reads, into a device, or onto what is of another kind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from qglow.cli.command import gathered
from qglow.cli.main import COMMANDS, main
from qglow.core.errors import InputFileError, UsageError
from qglow.core.files import write_atomically
from qglow.core.inputs import guarding_inputs, note_input
from qglow.core.options import Declared, Writes

Capture = pytest.CaptureFixture[str]
KEPT = b"what must stay"


def path_options(name: str) -> Iterator[Declared]:
    """The options of a command that name files or folders."""
    for group in gathered(COMMANDS[name].function):
        for item in () if group.is_choices else group.options:
            kind = group.types[item.name]
            if item.option.reads or kind is Path or Path in get_args(kind):
                yield item


def pairs() -> Iterator[tuple[str, Declared, Declared]]:
    for name in COMMANDS:
        for output in path_options(name):
            for other in path_options(name):
                if output.option.writes is not Writes.NOTHING and other.name != output.name:
                    yield name, output, other


def words(name: str, given: dict[str, Path]) -> list[str]:
    """A command line with these paths, and files that are missing for whatever else it needs."""
    line = name.split()
    for group in gathered(COMMANDS[name].function):
        for item in group.options if not group.is_choices else ():
            path = given.get(item.name)
            if path is None:
                required = repr(item.default).endswith("MISSING_TYPE object>") or "MISSING" in repr(
                    item.default
                )
                path = Path("missing") if required else None
            if path is not None:
                line += [*item.flags[:1], str(path)]
    return line


PAIRS = list(pairs())


def test_every_option_that_writes_says_so() -> None:
    for name in COMMANDS:
        for item in path_options(name):
            named_output = (
                item.name in ("output", "emit_bundle", "junit", "markdown", "dump_each")
                or "state" in item.name
            )
            assert (item.option.writes is not Writes.NOTHING) == (named_output or item.name == "baseline"), (
                item
            )
    assert len(PAIRS) > 40


def test_every_option_of_data_is_read() -> None:
    for name in COMMANDS:
        for group in gathered(COMMANDS[name].function):
            for item in () if group.is_choices else group.options:
                assert item.option.reads == item.name.endswith("data"), (name, item.name)


@pytest.mark.parametrize("how", ["same", "symbolic link", "hard link"])
@pytest.mark.parametrize(("name", "output", "other"), PAIRS, ids=lambda p: getattr(p, "name", p))
def test_an_output_that_is_another_path_is_refused(
    name: str, output: Declared, other: Declared, how: str, tmp_path: Path, capsys: Capture
) -> None:
    path, link = tmp_path / "file.onnx", tmp_path / "link.onnx"
    path.write_bytes(KEPT)
    if how == "symbolic link":
        link.symlink_to(path)
    elif how == "hard link":
        os.link(path, link)
    given = {other.name: path, output.name: path if how == "same" else link}
    assert main(words(name, given)) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and err.startswith("qglow: error: ")
    assert f"{given[output.name]}: it " in err or f"{path}: it " in err
    assert path.read_bytes() == KEPT
    assert not link.exists() or link.read_bytes() == KEPT


def outputs() -> Iterator[tuple[str, Declared]]:
    for name in COMMANDS:
        yield from ((name, item) for item in path_options(name) if item.option.writes is not Writes.NOTHING)


@pytest.mark.parametrize("what", ["fifo", "device", "kind"])
@pytest.mark.parametrize(("name", "output"), list(outputs()), ids=lambda p: getattr(p, "name", p))
def test_an_output_that_is_no_place_for_it_is_refused(
    name: str, output: Declared, what: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "place"
    if what == "fifo":
        os.mkfifo(path)
    elif what == "device":
        path = Path("/dev/null")
    elif output.option.writes.takes_folder and output.option.writes.takes_file:
        return
    elif output.option.writes.takes_folder:
        path.write_bytes(KEPT)
    else:
        path.mkdir()
    before = path.stat()
    code = main(words(name, {output.name: path}))
    err = capsys.readouterr().err
    assert code == 2 and str(path) in err and err.count("\n") == 1
    after = path.stat()
    assert (before.st_mode, before.st_ino, before.st_mtime_ns) == (
        after.st_mode,
        after.st_ino,
        after.st_mtime_ns,
    )


@pytest.mark.parametrize("name", [name for name in COMMANDS if any(path_options(name))])
def test_an_input_that_is_a_fifo_does_not_hang(name: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "fifo.onnx"
    os.mkfifo(path)
    for item in path_options(name):
        if item.option.writes is Writes.NOTHING:
            assert main(words(name, {item.name: path})) == 2
            assert "neither a file nor a folder" in capsys.readouterr().err


def test_a_file_of_an_input_folder_is_refused(tmp_path: Path, capsys: Capture) -> None:
    image = tmp_path / "data" / "deep" / "image.png"
    image.parent.mkdir(parents=True)
    image.write_bytes(KEPT)
    line = ["profile", "missing.onnx", "--data", str(tmp_path / "data"), "-o", str(image)]
    assert main(line) == 2
    assert "a file of --data" in capsys.readouterr().err
    assert image.read_bytes() == KEPT


def test_a_renamed_array_is_the_file_that_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    path.write_bytes(KEPT)
    assert main(["run", "missing.onnx", "--data", f"{path}[x=key]", "-o", str(path)]) == 2
    assert path.read_bytes() == KEPT


def test_what_is_written_beside_an_output_does_not_replace_an_input(tmp_path: Path) -> None:
    path, link = tmp_path / "constants.npz", tmp_path / "out.npz"
    path.write_bytes(KEPT)
    os.link(path, link)
    with guarding_inputs():
        note_input(path)
        with pytest.raises(UsageError, match="is read as"):
            write_atomically(link, b"new")
        write_atomically(tmp_path / "other", b"new")
    write_atomically(link, b"new")
    assert path.read_bytes() == KEPT


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/null"), tmp_path):
        with pytest.raises(InputFileError, match="no regular file"):
            write_atomically(path, b"new")
