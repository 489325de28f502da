"""Store fetched timelines in a separate bare repository, `<common git dir>/envhist/fetched.git`.

Nothing fetched enters the user's repository, and fetching contents on demand does not turn that repository into a
partial clone. Refs in `fetched.git`: timelines below `refs/envhist/remotes/<remote>/`, their notes below
`refs/notes/envhist/<remote>/`. A fetched timeline is called `<remote>/<timeline>`: its name has two slashes or more,
the name of a local timeline has one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from git_envhist.disk import (
    Durability,
    cannot_write,
    remove_if_present,
    replace_file,
    state_directory,
    sync_directory,
)
from git_envhist.git.process import Git
from git_envhist.git.repository import Repository, sync_refs
from git_envhist.git.running_git import gits_at_work
from git_envhist.lazy import replace
from git_envhist.locks import locked
from git_envhist.model import Snapshot
from git_envhist.platform import open_file_only

if TYPE_CHECKING:
    from git_envhist.snapshots.log import Warn

REMOTES = "refs/envhist/remotes/"
FETCHED_NOTES = "refs/notes/envhist/"
ARRIVING = "refs/envhist/arriving/"
"""Refs of received timelines that are not checked yet. Only the fetch itself reads them."""
LOCK = "fetch.lock"
UNDER_WAY = "fetching-"
INDEX = ".idx"
MAX_END = 2.0
IMPORTED = "envhistfetched.imported"
"""Configuration key in `fetched.git` that lists the names of imported timelines."""


def is_fetched(timeline: str) -> bool:
    """Return whether a timeline's name is that of a fetched timeline."""
    return timeline.count("/") > 1


def split_name(timeline: str) -> tuple[str, str]:
    """Split a name into the remote and the timeline's name on that remote."""
    remote, host, directory = timeline.rsplit("/", 2)
    return remote, f"{host}/{directory}"


