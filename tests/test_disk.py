"""Atomic replacement of files, and lines appended to them."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from git_envhist.disk import Durability, append_line, replace_file, replace_with_symlink


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the kinds of synced files, in order."""
    kinds: list[str] = []

    def record(descriptor: int) -> None:
        kinds.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")

    monkeypatch.setattr(os, "fsync", record)
    return kinds


@pytest.mark.parametrize(
    ("durability", "kinds"),
    [(Durability.NONE, []), (Durability.FILE, ["file"]), (Durability.FULL, ["file", "directory"])],
)
def test_replace_file_syncs_according_to_its_durability(
    tmp_path: Path, synced: list[str], durability: Durability, kinds: list[str]
) -> None:
    replace_file(str(tmp_path / "file"), b"new", durability=durability)
    append_line(str(tmp_path / "file"), b"line", durability=durability)
    assert (tmp_path / "file").read_bytes() == b"newline\n"
    assert synced == kinds * 2


def test_replace_file_is_private_unless_a_mode_is_given(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for mode in (0o600, 0o444, 0o755):
        replace_file(str(path), b"", durability=Durability.NONE, mode=mode)
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_replace_file_keeps_the_mode_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for mode in (0o640, 0o600):
        path.touch()
        path.chmod(mode)
        replace_file(str(path), b"", durability=Durability.NONE, mode=None, keep_mode=True)
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_exclusive_replacement_follows_no_link_of_the_temporary_name(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "file"
    victim.write_bytes(b"precious")
    (tmp_path / "file.new").symlink_to(victim)
    replace_file(str(path), b"new", durability=Durability.NONE, exclusive=True)
    assert (victim.read_bytes(), path.read_bytes(), path.is_symlink()) == (b"precious", b"new", False)


@pytest.mark.parametrize("has_links", [True, False])
def test_existing_file_is_kept_without_replace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    path = str(tmp_path / "file")
    if not has_links:

        def refuse(*_: object) -> None:
            raise PermissionError

        monkeypatch.setattr(os, "link", refuse)
    replace_file(path, b"first", durability=Durability.NONE, replace=False)
    with pytest.raises(FileExistsError):
        replace_file(path, b"second", durability=Durability.NONE, replace=False)
    assert os.listdir(tmp_path) == ["file"]
    assert Path(path).read_bytes() == b"first"


@pytest.mark.parametrize("unique", [True, False])
def test_failed_replacement_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unique: bool
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="full"):
        replace_file(str(path), b"new", durability=Durability.FULL, unique=unique)
    assert (os.listdir(tmp_path), path.read_bytes()) == (["file"], b"old")


def test_symlink_replaces_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    replace_with_symlink(str(path), b"target", temporary=str(tmp_path / "temporary"))
    assert os.readlink(path) == "target"
    assert os.listdir(tmp_path) == ["file"]
