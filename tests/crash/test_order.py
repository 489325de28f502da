"""The order of writes of a capture: every file is synced before another refers to it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.crash.faults import change, needs_strace, prepare
from tests.support.repository import Repo

CALLS = "fsync,fdatasync,rename,renameat,renameat2,link,linkat,write,pwrite64,execve,fchmod,ftruncate"
STARTED = re.compile(r"^(\d+) +(\w+)\((.*)")
RESUMED = re.compile(r"^(\d+) +<\.\.\. (\w+) resumed>(.*)")


@dataclass(frozen=True)
class Event:
    """A completed call of any process of the capture."""

    name: str
    words: str

    @property
    def paths(self) -> list[str]:
        """Return the files of a call, by name or descriptor."""
        return re.findall(r'"(/[^"]*)"|\d+<(/[^>]*)>', self.words) and [
            os.path.normpath(one or two) for one, two in re.findall(r'"(/[^"]*)"|\d+<(/[^>]*)>', self.words)
        ]


def events(log: Path) -> list[Event]:
    """Return the calls in the order of completion, programs in the order of start."""
    found: list[Event] = []
    begun: dict[str, str] = {}
    for line in log.read_text(errors="replace").splitlines():
        if (start := STARTED.match(line)) and "<unfinished" in line:
            begun[start[1]] = start[3]
        elif start and "= -1 " not in line:
            found.append(Event(start[2], start[3]))
        elif end := RESUMED.match(line):
            found.append(Event(end[2], begun.pop(end[1], "") + end[3]))
    return found


@pytest.fixture
def traced(repo: Repo) -> list[Event]:
    prepare(repo)
    change(repo, "traced")
    log = repo.path.parent / "log"
    words = ("strace", "-f", "-y", "-s", "4000", "-o", str(log), "-e", f"trace={CALLS}")
    repo.run("envlog", "capture", "-m", "traced", prefix=words, check=True)
    return events(log)


def places(found: list[Event], name: str, part: str) -> list[int]:
    return [at for at, event in enumerate(found) if event.name == name and part in event.words]


def syncs_of(found: list[Event], path: str) -> list[int]:
    return [
        at
        for at, event in enumerate(found)
        if event.name in ("fsync", "fdatasync") and event.paths[:1] == [path]
    ]


def moves(found: list[Event]) -> list[int]:
    """Return the positions at which git is started to move refs."""
    return places(found, "execve", '"update-ref"')


@needs_strace
def test_pack_and_index_are_synced_before_their_final_rename(traced: list[Event], repo: Repo) -> None:
    published = [
        (at, event.paths) for at, event in enumerate(traced)
        if event.name.startswith("rename") and "/objects/pack/" in event.paths[-1]
    ]  # fmt: skip
    assert len(published) >= 2
    for at, (staged, target) in published:
        first = _first_name(traced, staged)
        written = [n for n, e in enumerate(traced) if e.name == "pwrite64" and e.paths[:1] == [first]]
        synced = [n for n in syncs_of(traced, first) + syncs_of(traced, staged) if n < at]
        assert written
        assert synced
        assert max(synced) > max(written), target
    kinds = [Path(paths[-1]).suffix for _, paths in published]
    assert kinds[:2] == [".pack", ".idx"]


def _first_name(found: list[Event], path: str) -> str:
    """Return the name under which a file was written, before renames in the staging directory."""
    for event in found:
        if event.name.startswith("rename") and event.paths[-1] == path:
            return event.paths[0]
    return path


@needs_strace
def test_pack_is_marked_and_journalled_before_it_is_visible(traced: list[Event]) -> None:
    for at, event in enumerate(traced):
        if not event.name.startswith("rename") or "/objects/pack/" not in event.paths[-1]:
            continue
        target = event.paths[-1]
        keep = os.path.splitext(target)[0] + ".keep"
        assert [n for n in syncs_of(traced, keep) if n < at], f"{keep} is not synced before {target} is there"
        name = Path(target).stem
        noted = [n for n in places(traced, "pwrite64", name) if "/journal>" in traced[n].words and n < at]
        assert noted
        assert [
            n for n in range(noted[0], at) if traced[n].name == "fsync" and "/journal>" in traced[n].words
        ]


@needs_strace
def test_pack_directory_is_synced_before_a_ref_moves(traced: list[Event], repo: Repo) -> None:
    (move,) = moves(traced)
    packs = f"{repo.path}/.git/objects/pack"
    renamed = [n for n, e in enumerate(traced) if e.name.startswith("rename") and packs in e.paths[-1]]
    assert [n for n in syncs_of(traced, packs) if max(renamed) < n < move]
    assert max(renamed) < move


@needs_strace
def test_ref_is_synced_before_its_final_rename(traced: list[Event], repo: Repo) -> None:
    major, minor = map(int, repo.git("version").split()[2].split(".")[:2])
    if (major, minor) < (2, 36):
        pytest.skip("this git syncs no refs")
    for ref in repo.git("for-each-ref", "--format=%(refname)", "refs/envhist", "refs/notes/envhist").split():
        path = f"{repo.path}/.git/{ref}"
        (moved,) = [n for n, e in enumerate(traced) if e.name.startswith("rename") and e.paths[-1] == path]
        assert [n for n in syncs_of(traced, path + ".lock") if n < moved], f"{path} may be empty"


@needs_strace
def test_refs_and_their_directories_are_synced_before_output(traced: list[Event], repo: Repo) -> None:
    (move,) = moves(traced)
    said = [n for n in places(traced, "write", "traced") if traced[n].words.startswith("1<")]
    assert said
    refs = repo.git("for-each-ref", "--format=%(refname)", "refs/envhist", "refs/notes/envhist").split()
    assert len(refs) == 2
    for ref in refs:
        path = f"{repo.path}/.git/{ref}"
        (moved,) = [n for n, e in enumerate(traced) if e.name.startswith("rename") and e.paths[-1] == path]
        assert move < moved
        while path != f"{repo.path}/.git":
            assert [n for n in syncs_of(traced, path) if moved < n < said[0]], f"{path} is not synced"
            path = os.path.dirname(path)
