"""A push from what stands at both sides to the refs that move there: planned whole before anything is sent.

Objects first, refs last; what is too much for one pack goes in parts. Broken off anywhere, the other side has the
timelines as they were, and the next push goes on from what has arrived.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from git_envhist.disk import locked, state_directory
from git_envhist.errors import Refused, SnapshotNotFound, UsageError
from git_envhist.git.process import Git, GitResult
from git_envhist.git.repository import Repository
from git_envhist.history.resolve import BEGIN, NOTHING_HERE
from git_envhist.lazy import dataclass, replace
from git_envhist.model.storage import (
    FoundToken,
    PushOutcome,
    PushResult,
    RefPush,
    Remote,
    TimelinePush,
    without_password,
)
from git_envhist.remote.errors import NOT_TOGETHER, RemoteFailed, why_it_failed
from git_envhist.remote.remotes import (
    CODE_REFS,
    NOTES,
    OUR_REFS,
    REMOTEREFS_HEADS,
    LocalTimeline,
    RemoteRefs,
    TransferLimits,
    Transport,
    find_remote,
    key_of,
    plan_deletion,
    plan_push,
    questions,
    read_limits,
    read_there,
    update_order,
)
from git_envhist.remote.sign import Signing, sign_heads
from git_envhist.remote.upload import (
    OutgoingObject,
    Parts,
    RemoteState,
    directory_of,
    divide,
    is_allowed,
    kinds_in,
    objects_to_send,
    read_memory,
    scan_outgoing,
    shown_kind,
    shown_place,
    too_large,
    with_put,
    with_tried,
    write_grafts,
    write_memory,
)

# Choose the timelines of a push by names and patterns.


def chosen(names: Iterable[str], words: Sequence[str], own: str | None) -> list[str]:
    """The timelines that are meant: names, or patterns such as `laptop/*`; none: this working tree's own."""
    known = sorted(names)
    if not words:
        if own is None or own not in known:
            raise SnapshotNotFound("@", hint=BEGIN, message=NOTHING_HERE)
        return [own]
    found: dict[str, None] = {}
    for word in words:
        matched = fnmatch.filter(known, word)
        if not matched:
            raise SnapshotNotFound(
                word, hint="'git envlog --all' tells the timelines; first the remote is named"
            )
        found.update(dict.fromkeys(matched))
    return list(found)


# What a push comes to, and why one is refused before anything is sent.

LISTED = 10
WORDS = re.compile(r"(?:message|note) [0-9a-f]{7}")
"""How a message and a note are named among what would leave."""


class FirstPush(Refused):
    """What leaves for a new place is told first."""

    code = "first-push"

    def __init__(self, planned: PushResult, typed: Sequence[str] = ()) -> None:
        """`typed`: the words that said where to, and what."""
        remote = planned.remote
        super().__init__(
            f"the first push to '{remote.name}' ({remote.shown}): nothing was sent",
            hint=f"if all of this may leave: {shlex.join(['git', 'envlog', 'push', '--yes', *typed])}",
        )
        self.planned = planned


class NotAgreed(Refused):
    """Something new would leave for a place where other things may."""

    code = "not-agreed"

    def __init__(self, planned: PushResult, typed: Sequence[str] = ()) -> None:
        """`typed`: the words that said where to, and what."""
        remote = planned.remote
        super().__init__(
            f"new since the last agreed push to '{remote.name}', nothing was sent: {first_few(planned.new)}",
            hint=f"if all of this may leave: {shlex.join(['git', 'envlog', 'push', '--yes', *typed])}\n"
            "leave it out of the next captures: .envhistignore; seal it: git config --add envhist.secret '<path>'",
        )
        self.planned = planned


class Diverged(Refused):
    """Other moments stand there under the same name."""

    code = "diverged"

    def __init__(self, timeline: str, remote: Remote) -> None:
        super().__init__(
            f"'{remote.name}' has other moments of '{timeline}': nothing was sent, both are kept",
            hint=f"see them: git envlog fetch {remote.name}, git envlog {remote.name}/{timeline}\n"
            f"go on under another name: git config envhist.timeline {timeline}-2\n"
            f"let theirs go: git envlog push {remote.name} --delete {timeline}",
        )


