"""Another account of the machine cannot read a history unless the repository is shared with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.privileges import as_ordinary_user
from tests.support.repository import Repo, make_repo

OTHER = 65534
SECRET = b"of a file of mode 0600"


def as_other(*groups: int) -> tuple[str, ...]:
    """Return the command that runs another as a second account, in these groups."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("commands of a second account need root and setpriv")
    members = f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups"
    return ("setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", members, "--")


def readable(top: Path, prefix: tuple[str, ...]) -> dict[str, bytes]:
    """Return the files below a directory that an account can read, with their bytes."""
    found = subprocess.run(
        [*prefix, "find", top, "-type", "f", "-readable"], capture_output=True, check=False
    )
    paths = found.stdout.decode().splitlines()
    return {
        path: subprocess.run([*prefix, "cat", path], capture_output=True, check=True).stdout for path in paths
    }


@pytest.fixture
def open_place() -> Iterator[Path]:
    """Create a directory that every account can enter."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        yield Path(place)


@pytest.fixture
def user(open_place: Path) -> Repo:
    """Create a repository that every account can enter, with a file of mode 0600 and one in a private directory."""
    os.umask(0o022)
    repo = make_repo(open_place / "repo")
    repo.write("private.txt", SECRET, mode=0o600)
    closed = repo.write("closed/inside.txt", SECRET + b" in a closed directory")
    closed.parent.chmod(0o700)
    return repo


def packs(repo: Repo) -> list[Path]:
    return sorted((repo.path / ".git/objects/pack").glob("pack-*.[pi][ad][cx]*"))


def use(repo: Repo) -> None:
    """Run the commands that write packs, lists, archives and journals, as an ordinary user."""
    prefix = as_ordinary_user()
    for number in range(3):
        repo.write("private.txt", SECRET + bytes([48 + number]) * 3000, mode=0o600)
        repo.run("envlog", "capture", "-q", f"{number}", check=True, prefix=prefix)
    repo.run("envlog", "gc", "-q", check=True, prefix=prefix)
    repo.run("envrestore", "-q", "@~1", check=True, prefix=prefix)
    repo.run("envlog", "export", "-q", "--force", "history.tar", check=True, prefix=prefix)


def test_another_account_cannot_read_a_history(user: Repo) -> None:
    other = as_other()
    use(user)
    assert packs(user)
    seen = readable(user.path, other)
    assert str(user.path / "app.py") in seen, "other files of the repository are readable"
    ours = [
        path for path in seen if "/.git/envhist" in path or path.endswith((".pack", ".idx", ".tar", "-index"))
    ]
    assert ours == []
    assert not [path for path, data in seen.items() if SECRET in data]


def test_state_is_private_under_any_umask(user: Repo) -> None:
    for repo_umask in (0, 0o022):
        before = os.umask(repo_umask)
        try:
            for text in (b"one", b"two"):
                user.write("private.txt", SECRET + text, mode=0o600)
                user.run("envlog", "capture", "-q", check=True)
            user.run("envrestore", "-q", "@~1", check=True)
        finally:
            os.umask(before)
    state = user.path / ".git/envhist"
    assert [path for path in (state, *state.rglob("*")) if path.lstat().st_mode & 0o077] == []


def test_owner_can_still_use_git(user: Repo) -> None:
    prefix = as_ordinary_user()
    use(user)
    tip = user.git("for-each-ref", "--format=%(objectname)", "refs/envhist/heads")
    user.git("clone", "-q", str(user.path), "../clone")
    user.git("-C", "../clone", "commit", "-q", "--allow-empty", "-m", "x")
    for words in (
        ("gc", "-q"),
        ("repack", "-a", "-d", "-q"),
        ("fetch", "-q", "../clone"),
        ("multi-pack-index", "write"),
        ("gc", "-q", "--prune=now"),
        ("fsck", "--full", "--strict"),
    ):
        user.execute(*prefix, "git", *words)
    user.run("envlog", "capture", "after", check=True, prefix=prefix)
    user.run("envlog", "fsck", check=True, prefix=prefix)
    assert tip in user.git("rev-list", "--glob=refs/envhist/heads")


def test_packs_of_earlier_versions_are_made_private_by_capture_and_gc(user: Repo) -> None:
    for command in (("capture", "-q", "next"), ("gc", "-q")):
        use(user)
        for path in (*packs(user), user.path / ".git/envhist"):
            path.chmod(0o755 if path.is_dir() else 0o444)
        user.write("private.txt", SECRET + b"changed" + command[0].encode(), mode=0o600)
        user.run("envlog", *command, check=True)
        assert not [path for path in packs(user) if path.stat().st_mode & 0o077]
        user.run("envlog", "capture", "-q", check=True)
        assert not (user.path / ".git/envhist").stat().st_mode & 0o077


@pytest.mark.parametrize(
    ("shared", "mode"),
    [("group", 0o440), ("all", 0o444), ("0640", 0o440), ("umask", 0o400), ("false", 0o400)],
)
def test_mode_of_packs_follows_core_sharedrepository(open_place: Path, shared: str, mode: int) -> None:
    os.umask(0o022)
    repo = make_repo(open_place / "repo")
    repo.git("init", "-q", f"--shared={shared}")
    repo.run("envlog", "capture", "-q", "x", check=True)
    assert {path.stat().st_mode & 0o777 for path in packs(repo)} == {mode}


def test_group_member_reads_a_shared_history_with_plain_git(open_place: Path) -> None:
    member = as_other(4242)
    os.umask(0o022)
    repo = make_repo(open_place / "repo")
    repo.write("private.txt", SECRET, mode=0o600)
    repo.git("init", "-q", "--shared=group")
    for directory, _, names in os.walk(repo.path / ".git"):
        for path in (directory, *(os.path.join(directory, name) for name in names)):
            os.chown(path, 0, 4242)
            os.chmod(path, os.stat(path).st_mode | (0o2070 if os.path.isdir(path) else 0o060))
    repo.run("envlog", "capture", "-q", "x", check=True)
    git = ("git", "-c", f"safe.directory={repo.path}", "-C", str(repo.path))
    (tip,) = repo.git("for-each-ref", "--format=%(objectname)", "refs/envhist/heads").split()
    read = subprocess.run([*member, *git, "cat-file", "blob", f"{tip}:private.txt"], capture_output=True)
    assert read.stdout == SECRET, read.stderr
    stranger = subprocess.run(
        [*as_other(), *git, "cat-file", "blob", f"{tip}:private.txt"], capture_output=True
    )
    assert SECRET not in stranger.stdout
