"""Access of other users' git processes to a repository, with a hand-made `/proc`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from git_envhist.git import process_access, running_git
from git_envhist.git.process_access import Access, access_of
from git_envhist.git.running_git import RunningGit, describe_gits, gits_at_work, hint_after
from git_envhist.git.stale_locks import Lock, may_be_in_use
from git_envhist.objects.own_packs import possible_writers
from tests.git.test_running_git import BOOTED, process

STRANGER = 54321
OUR_MOUNTS = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
ALL_IDS = "0 0 4294967295\n"


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """Do not read this machine's git configuration."""
    monkeypatch.setattr(process_access, "SYSTEM_CONFIG", str(place / "gitconfig"))
    monkeypatch.setattr(process_access, "_user_config", lambda uid: [])


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a directory with an empty `/proc` and a repository that any user may read."""
    # The directories of a test run cannot be entered by other users.
    with TemporaryDirectory(dir="/tmp") as made:
        os.chmod(made, 0o755)
        yield repository_in(Path(made))


def repository_in(tmp_path: Path) -> Path:
    for name in ("here/.git/objects", "here/.git/refs", "proc/self"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(OUR_MOUNTS)
    (tmp_path / "proc/self/uid_map").write_text(ALL_IDS)
    (tmp_path / "proc/stat").write_text(f"btime {BOOTED}\n")
    return tmp_path


def hidden(
    place: Path,
    pid: int,
    words: list[str],
    *,
    uid: int = STRANGER,
    capabilities: int = 0,
    mounts: str = OUR_MOUNTS,
    ids: str = ALL_IDS,
) -> str:
    """Make a process as another user sees it: without directory and environment."""
    shutil.rmtree(place / "proc" / str(pid), ignore_errors=True)
    process(place / "proc", pid, "git", words, place)
    own = place / "proc" / str(pid)
    (own / "status").write_text(
        f"Name:\tgit\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
        f"Groups:\t\nVmSize:\t  4 kB\nCapEff:\t{capabilities:016x}\n"
    )
    (own / "mountinfo").write_text(mounts)
    (own / "uid_map").write_text(ids)
    return str(own)


def access(place: Path, **values: object) -> Access:
    made = hidden(place, 7, ["git", "fetch"], **values)  # type: ignore[arg-type]
    return access_of(made, str(place / "here/.git"), str(place / "proc"))


def trust(place: Path) -> None:
    (place / "gitconfig").write_text("[safe]\n\tdirectory = *\n")


def test_git_of_another_user_has_no_access_while_git_refuses_its_owner(place: Path) -> None:
    assert access(place) == Access(reads=False, writes=False)
    assert access(place, uid=0, capabilities=0xFF) == (
        Access(reads=os.getuid() == 0, writes=os.getuid() == 0)
    )


def test_git_of_another_user_reads_where_safe_directory_and_permissions_allow_it(place: Path) -> None:
    trust(place)
    assert access(place) == Access(reads=True, writes=False)
    (place / "here").chmod(0o700)
    assert access(place) == Access(reads=False, writes=False)
    assert access(place, capabilities=process_access.DAC_READ_SEARCH) == Access(reads=True, writes=False)
    assert access(place, capabilities=process_access.DAC_OVERRIDE) == Access(reads=True, writes=True)


def test_git_of_the_owner_or_of_a_shared_repository_writes(place: Path) -> None:
    assert access(place, uid=os.getuid()).writes
    (place / "here/.git/objects").chmod(0o777)
    assert access(place) == Access(reads=True, writes=True)


def test_capabilities_end_with_the_user_ids_of_a_container(place: Path) -> None:
    trust(place)
    (place / "here").chmod(0o700)
    assert not access(place, capabilities=0xFF, ids="0 100000 65536\n").reads
    assert access(place, capabilities=0xFF, ids=f"0 {os.getuid()} 1\n").writes


def test_git_in_a_container_without_the_file_system_has_no_access(place: Path) -> None:
    trust(place)
    assert not access(place, uid=os.getuid(), mounts="9 0 0:50 / / rw - overlay overlay rw\n").reads


def test_git_in_a_container_that_mounts_the_repository_has_access(place: Path) -> None:
    place.chmod(0o700)
    for directory in (place / "here", place / "here/.git"):
        bound = f"9 0 0:50 / / rw - overlay o rw\n10 9 8:1 {directory} /src rw - ext4 /dev/sda1 rw\n"
        # With its own configuration, git needs neither the parent directories nor the owner.
        assert access(place, mounts=bound) == Access(reads=True, writes=False)
        assert access(place, uid=0, capabilities=0xFF, mounts=bound).writes
    beside = f"9 0 0:50 / / rw - overlay o rw\n10 9 8:1 {place}/here/src /src rw - ext4 /dev/sda1 rw\n"
    assert not access(place, uid=0, capabilities=0xFF, mounts=beside).reads


def test_git_that_sudo_started_for_the_owner_has_access(place: Path) -> None:
    process(place / "proc", 6, "bash", ["bash"], place)
    made = hidden(place, 7, ["git", "fetch"], uid=0, capabilities=0xFF)
    stat = Path(made) / "stat"
    stat.write_text(stat.read_text().replace("S 0", "S 6", 1))
    assert access_of(made, str(place / "here/.git"), str(place / "proc")).writes


def test_unreadable_credentials_count_as_access(place: Path) -> None:
    made = hidden(place, 7, ["git", "fetch"])
    (Path(made) / "status").unlink()
    assert access_of(made, str(place / "here/.git"), str(place / "proc")) == process_access.UNKNOWN


@pytest.mark.parametrize(
    ("words", "counts"),
    [
        (["git", "fetch"], True),
        (["git", "-C", "{place}/here", "fetch"], True),
        (["git", "-C", "{place}", "fetch"], False),
        (["git", "-c", "a.b=c", "--git-dir={place}/other", "gc"], False),
        (["git", "--git-dir", "{place}/here/.git", "gc"], True),
        (["git", "commit", "-C", "{place}"], True),
    ],
)
def test_hidden_git_counts_unless_an_option_names_another_directory(
    place: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], counts: bool
) -> None:
    trust(place)
    hidden(place, 7, [word.format(place=place) for word in words])

    def refuse(process: str) -> tuple[str, list[bytes]]:
        raise PermissionError(process)

    monkeypatch.setattr(running_git, "_look_at", refuse)
    found = gits_at_work(str(place / "here/.git"), [str(place / "here")], str(place / "proc"))
    assert [(git.pid, git.directory, git.writes) for git in found or ()] == [(7, None, False)] * counts


def test_git_that_is_ending_has_no_access(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trust(place)
    status = Path(hidden(place, 7, ["git", "fetch"], uid=os.getuid())) / "status"

    def refuse(process: str) -> tuple[str, list[bytes]]:
        raise PermissionError(process)

    monkeypatch.setattr(running_git, "_look_at", refuse)
    where = (str(place / "here/.git"), [str(place / "here")], str(place / "proc"))
    assert gits_at_work(*where)
    status.write_text(status.read_text().replace("VmSize:\t  4 kB\n", ""))
    assert gits_at_work(*where) == []


def test_lock_belongs_to_the_user_of_its_file() -> None:
    lock = Lock(100.0, uid=1000)
    ours, others = (RunningGit(1, 0.0, "fetch", uid) for uid in (1000, STRANGER))
    assert may_be_in_use(lock, [ours])
    assert not may_be_in_use(lock, [others])
    assert may_be_in_use(lock, [RunningGit(1, 0.0, "fetch", STRANGER, "/here")])


def test_git_that_cannot_write_here_relies_on_no_object() -> None:
    reads, writes = (RunningGit(1, 0.0, "commit", writes=writes) for writes in (False, True))
    assert possible_writers([reads, writes]) == [writes]


def test_error_names_process_user_and_directory() -> None:
    gits = [RunningGit(11, 0.0, "fetch", 0), RunningGit(2, 0.0, "", STRANGER, "/srv/x")]
    assert describe_gits(gits) == (
        f"git (unknown) (pid 2, user {STRANGER}, in '/srv/x'), git fetch (pid 11, user root, directory not readable)"
    )
    assert "--force" in hint_after(gits)
    assert "--force" not in hint_after(gits[1:])