class TokensFound(Refused):
    """Tokens would leave in the clear."""

    code = "holds-tokens"

    def __init__(self, tokens: Sequence[FoundToken], done: str = "sent") -> None:
        paths = sorted({os.fsdecode(token.path) for token in tokens})
        told = first_few([_told(token) for token in tokens])
        in_words = [path for path in paths if WORDS.fullmatch(path)]
        if in_words == paths:
            super().__init__(
                f"tokens would leave in the clear, nothing was {done}: {told}",
                hint=f"forget a moment: git envlog drop <id>\nlet it leave all the same: --allow '{paths[0]}'",
            )
            return
        paths = [path for path in paths if path not in in_words]
        super().__init__(
            f"tokens would leave in the clear, nothing was {done}: {told}",
            hint=f"seal it from the next capture on: git config --add envhist.secret '{paths[0]}'\n"
            f"erase what was captured: git envlog purge '{paths[0]}'; leave it out: .envhistignore\n"
            f"let it leave all the same: --allow '{paths[0]}'",
        )


class TooLarge(Refused):
    """Objects that hosts do not take."""

    code = "too-large"

    def __init__(self, found: Sequence[OutgoingObject], largest: int) -> None:
        paths = [os.fsdecode(shown_place(one)) for one in found]
        told = first_few([f"'{path}' ({one.size:,} bytes)" for path, one in zip(paths, found, strict=True)])
        super().__init__(
            f"more than hosts take in one object ({largest:,} bytes), nothing was sent: {told}",
            hint=f"send it all the same: --allow '{paths[0]}'; for good: git config envhist.largestObject 2g",
        )


def _told(token: FoundToken) -> str:
    return f"'{os.fsdecode(token.path)}' ({token.kind.replace('`', '')})"


def first_few(told: Sequence[str]) -> str:
    """The first of many, in one line."""
    more = f" and {len(told) - LISTED} more" if len(told) > LISTED else ""
    return ", ".join(told[:LISTED]) + more


def rejected(remote: Remote, lines: Sequence[str], failed: RemoteFailed) -> RemoteFailed:
    """What it means that the other side did not take some refs: `lines` of git, and what else it said."""
    # Of refs that move together or not at all, one was refused, and the others because of it.
    lines = [line for line in lines if "atomic" not in line] or lines
    refs = [line.split("\t")[1].partition(":")[2] for line in lines if line.count("\t") >= 2]
    why = lines[0].split("\t")[-1]
    hint = (
        "it moved there meanwhile: push again" if "stale info" in why or "fetch first" in why else failed.hint
    )
    return RemoteFailed(
        f"'{remote.name}' ({remote.shown}) does not take '{refs[0] if refs else ''}': {why}", hint=hint
    )


AS_THEY_ARE = ("-c", "pack.window=0")
"""Of a part, whose blobs have no names, git would look for likenesses in gigabytes, and find none."""
AT_ONCE = 100
"""So many timelines, each with its notes, in one command: its words have to fit."""


@dataclass(frozen=True, slots=True)
class PushOptions:
    """What is asked of a push."""

    remote: str | None = None
    timelines: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    allow: tuple[bytes, ...] = ()
    """Paths that may leave though a token or too much stands there."""
    agreed: bool = False
    dry_run: bool = False
    most: int | None = None
    """So many bytes at once; None: as it is configured."""

    @property
    def typed(self) -> list[str]:
        """The words that say where to, and what."""
        words = [word for path in self.allow for word in ("--allow", os.fsdecode(path))]
        return [*words, *([self.remote] if self.remote is not None else []), *self.timelines]


def push(
    repository: Repository,
    environ: Mapping[str, str],
    directory: str,
    own: str | None,
    wish: PushOptions,
    waiting: Callable[[], None] | None = None,
    step: Callable[[str], None] | None = None,
    signing: Signing | None = None,
) -> PushResult:
    """Send timelines with their notes, or take them away there; `own`: this working tree's; `signing`: signs heads."""
    _refuse_both(wish)
    remote = find_remote(repository, wish.remote, directory)
    place = state_directory(directory_of(repository.common_state))
    with locked(os.path.join(place, "lock"), waiting=waiting):
        limits = read_limits(repository.read_config())
        transport = Transport(
            repository.git, remote, environ, patience=limits.push_timeout, verb="push", step=step
        )
        return _Push(repository, transport, limits, wish, own, signing).run()


