"""What was checked on this machine: a private list, a line each, that no push, clone or bundle carries.

It knows the last verdict of each content, so that an equal environment can be told to be known, and the commands as
they were typed or configured here. A command is only ever run again if it stands here: notes may come from anywhere.
To lose it costs no verdict.
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
from git_envhist.snapshots.names import RESERVED
from git_envhist.snapshots.records import SUFFIX, verdict_record

FILE = "checks"
MAX_SIZE = 1 << 20
MAX_LINE = 64 << 10


@dataclass(frozen=True, slots=True)
class LoggedVerdict:
    """One verdict: of what, where it was reached, and the command as it was typed."""

    snapshot: SnapshotId
    content: str
    facts: str
    typed: str
    verdict: Verdict
    services: str = ""
    """The states of services that the snapshot held, as one word; empty where it held none."""


class VerdictLog:
    """The list of one repository, shared by its working trees."""

    def __init__(self, common_state: str) -> None:
        self._directory = common_state
        self._path = os.path.join(common_state, FILE)

    def add(self, line: LoggedVerdict) -> None:
        """Put a line at the end; `OSError` where it cannot be kept."""
        text = _text(line)
        if len(text) > MAX_LINE:
            return
        state_directory(self._directory)
        self._shorten()
        append_line(self._path, text.removesuffix(b"\n"), durability=Durability.NONE)

    def known(self, content: str, facts: str) -> LoggedVerdict | None:
        """Return the last line on this content, where everything else agrees too; an error is no verdict on it."""
        return next(
            (
                line
                for line in self._newest_first()
                if (line.content, line.facts) == (content, facts)
                and line.verdict.status is not VerdictStatus.ERROR
            ),
            None,
        )

    def typed(self, told: str) -> str | None:
        """The command, as it was typed here, that notes tell in these words."""
        return next((line.typed for line in self._newest_first() if line.verdict.command == told), None)

    def rewrite(self, digest: Callable[[str], str]) -> None:
        """Have every line say another content, durable; what is no line of ours goes."""
        try:
            remove_if_present(self._path + ".new")
            lines = list(self._newest_first())[::-1]
            if not lines:
                return
            # The states of services are known by sealed texts, which another key seals otherwise.
            told = [_text(replace(line, content=digest(line.content), services="")) for line in lines]
            replace_file(self._path, b"".join(told), durability=Durability.FULL)
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
        """Let the older half go where the list has become long."""
        try:
            if os.stat(self._path).st_size < MAX_SIZE:
                return
        except OSError:
            return
        with open(self._path, "rb", opener=open_file_only) as file:
            lines = file.read().splitlines(keepends=True)
        replace_file(self._path, b"".join(lines[len(lines) // 2 :]), durability=Durability.NONE)


def _text(line: LoggedVerdict) -> bytes:
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
    """The line that a text holds; None where it was cut short, or another version wrote it."""
    try:
        fields = json.loads(text)
        verdict = Verdict(
            VerdictStatus(fields["status"]),
            fields["command"],
            datetime.fromisoformat(fields["at"]),
            fields["exit_code"],
            fields["signal"],
            fields["duration_ms"],
        )
        return LoggedVerdict(
            fields["snapshot"],
            fields["content"],
            fields["facts"],
            fields["typed"],
            verdict,
            fields.get("services") or "",
        )
    except (ValueError, KeyError, TypeError):
        return None


# An environment that is captured again is known already: its verdict is shown with the moment it was reached at.
#
# That holds as long as all that a check depends on agrees: what the files are (`Env-Content`), which packages the
# machine had, and which services ran at which ports, as far as the snapshot has facts of them.

FACTS = layout.FACTS + b"/"
DUMP = b"dump"
DIFFER, UNKNOWN = "differ", "unknown"


def circumstances(facts: Iterable[tuple[bytes, str]]) -> str:
    """What a verdict depends on beside the content, as one word: (probe, hash of its facts) of a snapshot."""
    told = sorted(fact for fact in facts if _counts(fact[0]))
    if not told:
        return ""
    return hashlib.sha256(b"\0".join(b"%s %s" % (name, oid.encode()) for name, oid in told)).hexdigest()


def _counts(name: bytes) -> bool:
    probe = PROBES.get(name.decode("utf-8", "replace"))
    return probe is not None and not isinstance(probe, FileProbe) and probe.kind in (PACKAGES, SERVICES)


def circumstances_of(git: Git, tree: str) -> tuple[str, str]:
    """Return the circumstances and the states of services of a stored snapshot."""
    path = RESERVED + b"/" + FACTS
    listed = git.run("ls-tree", "-r", "-z", "--full-tree", tree, path).split(b"\0")
    rows = (line.partition(b"\t") for line in listed if line)
    facts = [(name[len(path) :], head.split()[2].decode("ascii")) for head, _, name in rows]
    return circumstances(facts), service_states(facts)


def service_states(facts: Iterable[tuple[bytes, str]]) -> str:
    """Return the states of services in a snapshot as one word, empty where it holds none."""
    told = sorted(fact for fact in facts if fact[0].removesuffix(SUFFIX.encode("ascii")) == DUMP)
    return hashlib.sha256(repr(told).encode("ascii")).hexdigest() if told else ""


def known_verdict(line: LoggedVerdict, content: str, services: str = "") -> Verdict | None:
    """Return the verdict of an equal environment for another snapshot of it; None for an error.

    `services`: the states of services now; the verdict says where they differ from those that were checked.
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
    """Return the verdict to note on a snapshot that is taken now, where its environment is known."""
    line = VerdictLog(common_state).known(content, facts)
    verdict = known_verdict(line, content, services) if line is not None else None
    return verdict_record(verdict) if verdict is not None else None
