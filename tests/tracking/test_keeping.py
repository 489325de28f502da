"""Attachments are returned byte for byte, and only with the key."""

from __future__ import annotations

import json
import os
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist import EnvHistory
from git_envhist.errors import EnvhistError, Refused, SealingError, UsageError
from git_envhist.model import MissingReason
from git_envhist.tracking.attachments import decode_values, encode_values
from tests.support.repository import Repo, make_repo

CONVERSATION = [
    {"role": "user", "content": "hello \udcff \x1b[2J"},
    {"role": "assistant", "content": [{"type": "image", "data": b"\x00\xff" * 300}], "$bytes": "mine"},
    {"$bytes": "not bytes"},
    {"$dict": [["a", 1]]},
    None,
    2.5,
]
OUTPUTS = ["npm ERR!", b"\x00raw", {"status": 1}]

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["$bytes", "$dict"]), inner),
    max_leaves=10,
)


def test_attachment_added_later_is_returned_unchanged(repo: Repo, tmp_path: Path) -> None:
    history = EnvHistory.open(str(repo.path), workers="here")
    moment = history.capture("first")
    repo.write("app.py", b"more")
    history.capture("second")
    (tmp_path / "log.txt").write_bytes(b"\x00a log")
    attached = history.attach(
        moment, conversation=CONVERSATION, tool_outputs=OUTPUTS, files=[tmp_path / "log.txt"]
    )
    assert [one.name for one in attached.attached] == ["conversation.json", "tool-outputs.json", "log.txt"]
    assert moment.id is not None
    kept = EnvHistory.open(str(repo.path), workers="here").get(moment.id)
    assert (kept.conversation, kept.tool_outputs) == (CONVERSATION, OUTPUTS)
    assert dict(kept.attachments)["log.txt"] == b"\x00a log"
    assert kept.snapshot.id == moment.id
    assert history.get("@").attachments == ()


