"""Attachments in chunks: a growing transcript is stored once, and every way of reading returns the same bytes."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from git_envhist import EnvHistory
from git_envhist.handlers.agent_hook import read_transcript
from tests.support.repository import Repo, make_repo

NAME = "session.jsonl"
STORED = f"1-{NAME}"


def transcript(lines: int, seed: int = 1) -> bytes:
    """Return lines as an agent writes them: JSON with text that compresses to about a third."""
    rng = random.Random(seed)
    words = [f"{rng.getrandbits(24):x}" for _ in range(400)]
    rows = ({"n": number, "text": " ".join(rng.choices(words, k=60))} for number in range(lines))
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def stored_bytes(repo: Repo) -> int:
    """Return the size of all packs."""
    packs = repo.path / ".git/objects/pack"
    return sum(path.stat().st_size for path in packs.glob("*.pack"))


def capture(repo: Repo, content: bytes, number: int = 0) -> EnvHistory:
    repo.write("app.py", f"print({number})\n")
    history = EnvHistory.open(str(repo.path), workers="here")
    history.capture(f"turn {number}", attached=[(NAME, content)])
    return history


def attached(history: EnvHistory, revision: str = "@") -> bytes:
    return dict(history.attachments(revision))[STORED]


def test_growing_transcript_is_stored_about_once(repo: Repo) -> None:
    whole = transcript(1500)
    steps = [whole[: len(whole) * share // 8] for share in range(1, 9)]
    for number, content in enumerate(steps):
        history = capture(repo, content, number)
    assert attached(history) == whole
    assert attached(history, "@~7") == steps[0]
    # Stored whole each time, the packs would have 4.5 times the size of the transcript.
    assert stored_bytes(repo) < len(whole)
    repo.git("fsck", "--full", "--strict")


@pytest.mark.parametrize("size", [4095, 4096, 4097, 300_000])
def test_attachment_of_any_size_comes_back(repo: Repo, size: int) -> None:
    content = os.urandom(size)
    assert attached(capture(repo, content)) == content


def test_content_of_a_chunked_attachment_is_in_no_object(repo: Repo) -> None:
    secret = b"a-word-that-must-not-be-found "
    history = capture(repo, secret * 4000)
    tree = repo.git("rev-parse", f"{history.log(limit=1)[0].commit}:.envhist/attachments/{STORED}").strip()
    assert repo.git("cat-file", "-t", tree).strip() == "tree"
    blobs = [
        line.split()[0] for line in repo.git("rev-list", "--objects", "--no-object-names", tree).splitlines()
    ]
    contents = repo.run_git("cat-file", "--batch", input="".join(f"{oid}\n" for oid in blobs)).stdout
    assert len(contents) > 1000
    assert secret.strip() not in contents


@pytest.mark.full
def test_chunked_attachment_is_restored_after_gc_and_a_new_key(repo: Repo, tmp_path: Path) -> None:
    content = transcript(300)
    capture(repo, content)
    repo.run("envlog", "key", "new", "--reseal", check=True)
    repo.run("envlog", "gc", check=True)
    repo.run("envrestore", "@", "--attachments", str(tmp_path / "out"), check=True)
    assert (tmp_path / "out" / STORED).read_bytes() == content
    repo.run("envlog", "fsck", check=True)


@pytest.mark.full
def test_chunked_attachment_travels_with_a_push_and_a_fetch(repo: Repo, tmp_path: Path) -> None:
    content = transcript(300)
    timeline = capture(repo, content).timeline
    bare = make_repo(tmp_path / "remote.git", bare=True)
    other = make_repo(tmp_path / "other")
    for each in (repo, other):
        each.git("remote", "add", "origin", str(bare.path))
    repo.run("envlog", "push", "--yes", check=True)
    other.run("envlog", "fetch", "origin", check=True)
    _bring_key(repo, other, tmp_path)
    assert attached(EnvHistory.open(str(other.path)), f"origin/{timeline}") == content


def test_chunked_attachment_travels_with_an_export(repo: Repo, tmp_path: Path) -> None:
    content = transcript(300)
    timeline = capture(repo, content).timeline
    file, other = str(tmp_path / "handover.envhist.tar.zst"), make_repo(tmp_path / "other")
    repo.run("envlog", "export", file, check=True)
    other.run("envlog", "import", file, check=True)
    _bring_key(repo, other, tmp_path)
    assert attached(EnvHistory.open(str(other.path)), f"handover/{timeline}") == content


def _bring_key(source: Repo, target: Repo, directory: Path) -> None:
    source.run("envlog", "key", "export", "-o", str(directory / "key"), check=True)
    target.run("envlog", "key", "import", str(directory / "key"), check=True)


def test_transcript_over_the_limit_keeps_its_last_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"".join(b"line %04d\n" % number for number in range(100)))
    assert read_transcript(str(path), 25) == b"line 0098\nline 0099\n"
    assert read_transcript(str(path), 1000) == path.read_bytes()
    assert read_transcript(str(path), 0) == b""
