"""The verbs: everything that the programs do goes through here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from git_envhist.capturing.identity import moment, signature, who_am_i
from git_envhist.capturing.timelines import current_timeline
from git_envhist.doing import Doing
from git_envhist.errors import SnapshotNotFound
from git_envhist.history.timeline import World, by_name, next_word_on
from git_envhist.lookup import judge_verdicts, list_timelines, path_below, read_timeline, world_of
from git_envhist.model import Bisected, Captured, Checked, Comparison, EnvPath, Forked, Record, Snapshot
from git_envhist.opening import Opened, open_repository
from git_envhist.settings import config_home, read_settings
from git_envhist.store.durable import told_by_the_system
from git_envhist.store.fetched import is_fetched, seeing_fetched, without_fetched
from git_envhist.store.git import Git
from git_envhist.store.records import name_record, remark_record
from git_envhist.values import replace

if TYPE_CHECKING:
    from typing import Unpack

    from git_envhist.beginning import Beginning
    from git_envhist.capturing.capture import Capturing
    from git_envhist.capturing.present import Present
    from git_envhist.capturing.request import Asked
    from git_envhist.forking.fork import Forking
    from git_envhist.model import Restored
    from git_envhist.restoring.verbs import Going
    from git_envhist.restoring.wish import Wish
    from git_envhist.store.files import FileReader
    from git_envhist.store.keys import KeyRing
    from git_envhist.verifying.verbs import Checks


class EnvHistory(Doing):
    """The history of one environment."""

    def __init__(
        self,
        opened: Opened,
        environ: Mapping[str, str],
        *,
        workers: str = "spawn",
        directory: str = ".",
    ) -> None:
        self.repository = seeing_fetched(opened.repository)
        self.settings = read_settings(opened.repository.read_config())
        self.directory = directory
        self._environ = dict(environ)
        self._workers = environ.get("GIT_ENVHIST_WORKERS") or workers
        self.warnings = list(opened.remarks)
        self.forked: Forked | None = None  # what `fork` made, where this is what it gave

    @classmethod
    def open(
        cls, directory: str = ".", *, environ: Mapping[str, str] | None = None, workers: str = "spawn"
    ) -> EnvHistory:
        """The history of the working tree that a directory is in.

        `workers`: a program of our own may be forked ("fork"), a host program must not be ("spawn").
        """
        chosen = os.environ if environ is None else environ
        with told_by_the_system(directory):
            return cls(open_repository(directory, chosen), chosen, workers=workers, directory=directory)

    @classmethod
    def init(cls, directory: str = ".", *, workers: str = "spawn", **wish: Unpack[Beginning]) -> EnvHistory:
        """The history of a plain directory, begun where there is none; inside a git repository, that repository's."""
        from git_envhist.beginning import begin  # loaded late: keeps envlog fast

        chosen = wish.get("environ") or os.environ
        with told_by_the_system(directory):
            return cls(begin(directory, chosen, wish), chosen, workers=workers, directory=directory)

    @property
    def timeline(self) -> str | None:
        """The name of this working tree's timeline; None before its first capture."""
        return current_timeline(self.repository, self.settings)

    @cached_property
    def keys(self) -> KeyRing:
        from git_envhist.store.keys import KeyRing  # loaded late: keeps envlog fast

        return KeyRing(self.repository.common_state, config_home(self._environ))

    def log(self, limit: int | None = None, timeline: str | None = None) -> list[Snapshot]:
        """The snapshots of a timeline, newest first."""
        name = timeline or self.timeline
        found = read_timeline(self.repository, name, limit, self._tell) if name else []
        return judge_verdicts(found, lambda: self.keys)

    def timelines(self) -> tuple[str, ...]:
        """The names of all timelines that are known here, this working tree's own first."""
        return list_timelines(self.repository, self.timeline)

    def resolve(self, text: str) -> Snapshot:
        """The snapshot that some words mean."""
        from git_envhist.history.resolve import resolve  # loaded late: keeps envlog fast

        return self.judge(resolve(text, self.world, self.now))

    def judge(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot, and whether a key that is here signed it."""
        from git_envhist.store.signatures import judged  # loaded late: keeps a capture fast

        return judged(snapshot, self.keys.get)

    @cached_property
    def world(self) -> World:
        """All that a revision can speak of."""
        return world_of(self.timeline or "", self.timelines, self.log, self.repository.git)

    @cached_property
    def now(self) -> datetime:
        """This moment, or the one that GIT_COMMITTER_DATE sets."""
        return moment(self.repository.git, self._environ)

    def capture(self, intent: bytes | str | None = None, **asked: Unpack[Asked]) -> Captured:
        """Take a snapshot of the whole environment; then check it, where that is asked for or configured."""
        from git_envhist.capturing.request import make_request  # loaded late: keeps envlog fast

        request = make_request(intent, asked)
        with told_by_the_system(self.repository.git_dir):
            captured = self._capturing.capture(request)
        self.forget_world()
        request.captured(captured)
        wanted = asked.get("verify") or self.settings.verify
        return self.checks.after_capture(captured, request, asked) if wanted else captured

    def verify(self, revision: str | Snapshot = "now", command: str | None = None) -> Checked:
        """Run a check on what is here now, or on an older moment in a throw-away environment of it."""
        return self.checks.run(revision, command)

    def bisect(self, good: str | None = None, bad: str | None = None, command: str | None = None) -> Bisected:
        """The first moment where a check fails; from `good` to `@`, where they are not said."""
        return self.checks.bisect(good, bad, command)

    def diff(
        self, before: Snapshot | str | None, after: Snapshot | str, pathspecs: Sequence[bytes] = ()
    ) -> Comparison:
        """Two moments side by side; `now` is the live environment."""
        from git_envhist.capturing.factdiff import compare_moments  # loaded late: keeps envlog fast

        with self.sides(before, after) as (git, old, new):
            return Comparison(_called(before), _called(after), *compare_moments(git, old, new, pathspecs))

    @contextmanager
    def sides(
        self, before: Snapshot | str | None, after: Snapshot | str
    ) -> Iterator[tuple[Git, str | None, str]]:
        """(git, a tree, another), with `now` captured into a staging for as long as the context is open."""
        if "now" not in (before, after):
            yield self.repository.git, self._tree(before), self._tree(after) or ""
            return
        with self.present() as present:
            old = present.tree if before == "now" else self._tree(before)
            new = present.tree if after == "now" else self._tree(after)
            yield present.git, old, new or ""

    @contextmanager
    def present(self) -> Iterator[Present]:
        """The live environment, captured into a staging that is thrown away."""
        from git_envhist.capturing.present import Present  # loaded late: with the capture itself

        with self._capturing.present() as held:
            yield Present(self.repository.git.with_objects(held.staging.path), held.finish().tree)

    def name(self, name: str, revision: str | Snapshot = "@", *, remove: bool = False) -> Snapshot:
        """Give a moment a name, or take it away."""
        snapshot = self._snapshot(revision)
        line = self.world.timeline(snapshot.timeline) or self.world.own
        self.tell(snapshot, name_record(name, next_word_on(line, name, self.now), removed=remove))
        return snapshot

    def remove_name(self, name: str) -> Snapshot:
        """Take a name away from the moment that bears it."""
        spots = [spot for line in self.world.timelines() for spot in by_name(line, name)]
        if not spots:
            raise SnapshotNotFound(name, hint="no snapshot bears this name")
        return self.name(name, spots[0].snapshot, remove=True)

    def note(self, text: str, revision: str | Snapshot = "@") -> Snapshot:
        """Add to the story of a moment."""
        from git_envhist.capture.tokens import mask_tokens  # loaded late: keeps envlog fast

        snapshot = self._snapshot(revision)
        masked = os.fsdecode(mask_tokens(os.fsencode(text)))
        self.tell(snapshot, remark_record(masked, self.now))
        return snapshot

    def read_file(self, revision: str | Snapshot, path: EnvPath) -> bytes:
        """The bytes of a file as they were at a moment."""
        with closing(self.reader(self.bring(self._snapshot(revision), path))) as reader:
            return b"".join(reader.read(path))

    def reader(self, snapshot: Snapshot) -> FileReader:
        """Reads what a snapshot holds; to be closed."""
        from git_envhist.store.files import FileReader  # loaded late: keeps envlog fast

        return FileReader(self.repository.git, snapshot.tree, self.open_sealed, self.repository.objects_dir)

    def environment_path(self, path: bytes) -> EnvPath:
        """The path below the top of the environment that words on the command line mean."""
        return path_below(os.fsencode(self.repository.root), os.fsencode(self.directory), path)

    def open_sealed(self, path: EnvPath, blob: bytes) -> bytes:
        """The plain bytes of a sealed file; `SealingError` where the key is not here."""
        from git_envhist.capture.seal import unseal  # loaded late: keeps envlog fast

        return unseal(self.keys.get, path, b"file", blob)

    @cached_property
    def _capturing(self) -> Capturing:
        from git_envhist.capturing.capture import Capturing  # loaded late: keeps envlog fast

        own = without_fetched(self.repository)
        return Capturing(own, self.settings, self.keys, self._workers, self._environ)

    def restore(
        self, revision: str | Snapshot, *, dry_run: bool = False, wish: Wish | None = None
    ) -> Restored:
        """Go back to a moment; what is here is saved first, and `undo` brings it back."""
        from git_envhist.restoring.wish import Wish  # loaded late: keeps envlog fast

        return self.going.to(self._snapshot(revision), wish or Wish(dry_run=dry_run))

    def fork(self, revision: str | Snapshot, directory: str, wish: Forking | None = None) -> EnvHistory:
        """A directory of its own that holds the environment of a moment, on a timeline that begins there."""
        from git_envhist.forking.fork import Forking, fork  # loaded late: keeps envlog fast

        source = self.judge(self._snapshot(revision))
        self.bring(source, EnvPath(b""))
        seeing = replace(self._capturing, repository=self.repository)
        made, opened = fork(seeing, self.open_sealed, source, directory, wish or Forking())
        history = EnvHistory(opened, self._environ, workers=self._workers, directory=made.root)
        history.forked = made
        return history

    def undo(self, steps: int = 1) -> Restored:
        """Go to the newest earlier state that differs from what is here now, so many steps back."""
        return self.going.undo(steps)

    def redo(self, steps: int = 1) -> Restored:
        """Go forth again, where nothing new has come since the last undo."""
        return self.going.redo(steps)

    @cached_property
    def going(self) -> Going:
        """Back, forth, and what goes with it."""
        from git_envhist.restoring.verbs import Going  # loaded late: keeps envlog fast

        return Going(self, replace(self._capturing, repository=self.repository))

    @cached_property
    def checks(self) -> Checks:
        """Checks, and what they came to."""
        from git_envhist.verifying.verbs import Checks  # loaded late: most captures check nothing

        return Checks(self, self._capturing)

    def bring(self, snapshot: Snapshot, *paths: EnvPath) -> Snapshot:
        """The snapshot; where it was fetched, its lists are here then, and these paths (the top: all of it)."""
        if is_fetched(snapshot.timeline):
            from git_envhist.sharing.bringing import bring  # loaded late: most snapshots are ours

            bring(self.repository, self._environ, snapshot, paths)
        return snapshot

    def forget_world(self) -> None:
        """To whoever keeps a history open, words mean what is there now."""
        self.__dict__.pop("world", None)

    def _tell(self, sentence: str) -> None:
        self.warnings.append(sentence)

    def _snapshot(self, revision: str | Snapshot) -> Snapshot:
        return self.resolve(revision) if isinstance(revision, str) else revision

    def _tree(self, moment_of: Snapshot | str | None) -> str | None:
        return None if moment_of is None else self.bring(self._snapshot(moment_of)).tree

    def tell(self, snapshot: Snapshot, *records: Record) -> None:
        """Add records to the note of a moment."""
        from git_envhist.capturing.annotating import annotate_now  # loaded late: keeps envlog fast

        line = signature(who_am_i(self.settings, self._environ), self.now)
        annotate_now(self.repository, self.settings, {snapshot.commit: records}, line)
        self.forget_world()


def _called(moment_of: Snapshot | str | None) -> str:
    return moment_of.id if isinstance(moment_of, Snapshot) else moment_of or ""
