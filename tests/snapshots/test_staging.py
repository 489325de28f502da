"""Publishing packs: all or nothing at any step of a killed capture, without changes to other files."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from git_envhist.errors import EnvhistError, GitFailed, StorageFull
from git_envhist.git.process import Git
from git_envhist.objects.pack_writer import PackWriter, StagedPack
from git_envhist.snapshots.staging import Staging, open_published, sweep, unpublished
from tests.objects.dying import NEVER, count_steps, dies, each_death
from tests.objects.packing import FORMATS, add_commit, empty_repo, noise, object_id, pack_of
from tests.support.depth import sample
from tests.support.privileges import permissions_bind
from tests.support.repository import Repo, make_repo

REF = "refs/envhist/heads/here/now-123456"
SHARED = b"in a pack of the user's and in one of ours\n"


class Place:
    """Create a repository with the state that captures expect."""

    def __init__(self, repo: Repo, object_format: str = "sha1") -> None:
        self.repo = repo
        self.object_format = object_format
        self.git_dir = repo.path / ".git"
        self.state = str(self.git_dir / "envhist")
        self.pack_dir = str(self.git_dir / "objects/pack")
        self.git = Git(str(self.git_dir), str(repo.path))

    def create(self) -> Staging:
        return Staging.create(self.state, self.pack_dir)

    def sweep(self) -> None:
        sweep(self.state, self.pack_dir, self.is_published)

    def unpublished(self) -> frozenset[str]:
        return unpublished(self.state)

    def is_published(self, commit: str) -> bool:
        return self.git.try_run("merge-base", "--is-ancestor", commit, REF).status == 0

    def stage(
        self, staging: Staging, number: int = 0, files: dict[str, bytes] | None = None
    ) -> tuple[str, StagedPack]:
        """Write a snapshot into the staging: its commit and its pack."""
        writer = PackWriter(staging.pack_dir, self.object_format)
        commit = add_commit(writer, files or {"app.py": noise(500, number), "shared": SHARED})
        pack = writer.finish()
        assert pack is not None
        return commit, pack

    def capture(self, number: int = 0) -> str:
        """Run a whole capture, from its first step to its last."""
        with self.create() as staging:
            commit, pack = self.stage(staging, number)
            worker, other = (
                PackWriter(staging.pack_dir, self.object_format),
                b"from a second worker %d" % number,
            )
            worker.add(b"blob", other)
            second = worker.finish()
            assert second is not None
            staging.journal_commit(commit)
            staging.publish([pack, second])
            self.git.run("update-ref", REF, commit)
        return commit

    def tip(self) -> str:
        return self.repo.git("rev-parse", "--verify", "--quiet", REF, check=False)

    def ours(self) -> list[str]:
        """Return the files with git-envhist's mark in the pack directory, by name."""
        names = os.listdir(self.pack_dir)
        keeps = [name[:-5] for name in names if name.endswith(".keep")]
        marked = [base for base in keeps if b"git-envhist\n".startswith(self.keep_of(base))]
        return sorted(name for name in names if name.rpartition(".")[0] in marked)

    def keep_of(self, base: str) -> bytes:
        return Path(self.pack_dir, f"{base}.keep").read_bytes()

    def debris(self) -> list[str]:
        """Return the remaining stagings, in all directories that may contain some."""
        found = []
        for place in (Path(self.state, "staging"), Path(self.pack_dir).parent / ".envhist-staging"):
            found += [str(path) for path in place.glob("*") if path.is_dir()]
        return found

    def of_the_user(self) -> dict[str, str]:
        """Return a hash of every file below `.git` that does not belong to git-envhist."""
        ours, state, refs = set(self.ours()), Path(self.state), self.git_dir / "refs/envhist"
        return {
            str(path): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.git_dir.rglob("*"))
            if path.is_file()
            and path.name not in ours
            and state not in path.parents
            and refs not in path.parents
        }

    def assert_sound(self) -> None:
        assert self.repo.git("fsck", "--strict", "--no-dangling") == ""
        assert self.debris() == []
        assert self.unpublished() == frozenset()


