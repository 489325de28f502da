"""Unsigned verdicts are not trusted; verdicts of an equal environment captured before are reused."""

from __future__ import annotations

import json

import pytest

from tests.checks.test_capture_verify import notes_ref, shown
from tests.support.repository import Repo

AT = "2026-11-18T10:02:00+00:00"


def tip(repo: Repo) -> str:
    return repo.git("for-each-ref", "--format=%(objectname)", "refs/envhist/heads")


def annotate(repo: Repo, commit: str, line: str, ref: str | None = None) -> None:
    repo.git("notes", "--ref", ref or notes_ref(repo), "append", "-F", "-", commit, input=line + "\n")


def verdict_line(repo: Repo, commit: str) -> str:
    note = repo.git("notes", "--ref", notes_ref(repo), "show", commit)
    return next(line for line in note.splitlines() if '"kind":"verdict"' in line)


def test_verdict_without_our_signature_is_ignored(repo: Repo) -> None:
    repo.run("envlog", "capture", "x", check=True)
    record = {
        "at": AT,
        "kind": "verdict",
        "status": "pass",
        "command": "true",
        "exit_code": 0,
        "by": "Mallory",
    }
    annotate(repo, tip(repo), json.dumps(record), "refs/notes/envhist/other/one")
    assert repo.run("envlog", "show", "good").status == 4
    assert repo.run("envlog", "--verdict=pass").out == ""
    assert repo.run("envlog", "--verdict=none", "--format=%s").out == "x\n"
    assert " ? x" in repo.run("envlog").out
    assert "Check:     ? passed, unsigned (author given as Mallory) (true)" in repo.run("envlog", "show").out
    assert shown(repo)["verify"]["claimed_by"] == "Mallory"  # type: ignore[index]
    # A later unsigned verdict does not replace ours.
    repo.run("envlog", "verify", "@", "--", "false")
    record["at"] = "2099-01-01T00:00:00+00:00"
    annotate(repo, tip(repo), json.dumps(record), "refs/notes/envhist/other/one")
    assert "✗ x" in repo.run("envlog").out


@pytest.mark.parametrize(
    "change", [("fail", "pass"), ("exit 1", "exit 2"), ('"exit_code":1', '"exit_code":NaN')]
)
def test_changed_signed_verdict_is_unsigned(repo: Repo, change: tuple[str, str]) -> None:
    repo.run("envlog", "capture", "x", "--verify", "exit 1", check=True)
    forged = verdict_line(repo, tip(repo)).replace(*change)
    repo.git("notes", "--ref", notes_ref(repo), "add", "-f", "-F", "-", tip(repo), input=forged + "\n")
    found = json.loads(repo.run("envlog", "show", "--json").out)["verdicts"]
    assert [verdict["claimed_by"] for verdict in found] == ["Test User"]


def test_verdict_applies_only_to_its_snapshot(repo: Repo) -> None:
    repo.run("envlog", "capture", "good one", "--verify", "true", check=True)
    line = verdict_line(repo, tip(repo))
    repo.write("app.py", "broken\n")
    repo.run("envlog", "capture", "bad one", check=True)
    annotate(repo, tip(repo), line)
    assert shown(repo)["verify"]["claimed_by"] == "Test User"  # type: ignore[index]
    assert repo.run("envlog", "show", "good").out == repo.run("envlog", "show", ":/good one").out


def test_command_in_a_note_is_never_run(repo: Repo) -> None:
    repo.run("envlog", "capture", "x", "--verify", "true", check=True)
    record = {"at": AT, "kind": "verdict", "status": "pass", "command": "touch ran", "exit_code": 0}
    annotate(repo, tip(repo), json.dumps(record), "refs/notes/envhist/other/one")
    (repo.path / ".git/envhist/checks").unlink()
    for words in (
        ("envlog", "verify", "@"),
        ("envlog", "bisect", "--good", "@"),
        ("envrestore", "--verify", "@"),
    ):
        assert repo.run(*words).status == 129
    assert not (repo.path / "ran").exists()


