"""Unsigned snapshots that change existing repositories, or that turn existing directories into repositories."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from git_envhist.model import DirectoryListing, DirectoryPair, Entry, EntryKind, EnvPath
from git_envhist.restore.inspect_unsigned import folded, git_skip_reason, repositories
from tests.restore.unsigned import Stranger, make_stranger
from tests.support.snapshots import Described, directory, fifo, file, link, write_snapshot

RUNS = b"[core]\n\tfsmonitor = touch %b\n\tbare = true\n"


@pytest.fixture
def stranger(tmp_path: Path, hermetic: object) -> Stranger:
    return make_stranger(tmp_path)


def restore(stranger: Stranger, tree: str, *words: str) -> dict[str, str]:
    """Restore a planted snapshot in place; return the reasons of losses."""
    done = stranger.repo.run("envrestore", "--allow-unsigned", "--json", *words, stranger.plant(tree))
    assert done.status in (0, 5), done.err
    return {item["path"]: item["why"] for item in json.loads(done.out)["losses"]}


def init_bare(place: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", "--template=", place], check=True)


def test_existing_bare_repository_gets_no_hostile_config_or_hook(stranger: Stranger, tmp_path: Path) -> None:
    """The snapshot alone contains no repository: HEAD, objects and refs exist at the target and are ignored by
    captures."""
    proof = tmp_path / "ran"
    top = stranger.repo.path
    init_bare(top / "server.git")
    init_bare(top / "deep/down/.git/modules/m")
    stranger.repo.write(".envhistignore", b"/server.git/HEAD\n/server.git/objects\n/server.git/refs\n")
    evil = file(RUNS % os.fsencode(proof))
    hook = file(b"#!/bin/sh\ntouch %b\n" % os.fsencode(proof), 0o755)
    tree = write_snapshot(
        top,
        {
            b".envhistignore": file(b"/server.git/HEAD\n/server.git/objects\n/server.git/refs\n"),
            b"server.git/config": evil,
            b"server.git/hooks/post-update": hook,
            b"server.git/hooks/post-index-change": hook,
            b"server.git/info/attributes": file(b"* filter=x\n"),
            b"server.git/modules/x/config": evil,
            b"server.git/modules/x/hooks/post-checkout": hook,
            b"server.git/envhist/hooks/agent-x": hook,
            b"server.git/pipe": fifo(),
            b"server.git/out": link(b"../out"),
        },
    )
    why = restore(stranger, tree)
    assert why["server.git/hooks"] == "hooks are not restored"
    assert why["server.git/modules/x/hooks"] == "hooks are not restored"
    assert {path for path, reason in why.items() if reason == "git obeys it"} == {
        "server.git/info/attributes",
        "server.git/modules/x/config",
        "server.git/envhist",
    }
    assert "server.git/pipe" in why
    assert "server.git/out" in why
    assert b"fsmonitor" not in (top / "server.git/config").read_bytes()
    assert not (top / "server.git/hooks").exists()
    subprocess.run(["git", "-C", top / "server.git", "log", "--all"], check=True)
    subprocess.run(["git", "--git-dir", top / "server.git", "--work-tree", top, "status"], check=True)
    assert not proof.exists()


def test_existing_submodule_directory_gets_no_hostile_config(stranger: Stranger, tmp_path: Path) -> None:
    top = stranger.repo.path
    subprocess.run(["git", "init", "-q", "--template=", top / "sub"], check=True)
    init_bare(top / "sub/.git/modules/m")
    evil = file(RUNS % os.fsencode(tmp_path / "ran"))
    below = {b"modules/m/config": evil, b"modules/m/hooks/post-checkout": file(b"#!/bin/sh\n", 0o755)}
    tree = write_snapshot(top, {b"sub/.git": directory()}, nested={"sub": below})
    restore(stranger, tree, "--keep-new")
    assert b"fsmonitor" not in (top / "sub/.git/modules/m/config").read_bytes()
    assert not (top / "sub/.git/modules/m/hooks").exists()


def test_directory_becomes_no_repository_by_two_restores(stranger: Stranger, tmp_path: Path) -> None:
    """The first snapshot writes a configuration to a plain directory, the second one everything else."""
    top = stranger.repo.path
    evil = file(RUNS % os.fsencode(tmp_path / "ran"))
    restore(stranger, write_snapshot(top, {b"x/config": evil}))
    rest = {b"x/HEAD": file(b"ref: refs/heads/m\n"), b"x/objects": directory(), b"x/refs": directory()}
    why = restore(stranger, write_snapshot(top, rest), "--keep-new")
    assert why["x/HEAD"] == "it would turn an existing directory into a repository"
    assert (top / "x/config").exists()
    assert not (top / "x/HEAD").exists()


def test_files_that_name_programs_are_dropped_for_other_systems(stranger: Stranger) -> None:
    top = stranger.repo.path
    tree = {
        b"h/.hg/hgrc": file(b"[hooks]\nupdate = x\n"),
        b"h/.hg/sharedpath": file(b"/etc\n"),
        b"h/.hg/requires": file(b"store\n"),
        b"h/.HG/hgrc": file(b"[hooks]\n"),
        b"j/.jj/repo/config.toml": file(b"[fix]\n"),
        b"j/.jj/repo/store/git_target": file(b"/etc/x"),
        b"k/.jj/repo/store/git_target": file(b"../../../.git"),
        b"w/.jj/repo": file(b"/etc/x"),
        b"s/.sl/config": file(b"[hooks]\n"),
        b"d/_darcs/prefs/defaults": file(b"ALL posthook x\n"),
        b"l/.hg/store": link(b"../x"),
    }
    why = restore(stranger, write_snapshot(top, tree))
    kept = {b"h/.hg/requires", b"k/.jj/repo/store/git_target"}
    assert set(why) >= {os.fsdecode(path) for path in tree} - {os.fsdecode(path) for path in kept}
    for path in tree:
        assert os.path.lexists(os.path.join(os.fsencode(top), path)) == (path in kept), path


def pair(path: bytes, *names: bytes) -> DirectoryPair:
    own = Entry(path=EnvPath(path), kind=EntryKind.DIRECTORY, mode=0o755, mtime_ns=1)
    entries = {name: entry(path + b"/" + name) for name in names}
    return DirectoryPair(b"", EnvPath(path), None, DirectoryListing(own, entries))


def entry(path: bytes, kind: EntryKind = EntryKind.FILE) -> Entry:
    return Entry(path=EnvPath(path), kind=kind, mode=0o644, mtime_ns=1)


@pytest.mark.parametrize(
    "spelled",
    [b"Hooks", b"HOOKS", b"hooks ", b"hooks.", b"hoo\xe2\x80\x8cks", b"hooks::$DATA", b"hook\xc5\xbf"],
)
def test_hooks_are_recognized_in_the_spelling_of_any_file_system(spelled: bytes) -> None:
    found = repositories([pair(b"x", spelled)], lambda root, path: [b"HEAD", b"objects", b"Refs"])
    assert folded(spelled) == b"hooks"
    assert git_skip_reason(b"", entry(b"x/" + spelled, EntryKind.DIRECTORY), found)


def test_branch_named_like_a_hook_is_restored(stranger: Stranger) -> None:
    tree: dict[bytes, Described] = {
        b"x/HEAD": file(b"ref: refs/heads/m\n"),
        b"x/objects": directory(),
        b"x/refs/heads/hooks/config": file(b"1" * 40 + b"\n"),
    }
    assert "x/refs/heads/hooks" not in restore(stranger, write_snapshot(stranger.repo.path, tree))
    assert (stranger.repo.path / "x/refs/heads/hooks/config").exists()
