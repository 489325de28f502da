"""Unsigned snapshots: plain files and links to paths inside are restored; all other entries are reported."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from git_envhist.model import EntryKind, StoredAs
from git_envhist.secrets.keys import Key
from git_envhist.secrets.seal import seal
from tests.cli.test_json import validate
from tests.restore.unsigned import Stranger, harmful, make_stranger
from tests.support.snapshots import Described, directory, fifo, file, link, write_snapshot

ME = (os.geteuid(), os.getegid())
HOOK = b"#!/bin/sh\ntouch %b\n"


@pytest.fixture
def stranger(tmp_path: Path, hermetic: object) -> Stranger:
    return make_stranger(tmp_path)


def write(stranger: Stranger, tree: str, *words: str, status: int = 5) -> tuple[Path, str]:
    """Write a planted snapshot into a new directory; return the directory and stderr."""
    there = stranger.repo.path.parent / f"there{len(os.listdir(stranger.repo.path.parent))}"
    done = stranger.repo.run("envrestore", "--to", str(there), *words, stranger.plant(tree))
    assert done.status == status, done.err
    return there, done.err


def losses(stranger: Stranger, tree: str) -> dict[str, list[str]]:
    """Return the losses in the JSON of a dry run in place."""
    done = stranger.repo.run("envrestore", "--allow-unsigned", "--json", "-n", stranger.plant(tree))
    answer = json.loads(done.out)
    validate("restored", answer)
    found: dict[str, list[str]] = {}
    for item in answer["losses"]:
        found.setdefault(item["path"], []).append(item["why"])
    return found


def test_set_id_bits_and_owners_are_not_restored(stranger: Stranger) -> None:
    tree = {
        b"": directory(owner=ME),
        b"setuid": file(b"1", 0o4755, owner=ME),
        b"setgid": file(b"1", 0o2755, owner=ME),
        b"open": file(b"1", 0o666, owner=ME),
        b"d": directory(0o7777, owner=ME),
        b"closed": directory(0o000, owner=ME),
        b"closed/f": file(b"1", 0o400, owner=ME),
        b"plain": file(b"1", 0o640, owner=ME),
        b"others": file(b"1", 0o644, owner=(12345, 12345)),
    }
    there, told = write(stranger, write_snapshot(stranger.repo.path, tree))
    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in there.iterdir()}
    wanted = {"setuid": 0o755, "setgid": 0o755, "open": 0o664, "d": 0o775, "closed": 0o700, "plain": 0o640}
    assert modes == {**wanted, "others": 0o644}
    assert harmful(there) == []
    for name in ("setuid", "setgid", "open", "d", "closed"):
        assert f"not restored exactly: '{name}': its mode was not restored" in told
    assert "'plain'" not in told
    assert "'.': owners were not restored: all files are yours" in told


def test_devices_and_sockets_are_not_restored(stranger: Stranger) -> None:
    tree = {
        b"disk": Described(EntryKind.BLOCK_DEVICE, None, 0o666, words=b"r=8:0"),
        b"mem": Described(EntryKind.CHARACTER_DEVICE, None, 0o666, words=b"r=1:1"),
        b"socket": Described(EntryKind.SOCKET, None, 0o777),
        b"pipe": fifo(),
    }
    there, told = write(stranger, write_snapshot(stranger.repo.path, tree))
    assert os.listdir(there) == ["pipe"]
    assert "not restored exactly: 'mem': a device is not restored" in told
    assert "not restored exactly: 'socket': a socket is not restored" in told


def test_attributes_that_grant_privileges_are_not_restored(stranger: Stranger) -> None:
    granting = (b"security.capability", b"system.posix_acl_access", b"trusted.x")
    attributes = tuple((name, b"\x01\x00\x00\x02") for name in granting)
    tree = {b"f": file(b"1", 0o755, xattrs=(*attributes, (b"user.note", b"mine")))}
    there, told = write(stranger, write_snapshot(stranger.repo.path, tree))
    assert not set(granting) & set(map(os.fsencode, os.listxattr(there / "f")))
    assert "not restored exactly: 'f': attributes were not restored" in told


LINKS = {
    b"absolute": b"/etc/passwd",
    b"up": b"../canary/bird",
    b"d/up": b"../../canary",
    b"through": b"d/far/../../../../canary",
    b"by-another": b"absolute/x",
    b"git": b"sub/.git/hooks",
    b"GIT": b"sub/.GIT",
    b"disguised": b"sub/.g\xe2\x80\x8cit/config",
    b"self": b"self",
    b"a": b"b",
    b"b": b"a",
    b"long": b"x/" * 2048,
    b"there-and-back": b"../there/x",
}
INSIDE = {
    b"in": b"d/deep",
    b"d/far": b"deep/er",
    b"near": b"d/far/../../../canary",
    b"d/back": b"../d/deep/er",
    b"gone": b"nothing/here",
    b"dot": b".",
    b"by-in": b"in/er",
}


def test_links_that_lead_outside_are_not_restored_without_force(stranger: Stranger) -> None:
    """`d/far` is a link to a deeper directory: links through it are judged by its target."""
    links = {path: link(target) for path, target in {**LINKS, **INSIDE}.items()}
    tree = write_snapshot(stranger.repo.path, {**links, b"d/deep/er/f": file(b"1")})
    there, told = write(stranger, tree)
    assert harmful(there) == []
    found = subprocess.run(["find", there, "-type", "l", "-printf", "%P\n"], capture_output=True, check=True)
    assert set(found.stdout.split()) == {*INSIDE}
    for path in LINKS:
        assert f"not restored exactly: '{path.decode()}': a link " in told, path
    forced, _ = write(stranger, tree, "--force")
    found = subprocess.run(["find", forced, "-type", "l", "-printf", "%P\n"], capture_output=True, check=True)
    assert set(found.stdout.split()) == {*INSIDE, *LINKS} - {b"long"}


def test_nested_repository_is_restored_without_configuration_and_hooks(
    stranger: Stranger, tmp_path: Path
) -> None:
    """The repository's configuration runs a program at each `git status`."""
    proof = os.fsencode(tmp_path / "ran")
    theirs = tmp_path / "theirs"
    subprocess.run(["git", "init", "-q", "--template=", theirs], check=True)
    (theirs / "f").write_bytes(b"1")
    (theirs / "f").chmod(0o644)
    for words in (["add", "f"], ["commit", "-q", "-m", "x"]):
        subprocess.run(["git", "-C", theirs, *words], check=True)
    below = {
        os.fsencode(path.relative_to(theirs / ".git")): file(path.read_bytes(), path.stat().st_mode & 0o777)
        for path in (theirs / ".git").rglob("*")
        if path.is_file()
    }
    evil = b"[core]\n\tbare = false\n\tfsmonitor = touch %b\n\thooksPath = /tmp/x\n\tsshCommand = x\n" % proof
    below[b"config"] = file(
        evil + b'[include]\n\tpath = /etc/passwd\n[alias]\n\tst = !x\n[filter "x"]\n\tsmudge = x\n'
    )
    below[b"hooks/post-checkout"] = file(HOOK % proof, 0o755)
    below[b"info/attributes"] = file(b"* filter=x\n")
    below[b"objects/info/alternates"] = file(b"/etc\n")
    below[b"modules/m/commondir"] = file(b"/etc\n")
    below[b"link"] = link(b"HEAD")
    bare = {b"bare/" + path: thing for path, thing in below.items()}
    tree = write_snapshot(
        stranger.repo.path,
        {b"sub/f": file(b"1"), b"sub/.git": directory(), b"w/.git": file(b"gitdir: /etc\n"), **bare},
        nested={"sub": below},
    )
    there, told = write(stranger, tree)
    for repository in ("sub/.git", "bare"):
        config = (there / repository / "config").read_text()
        assert config == "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
        names = set(os.listdir(there / repository))
        assert not names & {"hooks", "link"}
        assert {"HEAD", "objects", "refs"} <= names
        assert f"'{repository}/hooks': hooks are not restored" in told
        assert f"'{repository}/config': its configuration was reduced" in told
        assert not (there / repository / "info/attributes").exists()
        assert not (there / repository / "objects/info/alternates").exists()
        assert not (there / repository / "modules/m/commondir").exists()
    assert not (there / "w/.git").exists()
    done = subprocess.run(["git", "-C", there / "sub", "status", "--short"], capture_output=True, check=True)
    assert done.stdout == b""
    subprocess.run(["git", "-C", there / "sub", "log", "-p"], capture_output=True, check=True)
    assert not (tmp_path / "ran").exists()