def test_equal_environment_is_known_with_the_time_of_its_check(repo: Repo) -> None:
    def capture(words: str, at: str, *more: str) -> None:
        repo.run(
            "envlog",
            "capture",
            words,
            *more,
            env={"GIT_COMMITTER_DATE": f"2026-11-18T{at}:00+00:00"},
            check=True,
        )

    now = {"GIT_COMMITTER_DATE": "2026-11-18T12:00:00+00:00"}
    capture("clean", "10:02", "--verify", "true")
    repo.write("app.py", "other\n")
    capture("other", "10:10")
    repo.write("app.py", "print('hello')\n")
    capture("back", "10:20")
    lines = repo.run("envlog", env=now).out.splitlines()
    assert [line.split()[2] for line in lines] == ["·", "·", "✓"]
    assert "· back   ✓ as at 10:02 · " in lines[0]
    assert "as at 10:02" not in lines[2]
    first = shown(repo, ":/clean")["id"]
    assert shown(repo)["verify"]["carried_from"] == first  # type: ignore[index]
    assert f"carried over from {str(first)[:7]}" in repo.run("envlog", "show").out
    # `good` means a verdict of the snapshot itself.
    assert shown(repo, "good")["id"] == first
    capture("again, and it fails", "10:30", "--verify", "false")
    assert [line.split()[2] for line in repo.run("envlog", env=now).out.splitlines()] == ["✗", "·", "·", "✓"]
    # The last verdict is the known one; an error does not replace it.
    capture("cannot tell", "10:40", "--verify", "exit 127")
    repo.write("app.py", "other\n")
    capture("other again", "10:50")
    repo.write("app.py", "print('hello')\n")
    capture("and back", "11:00")
    known = shown(repo)["verify"]
    assert isinstance(known, dict)
    assert known["status"] == "fail"


def test_check_without_a_result_is_listed_next_to_the_earlier_result(repo: Repo) -> None:
    repo.run("envlog", "capture", "clean", "--verify", "true", check=True)
    repo.write("app.py", "other\n")
    repo.run("envlog", "capture", "other", check=True)
    repo.write("app.py", "print('hello')\n")
    repo.run("envlog", "capture", "back", check=True)
    first = shown(repo, ":/clean")["id"]
    words = "the last check gave no result (exit 125)"
    for revision, intent, sign in (("@", "back", "·"), (":/clean", "clean", "✓")):
        assert repo.run("envlog", "verify", revision, "--", "exit 125").status == 125
        line = next(line for line in repo.run("envlog").out.splitlines() if f" {intent} " in line)
        assert f"{sign} {intent}" in line
        assert f" {words} · " in line
        assert shown(repo, revision)["verify"]["status"] == "pass"  # type: ignore[index]
    assert shown(repo, "good")["id"] == first
    repo.run("envlog", "verify", ":/clean", "--", "true", check=True)
    assert repo.run("envlog").out.count(words) == 1


def test_environment_on_another_machine_is_not_known() -> None:
    from git_envhist.capture.verdict_log import circumstances

    system = [(b"system", "1" * 40), (b"service", "2" * 40)]
    assert circumstances(system) == circumstances(system[::-1])
    assert circumstances(system) != circumstances([(b"system", "3" * 40), (b"service", "2" * 40)])
    assert circumstances([]) == ""


def test_differing_facts_prevent_a_known_verdict(repo: Repo) -> None:
    from datetime import datetime
    from pathlib import Path

    from git_envhist.capture.verdict_log import LoggedVerdict, VerdictLog, carried_record
    from git_envhist.model import SnapshotId, Verdict, VerdictStatus

    state = str(repo.path / ".git/envhist")
    Path(state).mkdir()
    verdict = Verdict(VerdictStatus.PASS, "true", datetime.fromisoformat(AT), 0)
    VerdictLog(state).add(LoggedVerdict(SnapshotId("1" * 40), "content", "facts", "true", verdict))
    known = carried_record(state, "content", "facts")
    assert known is not None
    assert known.fields["carried_from"] == "1" * 40
    assert carried_record(state, "content", "other facts") is None
    assert carried_record(state, "other", "facts") is None
