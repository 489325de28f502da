"""Answer why a path, a line, a package, a variable, a table, a row or a service is as it is.

`OriginReader` reads the steps that changed it along one timeline, newest first, and lets `attribution` decide about
each.
An answer comes as soon as its step is found; older snapshots are read only when the next one is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import TypedDict, TypeVar

from git_envhist.diff.facts import fact_words, pair_facts
from git_envhist.diff.required_packages import PROBE as REQUIRED
from git_envhist.diff.split_fact_key import name_of
from git_envhist.errors import EnvhistError, UsageError
from git_envhist.git.process import Git
from git_envhist.history.attribution import RESTORED, Attribution, ChangeTime, attribute_change, calls_of_run
from git_envhist.history.blame import BlameLine, NoLines, blame, blame_versions, is_of_environment
from git_envhist.history.sqlite_row import row_fingerprint
from git_envhist.history.versions import (
    ABSENT,
    FactRow,
    PathId,
    VersionReader,
    VersionStep,
    name_in,
    path_of_fact,
    place_in,
    version_steps,
)
from git_envhist.lazy import dataclass, replace
from git_envhist.model import EnvPath, Fact, FactChange, Snapshot, StoredAs
from git_envhist.objects.trees import DIRECTORY
from git_envhist.probes import DATABASES, PACKAGES, PROBES, SERVICES, VARIABLES
from git_envhist.snapshots.message import MAX_APPLIED
from git_envhist.snapshots.stored_names import stored_path, true_path

V = TypeVar("V")
RENAME = 50
"""The similarity in percent from which on a new file counts as renamed."""
LATER = 4
"""How many later snapshots are asked for the end of a call."""
ROWS = ("sqlite",)
"""The probes of databases whose rows can be read."""
DUMPS = ("dump",)
"""The probe of the states of services, whose facts are tables."""


class SubjectKind(Enum):
    """Kinds of subjects that a question can have."""

    PATH = "path"
    LINE = "line"
    GONE = "path-gone"
    PACKAGE = "package"
    VARIABLE = "var"
    TABLE = "table"
    ROW = "row"
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a question: a path, or the name of a fact."""

    kind: SubjectKind
    name: str
    line: int | None = None

    @property
    def text(self) -> str:
        """Return the subject as it is printed."""
        return f"{self.name}:{self.line}" if self.line is not None else self.name


@dataclass(frozen=True, slots=True)
class Origin:
    """A step that changed the subject, and who is known to have made the change."""

    snapshot: Snapshot
    before: Snapshot | None
    change: str
    """`added`, `modified`, `removed`, `renamed from <path>`; or the words for a fact."""
    attribution: Attribution
    path: EnvPath | None = None
    """The path that shows the change; None for a fact of the machine."""
    line: int | None = None
    """The number of the line in this snapshot."""
    renamed: EnvPath | None = None
    """The earlier path, if this step renamed the file."""


@dataclass(frozen=True, slots=True)
class LineOrigin:
    """A line of a file, and the step that brought it."""

    number: int
    text: bytes
    """Without its line feed."""
    origin: Origin
    original: int
    """The number of the line in the snapshot that brought it."""
    path: EnvPath
    """The path of the file in that snapshot."""


class WhyKeywords(TypedDict, total=False):
    """The keywords of `EnvHistory.why`, of which one is given."""

    path_gone: str
    """A path that does not exist any more."""
    package: str
    var: str
    """A variable of a `.env` file."""
    table: str
    row: str
    """`<table>:<key>` of a SQLite database."""
    service: str


def subject_of(path: str | None, line: int | None, keywords: WhyKeywords) -> Subject:
    """Return the subject of a question; raise `UsageError` unless there is exactly one."""
    named = [Subject(SubjectKind(key.replace("_", "-")), str(name)) for key, name in keywords.items()]
    if path is not None:
        named.append(Subject(SubjectKind.PATH if line is None else SubjectKind.LINE, path, line))
    if len(named) != 1 or not named[0].name:
        raise UsageError("name one subject", hint="git envlog why <path>, git envlog why --package <name>")
    if line is not None and line < 1:
        raise UsageError(f"no such line: {line}")
    return named[0]


def question_of(change: FactChange) -> str | None:
    """Return the option of `git envlog why` that asks about a package or a variable; None for another fact."""
    options = {PACKAGES: "--package", VARIABLES: "--var"}
    option = next((options.get(PROBES[one].kind) for one in PROBES if one == change.probe), None)
    return None if option is None else f"{option}={name_of(change)}"


