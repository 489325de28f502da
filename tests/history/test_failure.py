"""The step that broke a check, and the order of its changes."""

from __future__ import annotations

from datetime import UTC, datetime

from git_envhist.history.failure import Rank, find_failure, order_suspects
from git_envhist.lazy import replace
from git_envhist.model import (
    Change,
    ChangeSide,
    EntryKind,
    EnvPath,
    FactChange,
    Role,
    Snapshot,
    Verdict,
    VerdictStatus,
)
from tests.history.snapshots import snapshot

AT = datetime(2026, 11, 20, tzinfo=UTC)
KINDS = {"pip": "packages", "env": "env", "sqlite": "databases", "service": "services"}


def checked(name: str, status: str = "", command: str = "test") -> Snapshot:
    verdicts = (Verdict(VerdictStatus(status), command, AT),) if status else ()
    return replace(snapshot(name), verdicts=verdicts)


def file(path: bytes) -> Change:
    return Change(None, ChangeSide(EnvPath(path), EntryKind.FILE, 0o644, None))


def test_first_failing_snapshot_after_the_newest_pass_is_found() -> None:
    chain = [
        checked("e", "fail"),
        checked("d", "fail"),
        checked("c"),
        checked("b", "pass"),
        checked("a", "fail"),
    ]
    found = find_failure(chain, None)
    assert found is not None
    assert (found.first.intent, found.passed and found.passed.intent, found.unchecked) == ("d", "b", 1)


def test_check_of_another_command_and_errors_count_as_not_checked() -> None:
    chain = [checked("c", "fail"), checked("b", "pass", "other"), checked("a", "error"), checked("0", "pass")]
    found = find_failure(chain, "test")
    assert found is not None
    assert (found.first.intent, found.passed and found.passed.intent, found.unchecked) == ("c", "0", 2)
    assert find_failure(chain, "other") is None
    assert find_failure([checked("a", "pass")], None) is None
    only = find_failure([checked("b", "fail"), checked("a")], None)
    assert only is not None
    assert (only.first.intent, only.passed) == ("b", None)


def test_changes_named_in_the_output_come_first() -> None:
    facts = [
        FactChange("service", "web", "1", "2"),
        FactChange("sqlite", "app.db/users", "1 rows", "2 rows"),
        FactChange("env", ".env/PORT", "a", "b"),
        FactChange("pip", ".venv/click", "1", "2", role=Role.TRANSITIVE),
        FactChange("pip", ".venv/flask", "1", "2"),
        FactChange("pip", ".venv/typing-extensions", "1", "2", role=Role.TRANSITIVE),
    ]
    files = [file(b"README"), file(b"src/cart.py"), file(b".venv/lib/flask/app.py")]
    output = "ModuleNotFoundError: No module named 'typing_extensions'\nsrc/cart.py:3: in total\n"
    found = order_suspects(files, facts, output, KINDS, frozenset((b".venv",)))
    ranks = [suspect.rank for suspect in found]
    assert ranks == sorted(ranks, key=list(Rank).index)
    named = [one.change for one in found if one.rank is Rank.NAMED]
    assert named == [facts[5], files[1]]
    assert [one.change for one in found if one.rank is Rank.PACKAGE] == [facts[4]]
    assert [one.change for one in found if one.rank is Rank.FILE] == [files[0]]
    assert {one.rank for one in found if one.change in (facts[0], facts[3], files[2])} == {Rank.OTHER}


def test_short_names_and_parts_of_words_are_not_named() -> None:
    facts = [FactChange("pip", ".venv/py", "1", "2"), FactChange("pip", ".venv/ask", "1", "2")]
    found = order_suspects([], facts, "py flask asks", KINDS, frozenset())
    assert {one.rank for one in found} == {Rank.PACKAGE}
