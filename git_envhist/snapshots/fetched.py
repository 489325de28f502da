"""What was fetched from remotes: a bare repository of its own, `<common git dir>/envhist/fetched.git`.

Nothing that came from elsewhere enters the user's repository, and a fetch of contents on demand does not make that one
a partial clone. Timelines stand there below `refs/envhist/remotes/<remote>/`, their notes below
`refs/notes/envhist/<remote>/`. Here a fetched timeline is called `<remote>/<timeline>`, with two slashes or more; a
name of ours has one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from git_envhist.disk import (
    cannot_write,
    locked,
    remove_if_present,
    replace_file,
    state_directory,
    sync_directory,
)
from git_envhist.git.process import Git
from git_envhist.git.refs import gits_at_work
from git_envhist.git.repository import Repository, sync_refs
from git_envhist.lazy import replace
from git_envhist.model import Snapshot
from git_envhist.platform import open_file_only

if TYPE_CHECKING:
    from git_envhist.snapshots.log import Tell

REMOTES = "refs/envhist/remotes/"
FETCHED_NOTES = "refs/notes/envhist/"
ARRIVING = "refs/envhist/arriving/"
"""What has come and was not looked at yet; nobody reads it."""
LOCK = "fetch.lock"
UNDER_WAY = "fetching-"
INDEX = ".idx"
MAX_END = 2.0
IMPORTED = "envhistfetched.imported"
"""In the repository of what was fetched: the names that imports stand under."""


def is_fetched(timeline: str) -> bool:
    """Whether a timeline's name is that of one that was fetched."""
    return timeline.count("/") > 1


def split_name(timeline: str) -> tuple[str, str]:
    """(remote, timeline there)."""
    remote, host, directory = timeline.rsplit("/", 2)
    return remote, f"{host}/{directory}"