class SubjectNotFound(EnvhistError):
    """No snapshot of the timeline has the subject."""

    code = "no-such-subject"
    exit_code = 4


class OriginReader:
    """Reads the origins of subjects along one timeline."""

    def __init__(
        self,
        git: Git,
        snapshots: Sequence[Snapshot],
        reader: VersionReader,
        judge: Callable[[Snapshot], Snapshot],
        newer: Sequence[Snapshot] = (),
    ) -> None:
        """`snapshots`: the newest first; `newer`: those after them, the nearest last."""
        self._git = git
        self._snapshots = snapshots
        self._reader = reader
        self._judge = judge
        everything = [*newer, *snapshots]
        self._places = {snapshot.commit: place for place, snapshot in enumerate(everything)}
        self._everything = everything

    def of(self, subject: Subject) -> Iterator[Origin]:
        """Yield the steps that changed a subject, newest first; raise `SubjectNotFound` if there is none."""
        answers = self._answers(subject)
        first = next(answers, None)
        if first is None:
            raise SubjectNotFound(
                f"no snapshot of this timeline has it: '{subject.text}'",
                hint="git envlog --all lists all timelines",
            )
        yield first
        yield from answers

    def _answers(self, subject: Subject) -> Iterator[Origin]:
        path = EnvPath(os.fsencode(subject.name))
        match subject.kind:
            case SubjectKind.PATH | SubjectKind.GONE:
                return self._of_path(path, self._snapshots)
            case SubjectKind.LINE:
                assert subject.line is not None
                return self._of_line(path, subject.line)
            case SubjectKind.ROW:
                return self._of_row(subject.name)
        return self._of_facts(subject)

    # Paths.

    def _of_path(self, path: EnvPath, snapshots: Sequence[Snapshot]) -> Iterator[Origin]:
        following: EnvPath | None = path
        while following is not None:
            path, following = following, None
            for step in version_steps(snapshots, partial(self._reader.path_id, path=path), ABSENT):
                renamed = self._renamed_from(step, path)
                yield self._path_origin(step, path, renamed)
                if renamed is not None and step.before is not None:
                    place = next(at for at, one in enumerate(snapshots) if one.commit == step.before.commit)
                    following, snapshots = renamed, snapshots[place:]
                    break

    def _path_origin(
        self, step: VersionStep[PathId], path: EnvPath, renamed: EnvPath | None = None
    ) -> Origin:
        change = _change_word(step) if renamed is None else f"renamed from {os.fsdecode(renamed)}"
        return self._origin(step.snapshot, step.before, change, path, renamed=renamed)

    def _renamed_from(self, step: VersionStep[PathId], path: EnvPath) -> EnvPath | None:
        """Return the earlier path of a file that a step added, if the step renamed it."""
        if step.before is None or step.old != ABSENT or step.new == ABSENT:
            return None
        from git_envhist.diff.compare_snapshots import environment_path  # loaded late: few steps add a file
        from git_envhist.diff.tree_diff import read_renames  # loaded late: likewise

        wanted = stored_path(path)
        renames = read_renames(self._git, step.before.commit, step.snapshot.commit, (), RENAME)
        return next((environment_path(row.before) for row in renames if row.after == wanted), None)

    def _of_line(self, path: EnvPath, number: int) -> Iterator[Origin]:
        newest = self._snapshots[0]
        if self._reader.path_id(newest, path) == ABSENT:
            return
        # Raises an error that says what there is instead of a file.
        self._reader.content(newest, path)
        line, there = self._blamed(path, number)
        by_commit = {snapshot.commit: at for at, snapshot in enumerate(self._snapshots)}
        at = by_commit.get(line.commit)
        if at is None or not is_of_environment(line.stored):
            raise SubjectNotFound(
                f"the line is of no snapshot of this timeline: '{os.fsdecode(path)}:{number}'",
                hint="its last step: git envlog why <path>",
            )
        snapshot = self._snapshots[at]
        before = self._snapshots[at + 1] if at + 1 < len(self._snapshots) else None
        change = f"line {line.original} of {os.fsdecode(there)}"
        change += " added or changed" if before is not None else " present"
        yield self._origin(snapshot, before, change, there, line.original)
        for origin in self._of_path(there, self._snapshots[at:]):
            if origin.snapshot.commit != snapshot.commit:
                yield origin

    def _blamed(self, path: EnvPath, number: int) -> tuple[BlameLine, EnvPath]:
        """Return a line of the newest snapshot, and the path of the file in the snapshot that brought it."""
        newest = self._snapshots[0]
        if self._reader.stored_as(newest, path) is StoredAs.PLAIN:
            (line,) = blame(self._git, newest.commit, stored_path(path), f"{number},{number}")
            there = _place_of(line, path)
            if self._is_plain_before(line.commit, there):
                return line, there
        # git would compare the sealed bytes.
        lines = list(self._compared_lines(path))
        if number > len(lines):
            raise UsageError(f"no such lines: '{number},{number}'")
        return lines[number - 1]

    def _is_plain_before(self, commit: str, path: EnvPath) -> bool:
        """Return whether the file was no sealed one and none in chunks before a snapshot."""
        at = next((at for at, one in enumerate(self._snapshots) if one.commit == commit), None)
        if at is None or at + 1 == len(self._snapshots):
            return True
        return self._reader.stored_as(self._snapshots[at + 1], path) is StoredAs.PLAIN

    def at(self, commit: str, path: EnvPath | None, *, is_package: bool = False) -> Origin:
        """Return the step that ends at a commit of this timeline, about a path, or the package in a directory."""
        place = next((number for number, one in enumerate(self._snapshots) if one.commit == commit), None)
        if place is None:
            raise SubjectNotFound(
                f"the snapshot is not of this timeline: '{commit[:7]}'", hint="to list all: git envlog --all"
            )
        before = self._snapshots[place + 1] if place + 1 < len(self._snapshots) else None
        change = "present" if before is None else "changed"
        return self._origin(self._snapshots[place], before, change, path, is_package=is_package)

    def blame(self, path: EnvPath, lines: str | None = None, *, reveal: bool = False) -> list[LineOrigin]:
        """Return each line of a file of the newest snapshot with the step that brought it; `lines`: git's -L.

        Raise `NoLines` for a file in chunks, and for a sealed one without `reveal`.
        """
        known: dict[tuple[str, EnvPath], Origin] = {}

        def origin(commit: str, there: EnvPath) -> Origin:
            if (commit, there) not in known:
                known[commit, there] = self.at(commit, there)
            return known[commit, there]

        return [
            LineOrigin(line.number, line.text, origin(line.commit, there), line.original, there)
            for line, there in self._blamed_lines(path, lines, reveal=reveal)
        ]

    def _blamed_lines(
        self, path: EnvPath, lines: str | None, *, reveal: bool
    ) -> Iterator[tuple[BlameLine, EnvPath]]:
        newest = self._snapshots[0]
        kind = self._reader.stored_as(newest, path)
        meant: set[int] | None = None
        if kind is StoredAs.PLAIN:
            # Raises an error that says what there is instead of a file.
            self._reader.must_exist(newest, path)
            found = blame(self._git, newest.commit, stored_path(path), lines)
            places = [_place_of(line, path) for line in found]
            steps = set(zip((line.commit for line in found), places, strict=True))
            if all(self._is_plain_before(commit, there) for commit, there in steps):
                yield from zip(found, places, strict=True)
                return
            meant = {line.number for line in found}
        if kind is StoredAs.SEALED and not reveal:
            raise NoLines(
                "the file is sealed",
                hint="print its lines with --reveal, or ask: git envlog why --var <name>",
            )
        if kind is StoredAs.SEALED and lines is not None:
            raise UsageError("-L and a sealed file exclude each other")
        for line, there in self._compared_lines(path):
            if meant is None or line.number in meant:
                yield line, there

    def _compared_lines(self, path: EnvPath) -> Iterator[tuple[BlameLine, EnvPath]]:
        """Yield the lines of the newest version; all versions are compared here, in memory."""
        paths: dict[str, EnvPath] = {}

        def versions() -> Iterator[tuple[str, bytes]]:
            for snapshot, place in self.contents_of(path):
                if self._reader.stored_as(snapshot, place) not in (StoredAs.PLAIN, StoredAs.SEALED):
                    raise NoLines("the file is too large to compare its lines", hint="git envlog why <path>")
                paths[snapshot.commit] = place
                yield snapshot.commit, self._reader.content(snapshot, place) or b""

        for line in blame_versions(stored_path(path), versions()):
            yield line, paths[line.commit]

    def has_content(self, snapshot: Snapshot, path: EnvPath) -> bool:
        """Return whether a path is a file or a link in a snapshot."""
        return self._reader.path_id(snapshot, path)[0] not in (ABSENT[0], DIRECTORY)

    def stored_as(self, snapshot: Snapshot, path: EnvPath) -> StoredAs:
        """Return how a snapshot stores a file."""
        return self._reader.stored_as(snapshot, path)

    def contents_of(self, path: EnvPath) -> Iterator[tuple[Snapshot, EnvPath]]:
        """Yield the snapshots that brought each version of a file, newest first, with its path in each."""
        for origin in self._of_path(path, self._snapshots):
            if origin.path is None or self._reader.path_id(origin.snapshot, origin.path) == ABSENT:
                # What came after the removal has no line of what was before it.
                return
            yield origin.snapshot, origin.path

    # Facts.

    def _of_facts(self, subject: Subject) -> Iterator[Origin]:
        probes, is_meant = _probes_of(subject)
        nothing: frozenset[FactRow] = frozenset()

        def value(snapshot: Snapshot) -> frozenset[FactRow] | None:
            return self._reader.facts(snapshot, probes, is_meant)

        for step in version_steps(self._snapshots, value, nothing):
            old = step.old or nothing
            gone, new = sorted(old - step.new), sorted(step.new - old)
            changes = pair_facts(map(_fact, gone), map(_fact, new))
            words = ", ".join(map(_words, changes)) if step.old is not None else "present"
            shown = (new or gone or sorted(step.new))[0]
            yield self._origin(
                step.snapshot,
                step.before,
                words or "changed",
                path_of_fact(shown) or None,
                is_package=subject.kind is SubjectKind.PACKAGE,
                is_same=partial(_has_value, value, step.new),
            )

    def _of_row(self, name: str) -> Iterator[Origin]:
        table, found, key = name.rpartition(":")
        if not found or not table or not key:
            raise UsageError(f"not a row: '{name}'", hint="git envlog why --row <table>:<key>")
        place = self._place_of_table(table)
        wanted = table.removeprefix(f"{place}/")
        path = EnvPath(os.fsencode(place))
        related = [path, EnvPath(path + b"-wal"), EnvPath(path + b"-journal")]
        known: dict[tuple[PathId, ...], str] = {}

        def row(snapshot: Snapshot) -> str | None:
            ids = tuple(self._reader.path_id(snapshot, one) for one in related)
            if ids not in known:
                contents = [self._reader.content(snapshot, one) for one in related]
                known[ids] = "" if contents[0] is None else row_fingerprint(contents, wanted, key)
            return known[ids]

        for step in version_steps(self._snapshots, row, ""):
            word = "row added" if not step.old else "row removed" if not step.new else "row changed"
            words = "row present" if step.old is None else word
            time = self._time_of_several(step.snapshot, step.before, related)
            yield self._origin(
                step.snapshot, step.before, words, path, time=time, is_same=partial(_has_value, row, step.new)
            )

    def _time_of_several(
        self, snapshot: Snapshot, before: Snapshot | None, paths: Sequence[EnvPath]
    ) -> ChangeTime:
        """Return the time in which those of some files that a step changed were written."""
        if before is None:
            return ChangeTime()
        read = self._reader.path_id
        changed = [path for path in paths if read(snapshot, path) != read(before, path)]
        times = [self._reader.change_time(snapshot, path) for path in changed]
        written = [time.written for time in times if time.written is not None]
        placed = [time.placed for time in times if time.placed is not None]
        if not times or len(written) < len(times) or len(placed) < len(times):
            return ChangeTime()
        # A row in a -wal file may be older than the call that moved it to the database.
        is_indirect = len(times) > 1 or times[0].is_indirect
        return ChangeTime(min(written), max(*written, *placed), is_indirect)

    def _place_of_table(self, table: str) -> str:
        """Return the file of a table; raise `UsageError` if several files have such a table."""
        for snapshot in self._snapshots:
            found = self._reader.facts(
                snapshot, ROWS, lambda row: table in (name_in(row), row[1]) and bool(row[1])
            )
            places = sorted({place_in(row) for row in found or ()})
            if len(places) > 1:
                names = ", ".join(f"{place}/{table}" for place in places[:3])
                raise UsageError(f"several databases have this table: '{table}'", hint=f"name one: {names}")
            if places:
                return places[0]
        raise SubjectNotFound(
            f"no snapshot of this timeline has this table: '{table}'", hint="rows are read of SQLite"
        )

    def _origin(
        self,
        snapshot: Snapshot,
        before: Snapshot | None,
        change: str,
        path: EnvPath | None,
        line: int | None = None,
        renamed: EnvPath | None = None,
        time: ChangeTime | None = None,
        *,
        is_package: bool = False,
        is_same: Callable[[Snapshot], bool] = lambda source: False,
    ) -> Origin:
        """Return the origin of a step; `is_same`: a snapshot has what the step made of the subject."""
        snapshot = self._judge(snapshot)
        place = self._places.get(snapshot.commit, 0)
        # The end of a command that ran beside this one may be far later.
        first = 0 if calls_of_run(snapshot) else max(0, place - LATER)
        later = self._everything[first:place][::-1]
        if time is None:
            time = self._time(snapshot, before, path, is_package=is_package)
        named = None if path is None else os.fsdecode(path)
        return Origin(
            snapshot,
            None if before is None else self._judge(before),
            change,
            attribute_change(
                snapshot,
                before,
                named,
                time,
                later,
                is_restored=self._is_restored(snapshot, path, renamed, is_same),
            ),
            path,
            line,
            renamed,
        )

    def _time(
        self, snapshot: Snapshot, before: Snapshot | None, path: EnvPath | None, *, is_package: bool
    ) -> ChangeTime:
        if path is None or before is None:
            return ChangeTime()
        if is_package:
            return self._reader.time_below(snapshot, before, path)
        return self._reader.change_time(snapshot, path)

    def _is_restored(
        self,
        snapshot: Snapshot,
        path: EnvPath | None,
        renamed: EnvPath | None,
        is_same: Callable[[Snapshot], bool],
    ) -> bool:
        """Return whether a snapshot that a restore read has the result of the step; False if this is not known."""
        if snapshot.restore not in RESTORED:
            return False
        sources = (snapshot.restored_from, *(after for _, after in snapshot.applied[:MAX_APPLIED]))
        trees = filter(None, map(self._tree_of, filter(None, sources)))
        return any(
            self._has_paths(source, snapshot, path, renamed) or is_same(source)
            for source in (replace(snapshot, tree=tree) for tree in trees)
        )

    def _has_paths(
        self, source: Snapshot, snapshot: Snapshot, path: EnvPath | None, renamed: EnvPath | None
    ) -> bool:
        read = self._reader.path_id
        paths = [one for one in (path, renamed) if one is not None]
        return bool(paths) and all(read(source, one) == read(snapshot, one) for one in paths)

    def _tree_of(self, source: str) -> str | None:
        for one in self._everything:
            if source in (one.id, one.commit):
                return one.tree
        done = self._git.try_run("rev-parse", "--verify", "--quiet", f"{source}^{{tree}}")
        return None if done.status else done.out.decode("ascii").strip()


