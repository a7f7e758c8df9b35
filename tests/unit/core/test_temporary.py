"""What killed processes leave beside their output goes with the next run, and nothing else does."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from qglow.core.files import atomic_writer, write_atomically
from qglow.core.folders import new_folder, staging_folder

WRITERS = {
    "file": "from qglow.core.files import atomic_writer as opened",
    "folder": "from qglow.core.folders import staging_folder as opened",
}


def kill_while_writing(kind: str, target: Path) -> None:
    code = (
        f"{WRITERS[kind]}\n"
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "with opened(Path(sys.argv[1])) as made:\n"
        "    if isinstance(made, Path): (made / 'inner').write_text('x')\n"
        "    signal.raise_signal(signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(target)], check=False)
    assert done.returncode == -signal.SIGKILL


def temporaries(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.endswith(".tmp")]


def write(kind: str, target: Path) -> None:
    if kind == "file":
        write_atomically(target, "new")
        return
    with new_folder(target) as made:
        (made / "inner").write_text("new")


@pytest.mark.parametrize("kind", WRITERS)
def test_the_next_run_removes_what_a_killed_one_left(kind: str, tmp_path: Path) -> None:
    target = tmp_path / "out[1].x"
    for _ in range(2):
        kill_while_writing(kind, target)
    assert temporaries(tmp_path)
    write(kind, target)
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


@pytest.mark.parametrize("kind", WRITERS)
def test_runs_with_other_outputs_leave_it(kind: str, tmp_path: Path) -> None:
    kill_while_writing(kind, tmp_path / "out")
    left = temporaries(tmp_path)
    write(kind, tmp_path / "out2")
    write(kind, tmp_path / "ou")
    assert temporaries(tmp_path) == left and len(left) == 1


def test_what_is_still_being_written_stays(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with atomic_writer(target) as stream:
        stream.write(b"first")
        (held,) = temporaries(tmp_path)
        write_atomically(target, "second")
        assert temporaries(tmp_path) == [held]
    assert target.read_bytes() == b"first"
    folder = tmp_path / "folder"
    with staging_folder(folder) as one, staging_folder(folder) as two:
        assert one.is_dir() and two.is_dir() and one != two
    assert temporaries(tmp_path) == []


def test_files_of_people_stay(tmp_path: Path) -> None:
    names = [".out.tmp", ".out.abc.tmp", "out.abcdefgh.tmp", ".out.ABCDEFGH.tmp", ".out.abcdefgh.tmp.txt"]
    for name in names:
        (tmp_path / name).write_text("mine")
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / ".out.abcdefgh.tmp").symlink_to(tmp_path / "elsewhere")
    write_atomically(tmp_path / "out", "new")
    assert all((tmp_path / name).exists() for name in [*names, "elsewhere", ".out.abcdefgh.tmp"])