def test_unsigned_snapshot_restored_in_place_is_reduced_and_keeps_existing_files(stranger: Stranger) -> None:
    stranger.repo.write("socket", b"a file here")
    stranger.repo.write("sub/x", b"1")
    subprocess.run(["git", "init", "-q", "--template=", stranger.repo.path / "sub"], check=True)
    theirs = {
        b"config": file(b"[core]\n\tfsmonitor = x\n"),
        b"HEAD": file(b"ref: refs/heads/m\n"),
        b"refs": directory(),
    }
    tree = write_snapshot(
        stranger.repo.path,
        {
            b"socket": Described(EntryKind.SOCKET, None, 0o777),
            b"out": link(b"/etc"),
            b"run": file(b"#!/bin/sh\n", 0o4755),
            b"app.py": file(b"theirs", 0o666),
            b"sub/.git": directory(),
        },
        nested={"sub": {**theirs, b"objects": directory()}},
    )
    assert losses(stranger, tree)["out"] == ["a link to an absolute path"]
    done = stranger.repo.run("envrestore", "--allow-unsigned", "--json", stranger.plant(tree))
    answer = json.loads(done.out)
    validate("restored", answer)
    assert done.status == 5
    assert stranger.repo.read("socket") == b"a file here"
    assert stranger.repo.read("app.py") == b"theirs"
    assert b"fsmonitor" not in stranger.repo.read("sub/.git/config")
    assert not (stranger.repo.path / "out").is_symlink()
    assert stat.S_IMODE((stranger.repo.path / "run").stat().st_mode) == 0o755
    assert [one["path"] for one in answer["executables"]] == ["run"]
    stranger.repo.run("envrestore", "--undo", check=True)
    assert not (stranger.repo.path / "run").exists()


