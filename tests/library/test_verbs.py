"""Verbs of the library: search, renames, checks after a restore, pages, settings."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from git_envhist import EnvHistory
from git_envhist.errors import EnvhistError, SnapshotNotFound, UsageError
from git_envhist.model import ChangeKind, CheckResult, VerdictStatus
from git_envhist.platform import OwnProgramFailed
from tests.support.repository import Repo

pytestmark = pytest.mark.usefixtures("in_process")


@pytest.fixture
def history(repo: Repo) -> EnvHistory:
    return EnvHistory.open(repo.path, workers="here")


def intents(history: EnvHistory, **sought: object) -> list[str]:
    return [one.intent for one in history.log(**sought)]  # type: ignore[arg-type]


def test_log_searches_summaries_and_lists_a_range(history: EnvHistory, repo: Repo) -> None:
    history.capture("first")
    repo.write(".env", b"API_URL=x\n")
    history.capture("a variable")
    repo.write("file", b"1")
    last = history.capture("a file")
    assert intents(history, summary="API_URL") == ["a variable"]
    assert intents(history, summary="nothing of that kind") == []
    assert intents(history, span="@~2..") == ["a file", "a variable"]
    assert intents(history, span="@~2..@~1", reverse=True) == ["a variable"]
    assert intents(history, reverse=True, limit=2) == ["a variable", "a file"]
    assert intents(history, span=f"@~1..{last.id}", summary="file") == ["a file"]
    with pytest.raises(UsageError, match="exclude each other"):
        history.log(span="@~1..", all_timelines=True)


def test_single_word_counts_as_a_sequence_of_one(history: EnvHistory, repo: Repo, tmp_path: Path) -> None:
    repo.write("app.py", b"1")
    repo.write("other", b"1")
    first = history.capture("first", meta={"by": "hand"})
    assert first.snapshot is not None
    assert first.snapshot.meta == (("by", "hand"),)
    repo.write("app.py", b"2")
    repo.write("other", b"2")
    # A sequence of letters would contain `.`, and so mean everything.
    assert [step.path for step in history.restore(first, paths="app.py", dry_run=True).steps] == [b"app.py"]
    assert [change.path for change in history.diff(first, "now", "other").files] == [b"other"]
    history.capture("second one", attach=str(repo.path / "app.py"))
    assert [name.partition("-")[2] for name, _ in history.attachments()] == ["app.py"]
    assert intents(history, grep="zzz") == intents(history, verdicts="pass") == []
    assert intents(history, paths="app.py", grep="second") == ["second one"]
    with pytest.raises(UsageError, match="word by word"):
        history.run("echo hello")
    with pytest.raises(EnvhistError, match="cannot run '/no/such/program'"):
        history.run(["/no/such/program"])
    around = history.around("that fails", meta={"by": "hand"})
    around.__enter__()
    repo.write("other", b"3")
    around.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert dict(history.log(limit=1)[0].meta) == {"by": "hand", "failed": "ZeroDivisionError"}


def test_lone_surrogate_in_a_text_loses_no_snapshot(history: EnvHistory) -> None:
    cut, mark = "cut \ud83d", "cut \N{REPLACEMENT CHARACTER}"
    captured = history.capture(cut, meta={"prompt": cut}, external_id=cut)
    assert captured.snapshot is not None
    assert (captured.snapshot.intent, captured.snapshot.external_id) == (mark, mark)
    assert captured.snapshot.meta == (("prompt", mark),)
    history.note(cut)
    assert history.get().snapshot.remarks[0].text == mark
    assert history.tasks.add(cut).text == history.effects.note(cut).text == mark
    assert history.name(cut).id == history.resolve(cut).id
    for word in (cut, "a\0b"):
        with pytest.raises(EnvhistError, match="cannot run 'echo'"):
            history.run(["echo", word])


def test_unknown_keyword_or_word_is_refused(history: EnvHistory, repo: Repo, tmp_path: Path) -> None:
    first = history.capture("first")
    for call in (
        lambda: history.capture("no", dryrun=True),  # type: ignore[call-arg]
        lambda: history.log(untill="1h"),  # type: ignore[call-arg]
        lambda: history.restore(first, keepnew=True),  # type: ignore[call-overload]
        lambda: EnvHistory.init(tmp_path, store="x"),  # type: ignore[call-arg]
        lambda: history.around("no", rolback=True).__enter__(),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            call()
    assert intents(history) == ["first"]
    for said in ({"verdicts": ["passed"]}, {"triggers": "hook"}):
        with pytest.raises(UsageError, match="no such word"):
            intents(history, **said)
    with pytest.raises(SnapshotNotFound):
        history.log(timeline="nowhere/at-all", span="@..")
    with pytest.raises(UsageError, match="negative"):
        history.prune(keep_last=-1)


def test_renamed_file_is_one_change_with_renames(history: EnvHistory, repo: Repo) -> None:
    repo.write("old", b"".join(b"line %d\n" % number for number in range(50)))
    moment = history.capture("before")
    os.rename(repo.path / "old", repo.path / "new")
    assert [change.kind for change in history.diff(moment).files] == [ChangeKind.ADDED, ChangeKind.REMOVED]
    (moved,) = history.diff(moment, renames=50).files
    assert (moved.kind, moved.path, moved.similarity) == (ChangeKind.RENAMED, b"new", 100)


def test_restore_runs_a_check_with_verify(history: EnvHistory, repo: Repo) -> None:
    repo.write("state", b"good")
    good = history.capture("good", verify="grep -q good state")
    repo.write("state", b"other")
    heard: list[CheckResult] = []
    history.on("verified", heard.append)
    restored = history.restore(good, verify=True)
    assert restored.checked is not None
    assert restored.checked.verdict.status is VerdictStatus.PASS
    assert [one.verdict.command for one in heard] == ["grep -q good state"]
    history.undo()
    restored = history.restore(good, verify="false")
    assert restored.checked is not None
    assert restored.checked.verdict.status is VerdictStatus.FAIL
    assert repo.read("state") == b"good"
    history.undo()
    assert repo.read("state") == b"other"
    assert history.restore(good).checked is None


def test_restore_with_verify_is_refused_without_a_check(history: EnvHistory, repo: Repo) -> None:
    moment = history.capture("never checked")
    repo.write("file", b"1")
    with pytest.raises(EnvhistError, match="check"):
        history.restore(moment, verify=True)
    assert repo.read("file") == b"1"


def test_page_is_returned_and_written_to_a_file(history: EnvHistory, repo: Repo, tmp_path: Path) -> None:
    with pytest.raises(OwnProgramFailed, match="no snapshot to write") as nothing:
        history.page()
    assert (nothing.value.code, nothing.value.exit_code) == ("nothing-to-show", 4)
    history.capture("one to look at")
    repo.write("file", b"1")
    history.capture("another")
    text = history.page()
    assert text.startswith("<!DOCTYPE html>")
    assert "one to look at" in text
    file = tmp_path / "page.html"
    assert history.page(file, "@~1..") == file.read_text("utf-8")
    assert "one to look at" not in file.read_text("utf-8")
    assert "one to look at" not in history.page(paths=["file"])
    file.write_text("somebody's own")
    with pytest.raises(OwnProgramFailed, match="not such a page") as refused:
        history.page(file)
    assert refused.value.exit_code == 3
    assert file.read_text() == "somebody's own"


def test_changed_settings_are_read_again(history: EnvHistory, repo: Repo) -> None:
    assert history.settings.verify is None
    assert history.capture("before").verdict is None
    repo.git("config", "envhist.verify", "true")
    repo.write(".git/more", b"[envhist]\n\texclude = left-out\n")
    assert history.settings.verify == "true"
    repo.git("config", "include.path", "more")
    repo.write("left-out", b"1")
    captured = history.capture("after", if_changed=True)
    assert captured.snapshot is None
    repo.write("file", b"1")
    assert history.restore("@", dry_run=True).steps[0].path == b"file"
    # A file that another one includes counts, too.
    repo.write(".git/more", b"[envhist]\n\tenabled = false\n\tverify = false\n")
    assert not history.settings.enabled
    verdict = history.capture("checked otherwise").verdict
    assert verdict is None or verdict.status is VerdictStatus.FAIL


def test_history_uses_the_environment_variables_it_is_given(repo: Repo, tmp_path: Path) -> None:
    home = tmp_path / "another home"
    home.mkdir()
    (home / ".gitconfig").write_text("[envhist]\n\tkeepLast = 7\n[user]\n\tname = Another\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    date = "2026-03-04T05:06:07+00:00"
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "GIT_DIR": str(repo.path / ".git"),
        "GIT_WORK_TREE": str(repo.path),
        "GIT_COMMITTER_DATE": date,
    }
    history = EnvHistory.open(elsewhere, environ=environ, workers="here")
    assert os.path.samefile(history.repository.root, repo.path)
    assert repr(history) == f"EnvHistory({history.repository.root!r})"
    assert history.settings.keep_last == 7
    snapshot = history.capture("under other variables").snapshot
    assert snapshot is not None
    assert (snapshot.actor.name, snapshot.at.isoformat()) == ("Another", date)
    subprocess.run(["git", "-C", repo.path, "fsck", "--strict"], check=True, capture_output=True)