def _place_of(line: BlameLine, path: EnvPath) -> EnvPath:
    """Return the path of a file in the commit that brought a line."""
    return true_path(line.stored) if not line.stored.startswith(b".envhist/") else path


def _has_value(value: Callable[[Snapshot], V | None], wanted: V, source: Snapshot) -> bool:
    """Return whether a snapshot has a value."""
    return value(source) == wanted


def _change_word(step: VersionStep[PathId]) -> str:
    if step.before is None:
        return "present"
    if step.old == ABSENT:
        return "added"
    if step.new == ABSENT:
        return "removed"
    return "modified" if step.old is not None and step.old[1] != step.new[1] else "mode changed"


def _probes_of(subject: Subject) -> tuple[Sequence[str], Callable[[FactRow], bool]]:
    """Return the probes whose facts may be about a subject, and the test of a fact."""
    name = subject.name
    if subject.kind is SubjectKind.PACKAGE:
        plain = _plain_name(name)
        packages = tuple(probe for probe in _of_kind(PACKAGES) if probe != REQUIRED)
        return packages, lambda row: _plain_name(name_in(row)) == plain or row[1] == name
    if subject.kind is SubjectKind.VARIABLE:
        return _of_kind(VARIABLES), lambda row: name_in(row) == name
    if subject.kind is SubjectKind.TABLE:
        return _of_kind(DATABASES), lambda row: name in (name_in(row), row[1])
    services = (*_of_kind(SERVICES), *DUMPS)
    return services, lambda row: name in (name_in(row), row[1], row[4]) or row[1].startswith(f"{name}/")


def _of_kind(kind: str) -> tuple[str, ...]:
    return tuple(probe for probe, one in PROBES.items() if one.kind == kind)


def _plain_name(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _fact(row: FactRow) -> Fact:
    probe, key, value, at, by = row
    return Fact(probe, key, value, at, by)


def _words(change: FactChange) -> str:
    mark = "+" if change.before is None else "−" if change.after is None else "~"
    return f"{mark} {fact_words(change)}"