def user_place(path: Path, object_format: str = "sha1") -> Place:
    """Create a repository with loose objects, a pack, a pack kept by its user, and leftovers of git."""
    repo = make_repo(path, object_format=object_format)
    repo.write("shared", SHARED)
    repo.commit("to be packed")
    repo.git("repack", "-q", "-a", "-d")
    pack_dir = repo.path / ".git/objects/pack"
    (kept,) = pack_dir.glob("*.pack")
    kept.with_suffix(".keep").write_bytes(b"mine\n")
    repo.write("app.py", b"changed\n")
    repo.commit("loose")
    (pack_dir / "tmp_pack_abc").write_bytes(b"half")
    (pack_dir / f"pack-{'0' * 40}.keep").write_bytes(b"a fetch is under way\n")
    return Place(repo, object_format)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return user_place(tmp_path / "repo")


@pytest.mark.parametrize("object_format", FORMATS)
def test_published_packs_are_in_the_repository(object_format: str, tmp_path: Path) -> None:
    place = Place(empty_repo(tmp_path / "repo", object_format), object_format)
    commit = place.capture()
    assert place.tip() == commit
    assert len(place.ours()) == 6
    assert place.repo.git("show", f"{REF}:shared").encode() + b"\n" == SHARED
    place.assert_sound()
    place.sweep()
    assert len(place.ours()) == 6


@pytest.mark.parametrize("object_format", FORMATS)
def test_sweep_leaves_all_or_nothing_of_a_capture_killed_at_any_step(
    object_format: str, tmp_path: Path
) -> None:
    place = user_place(tmp_path / "repo", object_format)
    before_all = place.capture(number=1)
    kept, users = place.ours(), place.of_the_user()
    published, killed, steps = 0, 0, 0

    def forget() -> None:
        forget_capture(place, before_all, kept)

    for step in each_death(lambda: place.capture(number=2), forget, default=20):
        killed, steps = killed + 1, step
        place.sweep()
        place.assert_sound()
        assert place.of_the_user() == users
        if place.tip() == before_all:
            assert place.ours() == kept
        else:
            published += 1
            assert len(place.ours()) == len(kept) + 6
            forget()
    # The last steps are cleanup, after everything was published.
    assert steps > 60
    assert 0 < published < killed / 3
    assert place.tip() != before_all


def forget_capture(place: Place, tip: str, kept: list[str]) -> None:
    place.repo.git("update-ref", REF, tip)
    for name in set(place.ours()) - set(kept):
        os.unlink(os.path.join(place.pack_dir, name))


def test_sweep_killed_at_any_step_is_completed_by_the_next(place: Place) -> None:
    users = place.of_the_user()
    assert dies(lambda: publish_and_die(place), NEVER)
    steps = count_steps(place.sweep)
    assert steps > 8
    for step in sample(steps, 8):
        assert dies(lambda: publish_and_die(place), NEVER)
        assert len(place.ours()) == 3
        assert dies(place.sweep, step)
        assert place.unpublished() or not place.ours()
        place.sweep()
        place.assert_sound()
        assert place.ours() == []
        assert place.of_the_user() == users
    assert dies(lambda: publish_and_die(place), NEVER)
    place.sweep()
    place.assert_sound()


def publish_and_die(place: Place, blob: bytes | None = None) -> None:
    """Publish packs, then die before the ref moves."""
    staging = place.create()
    commit, pack = place.stage(staging, 99)
    staging.journal_commit(commit)
    staging.publish([pack] if blob is None else [pack, pack_of(Path(staging.pack_dir), [blob])])
    os.kill(os.getpid(), signal.SIGKILL)


def test_object_that_the_user_added_survives_the_removal_of_the_pack_it_was_found_in(
    place: Place,
) -> None:
    mine = b"written once, by a capture that died\n"
    assert dies(lambda: publish_and_die(place, mine), NEVER)
    # git finds the object in the pack, and does not store it.
    place.repo.write("mine", mine)
    place.repo.git("add", "mine")
    place.repo.write("mine", b"and changed since\n")

    place.sweep()

    assert place.repo.run_git("cat-file", "-p", ":mine").stdout == mine
    assert place.ours() == []
    assert place.unpublished() == frozenset()
    place.assert_sound()
    place.repo.git("commit", "-q", "-m", "mine")
    place.repo.git("gc", "-q", "--prune=now")
    assert place.repo.run_git("cat-file", "-p", "HEAD:mine").stdout == mine
    assert place.repo.git("count-objects", "-v").splitlines()[3] == "packs: 2"


