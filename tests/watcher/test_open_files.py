"""Files that a process holds open or mapped for writing are found, also if the process was seen before."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from git_envhist.watcher.file_systems import points_in, why_unwatchable
from git_envhist.watcher.open_files import OpenFiles, OutOfSight

REQUIRE_SAME_FILE = OpenFiles._require_same_file
"""The method itself; for each test it is replaced."""
HOLD = """
import mmap, sys
file = open(sys.argv[1], sys.argv[2])
if sys.argv[3] == 'mapped':
    kept = mmap.mmap(file.fileno(), 1)
    kept[0] = 50
    file.close()
print('ready', flush=True)
sys.stdin.read()
"""


def held(path: Path, mode: str, how: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", HOLD, str(path), mode, how]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def found(top: Path, path: str, mode: str, how: str) -> set[bytes]:
    (top / path).parent.mkdir(parents=True, exist_ok=True)
    (top / path).write_text("x")
    files = OpenFiles({b"": os.fsencode(top)})
    assert files.directories() == set()
    process = held(top / path, mode, how)
    try:
        return files.directories()
    finally:
        process.communicate()


def test_file_open_for_writing_is_found(tmp_path: Path) -> None:
    assert found(tmp_path, "a/b/file", "r+b", "open") == {b"a/b"}


def test_file_open_for_reading_is_not_found(tmp_path: Path) -> None:
    assert found(tmp_path, "a/b/file", "rb", "open") == set()


def test_mapped_file_is_found_after_its_descriptor_was_closed(tmp_path: Path) -> None:
    assert found(tmp_path, "a/file", "r+b", "mapped") == {b"a"}


def test_file_in_a_directory_with_a_line_break_is_found(tmp_path: Path) -> None:
    assert found(tmp_path, "a\nb/file", "r+b", "mapped") == {b"a\nb"}


def test_mapping_that_is_new_in_a_known_process_is_found(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    files = OpenFiles({b"": os.fsencode(tmp_path)})
    files.directories()
    reading, writing = os.pipe()
    ready, told = os.pipe()
    process = os.fork()
    if process == 0:
        os.read(reading, 1)
        with open(tmp_path / "file", "r+b") as file:
            mapped = mmap.mmap(file.fileno(), 1)
        mapped[0] = 50
        os.write(told, b"x")
        os.read(reading, 1)
        os._exit(0)
    assert files.directories() == set()
    os.write(writing, b"x")
    os.read(ready, 1)
    assert files.directories() == {b""}
    os.write(writing, b"x")
    os.waitpid(process, 0)
    assert files.directories() == set()


def test_path_of_another_namespace_that_is_another_file_here_is_out_of_sight(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    seen = (tmp_path / "file").stat()
    files, target = OpenFiles({b"": os.fsencode(tmp_path)}), os.fsencode(tmp_path / "file")
    REQUIRE_SAME_FILE(files, seen.st_dev, seen.st_ino, target)
    REQUIRE_SAME_FILE(files, seen.st_dev + 1, seen.st_ino + 1, target)
    REQUIRE_SAME_FILE(files, seen.st_dev, seen.st_ino + 1, target + b" (deleted)")
    with pytest.raises(OutOfSight):
        REQUIRE_SAME_FILE(files, seen.st_dev, seen.st_ino + 1, target)


def test_local_directory_can_be_watched(tmp_path: Path) -> None:
    assert why_unwatchable({b"": os.fsencode(tmp_path)}) == ""
    assert points_in([os.fsencode(tmp_path)]) == points_in([os.fsencode(tmp_path)])


def test_nested_roots_cannot_be_watched(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    bases = {b"": os.fsencode(tmp_path), b"more": os.fsencode(tmp_path / "inside")}
    assert why_unwatchable(bases) == "one root of the environment contains another"


def test_file_system_of_another_kind_cannot_be_watched() -> None:
    assert "'proc'" in why_unwatchable({b"": b"/proc/sys"})
