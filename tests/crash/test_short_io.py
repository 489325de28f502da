"""Run every command while each read and write of it and of its children transfers at most half of the requested
bytes.

The kernel may do this at any time (NFS, FUSE, a full pipe, a signal). It is not an error: each command must have the
same result as with complete reads and writes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.errors import COMMANDS, Template, files, judge_state, judge_words, prepare, run, snapshots
from tests.support.needs import require
from tests.support.oracle import tree_differences

pytestmark = pytest.mark.full

SOURCE = Path(__file__).with_name("short_io.c")


@pytest.fixture(scope="module")
def shortened(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Return the words before a command that shorten its reads and writes."""
    library = tmp_path_factory.mktemp("short") / "short_io.so"
    built = subprocess.run(
        [require("cc"), "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    # Without buffering, Python itself loses the rest of a text that was written in part.
    log = library.with_name("log")
    return ("env", "--unset=PYTHONUNBUFFERED", f"LD_PRELOAD={library}", f"SHORT_IO_LOG={log}")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Template]:
    before = dict(os.environ)
    place = tmp_path_factory.mktemp("short-io")
    try:
        yield prepare(place)
    finally:
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(place)


def _comparable(text: str) -> str:
    return re.sub(r"[0-9.]+ s\b|\b[0-9a-f]{7,}\b", "…", text)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_works_with_short_reads_and_writes(
    template: Template, shortened: tuple[str, ...], command: str
) -> None:
    case = COMMANDS[command]
    repo = template.copy()
    usual = run(repo, (), case.words)
    assert usual is not None
    repo = template.copy()
    known, before = snapshots(repo), files(repo)
    done = run(repo, shortened, case.words)
    assert done is not None, "the command hangs"
    assert judge_words(done) == []
    assert (done.status, _comparable(done.err)) == (usual.status, _comparable(usual.err))
    if not case.reads:
        assert judge_state(repo, case, known, before) == []


def test_large_files_are_captured_and_restored_with_short_reads_and_writes(
    template: Template, shortened: tuple[str, ...]
) -> None:
    repo = template.copy()
    place = repo.path / "large"
    place.mkdir()
    for number, size in enumerate((1 << 20, 9 << 20, 40 << 20)):
        (place / f"random{number}").write_bytes(os.urandom(size))
        (place / f"text{number}").write_bytes(b"a line of text %d\n" % number * (size // 18))
    for number in range(500):
        (place / f"small{number}").write_bytes(os.urandom(number))
    (place / ".env").write_bytes(b"API_KEY=" + os.urandom(40).hex().encode())
    shutil.copytree(place, repo.path.parent / "kept")
    for words in (("envlog", "capture", "-m", "large"), ("envlog", "fsck")):
        done = run(repo, shortened, words)
        assert done is not None
        assert done.status == 0, done.err
    shutil.rmtree(place)
    done = run(repo, shortened, ("envrestore", "@", "--", "large"))
    assert done is not None
    assert done.status == 0, done.err
    assert not tree_differences(repo.path.parent / "kept", place)
    log = Path(shortened[-1].partition("=")[2]).read_text().split()
    assert {"read", "write"} <= set(log)