def test_packs_of_a_dead_capture_are_kept_when_its_ref_moved(place: Place) -> None:
    def capture() -> None:
        staging = place.create()
        commit, pack = place.stage(staging)
        staging.journal_commit(commit)
        staging.publish([pack])
        place.git.run("update-ref", REF, commit)
        os.kill(os.getpid(), signal.SIGKILL)

    assert dies(capture, NEVER)
    assert len(place.unpublished()) == 1
    place.sweep()
    assert len(place.ours()) == 3
    assert place.repo.git("show", f"{REF}:shared").encode() + b"\n" == SHARED
    place.assert_sound()


def test_commit_recorded_after_publishing_keeps_the_packs(place: Place) -> None:
    def capture() -> None:
        staging = place.create()
        commit, pack = place.stage(staging, 1)
        staging.journal_commit(commit)
        staging.publish([pack])
        # The ref moved in between: the same files again, on the new tip.
        later, second = place.stage(staging, 2)
        staging.publish([second])
        staging.journal_commit(later)
        place.git.run("update-ref", REF, later)
        os.kill(os.getpid(), signal.SIGKILL)

    assert dies(capture, NEVER)
    place.sweep()
    assert len(place.ours()) == 6
    place.assert_sound()


def test_git_that_outlives_its_killed_parent_keeps_the_lock(place: Place, tmp_path: Path) -> None:
    """An `update-ref` that hangs while its parent is killed may still move the ref."""
    go = tmp_path / "go"
    os.mkfifo(go)
    moving = f'read line <"{go}"; git update-ref {REF} "$1"'

    def capture() -> None:
        staging = place.create()
        commit, pack = place.stage(staging)
        staging.journal_commit(commit)
        staging.publish([pack])
        os.posix_spawnp("sh", ["sh", "-c", moving, "sh", commit], place.git.environment)
        os.kill(os.getpid(), signal.SIGKILL)

    assert dies(capture, NEVER)
    place.sweep()
    assert len(place.ours()) == 3
    go.write_bytes(b"go\n")
    wait_until(lambda: place.tip() != "")
    wait_until(lambda: swept(place))
    assert len(place.ours()) == 3
    place.assert_sound()


def swept(place: Place) -> bool:
    place.sweep()
    return not place.debris()


def wait_until(happened: Callable[[], bool]) -> None:
    patience = threading.Event()
    for _ in range(500):
        if happened():
            return
        patience.wait(0.02)
    raise AssertionError("it never happened")


def test_concurrent_captures_do_not_sweep_each_other(place: Place) -> None:
    with place.create() as one, place.create() as other:
        (first, pack_one), (second, pack_other) = place.stage(one, 1), place.stage(other, 2)
        place.sweep()
        assert sorted(place.debris()) == sorted([one.path, other.path])
        one.journal_commit(first)
        one.publish([pack_one])
        place.sweep()
        assert place.unpublished() == {pack_one.name}
        other.journal_commit(second)
        other.publish([pack_other])
        place.sweep()
        assert place.unpublished() == {pack_one.name, pack_other.name}
    place.sweep()
    assert len(place.ours()) == 6
    place.assert_sound()


def test_sweep_of_a_dead_capture_keeps_equal_objects_of_a_published_one(place: Place) -> None:
    """The packs are equal byte for byte; if they were one file, sweeping the dead one would empty the other."""
    with place.create() as living:
        commit, pack = place.stage(living)
        alike = pack_of(Path(living.pack_dir), [b"the same in both"])
        assert dies(lambda: publish_and_die(place, b"the same in both"), NEVER)
        living.journal_commit(commit)
        living.publish([pack, alike])
        place.git.run("update-ref", REF, commit)
    assert len(place.ours()) == 12
    place.sweep()
    packs = [name for name in place.ours() if name.endswith(".pack")]
    assert packs == sorted([f"{pack.name}.pack", f"{alike.name}.pack"])
    place.assert_sound()


def test_capture_does_not_rely_on_unpublished_packs(place: Place) -> None:
    blob = object_id(b"blob", SHARED)
    with place.create() as staging:
        commit, pack = place.stage(staging)
        staging.journal_commit(commit)
        staging.publish([pack])
        assert blob not in open_published(place.state, place.pack_dir, "sha1")
    packs = open_published(place.state, place.pack_dir, "sha1")
    assert blob in packs
    assert packs.names == (pack.name,)


