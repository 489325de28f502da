"""Servers that send decompression bombs or endless output: the fetch fails with an error, within its memory limit."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.remote.conftest import refs
from tests.remote.test_bombs import (
    WEIGHED,
    a_tree_of_gigabytes,
    delta_of_gigabytes,
    growing_deltas,
    many_objects_in_few_bytes,
)
from tests.remote.test_export_and_import import commit_of
from tests.remote.test_fetch import refs_of_fetched
from tests.support.objects import write_object
from tests.support.repository import Repo

LIMIT = 512 << 20
HERE = "refs/envhist/heads/a/b"

SERVER = """#!{python}
# Speaks as much of git's protocol (version 0) as a client waits for, then sends the file 'pack'.
import os, pathlib, sys
place = pathlib.Path(__file__).parent
out = sys.stdout.buffer

def say(text):
    out.write(b"%04x" % (len(text) + 4) + text)

def hear():
    size = int(sys.stdin.buffer.read(4) or b"0", 16)
    return sys.stdin.buffer.read(size - 4) if size else b""

how = (place / "how").read_text()
if how == "chatter":
    for _ in range(100):
        os.write(2, b"x" * 999_999 + b"\\n")
    sys.exit(1)
say(b"1" * 40 + b" {ref}\\0ofs-delta\\n")
while how == "refs":
    say(b"1" * 40 + b" refs/envhist/heads/a/" + b"x" * 60_000 + b"\\n")
out.write(b"0000")
out.flush()
if hear():
    while hear() != b"done\\n":
        pass
    say(b"NAK\\n")
    out.write((place / "pack").read_bytes())
    out.flush()
"""

BOMBS: dict[str, Callable[[Repo], bytes]] = {
    "a delta of 16 GB": delta_of_gigabytes,
    "deltas that grow": growing_deltas,
    "a tree of 40 GB": a_tree_of_gigabytes,
    "4,000,000,000 objects": many_objects_in_few_bytes,
}


@pytest.fixture
def server(repo: Repo, tmp_path: Path) -> Callable[..., None]:
    """Return a function that makes `origin` such a server."""

    def make(how: str, pack: bytes = b"") -> None:
        place = tmp_path / "server"
        place.mkdir()
        (place / "how").write_text(how)
        (place / "pack").write_bytes(pack)
        program = place / "upload-pack"
        program.write_text(SERVER.format(python=sys.executable, ref=HERE))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        repo.git("config", "remote.origin.url", f"file://{place}")
        repo.git("config", "remote.origin.uploadpack", str(program))
        repo.git("config", "envhist.fetchMemory", "512m")

    return make


def fetch(repo: Repo) -> tuple[subprocess.CompletedProcess[str], int]:
    """Run a fetch; return its result and the peak memory of its largest process."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", WEIGHED, "git-envlog", "fetch"],
        cwd=repo.path,
        env=repo.env,
        capture_output=True,
        text=True,
    )
    return done, int(done.stdout.splitlines()[-1]) * 1024


@pytest.mark.parametrize("kind", BOMBS)
def test_fetch_refuses_bombs_within_its_limits(repo: Repo, server: Callable[..., None], kind: str) -> None:
    server("pack", BOMBS[kind](repo).partition(b"\n\n")[2])
    before = refs(repo)
    done, taken = fetch(repo)
    assert done.returncode == 128
    assert done.stderr.startswith("error: the data that 'origin' (file://")
    assert "sends needs more memory to read than allowed" in done.stderr
    assert "envhist.fetchMemory" in done.stderr
    assert taken < 1.2 * LIMIT
    assert refs(repo) == before
    assert refs_of_fetched(repo) == {}


def test_endless_listing_is_cut(repo: Repo, server: Callable[..., None]) -> None:
    server("refs")
    done, taken = fetch(repo)
    assert done.returncode == 128
    assert "sends needs more memory to read than allowed" in done.stderr
    assert taken < 1.2 * LIMIT


def test_endless_messages_are_cut_after_the_beginning(repo: Repo, server: Callable[..., None]) -> None:
    server("chatter")
    done, taken = fetch(repo)
    assert done.returncode == 128
    assert done.stderr.startswith("error: 'origin' (file://")
    assert len(done.stderr) < 1000
    assert taken < 100 << 20


@pytest.mark.parametrize("kind", ["commit", pytest.param("note", marks=pytest.mark.full)])
def test_fetch_refuses_and_removes_an_object_that_is_too_large_to_read(
    repo: Repo, bare: Repo, kind: str
) -> None:
    bare.git("config", "uploadpack.allowFilter", "true")
    honest = commit_of(bare, b"")
    bare.git("update-ref", "refs/envhist/heads/lab/good-000001", honest)
    repo.run("envlog", "fetch", check=True)
    kept = refs_of_fetched(repo)
    assert len(kept) == 1
    if kind == "commit":
        tree = bare.git("rev-parse", honest + "^{tree}").encode()
        text = b"tree %b\nauthor a <a> 1 +0000\ncommitter a <a> 1 +0000\n\n" % tree + b" " * (120 << 20)
        bare.git("update-ref", "refs/envhist/heads/lab/evil-000002", write_object(bare, "commit", text))
    else:
        bare.git(
            "notes",
            "--ref=refs/notes/envhist/lab/good-000001",
            "add",
            "-F",
            "-",
            honest,
            input=b" x" * (60 << 20),
        )
    done = repo.run("envlog", "fetch")
    assert done.status == 128
    assert f"sends contains a {kind} of 12" in done.err
    assert refs_of_fetched(repo) == kept
    fetched = repo.path / ".git/envhist/fetched.git"
    held = sum(path.stat().st_size for path in fetched.glob("objects/pack/*.pack"))
    assert held < 50_000
    # Once the large object is deleted on the remote, the fetch succeeds.
    bare.git("update-ref", "-d", "refs/envhist/heads/lab/evil-000002")
    bare.git("update-ref", "-d", "refs/notes/envhist/lab/good-000001")
    assert "up to date" in repo.run("envlog", "fetch", check=True).out
