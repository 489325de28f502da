"""A capture only reads: HEAD, index, branches, configuration, stash and every file are unchanged, with any
configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.captures import assert_holds, capture, everything_of_git, tip
from tests.support.oracle import git_fsck, listing
from tests.support.repository import Repo, make_repo


def busy(repo: Repo) -> None:
    """Put a repository into the middle of work: staged, changed, stashed and ignored files."""
    repo.write(".gitignore", b"*.log\n.venv/\n")
    repo.commit("ignore")
    repo.write("app.py", b"stashed\n")
    repo.git("stash", "-q")
    repo.git("branch", "feature")
    repo.write("staged.py", b"staged\n")
    repo.git("add", "staged.py")
    repo.write("staged.py", b"and changed again\n")
    repo.write("app.py", b"changed\n")
    repo.write("untracked", b"?\n")
    repo.write("ignored.log", b"!\n")
    repo.write(".venv/bin/python", b"#!\n", 0o755)


def test_capture_leaves_the_users_repository_unchanged(repo: Repo) -> None:
    busy(repo)
    work, git = listing(repo.path, top=True), everything_of_git(repo)
    status, stash = repo.git("status", "--porcelain=v2", "--branch"), repo.git("stash", "list")
    git = everything_of_git(repo)
    snapshot = capture(repo, "in the middle of work")
    assert everything_of_git(repo) == git
    assert listing(repo.path, top=True) == work
    assert (repo.git("status", "--porcelain=v2", "--branch"), repo.git("stash", "list")) == (status, stash)
    assert_holds(repo, snapshot)


HOOK = """\
#!/bin/sh
env | grep ^GIT_ > ../seen
index=$(git rev-parse --git-path index)
cp "$index" ../before
git-envlog capture -m 'from the hook' || exit 1
cmp "$index" ../before
echo $? > ../same
"""


@pytest.mark.parametrize("linked", [False, True], ids=["main worktree", "linked worktree"])
def test_capture_in_a_commit_hook_does_not_touch_the_index(repo: Repo, linked: bool) -> None:
    place = repo
    if linked:
        repo.git("worktree", "add", "-q", str(repo.path.parent / "linked"), "-b", "other")
        place = Repo(repo.path.parent / "linked", repo.env)
    hook = repo.path / ".git" / "hooks" / "post-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(HOOK)
    hook.chmod(0o755)
    place.write("new.py", b"1\n")
    place.git("add", "new.py")
    place.git("commit", "-q", "-m", "with a hook")
    seen = (place.path.parent / "seen").read_text()
    assert "GIT_INDEX_FILE=" in seen
    assert ("GIT_DIR=" in seen) is linked
    assert (place.path.parent / "same").read_text() == "0\n"
    newest = tip(repo)
    assert newest is not None
    assert repo.git("log", "-1", "--format=%s", newest) == "from the hook"
    assert "new.py" in repo.git("ls-tree", "--name-only", newest).splitlines()


HOSTILE_CONFIG = {
    "core.fsmonitor": "touch RAN; false",
    "core.hooksPath": "hostile-hooks",
    "core.pager": "touch RAN",
    "core.quotePath": "true",
    "core.autocrlf": "true",
    "core.ignoreCase": "true",
    "core.precomposeUnicode": "true",
    "core.sshCommand": "touch RAN",
    "core.editor": "touch RAN",
    "core.fileMode": "false",
    "core.symlinks": "false",
    "core.logAllRefUpdates": "always",
    "commit.gpgSign": "true",
    "gpg.program": "touch RAN; false",
    "diff.external": "touch RAN",
    "log.showSignature": "true",
    "i18n.commitEncoding": "ISO-8859-1",
    "i18n.logOutputEncoding": "UTF-16",
    "notes.rewriteRef": "refs/notes/*",
    "color.ui": "always",
    "alias.update-ref": "!touch RAN",
    "transfer.hideRefs": "refs/envhist",
    "status.showUntrackedFiles": "no",
    "user.useConfigOnly": "true",
    "format.pretty": "%h",
    "log.date": "relative",
    "log.mailmap": "true",
}


def test_configuration_neither_changes_a_capture_nor_runs_a_command(repo: Repo) -> None:
    busy(repo)
    for key, value in HOSTILE_CONFIG.items():
        repo.git("config", key, value)
    for hook in ("post-commit", "commit-msg", "pre-commit", "reference-transaction", "post-index-change"):
        repo.write(f"hostile-hooks/{hook}", b"#!/bin/sh\ntouch RAN\nexit 1\n", 0o755)
    assert_holds(repo, capture(repo, "naïve"))
    assert repo.run("envlog", "--oneline", check=True).out.endswith(" naïve\n")
    assert not list(Path(repo.path).rglob("RAN"))


def test_capture_without_an_identity_is_complete(repo: Repo) -> None:
    Path(repo.env["GIT_CONFIG_GLOBAL"]).write_text("")
    assert_holds(repo, capture(repo))


def test_unborn_head_is_captured(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "young", commit=False)
    repo.write("file", b"1")
    assert_holds(repo, capture(repo, "before any commit"))


@pytest.mark.parametrize("content", [b"", b"DIRC\0\0\0\x02\0\0\xff\xff", b"DIRC" + bytes(range(64))])
def test_broken_index_causes_a_warning_and_a_complete_snapshot(repo: Repo, content: bytes) -> None:
    repo.write(".git/index", content)
    done = repo.run("envlog", "capture", "--porcelain")
    assert done.status == 0, done.err
    assert "warning: " in done.err or content == b""
    assert repo.read(".git/index") == content
    assert_holds(repo, done.out.strip())


def test_comparisons_with_earlier_snapshots_work_with_a_broken_index(repo: Repo) -> None:
    capture(repo, "before it broke")
    repo.write("app.py", b"changed\n")
    repo.write(".git/index", b"garbage\n")
    assert_holds(repo, capture(repo, "broken"))
    for words in ("envlog -p", "envlog --stat", "envlog -- app.py", "envdiff -M @~1..@"):
        done = repo.run(*words.split())
        assert (done.status, "app.py" in done.out or "broken" in done.out) == (0, True), done.err


def test_failing_git_commands_cause_warnings_and_a_complete_snapshot(repo: Repo, tmp_path: Path) -> None:
    real = repo.execute("sh", "-c", "command -v git").out.strip()
    shim = tmp_path / "bin" / "git"
    shim.parent.mkdir()
    shim.write_text(
        "#!/bin/sh\nfor word; do case $word in -c|-C) skip=1; continue;; -*) continue;; esac\n"
        "[ -n \"$skip\" ] && { skip=; continue; }\n"
        "case $word in diff|diff-files|diff-index|log|status|show|notes|stash) echo 'fatal: no' >&2; exit 128;; esac\n"
        f"break; done\nexec {real} \"$@\"\n"
    )  # fmt: skip
    shim.chmod(0o755)
    path = f"{shim.parent}:{repo.env['PATH']}"
    done = repo.run("envlog", "capture", "--porcelain", env={"PATH": path})
    assert done.status == 0, done.err
    assert_holds(repo, done.out.strip())


def test_branch_names_that_conflict_as_refs_do_not_conflict_as_timelines(repo: Repo) -> None:
    for branch in ("feature", "other/x"):
        repo.git("checkout", "-q", "-b", branch)
        capture(repo, branch)
    repo.git("branch", "-q", "-D", "feature")
    repo.git("checkout", "-q", "-b", "feature/x")
    capture(repo, "feature/x")
    assert len(repo.git("rev-list", str(tip(repo))).split()) == 3


def test_history_stays_with_a_moved_directory(repo: Repo) -> None:
    capture(repo, "here")
    moved = Repo(repo.path.parent / "elsewhere", repo.env)
    repo.path.rename(moved.path)
    link = repo.path.parent / "by-link"
    link.symlink_to(moved.path)
    capture(moved, "there")
    capture(Repo(link, repo.env), "through a link")
    assert len(moved.git("rev-list", str(tip(moved))).split()) == 3
    assert git_fsck(moved.path) == ""