def test_git_sees_staged_objects_only_with_alternates(place: Place) -> None:
    with place.create() as staging:
        commit, _ = place.stage(staging)
        assert place.git.try_run("cat-file", "-e", commit).status != 0
        told = place.git.with_objects(staging.path)
        assert told.run("cat-file", "blob", f"{commit}:shared") == SHARED


def test_git_gc_keeps_staged_and_published_packs(place: Place) -> None:
    with place.create() as staging:
        commit, pack = place.stage(staging, 1)
        place.repo.git("gc", "-q", "--prune=now")
        assert os.path.exists(pack.pack_path)
        staging.journal_commit(commit)
        staging.publish([pack])
        for words in (("gc", "-q", "--prune=now"), ("repack", "-q", "-a", "-d", "-f"), ("prune",)):
            place.repo.git(*words)
        assert len(place.ours()) == 3
        place.git.run("update-ref", REF, commit)
    place.repo.git("gc", "-q", "--prune=now", "--aggressive")
    assert f"{pack.name}.idx" in place.ours()
    place.assert_sound()


def test_error_before_publishing_leaves_nothing(place: Place) -> None:
    users = place.of_the_user()

    def capture() -> None:
        with place.create() as staging:
            place.stage(staging)
            raise GitFailed("something else went wrong")

    assert isinstance(error_of(capture), GitFailed)
    assert place.ours() == []
    assert place.of_the_user() == users
    place.assert_sound()


def error_of(action: Callable[[], object]) -> EnvhistError | None:
    try:
        action()
    except EnvhistError as error:
        return error
    return None


