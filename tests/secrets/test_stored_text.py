"""Text that is stored unsealed contains no secret: it is masked, or refused if it must be stored unchanged."""

from __future__ import annotations

from tests.end_to_end.captures import capture, tip
from tests.support.repository import Repo

TOKEN = "ghp_" + "aB3dE5gH7jK9mN2pQ4rS6tU8vW0xY1zC3eF5"


def test_name_with_a_secret_is_refused_and_not_repeated(repo: Repo) -> None:
    done = repo.run("envlog", "capture", "--name", TOKEN)
    assert done.status == 3
    assert TOKEN not in done.out + done.err
    assert tip(repo) is None
    capture(repo)
    assert repo.run("envlog", "name", f"a-{TOKEN}").status == 3


def test_name_of_an_attachment_is_masked(repo: Repo) -> None:
    attached = repo.write(f"../talk-{TOKEN}.txt", "words")
    capture(repo, "--attach", str(attached))
    everything = repo.run_git("cat-file", "--batch-all-objects", "--batch").stdout
    assert TOKEN.encode() not in everything
    assert "1-talk-ghp_***" in repo.run("envlog", "show").out


def test_commit_subject_is_masked_when_used_as_intent(repo: Repo) -> None:
    repo.commit(f"use {TOKEN}")
    snapshot = capture(repo)
    message = repo.git("log", "-1", "--format=%B", snapshot)
    assert "use ghp_***" in message
    assert TOKEN not in message
