"""Verify a fetched timeline against its signed head before it replaces the known state.

A server can send an older state (a rollback), leave out snapshots, reorder them, or drop the result of a failed
check. It cannot sign. A head that one of our keys or an allowed SSH signer signed must match what arrived; and a
timeline whose head was verified once must always have one from then on, with at least the same number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum

from git_envhist.errors import Damaged
from git_envhist.git.process import Git
from git_envhist.lazy import dataclass
from git_envhist.remote.sign_heads import state_of_notes
from git_envhist.secrets.keys import SigningKey
from git_envhist.secrets.ssh_signatures import SshSettings, ssh_signer
from git_envhist.snapshots.fetched_store import FetchedStore
from git_envhist.snapshots.heads import NAMESPACE, Head, is_signed_by
from git_envhist.snapshots.note_records import VERDICT, parse_records
from git_envhist.snapshots.notes import read_all_notes
from git_envhist.snapshots.seen_heads import (
    BY_KEY,
    BY_SSH,
    SeenHead,
    digest_of,
    read_seen_heads,
    write_seen_heads,
)

MAX_STATES = 200
"""Number of commits of the notes that are searched for the signed state."""

FindKey = Callable[[str], SigningKey | None]


def no_key(key_id: str) -> SigningKey | None:
    """Return no key, for callers without a key ring."""
    return None


class HeadState(Enum):
    """Whether a fetched timeline matches its signed head."""

    SIGNED = "signed"
    LATER = "later"
    """Signed, with later additions."""
    UNKNOWN = "unknown-key"
    """Signed with a key that is not stored here."""
    NONE = "none"
    """No signed head: a history of an earlier version, or one pushed by plain git."""
    ALTERED = "altered"
    """Does not match its signed head, but was accepted."""


class HeadMismatch(Damaged):
    """The fetched timeline does not match its signed head."""

    code = "altered"
    usual_hint = (
        "ask the owner of the timeline; git envlog fetch --accept-rollback accepts the server's state"
    )


class RolledBack(HeadMismatch):
    """The server has an older state than before."""

    code = "rolled-back"


@dataclass(frozen=True, slots=True)
class HeadCheck:
    """The result of a check."""

    state: HeadState
    seen: SeenHead | None = None
    """The head to record as seen."""


@dataclass(frozen=True, slots=True)
class HeadChecker:
    """The allowed signers, and the repository with the fetched objects."""

    git: Git
    object_format: str
    find_key: FindKey
    ssh: SshSettings
    environ: Mapping[str, str]

    def check(self, name: str, tip: str, notes: str | None, seen: SeenHead | None) -> HeadCheck:
        """Check a timeline; raises `RolledBack` or `HeadMismatch` if it does not match its signed head."""
        now, head = state_of_notes(self.git, notes, self.object_format)
        if head is None:
            if seen is not None:
                raise RolledBack(f"it has no signed head, but had one before (number {seen.number})")
            return HeadCheck(HeadState.NONE)
        signer = self._signer(head)
        if signer is None:
            if seen is not None:
                raise HeadMismatch(
                    f"its head was signed by '{seen.signer}' before, and now by an unknown key"
                )
            return HeadCheck(HeadState.UNKNOWN)
        if head.timeline != name:
            raise HeadMismatch(f"its head was signed for another timeline: '{head.timeline}'")
        if seen is not None and head.number < seen.number:
            raise RolledBack(
                f"the server sent number {head.number}, but number {seen.number} was seen before"
            )
        if seen is not None and head.number == seen.number and digest_of(head) != seen.digest:
            raise HeadMismatch(f"two different heads have the number {head.number}")
        is_later = self._is_later(head, tip) | self._has_later_notes(head, now, notes)
        return HeadCheck(HeadState.LATER if is_later else HeadState.SIGNED, SeenHead.of(head, *signer))

    def _signer(self, head: Head) -> tuple[str, str] | None:
        if head.ssh is not None:
            text = head.text.encode("ascii")
            principal = ssh_signer(text, head.ssh, NAMESPACE, self.ssh, self.environ)
            if principal is not None:
                return BY_SSH, principal
        key = self.find_key(head.key) if head.key is not None else None
        return (BY_KEY, key.id) if key is not None and is_signed_by(head, key) else None

    def _is_later(self, head: Head, tip: str) -> bool:
        if head.tip == tip:
            return False
        if self.git.ask("merge-base", "--is-ancestor", head.tip, tip).status == 0:
            return True
        raise RolledBack("snapshots that its head covers are missing or in another order")

    def _has_later_notes(self, head: Head, now: str, notes: str | None) -> bool:
        if head.notes == now:
            return False
        signed = notes and self._signed_state(head, notes)
        if not signed or notes is None:
            raise HeadMismatch("its check results, names and notes are not those that its head covers")
        arrived = set(self._records(notes))
        missing = [kind for kind, *_ in (one for one in self._records(signed) if one not in arrived)]
        if missing:
            verdicts = sum(kind == VERDICT for kind in missing)
            raise HeadMismatch(
                f"{len(missing)} of its signed records are missing, among them {verdicts} check results"
            )
        return True

    def _signed_state(self, head: Head, notes: str) -> str | None:
        """Return the commit of the notes with the state that the head covers."""
        listed = self.git.run("rev-list", "--first-parent", f"--max-count={MAX_STATES}", notes).decode(
            "ascii"
        )
        for commit in listed.split():
            if state_of_notes(self.git, commit, self.object_format)[0] == head.notes:
                return commit
        return None

    def _records(self, notes: str) -> Iterator[tuple[str, str, str]]:
        for commit, text in read_all_notes(self.git, notes).items():
            for record in parse_records(text):
                fields = sorted(record.fields.items(), key=repr)
                yield record.kind, commit, repr((record.at, fields))


class CheckedHeads:
    """The checks of one fetch: refused timelines, states of the others, and heads to record."""

    def __init__(self, fetched: FetchedStore, remote: str, checker: HeadChecker, *, accept: bool) -> None:
        self._path = fetched.path
        self._remote = remote
        self._checker = checker
        self._accept = accept
        self._seen = read_seen_heads(self._path)
        self._states: dict[str, HeadState] = {}
        self.refused: dict[str, str] = {}
        """Refused timelines, each with the reason."""

    @property
    def states(self) -> tuple[tuple[str, str], ...]:
        """The (timeline, state) of every checked timeline."""
        return tuple((f"{self._remote}/{name}", state.value) for name, state in sorted(self._states.items()))

    def check(self, names: Iterable[str], heads: Mapping[str, str], notes: Mapping[str, str]) -> None:
        """Check each named timeline that has a head; record its state, or why it is refused."""
        for name in sorted(names):
            if name in heads:
                self._check(name, heads[name], notes.get(name))

    def _check(self, name: str, tip: str, notes: str | None) -> None:
        name_here = f"{self._remote}/{name}"
        try:
            found = self._checker.check(name, tip, notes, self._seen.get(name_here))
        except HeadMismatch as altered:
            if not self._accept:
                self.refused[name] = f"{altered.message}; {altered.hint}"
                return
            self._seen.pop(name_here, None)
            found = self._as_new(name, tip, notes)
        self.refused.pop(name, None)
        self._states[name] = found.state
        if found.seen is not None:
            self._seen[name_here] = found.seen

    def _as_new(self, name: str, tip: str, notes: str | None) -> HeadCheck:
        try:
            return self._checker.check(name, tip, notes, None)
        except HeadMismatch:
            return HeadCheck(HeadState.ALTERED)

    def save(self) -> None:
        """Record the verified heads, so that no server can send an older state from now on."""
        if self._states:
            write_seen_heads(self._path, self._seen)