@pytest.mark.parametrize("moved", [False, True])
def test_packs_are_kept_after_an_error_only_if_the_ref_moved(moved: bool, place: Place) -> None:
    def capture() -> None:
        with place.create() as staging:
            commit, pack = place.stage(staging)
            staging.journal_commit(commit)
            staging.publish([pack])
            if moved:
                place.git.run("update-ref", REF, commit)
            raise GitFailed("right before or right after the ref moved")

    assert isinstance(error_of(capture), GitFailed)
    place.sweep()
    assert len(place.ours()) == (3 if moved else 0)
    place.assert_sound()


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("call", ["rename", "fsync", "pwrite", "open", "chmod"])
def test_disk_error_while_publishing_leaves_the_repository_unchanged(
    call: str, reason: int, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    users, steps = place.of_the_user(), 0
    for step in range(100):
        with place.create() as staging:
            commit, pack = place.stage(staging)
            staging.journal_commit(commit)
            with monkeypatch.context() as patched:
                fail_once(patched, call, step, reason)
                error = error_of(partial(staging.publish, [pack]))
        if error is None:
            break
        assert isinstance(error, StorageFull) == (reason == errno.ENOSPC)
        assert str(error).startswith("cannot write below '")
        steps += 1
        assert place.ours() == []
        assert place.of_the_user() == users
        place.assert_sound()
    assert steps > 0


def fail_once(patched: pytest.MonkeyPatch, call: str, step: int, reason: int) -> None:
    real, left = getattr(os, call), iter(range(step, -1000, -1))

    def failing(*arguments: object, **keywords: object) -> object:
        if next(left) == 0:
            raise OSError(reason, os.strerror(reason))
        return real(*arguments, **keywords)

    patched.setattr(os, call, failing)


def test_publishing_a_pack_again_changes_nothing(place: Place) -> None:
    with place.create() as staging:
        commit, pack = place.stage(staging)
        staging.journal_commit(commit)
        staging.publish([pack, pack])
        staging.publish([pack])
        staging.publish([])
        place.git.run("update-ref", REF, commit)
    assert len(place.ours()) == 3
    place.assert_sound()


def test_git_caches_that_name_a_removed_pack_are_deleted(place: Place) -> None:
    """A multi-pack-index uses the newest copy of an object; with git-envhist's pack, git would lose the user's own
    copy."""
    assert dies(lambda: publish_and_die(place), NEVER)
    place.repo.git("multi-pack-index", "write")
    place.repo.git("commit-graph", "write", "--split")
    caches = [Path(place.pack_dir, "multi-pack-index"), place.git_dir / "objects/info/commit-graphs"]
    assert all(cache.exists() for cache in caches)
    place.sweep()
    assert place.ours() == []
    assert place.repo.git("show", "HEAD:shared").encode() + b"\n" == SHARED
    place.assert_sound()


def test_git_caches_that_name_no_own_pack_are_kept(place: Place) -> None:
    place.repo.git("multi-pack-index", "write")
    place.repo.git("commit-graph", "write", "--reachable")
    assert dies(lambda: publish_and_die(place), NEVER)
    users = place.of_the_user()
    place.sweep()
    assert place.ours() == []
    assert place.of_the_user() == users


def test_pack_kept_by_the_user_is_not_removed(place: Place) -> None:
    assert dies(lambda: publish_and_die(place), NEVER)
    (keep,) = (name for name in place.ours() if name.endswith(".keep"))
    os.chmod(os.path.join(place.pack_dir, keep), 0o644)
    Path(place.pack_dir, keep).write_bytes(b"I want this one\n")
    users = place.of_the_user()
    place.sweep()
    assert place.of_the_user() == users
    place.assert_sound()


@pytest.mark.parametrize(
    "line",
    ["pack ../../../victim", "pack pack-1234", "pack /etc/passwd", "commit HEAD", "commit -x", "later thing"],
)
def test_journal_of_a_later_version_is_not_swept(line: str, place: Place) -> None:
    (place.git_dir / "victim.keep").write_bytes(b"git-envhist\n")
    assert dies(lambda: publish_and_die(place), NEVER)
    (left,) = place.debris()
    with open(os.path.join(left, "journal"), "a") as journal:
        journal.write(line + "\n")
    before = place.ours()
    place.sweep()
    assert (place.debris(), place.ours()) == ([left], before)
    assert place.unpublished() == {before[0].rpartition(".")[0]}
    assert (place.git_dir / "victim.keep").exists()


def test_torn_last_line_of_a_journal_is_ignored(place: Place) -> None:
    assert dies(lambda: publish_and_die(place), NEVER)
    (left,) = place.debris()
    with open(os.path.join(left, "journal"), "a") as journal:
        journal.write("commit 1234")
    place.sweep()
    assert place.ours() == []
    place.assert_sound()


def test_no_staging_is_swept_when_refs_cannot_be_read(place: Place) -> None:
    assert dies(lambda: publish_and_die(place), NEVER)
    before = place.ours()

    def broken(commit: str) -> bool:
        raise GitFailed("the repository is broken")

    with pytest.raises(GitFailed):
        sweep(place.state, place.pack_dir, broken)
    assert place.ours() == before
    place.sweep()
    place.assert_sound()


def test_other_files_next_to_stagings_are_ignored(place: Place, tmp_path: Path) -> None:
    place.create().close()
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "gold").write_bytes(b"gold")
    stagings = Path(place.state, "staging")
    (stagings / "link").symlink_to(treasure)
    (stagings / "file").write_bytes(b"a file")
    assert dies(lambda: publish_and_die(place), NEVER)
    (left,) = (path for path in place.debris() if not os.path.islink(path))
    os.symlink(treasure, os.path.join(left, "pack", "link"))
    place.sweep()
    assert not os.path.exists(left)
    assert (treasure / "gold").read_bytes() == b"gold"
    assert (stagings / "file").exists()


@pytest.mark.parametrize("umask", [0o022, 0o002])
def test_staging_is_private_for_any_mode_of_the_pack_directory(place: Place, umask: int) -> None:
    os.chmod(place.pack_dir, 0o777 & ~umask)
    with place.create() as staging:
        assert stat.S_IMODE(os.stat(staging.path).st_mode) == 0o700
        commit, pack = place.stage(staging)
        staging.journal_commit(commit)
        staging.publish([pack])
    modes = {mode_of(place, name) for name in place.ours() if not name.endswith(".keep")}
    assert modes == {0o400}


def test_packs_are_private_in_a_private_repository(place: Place) -> None:
    os.chmod(place.pack_dir, 0o700)
    place.capture()
    assert {mode_of(place, name) for name in place.ours()} == {0o400}