class _Push:
    def __init__(
        self,
        repository: Repository,
        transport: Transport,
        limits: TransferLimits,
        wish: PushOptions,
        own: str | None,
        signing: Signing | None,
    ) -> None:
        self._signing = signing
        self._unsigned: list[str] = []
        self._repository = repository
        self._limits = limits
        self._transport = transport
        self._remote = transport.remote
        self._wish = wish
        self._own = own
        self._state = repository.common_state
        self._key = key_of(transport.remote)
        self._memory = read_memory(self._state, self._key)

    def run(self) -> PushResult:
        there = read_there(self._transport.list_refs(*OUR_REFS, CODE_REFS, pushed=True))
        parts = self._parts()
        timelines, leaving, planned, problems = self._all(there, parts)
        if self._wish.dry_run:
            return planned
        for problem in problems:
            raise problem
        if planned.first and not self._wish.agreed and leaving:
            raise FirstPush(planned, self._wish.typed)
        if planned.new and not self._wish.agreed:
            raise NotAgreed(planned, self._wish.typed)
        if self._sign():
            timelines, leaving, planned, _ = self._all(there, parts)
        moves = [move for one in timelines for move in one.moves]
        # Who was broken off at the very end left nothing to do but to clear away what it had sent before.
        if moves or parts.left_there(there.uploads):
            self._send(timelines, leaving, there, parts, kinds_in(planned.scan))
        return planned

    def _all(
        self, there: RemoteRefs, parts: Parts
    ) -> tuple[tuple[TimelinePush, ...], list[OutgoingObject], PushResult, list[Refused]]:
        """What moves, what leaves with it, how that is told, and why it may not leave."""
        timelines = self._plan(there)
        leaving = self._leaving([move for one in timelines for move in one.moves], there, parts)
        return timelines, leaving, *self._look(timelines, leaving)

    def _sign(self) -> bool:
        """Sign the heads of what is sent, once nothing refuses it; whether there may be more to send then."""
        if self._signing is None or self._wish.delete:
            return False
        names = [one.timeline for one in self._here()]
        before = self._repository.list_refs(NOTES)
        self._unsigned = sign_heads(self._repository, names, self._signing)
        return bool(self._unsigned) or self._repository.list_refs(NOTES) != before

    def _plan(self, there: RemoteRefs) -> tuple[TimelinePush, ...]:
        if self._wish.delete:
            self._refuse_unknown(there)
            return plan_deletion(self._wish.delete, there)
        here = self._here()
        git = self._repository.git
        grows = {pair: _leads_on(git, *pair) for pair in questions(here, there)}
        return plan_push(here, there, self._ours(there), grows)

    def _refuse_unknown(self, there: RemoteRefs) -> None:
        for name in self._wish.delete:
            if name not in there.heads and name not in there.notes:
                known = first_few(sorted(there.heads)) or "no timeline"
                raise SnapshotNotFound(name, hint=f"'{self._remote.name}' holds {known}")

    def _ours(self, there: RemoteRefs) -> dict[str, str]:
        """What stands there and was put there by us."""
        standing = {REMOTEREFS_HEADS + name: oid for name, oid in there.heads.items()}
        standing |= {NOTES + name: oid for name, oid in there.notes.items()}
        return {ref: oid for ref, oid in self._memory.put if standing.get(ref) == oid}

    def _here(self) -> list[LocalTimeline]:
        heads, notes = self._repository.list_refs(REMOTEREFS_HEADS), self._repository.list_refs(NOTES)
        names = chosen([ref.removeprefix(REMOTEREFS_HEADS) for ref in heads], self._wish.timelines, self._own)
        return [
            LocalTimeline(name, heads[REMOTEREFS_HEADS + name], notes.get(NOTES + name)) for name in names
        ]

    def _parts(self) -> Parts:
        if not self._memory.upload:
            self._memory = replace(self._memory, upload=os.urandom(6).hex())
        place = os.path.join(directory_of(self._state), f"{self._key}.upload")
        return Parts(self._repository.git, place, self._repository.objects_dir, self._memory.upload)

    def _leaving(self, moves: Sequence[RefPush], there: RemoteRefs, parts: Parts) -> list[OutgoingObject]:
        heads = [move.new for move in moves if move.new is not None and move.ref.startswith(REMOTEREFS_HEADS)]
        notes = [move.new for move in moves if move.new is not None and move.ref.startswith(NOTES)]
        grafts = self._grafts(moves, there, parts, parts.left_there(there.uploads).values())
        return objects_to_send(parts.git, heads, notes, there.all, grafts)

    def _grafts(
        self, moves: Iterable[RefPush], there: RemoteRefs, parts: Parts, arrived: Iterable[str]
    ) -> Mapping[bytes, bytes]:
        chains = [(move.new, move.old) for move in moves if move.new is not None]
        bases = [*arrived, *there.code, *there.heads.values()]
        return write_grafts(parts.git, os.path.join(directory_of(self._state), "grafts"), chains, bases)

    def _look(
        self, timelines: tuple[TimelinePush, ...], leaving: list[OutgoingObject]
    ) -> tuple[PushResult, list[Refused]]:
        largest = self._limits.largest_object
        look = scan_outgoing(self._repository.git, leaving, largest)
        stored = sum(one.stored for one in leaving)
        parts = len(self._divided(leaving))
        problems: list[Refused] = [
            Diverged(one.timeline, self._remote) for one in timelines if one.outcome is PushOutcome.DIVERGED
        ]
        allow = self._wish.allow
        large = [one for one in too_large(leaving, largest) if not is_allowed(shown_place(one), allow)]
        problems += [TooLarge(large, largest)] if large else []
        tokens = [token for token in look.tokens if not is_allowed(token.path, allow)]
        problems += [TokensFound(tokens)] if tokens else []
        told = tuple(problem.message for problem in problems)
        first = not self._memory.agreed and not self._wish.delete
        new = tuple(kind for kind in kinds_in(look) if kind not in self._memory.kinds)
        warnings = (*self._limits.warnings, *self._unsigned)
        planned = PushResult(
            self._remote, timelines, len(leaving), stored, parts, look, first, told, warnings,
            tuple(map(shown_kind, new)),
        )  # fmt: skip
        return planned, problems

    def _divided(self, leaving: Sequence[OutgoingObject]) -> list[list[OutgoingObject]]:
        most = min(self._limits.upload_size, self._wish.most or self._limits.upload_size)
        if sum(one.stored for one in leaving) <= most:
            return []
        return list(divide(leaving, most))

    def _send(
        self,
        timelines: Iterable[TimelinePush],
        leaving: list[OutgoingObject],
        there: RemoteRefs,
        parts: Parts,
        kinds: tuple[str, ...],
    ) -> None:
        agreed = tuple(sorted({*self._memory.kinds, *kinds}))
        self._remember(replace(self._memory, agreed=True, kinds=agreed))
        arrived = parts.left_there(there.uploads)
        for part in self._divided(leaving):
            ref, commit = parts.make(part)
            self._move([RefPush(ref, arrived.get(ref), commit)], parts.environment, AS_THEY_ARE)
            arrived[ref] = commit
        moves = [one.moves for one in timelines]
        grafts = self._grafts(chain.from_iterable(moves), there, parts, arrived.values())
        seeing = {**parts.environment, **grafts}
        for start in range(0, len(moves), AT_ONCE):
            some = list(chain.from_iterable(moves[start : start + AT_ONCE]))
            if not some:
                continue
            new = {move.ref: move.new for move in some}
            self._remember(with_tried(self._memory, new))
            self._move_together(some, seeing)
            self._remember(with_put(self._memory, new))
        if arrived:
            self._move([RefPush(ref, oid, None) for ref, oid in sorted(arrived.items())], seeing)
        parts.forget()

    def _move_together(self, moves: Sequence[RefPush], seeing: Mapping[bytes, bytes]) -> None:
        """Timelines and their notes: all of them, or none; where a server cannot do that, what counts is last."""
        done = self._push(moves, seeing, together=True) if len(moves) > 1 else None
        if done is not None and NOT_TOGETHER not in done.err:
            self._judge(done)
            return
        for turn in update_order(moves):
            self._move(turn, seeing)

    def _move(
        self, moves: Sequence[RefPush], seeing: Mapping[bytes, bytes], before: Sequence[str] = ()
    ) -> None:
        self._judge(self._push(moves, seeing, before))

    def _push(
        self,
        moves: Sequence[RefPush],
        seeing: Mapping[bytes, bytes],
        before: Sequence[str] = (),
        *,
        together: bool = False,
    ) -> GitResult:
        leases = {move.ref: move.old or "" for move in moves}
        refspecs = [move.refspec for move in moves]
        return self._transport.push(refspecs, leases, seeing, before, together=together)

    def _judge(self, done: GitResult) -> None:
        refusals = [line for line in done.out.decode("utf-8", "replace").splitlines() if line.startswith("!")]
        if refusals:
            raise rejected(self._remote, refusals, why_it_failed(self._remote, done))
        if done.status != 0:
            raise why_it_failed(self._remote, done)

    def _remember(self, memory: RemoteState) -> None:
        self._memory = replace(memory, address=without_password(self._remote.push_url))
        write_memory(self._state, self._key, self._memory)


def _refuse_both(wish: PushOptions) -> None:
    """What goes is not what comes."""
    if wish.delete and wish.timelines:
        raise UsageError("--delete takes the timelines that it is for, and nothing else is pushed along")


def _leads_on(git: Git, old: str, new: str) -> bool:
    return git.ask("merge-base", "--is-ancestor", old, new).status == 0
