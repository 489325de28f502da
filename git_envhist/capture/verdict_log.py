"""The log of check results on this machine, and reuse of a result for an identical environment.

The log is a private file with one JSON line per result; push, fetch and bundles do not transfer it. It has
the last result of each content, and the commands as they were typed or configured here: only these are ever
run again, because notes can come from other machines. Losing the log loses no result.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

from git_envhist.disk import (
    Durability,
    append_line,
    cannot_write,
    remove_if_present,
    replace_file,
    state_directory,
)
from git_envhist.git.process import Git
from git_envhist.lazy import dataclass, replace
from git_envhist.model import NoteRecord, SnapshotId, Verdict, VerdictStatus
from git_envhist.platform import open_file_only
from git_envhist.probes import PACKAGES, PROBES, SERVICES
from git_envhist.probes.base import FileProbe
from git_envhist.snapshots import layout
from git_envhist.snapshots.fact_text import SUFFIX
from git_envhist.snapshots.note_records import verdict_record
from git_envhist.snapshots.stored_names import RESERVED

FILE = "checks"
MAX_SIZE = 1 << 20
MAX_LINE = 64 << 10


@dataclass(frozen=True, slots=True)
class LoggedVerdict:
    """A check result with its snapshot and the command as it was typed."""

    snapshot: SnapshotId
    content: str
    facts: str
    typed: str
    verdict: Verdict
    services: str = ""
    """Digest of the service states in the snapshot; empty if it has none."""


class VerdictLog:
    """The log of one repository, shared by its working trees."""

    def __init__(self, common_state: str) -> None:
        self._directory = common_state
        self._path = os.path.join(common_state, FILE)

    def add(self, line: LoggedVerdict) -> None:
        """Append a line. Raise OSError if it cannot be written."""
        text = _format(line)
        if len(text) > MAX_LINE:
            return
        state_directory(self._directory)
        self._shorten()
        append_line(self._path, text.removesuffix(b"\n"), durability=Durability.NONE)

    def known(self, content: str, facts: str) -> LoggedVerdict | None:
        """Return the newest line with this content and these facts, or None. Errors do not count as results."""
        return next(
            (
                line
                for line in self._newest_first()
                if (line.content, line.facts) == (content, facts)
                and line.verdict.status is not VerdictStatus.ERROR
            ),
            None,
        )

    def typed(self, rows: str) -> str | None:
        """Return the command as typed on this machine, found by its masked form in a note."""
        return next((line.typed for line in self._newest_first() if line.verdict.command == rows), None)

    def rewrite(self, digest: Callable[[str], str]) -> None:
        """Replace the content digest of every line and sync the log; remove lines that cannot be parsed."""
        try:
            remove_if_present(self._path + ".new")
            lines = list(self._newest_first())[::-1]
            if not lines:
                return
            # The digest of service states depends on the key, so it cannot be kept.
            rows = [_format(replace(line, content=digest(line.content), services="")) for line in lines]
            replace_file(self._path, b"".join(rows), durability=Durability.FULL)
        except OSError as error:
            raise cannot_write(error, self._path) from error

    def _newest_first(self) -> Iterator[LoggedVerdict]:
        try:
            with open(self._path, "rb", opener=open_file_only) as file:
                lines = file.read(2 * MAX_SIZE).split(b"\n")
        except OSError:
            return
        for text in reversed(lines):
            line = _read(text)
            if line is not None:
                yield line

    def _shorten(self) -> None:
        """Remove the older half of a long log."""
        try:
            if os.stat(self._path).st_size < MAX_SIZE:
                return
        except OSError:
            return
        with open(self._path, "rb", opener=open_file_only) as file:
            lines = file.read().splitlines(keepends=True)
        replace_file(self._path, b"".join(lines[len(lines) // 2 :]), durability=Durability.NONE)


def _format(line: LoggedVerdict) -> bytes:
    return json.dumps(_fields(line)).encode("ascii") + b"\n"


def _fields(line: LoggedVerdict) -> dict[str, Any]:
    verdict = line.verdict
    return {
        "snapshot": line.snapshot,
        "content": line.content,
        "facts": line.facts,
        "services": line.services,
        "typed": line.typed,
        "command": verdict.command,
        "status": verdict.status.value,
        "at": verdict.at.isoformat(),
        "exit_code": verdict.exit_code,
        "signal": verdict.signal,
        "duration_ms": verdict.duration_ms,
    }


def _read(text: bytes) -> LoggedVerdict | None:
    """Return the parsed line; None if it is truncated or has an unknown form."""
    try:
        fields = json.loads(text)
        verdict = Verdict(
            status=VerdictStatus(fields["status"]),
            command=fields["command"],
            at=datetime.fromisoformat(fields["at"]),
            exit_code=fields["exit_code"],
            signal=fields["signal"],
            duration_ms=fields["duration_ms"],
        )
        return LoggedVerdict(
            snapshot=fields["snapshot"],
            content=fields["content"],
            facts=fields["facts"],
            typed=fields["typed"],
            verdict=verdict,
            services=fields.get("services") or "",
        )
    except (ValueError, KeyError, TypeError):
        return None


# A result applies to a new snapshot if everything that a check depends on is equal: the files
# (`Env-Content`), the packages of the machine, and the running services, as far as the snapshot has facts
# about them.

FACTS = layout.FACTS + b"/"
DUMP = b"dump"
DIFFER, UNKNOWN = "differ", "unknown"


def circumstances(facts: Iterable[tuple[bytes, str]]) -> str:
    """Return a digest of the facts that a check depends on, from (probe, blob id) pairs."""
    rows = sorted(fact for fact in facts if _counts(fact[0]))
    if not rows:
        return ""
    return hashlib.sha256(b"\0".join(b"%s %s" % (name, oid.encode()) for name, oid in rows)).hexdigest()


def _counts(name: bytes) -> bool:
    probe = PROBES.get(name.decode("utf-8", "replace"))
    return probe is not None and not isinstance(probe, FileProbe) and probe.kind in (PACKAGES, SERVICES)


def read_environment_digests(git: Git, tree: str) -> tuple[str, str]:
    """Return the digests of circumstances and service states of a stored snapshot."""
    path = RESERVED + b"/" + FACTS
    listed = git.run("ls-tree", "-r", "-z", "--full-tree", tree, path).split(b"\0")
    rows = (line.partition(b"\t") for line in listed if line)
    facts = [(name[len(path) :], head.split()[2].decode("ascii")) for head, _, name in rows]
    return circumstances(facts), service_states(facts)


def service_states(facts: Iterable[tuple[bytes, str]]) -> str:
    """Return a digest of the service states in a snapshot; empty if it has none."""
    rows = sorted(fact for fact in facts if fact[0].removesuffix(SUFFIX.encode("ascii")) == DUMP)
    return hashlib.sha256(repr(rows).encode("ascii")).hexdigest() if rows else ""


def known_verdict(line: LoggedVerdict, content: str, services: str = "") -> Verdict | None:
    """Return the result of an identical environment for another snapshot; None if it was an error.

    `services` is the digest of the current service states; the result records whether it differs.
    """
    if line.verdict.status is VerdictStatus.ERROR:
        return None
    differ = None if line.services == services else DIFFER if services and line.services else UNKNOWN
    return replace(
        line.verdict,
        tree_before=content,
        tree_after=content,
        carried_from=line.snapshot,
        services=differ,
    )


def carried_record(common_state: str, content: str, facts: str, services: str = "") -> NoteRecord | None:
    """Return the note with a reused result for the snapshot being captured, or None."""
    line = VerdictLog(common_state).known(content, facts)
    verdict = known_verdict(line, content, services) if line is not None else None
    return verdict_record(verdict) if verdict is not None else None