def test_warning_about_programs_is_printed_once(stranger: Stranger) -> None:
    tree = write_snapshot(
        stranger.repo.path,
        {b"": directory(owner=ME), b"bin": directory(owner=ME)}
        | {b"bin/%d" % number: file(b"1", 0o755, owner=ME) for number in range(3)},
    )
    _, told = write(stranger, tree, status=0)
    assert told.count("(3 programs are new or changed)") == 1


def test_file_sealed_with_another_key_is_skipped(stranger: Stranger) -> None:
    sealed = seal(Key.of(bytes(range(64))), b".env", b"file", b"A=1\n")
    tree = {b".env": file(sealed, stored=StoredAs.SEALED), b"f": file(b"1")}
    there, told = write(stranger, write_snapshot(stranger.repo.path, tree))
    assert os.listdir(there) == ["f"]
    assert "'.env': it is sealed with a key that you do not have" in told


def test_trusted_snapshot_is_restored_completely(stranger: Stranger) -> None:
    repo = stranger.repo
    repo.write("run", b"1", 0o755).chmod(0o4755)
    (repo.path / "out").symlink_to("/etc")
    commit = repo.run("envlog", "capture", "--porcelain", "x", check=True).out.strip()
    done = repo.run("envrestore", "--to", str(repo.path.parent / "own"), commit, check=True)
    assert stat.S_IMODE((repo.path.parent / "own/run").stat().st_mode) == 0o4755
    assert os.readlink(repo.path.parent / "own/out") == "/etc"
    assert "trust the author" not in done.err
