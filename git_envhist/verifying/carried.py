"""An environment that is captured again is known already: its verdict is shown with the moment it was reached at.

That holds as long as all that a check depends on agrees: what the files are (`Env-Content`), which packages the machine
had, and which services ran at which ports, as far as the snapshot has facts of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from git_envhist.facts import PACKAGES, PROBES, SERVICES
from git_envhist.facts.probe import FileProbe
from git_envhist.model import NoteRecord, Verdict, VerdictStatus
from git_envhist.store import layout
from git_envhist.store.facts import SUFFIX
from git_envhist.store.git import Git
from git_envhist.store.records import verdict_record
from git_envhist.values import replace
from git_envhist.verifying.ledger import LoggedVerdict, VerdictLog

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
    path = layout.RESERVED + b"/" + FACTS
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
