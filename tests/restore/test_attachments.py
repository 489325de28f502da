"""Attachments are written back byte for byte, and never over an existing file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.errors import EnvhistError, Refused, SealingError
from git_envhist.git.cat_file import CatFile
from git_envhist.lazy import replace
from git_envhist.model import Snapshot
from git_envhist.secrets.seal import unseal
from git_envhist.tracking.attachments import read_attachments, write_attachments
from tests.support.repository import Repo

TALK = b"user: go\nassistant: \x00\xff done\n"


def attached(repo: Repo, tmp_path: Path) -> tuple[EnvHistory, Snapshot]:
    for name, data in (("talk.jsonl", TALK), (".gitattributes", b"a")):
        (tmp_path / name).write_bytes(data)
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    paths = [str(tmp_path / "talk.jsonl"), str(tmp_path / ".gitattributes")]
    taken = history.capture("with a talk", attach=paths).snapshot
    assert taken is not None
    return history, taken


def give_back(history: EnvHistory, snapshot: Snapshot, directory: Path) -> list[str]:
    with CatFile(history.repository.git) as reader:
        found = read_attachments(
            reader, snapshot, lambda name, blob: unseal(history.keys.get, name, b"attachment", blob)
        )
        return write_attachments(str(directory), found)


def test_attachments_are_written_back_byte_for_byte(repo: Repo, tmp_path: Path) -> None:
    history, snapshot = attached(repo, tmp_path)
    written = give_back(history, snapshot, tmp_path / "out" / "deep")
    assert [os.path.basename(path) for path in written] == ["1-talk.jsonl", "2-.gitattributes"]
    assert Path(written[0]).read_bytes() == TALK
    assert Path(written[0]).stat().st_mode & 0o777 == 0o600


def test_attachment_does_not_overwrite_a_file(repo: Repo, tmp_path: Path) -> None:
    history, snapshot = attached(repo, tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "1-talk.jsonl").write_text("mine")
    with pytest.raises(Refused):
        give_back(history, snapshot, tmp_path / "out")
    assert (tmp_path / "out" / "1-talk.jsonl").read_text() == "mine"


def test_sealed_attachment_is_not_written_without_the_key(repo: Repo, tmp_path: Path) -> None:
    history, snapshot = attached(repo, tmp_path)
    with CatFile(history.repository.git) as reader, pytest.raises(SealingError):
        list(
            read_attachments(
                reader, snapshot, lambda name, blob: unseal(lambda _: None, name, b"attachment", blob)
            )
        )


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", "", "1-nothing", "a\nb"])
def test_attachment_with_a_path_as_name_is_refused(repo: Repo, tmp_path: Path, name: str) -> None:
    history, snapshot = attached(repo, tmp_path)
    with pytest.raises(EnvhistError):
        give_back(history, replace(snapshot, attachments=(name,)), tmp_path / "out")
