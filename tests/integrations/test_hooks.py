"""Captures by git hooks: git commands in one repository, and the snapshots they cause."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pty
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from git_envhist.consent import trusted_list
from git_envhist.integrations.git_hooks import hook_script
from git_envhist.locks import locked
from tests.integrations.hooks import (
    git_dir,
    intents,
    is_idle,
    log_of,
    triggers,
    wait_for,
    wait_for_runs,
)
from tests.support.gits import gits
from tests.support.needs import require
from tests.support.repository import Repo, make_repo

UNHOOKED = ("-c", "core.hooksPath=/dev/null", "-c", "envhist.enabled=false")


@pytest.fixture(scope="module")
def hooked(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """Create a repository with hooks and one snapshot taken by them."""
    repo = make_repo(tmp_path_factory.mktemp("hooked") / "repo")
    repo.run("envlog", "install", check=True)
    repo.write(".gitignore", "/ignored\n")
    repo.write("ignored", "not of the code")
    repo.commit("with hooks")
    wait_for_runs(repo, 1)
    return repo


@pytest.fixture
def at_rest(hooked: Repo) -> Iterator[Repo]:
    """Return the repository with hooks, on its branch, with no capture running before and after the test."""
    settle(hooked)
    hooked.git(*UNHOOKED, "checkout", "-q", "-f", "main")
    yield hooked
    settle(hooked)


def settle(repo: Repo) -> None:
    """Wait until no hook is pending and no process can start another capture."""
    wait_for(lambda: not _is_process_running(repo) and is_idle(repo), "idle hooks")


def _is_process_running(repo: Repo) -> bool:
    """Return whether a process (a hook, its child or a worker) runs in the repository or next to it."""
    return any(_runs_below(entry, str(repo.path.parent)) for entry in Path("/proc").iterdir())


def _runs_below(entry: Path, place: str) -> bool:
    try:
        return entry.name.isdecimal() and os.readlink(entry / "cwd").startswith(place)
    except OSError:
        return False


def happened(repo: Repo, action: list[str], **more: str) -> list[tuple[str, str]]:
    """Run git and wait; return (trigger, intent) of each snapshot this caused, oldest first."""
    before = len(intents(repo))
    repo.execute("git", *action, env=more)
    settle(repo)
    new = len(intents(repo)) - before
    return [*zip(triggers(repo)[:new], intents(repo)[:new], strict=True)][::-1]


def test_hook_captures_after_the_terminal_closes(repo: Repo) -> None:
    """The terminal closes before the hook has started our program, e.g. after `ssh -t host git commit`."""
    repo.run("envlog", "install", check=True)
    repo.commit("with hooks")
    wait_for_runs(repo, 1)
    child, terminal = pty.fork()
    if not child:
        os.chdir(repo.path)
        # Child processes inherit an ignored signal, so restore the default.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.execvpe("git", ["git", "commit", "-q", "--allow-empty", "-m", "hung up"], dict(repo.env))
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    assert status == 0
    wait_for(
        lambda: "hung up" in intents(repo),
        f"the snapshot of a commit in a closed terminal: {log_of(repo)}",
    )


def test_hook_captures_after_codex_killed_the_process_group_of_git(at_rest: Repo) -> None:
    require("setsid")
    at_rest.write("f", "1\n")
    at_rest.git("add", "f")
    done = subprocess.Popen(
        ["git", "commit", "-q", "-m", "in a shell of an agent"], cwd=at_rest.path,
        env={**at_rest.env, "CODEX_THREAD_ID": "x-1"}, start_new_session=True,
    )  # fmt: skip
    assert done.wait() == 0
    with contextlib.suppress(ProcessLookupError):
        os.killpg(done.pid, signal.SIGKILL)
    wait_for(lambda: "in a shell of an agent" in intents(at_rest), "the snapshot of the commit")


def test_commit_is_captured_with_its_subject_and_ignored_files(at_rest: Repo) -> None:
    at_rest.write("app.py", "print('changed')\n")
    assert happened(at_rest, ["commit", "-q", "-am", "the subject\n\nand more"]) == [
        ("commit", "the subject")
    ]
    assert at_rest.run("envlog", "show", "@", "--", "ignored", check=True).out == "not of the code"
    shown = json.loads(at_rest.run("envlog", "show", "--json", check=True).out)
    assert (shown["trigger"], shown["intent_source"]) == ("commit", "commit")
    assert shown["head"] == at_rest.git("rev-parse", "HEAD")
    assert shown["actor"]["name"] == "Test User"


@pytest.mark.parametrize(("event", "started"), [("post-commit", ["3"]), ("pre-push", ["1", "2", "3"])])
def test_only_the_last_of_several_hooks_starts_the_program_except_for_pushes(
    repo: Repo, tmp_path: Path, event: str, started: list[str]
) -> None:
    told, go = tmp_path / "told", tmp_path / "go"
    program, sleep = tmp_path / "program", tmp_path / "sleep"
    program.write_text(f'#!/bin/sh\necho "$4" >>{told}\n')
    # All hooks wait until the last of them was called.
    sleep.write_text(f"#!/bin/sh\nuntil [ -e {go} ]; do {shutil.which('sleep')} 0.01; done\n")
    hook = tmp_path / event
    hook.write_bytes(hook_script(event, str(program)))
    for path in (program, sleep, hook):
        path.chmod(0o755)
    repo.git("config", "envhist.autoPush", "true")
    env = {**repo.env, "PATH": f"{tmp_path}:{repo.env['PATH']}"}
    last, words = repo.path / f".git/envhist/hooks/last-{event}", {""}
    reading, writing = os.pipe()
    for number in ("1", "2", "3"):
        subprocess.run([hook, number], cwd=repo.path, env=env, check=True, pass_fds=[writing])
        # A push right after a commit uses this file to detect that a capture will follow.
        word = last.read_text()
        assert word not in words
        words.add(word)
    go.touch()
    os.close(writing)
    with open(reading, "rb") as until_all_have_ended:
        assert until_all_have_ended.read() == b""
    assert sorted(told.read_text().split()) == started


def test_hook_called_outside_a_repository_writes_nothing(repo: Repo, tmp_path: Path) -> None:
    hook, elsewhere = tmp_path / "post-merge", tmp_path / "elsewhere"
    hook.write_bytes(hook_script("post-merge", "/bin/true"))
    hook.chmod(0o755)
    elsewhere.mkdir()
    subprocess.run([hook], cwd=elsewhere, env=repo.env, check=True)
    assert list(elsewhere.iterdir()) == []


def test_amended_commit_makes_one_snapshot(at_rest: Repo) -> None:
    at_rest.write("app.py", "print('amended')\n")
    found = happened(at_rest, ["commit", "-q", "-a", "--amend", "-m", "amended"])
    assert [intent for _, intent in found] == ["amended"]


def test_checkout_and_merge_are_captured(at_rest: Repo) -> None:
    assert happened(at_rest, ["checkout", "-q", "-b", "side"]) == []
    at_rest.write("side.txt", "side")
    at_rest.git("add", "-A")
    assert happened(at_rest, ["commit", "-q", "-m", "on the side"]) == [("commit", "on the side")]
    ((trigger, _),) = happened(at_rest, ["checkout", "-q", "main"])
    assert trigger == "checkout"
    found = happened(at_rest, ["merge", "-q", "--no-ff", "-m", "merged", "side"])
    assert found == [("merge", "merged")]


def test_rebase_of_a_hundred_commits_makes_one_capture(at_rest: Repo) -> None:
    at_rest.git("branch", "base")
    numbers = range(100)
    stream = _hundred_commits(at_rest, numbers)
    subprocess.run(["git", "fast-import", "--quiet", "--force"], cwd=at_rest.path, input=stream, check=True)
    settle(at_rest)
    at_rest.git(*UNHOOKED, "checkout", "-q", "hundred")
    runs = len(log_of(at_rest))
    found = happened(
        at_rest, ["rebase", "-q", "--force-rebase", "base"], GIT_COMMITTER_DATE="2001-01-01T00:00:00Z"
    )
    assert found == [("rewrite", "number 99")]
    assert len(log_of(at_rest)) - runs <= 2
    shown = json.loads(at_rest.run("envlog", "show", "--json", check=True).out)
    assert shown["head"] == at_rest.git("rev-parse", "hundred")
    assert not shown["at"].startswith("2001")


def _hundred_commits(repo: Repo, numbers: range) -> bytes:
    lines = []
    for number in numbers:
        text = f"number {number}"
        lines += [
            "commit refs/heads/hundred",
            f"committer T <t@example.com> {1_700_000_000 + number} +0000",
            f"data {len(text)}",
            text,
            *(["from refs/heads/main"] if not number else []),
            f"M 100644 inline many/{number}",
            "data 1",
            "x",
        ]
    return ("\n".join(lines) + "\n").encode()


def test_cherry_picks_are_captured_with_the_last_subject(at_rest: Repo) -> None:
    at_rest.git(*UNHOOKED, "checkout", "-q", "-b", "picked")
    for number in range(3):
        at_rest.write("picked.txt", str(number))
        at_rest.git("add", "-A")
        at_rest.git(*UNHOOKED, "commit", "-q", "-m", f"pick {number}")
    at_rest.git(*UNHOOKED, "checkout", "-q", "main")
    found = happened(at_rest, ["cherry-pick", "picked~3..picked"])
    assert found[-1] == ("commit", "pick 2")
    assert len(found) == 1


def test_stash_calls_no_hook(at_rest: Repo) -> None:
    at_rest.write("app.py", "stashed\n")
    assert happened(at_rest, ["stash", "-q"]) == []
    assert happened(at_rest, ["stash", "pop", "-q"]) == []
    assert at_rest.read("app.py") == b"stashed\n"
    at_rest.git("checkout", "-q", "--", "app.py")


def test_stopped_rebase_is_captured_when_it_continues(at_rest: Repo) -> None:
    for branch, text in (("left", "left\n"), ("right", "right\n")):
        at_rest.git(*UNHOOKED, "checkout", "-q", "-b", branch, "main")
        at_rest.write("app.py", text)
        at_rest.git(*UNHOOKED, "commit", "-q", "-am", branch)
    before = len(intents(at_rest))
    at_rest.git("rebase", "-q", "left", check=False)
    assert (git_dir(at_rest) / "rebase-merge").is_dir()
    at_rest.write("app.py", "both\n")
    at_rest.git("add", "-A")
    found = happened(at_rest, ["-c", "core.editor=true", "rebase", "--continue"])
    assert found[-1:] == [("rewrite", "right")]
    assert len(intents(at_rest)) == before + 1


def test_linked_worktree_captures_its_own_environment(at_rest: Repo) -> None:
    place = at_rest.path.parent / "linked"
    at_rest.git("worktree", "add", "-q", "-b", "linked", str(place))
    linked = Repo(place, at_rest.env)
    linked.write("only-here", "x")
    linked.git("add", "-A")
    linked.git("commit", "-q", "-m", "in the worktree")
    wait_for(lambda: "in the worktree" in intents(linked), "a snapshot of the worktree")
    settle(linked)
    assert "in the worktree" not in intents(at_rest)
    files = linked.git(
        "ls-tree",
        "-r",
        "--name-only",
        linked.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads/*/linked-*"),
    )
    assert "only-here" in files
    assert "ignored" not in files.split("\n")


@pytest.mark.parametrize(
    "words",
    [("-a", "-q", "-m", "all"), ("-q", "-m", "only", "--only", "app.py"), ("-p", "-q", "-m", "patch")],
    ids=["-a", "--only", "-p"],
)
def test_hook_never_changes_the_index(at_rest: Repo, words: tuple[str, ...]) -> None:
    at_rest.write("app.py", f"print({words!r})\n")
    at_rest.write("staged", f"for later {words!r}\n")
    if words[0] == "-q":
        at_rest.git("add", "staged")
    before = len(intents(at_rest))
    at_rest.execute("git", "commit", *words, input=b"y\n")
    index = _seen(git_dir(at_rest) / "index")
    settle(at_rest)
    assert _seen(git_dir(at_rest) / "index") == index
    assert len(intents(at_rest)) == before + 1
    assert at_rest.git("fsck", "--no-dangling") == ""


def _seen(path: Path) -> tuple[str, int, int]:
    seen = path.stat()
    return hashlib.sha256(path.read_bytes()).hexdigest(), seen.st_mtime_ns, seen.st_ino


def test_hook_does_not_block_a_reader_of_git_output(at_rest: Repo) -> None:
    """The test's lock blocks the capture; git and the reader of its output still finish."""
    held = subprocess.Popen(
        ["flock", str(git_dir(at_rest) / "envhist/lock"), "cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert held.stdin is not None
    assert held.stdout is not None
    held.stdin.write(b"held\n")
    held.stdin.flush()
    assert held.stdout.readline() == b"held\n"
    try:
        at_rest.write("app.py", "held\n")
        reading, writing = os.pipe()
        done = subprocess.run(
            ["sh", "-c", 'said=$(git commit -a -m held 2>&1); printf "%s" "$said"'],
            cwd=at_rest.path, env=at_rest.env, capture_output=True, pass_fds=(writing,), check=True,
        )  # fmt: skip
        os.close(writing)
        assert b"held" in done.stdout
        wait_for(lambda: _is_process_running(at_rest), "a worker that waits for the lock")
        # The worker has closed the inherited pipe, so the read ends.
        wait_for(lambda: os.read(reading, 1) == b"", "the end of an inherited pipe")
        os.close(reading)
        assert intents(at_rest)[0] != "held"
    finally:
        held.communicate()
    settle(at_rest)
    assert intents(at_rest)[0] == "held"


def test_disabled_hook_captures_nothing_and_logs_it(at_rest: Repo) -> None:
    at_rest.git("config", "envhist.enabled", "false")
    at_rest.write("app.py", "off\n")
    assert happened(at_rest, ["commit", "-q", "-am", "off"]) == []
    assert json.loads(log_of(at_rest)[-1])["result"] == "off"
    assert "automatic captures are disabled" in at_rest.run("envlog", "status", check=True).err
    at_rest.git("config", "--unset", "envhist.enabled")
    at_rest.write("app.py", "on again\n")
    assert happened(at_rest, ["-c", "envhist.enabled=false", "commit", "-q", "-am", "off for once"]) == []


def test_check_runs_for_hooks_only_when_configured(at_rest: Repo) -> None:
    at_rest.git("config", "envhist.verify", "test -e app.py")
    for on, approved, verdict in (
        ("manual", True, "none"),
        ("manual,commit", False, "none"),
        ("manual,commit", True, "pass"),
    ):
        at_rest.git("config", "envhist.verifyOn", on)
        at_rest.git("config", "envhist.verify", "test -e app.py" if approved else "test -e app.py && true")
        if approved:
            # Approve the command, as its first run by a person does.
            trusted_list(at_rest.env).add_command(str(at_rest.path / ".git"), "test -e app.py")
        at_rest.write("app.py", f"checked on {on} {approved}\n")
        happened(at_rest, ["commit", "-q", "-am", f"checked {verdict}"])
        if not approved:
            wait_for(lambda: "the check does not run" in at_rest.run("envlog", "status").out, "the reason")
        found = at_rest.run("envlog", "-1", f"--verdict={verdict}", "--format=%(title)", check=True).out
        assert found == f"commit: checked {verdict}\n"
    at_rest.git("config", "--unset", "envhist.verify")
    at_rest.git("config", "--unset", "envhist.verifyOn")


def test_next_capture_does_not_wait_for_a_check(at_rest: Repo, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    at_rest.git("config", "envhist.verify", f"cat {tmp_path}/go")
    trusted_list(at_rest.env).add_command(str(at_rest.path / ".git"), f"cat {tmp_path}/go")
    at_rest.git("config", "envhist.verifyOn", "commit")
    try:
        for subject in ("is being checked", "comes after it"):
            at_rest.git("commit", "-q", "--allow-empty", "-m", subject)
            wait_for(lambda: intents(at_rest)[0] == subject, subject)  # noqa: B023 - called before it changes
    finally:
        at_rest.git("config", "--unset", "envhist.verify")
        at_rest.git("config", "--unset", "envhist.verifyOn")
        # Release every check that waits, now or later.
        while _is_process_running(at_rest):
            with contextlib.suppress(OSError):
                os.close(os.open(tmp_path / "go", os.O_WRONLY | os.O_NONBLOCK))


def test_hook_waits_for_a_running_hook(at_rest: Repo) -> None:
    """The running hook may have read the pending mark already, so it would miss this commit."""
    lock = git_dir(at_rest) / "envhist/hooks/lock"
    with locked(str(lock)):
        at_rest.git("commit", "-q", "--allow-empty", "-m", "while another hook runs")
        wait_for(lambda: _is_lock_awaited(lock), "the hook that waits for the lock")
    wait_for(lambda: intents(at_rest)[0] == "while another hook runs", "its snapshot")


def _is_lock_awaited(lock: Path) -> bool:
    waiting = [line for line in Path("/proc/locks").read_text().splitlines() if "->" in line]
    return any(f":{lock.stat().st_ino} " in line for line in waiting)


def test_git_variables_of_hooks_are_ignored(at_rest: Repo) -> None:
    """The variables set another author, an old date, a repository, an index and an editor."""
    at_rest.write("app.py", "somebody else's\n")
    more = {
        "GIT_AUTHOR_NAME": "Somebody Else",
        "GIT_AUTHOR_DATE": "2001-01-01T00:00:00Z",
        "GIT_DIR": ".git",
        "GIT_WORK_TREE": ".",
        "GIT_INDEX_FILE": ".git/index",
        "GIT_EDITOR": "true",
    }
    assert happened(at_rest, ["commit", "-q", "-am", "theirs"], **more) == [("commit", "theirs")]
    shown = json.loads(at_rest.run("envlog", "show", "--json", check=True).out)
    assert shown["actor"]["name"] == "Test User"
    assert shown["env_changed"]["paths"] == [{"status": "M", "path": "app.py"}]


def test_next_hook_repeats_the_capture_of_a_killed_one(at_rest: Repo) -> None:
    hooks = git_dir(at_rest) / "envhist/hooks"
    (hooks / "pending").write_text('["post-commit", 0]')
    at_rest.write("untracked-now", "x")
    assert "started and did not finish" in at_rest.run("envlog", "status", check=True).err
    happened(at_rest, ["commit", "-q", "--allow-empty", "-m", "after it"])
    assert not (hooks / "pending").exists()
    assert intents(at_rest)[0] == "after it"


def test_submodule_has_its_own_hooks(at_rest: Repo, tmp_path: Path) -> None:
    make_repo(tmp_path / "library")
    outer = make_repo(tmp_path / "outer")
    outer.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(tmp_path / "library"), "lib")
    inner = Repo(outer.path / "lib", outer.env)
    inner.run("envlog", "install", check=True)
    inner.write("app.py", "in the submodule\n")
    inner.git("commit", "-q", "-am", "inside")
    wait_for_runs(inner, 1)
    assert intents(inner) == ["inside"]
    assert not (outer.path / ".git/envhist").exists()
    inner.run("envlog", "uninstall", check=True)


def configurable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a git that runs hooks from its configuration; skip the test if none is installed."""
    found = [git for git in gits() if git.version >= (2, 54)]
    if not found:
        pytest.skip(
            "no installed git runs hooks from its configuration (2.54 and newer): .ci/gits fetches one"
        )
    max(found, key=lambda git: git.version).put_first(monkeypatch)


def test_newer_git_gets_hooks_in_its_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configurable(monkeypatch)
    repo = make_repo(tmp_path / "repo")
    shutil.rmtree(repo.path / ".git/hooks", ignore_errors=True)
    before = (repo.path / ".git/config").read_bytes()
    hook = repo.write(".git/hooks/post-commit", '#!/bin/sh\necho mine >>"$PWD/ran"\n', 0o755)
    repo.run("envlog", "install", check=True)
    repo.run("envlog", "install", check=True)
    assert hook.read_text() == '#!/bin/sh\necho mine >>"$PWD/ran"\n'
    assert "envhist-post-commit" in repo.git("hook", "list", "post-commit")
    repo.commit("configured")
    wait_for_runs(repo, 1)
    assert intents(repo) == ["configured"]
    assert repo.read("ran") == b"mine\n"
    assert repo.run("envlog", "status", check=True).err == ""
    repo.git("commit", "-q", "--allow-empty", "--amend", "-m", "rewritten")
    wait_for(lambda: intents(repo)[0] == "rewritten" and is_idle(repo), "an amended commit")
    repo.run("envlog", "uninstall", check=True)
    assert (repo.path / ".git/config").read_bytes() == before


def test_our_git_calls_run_no_configured_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configurable(monkeypatch)
    repo = make_repo(tmp_path / "repo")
    for event in ("reference-transaction", "post-checkout", "post-index-change", "pre-push"):
        repo.git("config", f"hook.mine-{event}.event", event)
        repo.git("config", f"hook.mine-{event}.command", f'echo {event} >>"{tmp_path}/ran"; true')
    repo.run("envlog", "capture", "one", check=True)
    repo.run("envlog", "name", "first", check=True)
    repo.run("envlog", "fork", "../fork", "@", check=True)
    repo.write("app.py", "changed\n")
    repo.run("envrestore", "first", check=True)
    assert not (tmp_path / "ran").exists()