class FetchedStore:
    """The repository of what was fetched."""

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
    def is_there(self) -> bool:
        # A power cut while it was made leaves names without contents: then there is nothing yet.
        head = os.path.join(self.path, "HEAD")
        return os.path.isfile(head) and os.path.getsize(head) > 0 and os.path.isdir(self.objects_dir)

    def ensure(self) -> None:
        """Make it where it is not there yet."""
        state_directory(self._state)
        if not self.is_there:
            remove_if_present(os.path.join(self.path, "HEAD"))
            words = ("init", "--quiet", "--bare", "--template=", f"--object-format={self._format}")
            self.git.run(*words, self.path)
            try:
                # What an address says may be a secret.
                os.chmod(self.path, 0o700)
            except OSError as error:
                raise cannot_write(error, self.path) from error
            self.settle(())

    def know(self, remote: str, url: str) -> None:
        """Write the address of a remote, without a password, and that it gives contents on demand."""
        from git_envhist.model.storage import without_password  # loaded late: only a fetch needs it

        told = {"url": without_password(url), "promisor": "true", "partialclonefilter": "blob:none"}
        named = {f"remote.{remote}.{key}": value for key, value in told.items()}
        new = {
            name: value
            for name, value in named.items()
            if os.fsdecode(self.git.ask("config", "--local", "--get", name).out) != value + "\n"
        }
        for name, value in new.items():
            self.git.run("config", "--local", "--replace-all", name, value)
        if new:
            self.settle(())

    def knows(self, remote: str) -> bool:
        """Whether something was fetched from a remote of that name."""
        return self.is_there and self.git.ask("config", "--get", f"remote.{remote}.url").status == 0

    def own(self, name: str) -> None:
        """Say that a name is that of an import: no fetch may put in order what stands there."""
        if not self.was_imported(name):
            self.git.run("config", "--local", "--add", IMPORTED, name)

    def was_imported(self, name: str) -> bool:
        return name in self._imported()

    def _imported(self) -> list[str]:
        told = self.git.ask("config", "--local", "--get-all", IMPORTED)
        return os.fsdecode(told.out).splitlines()

    @contextmanager
    def receiving(self, waiting: Callable[[], None] | None = None) -> Iterator[None]:
        """Alone here, to take something in; what a git left that was ended half way goes, before and after."""
        with locked(os.path.join(self.path, LOCK), waiting=waiting, limited=True):
            self._sweep()
            try:
                yield
            except BaseException:
                self._sweep()
                raise

    def _sweep(self) -> None:
        import glob  # loaded late: here and below, whoever reads needs none of it

        left = glob.glob(os.path.join(glob.escape(self.objects_dir), "*", "tmp_*"))
        left += glob.glob(os.path.join(glob.escape(self.path), "*.lock"))
        left += glob.glob(os.path.join(glob.escape(self.path), "refs", "**", "*.lock"), recursive=True)
        left = [path for path in left if not path.endswith("/" + LOCK)]
        # A git may outlive the program that started it, and write on: mostly for a moment only.
        until = time.monotonic() + MAX_END
        while left and gits_at_work(self.path, ()) != [] and time.monotonic() < until:
            time.sleep(0.05)
        if left and gits_at_work(self.path, ()) == []:
            for path in left:
                with suppress(OSError):
                    os.unlink(path)

    def begin(self, remote: str) -> frozenset[str] | None:
        """Say that a fetch from there is under way; the packs known before it, if an earlier one was broken off."""
        path = self._under_way(remote)
        try:
            if os.path.exists(path):
                return _packs_told(path)
            _tell_packs(path, self.packs())
        except OSError as error:
            raise cannot_write(error, self.path) from error
        return None

    def vouch(self, packs: Iterable[str]) -> None:
        """Say that some packs were looked at, to whoever goes on with what was broken off."""
        import glob  # loaded late: likewise

        new = frozenset(packs)
        try:
            for path in glob.glob(os.path.join(glob.escape(self.path), UNDER_WAY + "*+")):
                _tell_packs(path, _packs_told(path) | new)
        except OSError as error:
            raise cannot_write(error, self.path) from error

    def packs(self) -> frozenset[str]:
        """The names of the packs that git sees here."""
        names: list[str] = []
        with suppress(FileNotFoundError):
            names = os.listdir(self.pack_dir)
        return frozenset(name.removesuffix(INDEX) for name in names if name.endswith(INDEX))

    def forget_arriving(self) -> None:
        """Let go of what came and was not taken."""
        self.move([f"delete {ref}" for ref in self.refs(ARRIVING)])

    def move(self, lines: Sequence[str]) -> None:
        """Move refs, all of them or none: lines of `git update-ref --stdin`."""
        if lines:
            text = "".join(f"{line}\n" for line in lines).encode("ascii")
            self.git.run("update-ref", "--no-deref", "--stdin", stdin=text)

    def end(self, remote: str) -> None:
        """Say that it came to its end."""
        remove_if_present(self._under_way(remote))

    def _under_way(self, remote: str) -> str:
        # No remote has a plus in its name; behind one that is being written stands more.
        return os.path.join(self.path, f"{UNDER_WAY}{remote.replace('/', '+')}+")

    def mend(self) -> None:
        """Take away refs that lead nowhere. git syncs none, and after a power cut would stumble over each of them."""
        for directory, _, names in os.walk(os.path.join(self.path, "refs")):
            for path in (os.path.join(directory, name) for name in names if not name.endswith(".lock")):
                if not os.path.getsize(path):
                    remove_if_present(path)
        # What was imported comes from nowhere a second time: its refs stay, whatever cannot be read just now.
        kept = tuple(f"{place}{name}/" for name in self._imported() for place in (REMOTES, FETCHED_NOTES))
        refs = {ref: oid for ref, oid in self.refs("refs/").items() if not ref.startswith(kept)}
        asked = "".join(f"{oid}\n" for oid in refs.values()).encode("ascii")
        words = ("rev-list", "--no-walk=unsorted", "--missing=allow-any", "--ignore-missing", "--stdin")
        here = set(self.git.run(*words, stdin=asked).decode("ascii").split()) if refs else set()
        self.move([f"delete {ref}" for ref, oid in refs.items() if oid not in here])

    def settle(self, refs: Iterable[str]) -> None:
        """Make what came survive a power cut, the repository itself too; the packs were synced as they came."""
        sync_refs(self.path, [*refs, "objects/pack", "config", "HEAD"])
        sync_directory(self._state)
        sync_directory(os.path.dirname(self._state))

    def refs(self, prefix: str) -> dict[str, str]:
        """ref -> hash."""
        told = self.git.run("for-each-ref", "--format=%(objectname) %(refname)", prefix)
        return {
            name: oid for oid, _, name in (line.partition(" ") for line in os.fsdecode(told).split("\n")[:-1])
        }

    def timelines(self) -> list[str]:
        """The names of the timelines that were fetched."""
        return sorted(ref.removeprefix(REMOTES) for ref in self.refs(REMOTES)) if self.is_there else []

    def read(self, timeline: str, limit: int | None, tell: Tell) -> Iterator[Snapshot]:
        """The snapshots of one, newest first, under the name that it has here."""
        from git_envhist.snapshots.log import read_chain  # loaded late: only fetched timelines need it

        chain = read_chain(
            self.git, REMOTES + timeline, limit=limit, notes=FETCHED_NOTES + timeline, tell=tell
        )
        return (replace(snapshot, timeline=timeline) for snapshot in chain)

    def missing(self, trees: Iterable[str] = (), blobs: Iterable[str] = ()) -> list[str]:
        """What is not here yet: of some blobs, and of all that some trees (or commits) lead to."""
        wanted = sorted(set(blobs))
        told = self._walk(trees, "--missing=print", "--no-object-names")
        found = {line[1:].decode("ascii") for line in told if line.startswith(b"?")}
        # git refuses to start at a blob that is missing: those that it does not name are.
        here = self._walk(wanted, "--missing=allow-any", "--ignore-missing", "--no-walk")
        found.update(set(wanted).difference(line.partition(b" ")[0].decode("ascii") for line in here))
        return sorted(found)

    def _walk(self, names: Iterable[str], *options: str) -> list[bytes]:
        asked = "".join(f"{name}\n" for name in names).encode("ascii")
        if not asked:
            return []
        # A name may hold a carriage return, and what follows it is no line.
        told = self.git.run("rev-list", "--objects", *options, "--stdin", stdin=asked)
        return told.split(b"\n")[:-1]


def _packs_told(path: str) -> frozenset[str]:
    with open(path, encoding="ascii", errors="replace", opener=open_file_only) as file:
        return frozenset(file.read().split())


def _tell_packs(path: str, packs: Iterable[str]) -> None:
    # Whole or not at all: a pack whose name is lost goes with what is refused, and an import comes from nowhere again.
    replace_file(path, "".join(f"{name}\n" for name in sorted(packs)).encode("ascii"))


def seeing_fetched(repository: Repository) -> Repository:
    """The repository, whose git sees what was fetched too: for whoever reads."""
    fetched = FetchedStore.of(repository)
    if not fetched.is_there:
        return repository
    return replace(repository, git=repository.git.with_objects(fetched.objects_dir))


def without_fetched(repository: Repository) -> Repository:
    """The repository alone: for whoever writes, and relies on nothing of others."""
    if not repository.git.alternates:
        return repository
    return replace(repository, git=repository.git.with_alternates())