class FetchedStore:
    """The repository of fetched timelines."""

    def __init__(self, common_state: str, object_format: str) -> None:
        self.path = os.path.join(common_state, "fetched.git")
        self.objects_dir = os.path.join(self.path, "objects")
        self.pack_dir = os.path.join(self.objects_dir, "pack")
        self._state = common_state
        self._format = object_format
        self.hash_length = 20 if object_format == "sha1" else 32
        self.git = Git(self.path, None)

    @classmethod
    def of(cls, repository: Repository) -> FetchedStore:
        return cls(repository.common_state, repository.object_format)

    @property
    def exists(self) -> bool:
        # A power cut during `git init` leaves files without contents; such a repository does not count.
        head = os.path.join(self.path, "HEAD")
        return os.path.isfile(head) and os.path.getsize(head) > 0 and os.path.isdir(self.objects_dir)

    def ensure(self) -> None:
        """Create the repository if it does not exist."""
        state_directory(self._state)
        if not self.exists:
            remove_if_present(os.path.join(self.path, "HEAD"))
            words = ("init", "--quiet", "--bare", "--template=", f"--object-format={self._format}")
            self.git.run(*words, self.path)
            try:
                # The remote's address may be secret.
                os.chmod(self.path, 0o700)
            except OSError as error:
                raise cannot_write(error, self.path) from error
            self.sync(())

    def set_remote(self, remote: str, url: str) -> None:
        """Write a remote's address without its password, and configure it as a promisor of missing blobs."""
        from git_envhist.model.sharing import without_password  # loaded late: only a fetch needs it

        options = {"url": without_password(url), "promisor": "true", "partialclonefilter": "blob:none"}
        named = {f"remote.{remote}.{key}": value for key, value in options.items()}
        new = {
            name: value
            for name, value in named.items()
            if os.fsdecode(self.git.ask("config", "--local", "--get", name).out) != value + "\n"
        }
        for name, value in new.items():
            self.git.run("config", "--local", "--replace-all", name, value)
        if new:
            self.sync(())

    def has_remote(self, remote: str) -> bool:
        """Return whether a remote of that name was fetched from."""
        return self.exists and self.git.ask("config", "--get", f"remote.{remote}.url").status == 0

    def mark_imported(self, name: str) -> None:
        """Mark a name as imported: no fetch deletes or changes its refs."""
        if not self.was_imported(name):
            self.git.run("config", "--local", "--add", IMPORTED, name)

    def was_imported(self, name: str) -> bool:
        return name in self._imported()

    def _imported(self) -> list[str]:
        answer = self.git.ask("config", "--local", "--get-all", IMPORTED)
        return os.fsdecode(answer.out).splitlines()

    @contextmanager
    def lock_for_receiving(self, waiting: Callable[[], None] | None = None) -> Iterator[None]:
        """Lock the repository for receiving. Remove the temporary files of a killed git before, and after a failure."""
        with locked(os.path.join(self.path, LOCK), waiting=waiting, limited=True):
            self._sweep()
            try:
                yield
            except BaseException:
                self._sweep()
                raise

    def _sweep(self) -> None:
        import glob  # loaded late: here and below, reading does not need it

        left = glob.glob(os.path.join(glob.escape(self.objects_dir), "*", "tmp_*"))
        left += glob.glob(os.path.join(glob.escape(self.path), "*.lock"))
        left += glob.glob(os.path.join(glob.escape(self.path), "refs", "**", "*.lock"), recursive=True)
        left = [path for path in left if not path.endswith("/" + LOCK)]
        # A git may outlive the program that started it and keep writing, mostly for less than a second.
        until = time.monotonic() + MAX_END
        while left and gits_at_work(self.path, ()) != [] and time.monotonic() < until:
            time.sleep(0.05)
        if left and gits_at_work(self.path, ()) == []:
            for path in left:
                with suppress(OSError):
                    os.unlink(path)

    def begin_fetch(self, remote: str) -> frozenset[str] | None:
        """Record that a fetch from a remote has started.

        Return the packs known before, if an earlier fetch was interrupted, else None.
        """
        path = self._under_way(remote)
        try:
            if os.path.exists(path):
                return _read_packs(path)
            _write_packs(path, self.packs())
        except OSError as error:
            raise cannot_write(error, self.path) from error
        return None

    def add_checked_packs(self, packs: Iterable[str]) -> None:
        """Add packs that were checked to the record of every interrupted fetch."""
        import glob  # loaded late: reading does not need it

        new = frozenset(packs)
        try:
            for path in glob.glob(os.path.join(glob.escape(self.path), UNDER_WAY + "*+")):
                _write_packs(path, _read_packs(path) | new)
        except OSError as error:
            raise cannot_write(error, self.path) from error

    def packs(self) -> frozenset[str]:
        """Return the names of the packs in this repository."""
        names: list[str] = []
        with suppress(FileNotFoundError):
            names = os.listdir(self.pack_dir)
        return frozenset(name.removesuffix(INDEX) for name in names if name.endswith(INDEX))

    def delete_arriving(self) -> None:
        """Delete the refs of received timelines that were not accepted."""
        self.update_refs([f"delete {ref}" for ref in self.refs(ARRIVING)])

    def update_refs(self, lines: Sequence[str]) -> None:
        """Apply lines of `git update-ref --stdin` in one transaction."""
        if lines:
            text = "".join(f"{line}\n" for line in lines).encode("ascii")
            self.git.run("update-ref", "--no-deref", "--stdin", stdin=text)

    def end_fetch(self, remote: str) -> None:
        """Record that the fetch from a remote is complete."""
        remove_if_present(self._under_way(remote))

    def _under_way(self, remote: str) -> str:
        # `/` becomes `+`, which no name of a remote contains; the `+` at the end tells it from a temporary file.
        return os.path.join(self.path, f"{UNDER_WAY}{remote.replace('/', '+')}+")

    def delete_broken_refs(self) -> None:
        """Delete refs to missing objects: git does not sync refs, and after a power cut fails on each of them."""
        for directory, _, names in os.walk(os.path.join(self.path, "refs")):
            for path in (os.path.join(directory, name) for name in names if not name.endswith(".lock")):
                if not os.path.getsize(path):
                    remove_if_present(path)
        # An import cannot be fetched again, so its refs stay even if they cannot be read now.
        imported = tuple(f"{place}{name}/" for name in self._imported() for place in (REMOTES, FETCHED_NOTES))
        refs = {ref: oid for ref, oid in self.refs("refs/").items() if not ref.startswith(imported)}
        asked = "".join(f"{oid}\n" for oid in refs.values()).encode("ascii")
        words = ("rev-list", "--no-walk=unsorted", "--missing=allow-any", "--ignore-missing", "--stdin")
        present = set(self.git.run(*words, stdin=asked).decode("ascii").split()) if refs else set()
        self.update_refs([f"delete {ref}" for ref, oid in refs.items() if oid not in present])

    def sync(self, refs: Iterable[str]) -> None:
        """Sync the refs and the repository itself, so that a fetch survives a power cut.

        The packs are synced already.
        """
        sync_refs(self.path, [*refs, "objects/pack", "config", "HEAD"])
        sync_directory(self._state)
        sync_directory(os.path.dirname(self._state))

    def refs(self, prefix: str) -> dict[str, str]:
        """Return the refs with this prefix and their hashes."""
        listed = self.git.run("for-each-ref", "--format=%(objectname) %(refname)", prefix)
        return {
            name: oid
            for oid, _, name in (line.partition(" ") for line in os.fsdecode(listed).split("\n")[:-1])
        }

    def timelines(self) -> list[str]:
        """Return the names of the fetched timelines."""
        return sorted(ref.removeprefix(REMOTES) for ref in self.refs(REMOTES)) if self.exists else []

    def read(self, timeline: str, limit: int | None, warn: Warn) -> Iterator[Snapshot]:
        """Yield the snapshots of a fetched timeline, newest first, under its local name."""
        from git_envhist.snapshots.log import read_chain  # loaded late: only fetched timelines need it

        chain = read_chain(
            self.git, REMOTES + timeline, limit=limit, notes=FETCHED_NOTES + timeline, warn=warn
        )
        return (replace(snapshot, timeline=timeline) for snapshot in chain)

    def missing(self, trees: Iterable[str] = (), blobs: Iterable[str] = ()) -> list[str]:
        """Return the missing objects: those of `blobs`, and those reachable from `trees` (or commits)."""
        wanted = sorted(set(blobs))
        reached = self._walk(trees, "--missing=print", "--no-object-names")
        found = {line[1:].decode("ascii") for line in reached if line.startswith(b"?")}
        # git refuses to start at a missing blob: a blob that it does not list is missing.
        present = self._walk(wanted, "--missing=allow-any", "--ignore-missing", "--no-walk")
        found.update(set(wanted).difference(line.partition(b" ")[0].decode("ascii") for line in present))
        return sorted(found)

    def _walk(self, names: Iterable[str], *options: str) -> list[bytes]:
        asked = "".join(f"{name}\n" for name in names).encode("ascii")
        if not asked:
            return []
        # A name may contain a carriage return, so split at line feeds only.
        listed = self.git.run("rev-list", "--objects", *options, "--stdin", stdin=asked)
        return listed.split(b"\n")[:-1]


def _read_packs(path: str) -> frozenset[str]:
    with open(path, encoding="ascii", errors="replace", opener=open_file_only) as file:
        return frozenset(file.read().split())


def _write_packs(path: str, packs: Iterable[str]) -> None:
    # Replace it atomically: a pack missing from the list would be refused, and an import cannot be fetched again.
    data = "".join(f"{name}\n" for name in sorted(packs)).encode("ascii")
    replace_file(path, data, durability=Durability.FULL)


def with_fetched_objects(repository: Repository) -> Repository:
    """Return the repository with a git that also reads fetched objects. For reading only."""
    fetched = FetchedStore.of(repository)
    if not fetched.exists:
        return repository
    return replace(repository, git=repository.git.with_objects(fetched.objects_dir))


def without_fetched_objects(repository: Repository) -> Repository:
    """Return the repository with a git that reads only its own objects. For everything that writes."""
    if not repository.git.alternates:
        return repository
    return replace(repository, git=repository.git.with_alternates())
