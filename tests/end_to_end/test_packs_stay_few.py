"""A history of many captures is kept in few packs, and each snapshot in it stays whole."""

from __future__ import annotations

from git_envhist.api import EnvHistory
from git_envhist.store.merging import MOST_PACKS
from tests.support.repository import Repo


def test_sixty_captures_leave_a_handful_of_packs(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here")
    for number in range(60):
        repo.write("counter", b"%d\n" % number)
        history.capture(f"capture {number}")

    packs = list((repo.path / ".git/objects/pack").glob("*.pack"))
    assert len(packs) <= MOST_PACKS + 2
    assert repo.git("fsck", "--strict", "--no-dangling") == ""
    timeline = f"refs/envhist/heads/{history.timeline}"
    for number, commit in enumerate(reversed(repo.git("rev-list", timeline).split())):
        assert repo.git("show", f"{commit}:counter").strip() == str(number)