def test_group_can_read_packs_in_a_shared_repository(tmp_path: Path) -> None:
    os.umask(0o077)
    repo = empty_repo(tmp_path / "repo")
    repo.git("init", "-q", "--shared=group")
    place = Place(repo)
    os.chmod(place.pack_dir, 0o2770)
    with place.create() as staging:
        assert stat.S_IMODE(os.stat(staging.path).st_mode) & 0o070 == 0o070
        assert stat.S_IMODE(os.stat(os.path.join(staging.path, "journal")).st_mode) & 0o060 == 0o060
        commit, pack = place.stage(staging)
        staging.journal_commit(commit)
        staging.publish([pack])
    assert {mode_of(place, name) for name in place.ours()} == {0o440}
    for directory in (Path(place.state), Path(place.state, "staging")):
        assert directory.stat().st_mode & 0o070 == 0o070


def mode_of(place: Place, name: str) -> int:
    return stat.S_IMODE(os.stat(os.path.join(place.pack_dir, name)).st_mode)


def test_staging_of_another_user_is_not_swept_and_its_packs_are_not_used(place: Place) -> None:
    assert dies(lambda: publish_and_die(place), NEVER)
    (left,) = place.debris()
    before = place.ours()
    os.chmod(left, 0)
    try:
        with permissions_bind():
            place.sweep()
            assert place.unpublished() >= {before[0].rpartition(".")[0]}
    finally:
        os.chmod(left, 0o700)
    assert place.ours() == before


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a directory on another file system."""
    directory = tmp_path / "other"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(directory)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a second file system cannot be mounted here")
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


def test_staging_is_on_the_file_system_of_the_objects(place: Place, other_disk: Path) -> None:
    objects = place.git_dir / "objects"
    subprocess.run(["cp", "-a", str(objects) + "/.", str(other_disk)], check=True)
    subprocess.run(["rm", "-r", str(objects)], check=True)
    objects.symlink_to(other_disk)
    with place.create() as staging:
        assert staging.path.startswith(str(objects / ".envhist-staging"))
    place.capture()
    assert len(place.ours()) == 6
    assert dies(lambda: publish_and_die(place), NEVER)
    assert len(place.unpublished()) == 1
    place.sweep()
    assert len(place.ours()) == 6
    place.assert_sound()


def test_staging_is_behind_the_mount_of_the_objects(place: Place) -> None:
    """The device number is the same, but a rename across the mount fails."""
    objects = str(place.git_dir / "objects")
    bind = ["mount", "--bind", objects, objects]
    if os.geteuid() != 0 or subprocess.run(bind, capture_output=True, check=False).returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        place.capture()
        assert len(place.ours()) == 6
        place.assert_sound()
    finally:
        subprocess.run(["umount", objects], check=True)


def test_full_disk_while_publishing_leaves_no_files(place: Place, other_disk: Path) -> None:
    objects = place.git_dir / "objects"
    subprocess.run(["cp", "-a", str(objects) + "/.", str(other_disk)], check=True)
    subprocess.run(["rm", "-r", str(objects)], check=True)
    objects.symlink_to(other_disk)
    staging = place.create()
    commit, pack = place.stage(staging)
    staging.journal_commit(commit)
    ballast = other_disk / "ballast"
    fill(ballast)
    with pytest.raises(StorageFull), staging:
        staging.publish([pack])
    assert place.ours() == []
    ballast.unlink()
    place.assert_sound()


def fill(path: Path) -> None:
    """Write into a file until its disk is full."""
    with open(path, "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_packs_of_several_workers_are_published_together(place: Place) -> None:
    with place.create() as staging:
        packs = [pack_of(Path(staging.pack_dir), [b"worker %d" % number]) for number in range(3)]
        staging.publish(packs)
    assert len(place.ours()) == 9


def test_pack_is_synced_before_the_journal_names_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def sync(descriptor: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        os.fsync(descriptor)

    for module in ("objects.pack_writer", "snapshots.staging", "disk"):
        monkeypatch.setattr(f"git_envhist.{module}.sync", sync)
    with place.create() as staging:
        writer = PackWriter(staging.pack_dir, "sha1")
        writer.add(b"blob", b"a tree, say")
        pack = writer.finish(durable=False)
        assert pack is not None
        assert synced == []
        staging.publish([pack])
    assert synced[:3] == [f"{pack.name}.pack", f"{pack.name}.idx", "journal"]
