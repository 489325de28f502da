"""Checks through the API."""

from __future__ import annotations

from git_envhist.api import EnvHistory
from git_envhist.model import VerdictStatus
from tests.support.repository import Repo


def test_api_checks_now_an_older_snapshot_and_bisects(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    for number in range(4):
        repo.write("number", f"{number}\n")
        captured = history.capture(f"m{number}", verify="true" if number == 0 else None)
        assert (captured.verdict is not None) == (number == 0)
    check = "test $(cat number) -lt 2"
    assert history.verify("now", check).verdict.status is VerdictStatus.FAIL
    then = history.verify("@~3", check)
    assert (then.snapshot.intent, then.verdict.status) == ("m0", VerdictStatus.PASS)
    found = history.bisect(command=check)
    assert (found.good.intent, found.bad.intent, len(found.suspects)) == ("m1", "m2", 1)
    assert history.resolve("good").intent == "m1"