def test_attachment_of_a_capture_is_returned_unchanged(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here")
    history.capture("talk", conversation=CONVERSATION, tool_outputs=OUTPUTS)
    kept = history.get()
    assert (kept.conversation, kept.tool_outputs) == (CONVERSATION, OUTPUTS)
    history.attach("@", conversation=["another"])
    kept = history.get()
    assert (kept.conversation, kept.tool_outputs) == (["another"], OUTPUTS)


def test_last_attachment_of_a_name_counts_and_details_list_all(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here")
    history.capture("talk")
    history.attach(attached=[("note", b"1")])
    history.attach(attached=[("note", b"2"), ("other", b"")])
    assert history.attachments() == (("note", b"2"), ("other", b""))
    assert '"attachments": ["note", "other"]' in repo.run("envlog", "show", "--json", check=True).out
    given = repo.run("envrestore", "@", "--attachments", "given", check=True)
    assert given.out.split() == ["given/note", "given/other"]
    assert repo.read("given/note") == b"2"


def test_attachments_survive_gc_and_are_pushed_with_the_notes(repo: Repo, tmp_path: Path) -> None:
    history = EnvHistory.open(str(repo.path), workers="here")
    moment = history.capture("talk")
    history.attach(moment, conversation=CONVERSATION)
    repo.git("gc", "-q", "--prune=now")
    history.note("one more", moment)
    repo.git("notes", f"--ref=envhist/{history.timeline}", "append", "-m", "by hand", str(moment.id))
    assert history.get(moment).conversation == CONVERSATION
    repo.git("init", "-q", "--bare", str(tmp_path / "there"))
    repo.git("config", "transfer.fsckObjects", "true")
    repo.git("remote", "add", "there", str(tmp_path / "there"))
    repo.run("envlog", "push", "there", "--yes", check=True)
    # A repository does not fetch its own pushes, so another one fetches.
    other = make_repo(tmp_path / "other")
    other.git("remote", "add", "there", str(tmp_path / "there"))
    other.run("envlog", "fetch", "there", check=True)
    repo.run("envlog", "key", "export", "-o", "../the.key", check=True)
    other.run("envlog", "key", "import", "../the.key", check=True)
    kept = EnvHistory.open(str(other.path), workers="here").get(f"there/{history.timeline}")
    assert kept.conversation == CONVERSATION
    assert repo.git("-C", str(tmp_path / "there"), "fsck", "--strict") == ""


def test_missing_paths_and_changes_of_git_are_returned_with_a_snapshot(repo: Repo) -> None:
    repo.git("config", "envhist.budget", "10k")
    repo.write("app.py", b"changed")
    repo.write("large", os.urandom(100_000))
    kept = EnvHistory.open(str(repo.path), workers="here").get(
        EnvHistory.open(str(repo.path), workers="here").capture("partial")
    )
    assert [(one.path, one.why) for one in kept.missing] == [(b"large", MissingReason.BUDGET)]
    assert [(one.status, one.path) for one in kept.git_changed] == [("M", b"app.py")]


def test_attachments_are_deleted_with_a_purged_snapshot(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here")
    moments = []
    for number in range(3):
        repo.write("app.py", str(number))
        moments.append(history.capture(str(number)))
        history.attach(moments[-1], conversation=[number])

    def attached() -> set[str]:
        listed = repo.git(
            "ls-tree", "-r", "--name-only", f"refs/notes/envhist/{history.timeline}", "attachments/"
        )
        return {line.split("/")[2] for line in listed.splitlines()}

    history.drop(moments[1])
    assert [history.get(one).conversation for one in (moments[0], moments[2])] == [[0], [2]]
    history.undrop(str(moments[1].id))
    assert history.get(moments[1]).conversation == [1]
    history.drop(moments[1])
    assert attached() == {one.id for one in moments}
    history.dropper.expire(date.max)
    assert attached() == {moments[0].id, moments[2].id}
    history.drop(moments[0], moments[2])
    history.dropper.expire(date.max)
    assert attached() == set()


def test_attachment_opens_only_with_its_key_and_at_its_snapshot(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here")
    first = history.capture("first").snapshot
    repo.write("app.py", b"more")
    second = history.capture("second").snapshot
    assert first is not None
    assert second is not None
    kept = history.attach(first, conversation=["open sesame"])
    assert "sesame" not in repo.git("cat-file", "blob", kept.attached[0].blob)
    told = {"at": "2026-01-01T00:00:00+00:00", "blob": kept.attached[0].blob, "kind": "attached"}
    record = json.dumps(told | {"name": "conversation.json"})
    repo.git("notes", f"--ref=envhist/{history.timeline}", "append", "-m", record, second.id)
    with pytest.raises(SealingError):
        history.get(second.id)


def test_value_that_cannot_be_stored_is_refused(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here")
    wrong: list[Any] = [[object()], [{1: "one"}], [{None: 1}], "text", b"bytes", {"a": 1}]
    endless: list[Any] = []
    endless.append(endless)
    history.capture("talk")
    for values in (*wrong, endless):
        with pytest.raises(UsageError):
            history.attach(conversation=values)
    with pytest.raises(EnvhistError):
        history.attach(files=[repo.path / "is not there"])
    assert history.get().attachments == ()


def test_attachment_that_is_too_large_is_refused(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("git_envhist.tracking.attachments.MAX_SIZE", 10)
    history = EnvHistory.open(str(repo.path), workers="here")
    history.capture("talk")
    with pytest.raises(Refused):
        history.attach(attached=[("large", bytes(11))])


@given(st.lists(values))
def test_plain_values_are_returned_unchanged(given_values: list[Any]) -> None:
    assert decode_values(encode_values(given_values)) == given_values


@given(st.binary())
def test_decoding_other_bytes_returns_none_or_a_list(data: bytes) -> None:
    assert decode_values(data) is None or isinstance(decode_values(data), list)
