"""Unreadable extended attributes: listed as missing, not cached, and kept by a restore."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.faults import needs_strace
from tests.end_to_end.captures import capture
from tests.support.repository import Repo

pytestmark = needs_strace
GET = "getxattr,lgetxattr,fgetxattr"
LIST = "listxattr,llistxattr,flistxattr"


def failing(calls: str, error: str, *, at: Path | None = None) -> tuple[str, ...]:
    """Return the words of a strace under which reading attributes fails, of all paths or of one."""
    only = ("-P", str(at)) if at is not None else ()
    return ("strace", "-f", "-qq", "-o", "/dev/null", *only, "-e", f"trace={calls}",
            "-e", f"inject={calls}:error={error}")  # fmt: skip


def attributes(path: Path) -> dict[str, bytes]:
    return {name: os.getxattr(path, name) for name in os.listxattr(path)}


@pytest.fixture
def tagged(repo: Repo) -> Path:
    """Return a file with an attribute, in the first snapshot."""
    place = repo.write("data/tagged", b"1\n")
    try:
        os.setxattr(place, "user.tag", b"kept")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    capture(repo, "whole")
    return place


@pytest.mark.parametrize("calls", [GET, LIST])
def test_capture_is_partial_when_the_attributes_of_a_file_cannot_be_read(
    repo: Repo, tagged: Path, calls: str
) -> None:
    tagged.write_bytes(b"2\n")
    done = repo.run("envlog", "capture", "--porcelain", prefix=failing(calls, "EIO", at=tagged))
    assert done.status == 0, done.err
    assert done.err == "warning: not captured (attributes: input/output error): 'data/tagged'\n"
    snapshot = done.out.strip()
    assert repo.git("show", f"{snapshot}:data/tagged") == "2"
    assert repo.git("show", f"{snapshot}:.envhist/missing") == "data/tagged attributes input/output%20error"
    assert "Env-Complete: partial" in repo.git("log", "-1", "--format=%B", snapshot)
    strict = repo.run("envlog", "capture", "--strict", prefix=failing(calls, "EIO", at=tagged))
    assert strict.status == 3
    # The next capture reads the attributes again and does not take them from its cache.
    whole = capture(repo, "again")
    assert ".envhist/missing" not in repo.git("ls-tree", "-r", "--name-only", whole)
    os.removexattr(tagged, "user.tag")
    assert repo.run("envrestore", "@").status == 0
    assert attributes(tagged) == {"user.tag": b"kept"}


def test_capture_is_partial_when_the_attributes_of_a_directory_cannot_be_read(
    repo: Repo, tagged: Path
) -> None:
    os.setxattr(tagged.parent, "user.directory", b"kept too")
    repo.write("data/new", b"")
    done = repo.run("envlog", "capture", "--porcelain", prefix=failing("lgetxattr", "EIO"))
    assert done.status == 0, done.err
    assert done.err == "warning: not captured (attributes: input/output error): 'data'\n"
    partial = done.out.strip()
    whole = capture(repo, "again")
    assert ".envhist/missing" not in repo.git("ls-tree", "-r", "--name-only", whole)
    # Below such a directory everything is restored as usual.
    (tagged.parent / "new").write_bytes(b"changed")
    tagged.unlink()
    repo.run("envrestore", partial, check=True)
    assert (tagged.parent / "new").read_bytes() == b""
    assert attributes(tagged) == {"user.tag": b"kept"}
    assert attributes(tagged.parent) == {"user.directory": b"kept too"}


def test_restore_keeps_an_attribute_when_the_snapshot_could_not_read_it(repo: Repo, tagged: Path) -> None:
    tagged.write_bytes(b"2\n")
    partial = repo.run("envlog", "capture", "--porcelain", prefix=failing(GET, "EIO", at=tagged)).out.strip()
    tagged.write_bytes(b"3\n")
    repo.run("envrestore", partial, check=True)
    assert (tagged.read_bytes(), attributes(tagged)) == (b"2\n", {"user.tag": b"kept"})


def test_restore_refuses_to_replace_a_file_when_its_attributes_cannot_be_read(
    repo: Repo, tagged: Path
) -> None:
    tagged.write_bytes(b"2\n")
    done = repo.run("envrestore", "@", prefix=failing(GET, "EIO", at=tagged))
    assert done.status == 3
    assert "its extended attributes cannot be read: input/output error" in done.err
    assert (tagged.read_bytes(), attributes(tagged)) == (b"2\n", {"user.tag": b"kept"})


def test_capture_is_complete_when_a_file_system_has_no_attributes(repo: Repo, tagged: Path) -> None:
    tagged.write_bytes(b"2\n")
    done = repo.run("envlog", "capture", prefix=failing(LIST, "EOPNOTSUPP", at=tagged))
    assert (done.status, "warning" in done.err) == (0, False)
