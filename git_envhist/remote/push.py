"""Push timelines: plan everything, refuse data that must not be sent, send objects first and move refs last.

An upload that is too large for one pack is sent in parts. If a push is interrupted, the timelines of the remote are
unchanged, and the next push sends only the missing objects.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from git_envhist.disk import state_directory
from git_envhist.errors import Refused, SnapshotNotFound, UsageError
from git_envhist.git.process import Git, GitResult
from git_envhist.git.repository import Repository
from git_envhist.history.resolve import BEGIN, NOTHING_HERE
from git_envhist.lazy import dataclass, replace
from git_envhist.locks import locked
from git_envhist.model.sharing import (
    FoundToken,
    PushOutcome,
    PushResult,
    RefPush,
    Remote,
    TimelinePush,
    without_password,
)
from git_envhist.remote.errors import NO_ATOMIC_PUSH, RemoteFailed, remote_error
from git_envhist.remote.push_plan import (
    HEADS_PREFIX,
    NOTES,
    LocalTimeline,
    RemoteRefs,
    ancestry_questions,
    plan_deletion,
    plan_push,
    read_remote_refs,
    update_order,
)
from git_envhist.remote.remotes import (
    CODE_REFS,
    OUR_REFS,
    TransferLimits,
    find_remote,
    read_limits,
    remote_key,
)
from git_envhist.remote.sign_heads import Signing, sign_heads
from git_envhist.remote.transport import Transport
from git_envhist.remote.upload import (
    OutgoingObject,
    Parts,
    RemoteState,
    after_push,
    before_push,
    consent_words,
    is_allowed,
    objects_to_send,
    place_text,
    read_remote_state,
    remotes_directory,
    scan_outgoing,
    shown_consent,
    split_into_parts,
    too_large,
    write_grafts,
    write_remote_state,
)

# Choose the timelines of a push by names and patterns.


def match_timelines(names: Iterable[str], words: Sequence[str], own: str | None) -> list[str]:
    """Return the timelines that names or patterns such as `laptop/*` match; without any, this working tree's own."""
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
                word, hint="'git envlog --all' lists the timelines; the remote is given first"
            )
        found.update(dict.fromkeys(matched))
    return list(found)


# Errors that refuse a push before anything is sent.

LISTED = 10
TEXT_PLACE = re.compile(r"(?:message|note) [0-9a-f]{7}")
"""Prefixes that mark messages and notes among the findings."""


class FirstPush(Refused):
    """The first push to a remote needs consent."""

    code = "first-push"

    def __init__(self, planned: PushResult, typed: Sequence[str] = ()) -> None:
        """`typed` are the arguments that named the remote and the timelines."""
        remote = planned.remote
        super().__init__(
            f"the first push to '{remote.name}' ({remote.shown}) needs your confirmation: nothing was sent",
            hint=f"to send all of this: {shlex.join(['git', 'envlog', 'push', '--yes', *typed])}",
        )
        self.planned = planned


class NotAgreed(Refused):
    """The push contains new databases, dumps, classes or names that the owner has not agreed to send."""

    code = "not-agreed"

    def __init__(self, planned: PushResult, typed: Sequence[str] = ()) -> None:
        """`typed` are the arguments that named the remote and the timelines."""
        remote = planned.remote
        super().__init__(
            f"new since the last agreed push to '{remote.name}', nothing was sent: {first_few(planned.new)}",
            hint=f"to send all of this: {shlex.join(['git', 'envlog', 'push', '--yes', *typed])}\n"
            "to exclude it from new captures: .envhistignore; to seal it: git config --add envhist.secret '<path>'",
        )
        self.planned = planned


class Diverged(Refused):
    """The remote has other snapshots under the same name."""

    code = "diverged"

    def __init__(self, timeline: str, remote: Remote) -> None:
        super().__init__(
            f"'{remote.name}' has other snapshots of '{timeline}': nothing was sent, both are kept",
            hint=f"to see them: git envlog fetch {remote.name}, git envlog {remote.name}/{timeline}\n"
            f"to continue under another name: git config envhist.timeline {timeline}-2\n"
            f"to delete the remote's: git envlog push {remote.name} --delete {timeline}",
        )


class TokensFound(Refused):
    """Tokens would be sent in plain text."""

    code = "holds-tokens"

    def __init__(self, tokens: Sequence[FoundToken], done: str = "sent") -> None:
        paths = sorted({os.fsdecode(token.path) for token in tokens})
        texts = first_few([_token_text(token) for token in tokens])
        in_texts = [path for path in paths if TEXT_PLACE.fullmatch(path)]
        if in_texts == paths:
            super().__init__(
                f"tokens would be sent in plain text, nothing was {done}: {texts}",
                hint=f"to drop a snapshot: git envlog drop <id>\nto send it anyway: --allow '{paths[0]}'",
            )
            return
        paths = [path for path in paths if path not in in_texts]
        super().__init__(
            f"tokens would be sent in plain text, nothing was {done}: {texts}",
            hint=f"to seal it from the next capture on: git config --add envhist.secret '{paths[0]}'\n"
            f"to erase the captured file: git envlog purge '{paths[0]}'; to exclude it: .envhistignore\n"
            f"to send it anyway: --allow '{paths[0]}'",
        )


class TooLarge(Refused):
    """Objects that are too large for common hosts."""

    code = "too-large"

    def __init__(self, found: Sequence[OutgoingObject], largest: int) -> None:
        paths = [os.fsdecode(place_text(one)) for one in found]
        texts = first_few([f"'{path}' ({one.size:,} bytes)" for path, one in zip(paths, found, strict=True)])
        super().__init__(
            f"larger than hosts accept ({largest:,} bytes), nothing was sent: {texts}",
            hint=f"to send it anyway: --allow '{paths[0]}'; to raise the limit: git config envhist.largestObject 2g",
        )


def _token_text(token: FoundToken) -> str:
    return f"'{os.fsdecode(token.path)}' ({token.kind.replace('`', '')})"


def first_few(texts: Sequence[str]) -> str:
    """Return the first items in one line, and the number of the others."""
    more = f" and {len(texts) - LISTED} more" if len(texts) > LISTED else ""
    return ", ".join(texts[:LISTED]) + more


def rejected(remote: Remote, lines: Sequence[str], failed: RemoteFailed) -> RemoteFailed:
    """Return the error for refs that the remote rejected, from git's lines about them."""
    # With an atomic push, git also lists the refs that were rejected only because another one was.
    lines = [line for line in lines if "atomic" not in line] or lines
    refs = [line.split("\t")[1].partition(":")[2] for line in lines if line.count("\t") >= 2]
    why = lines[0].split("\t")[-1]
    hint = (
        "it was changed there meanwhile: push again"
        if "stale info" in why or "fetch first" in why
        else failed.hint
    )
    return RemoteFailed(
        f"'{remote.name}' ({remote.shown}) rejects '{refs[0] if refs else ''}': {why}", hint=hint
    )


NO_DELTAS = ("-c", "pack.window=0")
"""The blobs of a part have no names, so git would search gigabytes for deltas and find none."""
MAX_TIMELINES = 100
"""Number of timelines per command, because the arguments have to fit on a command line."""


@dataclass(frozen=True, slots=True)
class PushOptions:
    """The options of a push."""

    remote: str | None = None
    timelines: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    allow: tuple[bytes, ...] = ()
    """Paths that may be sent although they contain a token or are too large."""
    agreed: bool = False
    dry_run: bool = False
    max_size: int | None = None
    """Maximum size of a part in bytes; None is the configured size."""

    @property
    def typed(self) -> list[str]:
        """The arguments that name the remote, the timelines and the allowed paths."""
        words = [word for path in self.allow for word in ("--allow", os.fsdecode(path))]
        return [*words, *([self.remote] if self.remote is not None else []), *self.timelines]


def push(
    repository: Repository,
    environ: Mapping[str, str],
    directory: str,
    own: str | None,
    options: PushOptions,
    waiting: Callable[[], None] | None = None,
    step: Callable[[str], None] | None = None,
    signing: Signing | None = None,
) -> PushResult:
    """Push timelines with their notes, or delete them on the remote; `own` is this working tree's timeline."""
    _refuse_mixed(options)
    remote = find_remote(repository, options.remote, directory)
    place = state_directory(remotes_directory(repository.common_state))
    with locked(os.path.join(place, "lock"), waiting=waiting):
        limits = read_limits(repository.read_config())
        transport = Transport(
            repository.git, remote, environ, timeout=limits.push_timeout, verb="push", step=step
        )
        return _Push(repository, transport, limits, options, own, signing).run()


class _Push:
    def __init__(
        self,
        repository: Repository,
        transport: Transport,
        limits: TransferLimits,
        options: PushOptions,
        own: str | None,
        signing: Signing | None,
    ) -> None:
        self._signing = signing
        self._unsigned: list[str] = []
        self._repository = repository
        self._limits = limits
        self._transport = transport
        self._remote = transport.remote
        self._options = options
        self._own = own
        self._state = repository.common_state
        self._key = remote_key(transport.remote)
        self._remote_state = read_remote_state(self._state, self._key)

    def run(self) -> PushResult:
        remote_refs = read_remote_refs(self._transport.list_refs(*OUR_REFS, CODE_REFS, pushed=True))
        parts = self._parts()
        timelines, objects, planned, problems = self._plan_all(remote_refs, parts)
        if self._options.dry_run:
            return planned
        for problem in problems:
            raise problem
        if planned.first and not self._options.agreed and objects:
            raise FirstPush(planned, self._options.typed)
        if planned.new and not self._options.agreed:
            raise NotAgreed(planned, self._options.typed)
        if self._sign():
            timelines, objects, planned, _ = self._plan_all(remote_refs, parts)
        moves = [move for one in timelines for move in one.moves]
        # A push interrupted at the very end left only its upload refs to delete.
        if moves or parts.own_uploads(remote_refs.uploads):
            self._send(timelines, objects, remote_refs, parts, consent_words(planned.scan))
        return planned

    def _plan_all(
        self, remote_refs: RemoteRefs, parts: Parts
    ) -> tuple[tuple[TimelinePush, ...], list[OutgoingObject], PushResult, list[Refused]]:
        """Return the moves, the objects to send, the planned result, and the errors that refuse it."""
        timelines = self._plan(remote_refs)
        objects = self._objects_to_send([move for one in timelines for move in one.moves], remote_refs, parts)
        return timelines, objects, *self._examine(timelines, objects)

    def _sign(self) -> bool:
        """Sign the heads to send; return whether this may have added objects to send."""
        if self._signing is None or self._options.delete:
            return False
        names = [one.timeline for one in self._local_timelines()]
        before = self._repository.list_refs(NOTES)
        self._unsigned = sign_heads(self._repository, names, self._signing)
        return bool(self._unsigned) or self._repository.list_refs(NOTES) != before

    def _plan(self, remote_refs: RemoteRefs) -> tuple[TimelinePush, ...]:
        if self._options.delete:
            self._refuse_unknown(remote_refs)
            return plan_deletion(self._options.delete, remote_refs)
        local = self._local_timelines()
        git = self._repository.git
        grows = {pair: _is_ancestor(git, *pair) for pair in ancestry_questions(local, remote_refs)}
        return plan_push(local, remote_refs, self._last_pushed(remote_refs), grows)

    def _refuse_unknown(self, remote_refs: RemoteRefs) -> None:
        for name in self._options.delete:
            if name not in remote_refs.heads and name not in remote_refs.notes:
                known = first_few(sorted(remote_refs.heads)) or "no timeline"
                raise SnapshotNotFound(name, hint=f"'{self._remote.name}' has {known}")

    def _last_pushed(self, remote_refs: RemoteRefs) -> dict[str, str]:
        """Return the refs of the remote that have the hash of our last push."""
        remote_hashes = {HEADS_PREFIX + name: oid for name, oid in remote_refs.heads.items()}
        remote_hashes |= {NOTES + name: oid for name, oid in remote_refs.notes.items()}
        return {ref: oid for ref, oid in self._remote_state.put if remote_hashes.get(ref) == oid}

    def _local_timelines(self) -> list[LocalTimeline]:
        heads, notes = self._repository.list_refs(HEADS_PREFIX), self._repository.list_refs(NOTES)
        names = match_timelines(
            [ref.removeprefix(HEADS_PREFIX) for ref in heads], self._options.timelines, self._own
        )
        return [LocalTimeline(name, heads[HEADS_PREFIX + name], notes.get(NOTES + name)) for name in names]

    def _parts(self) -> Parts:
        if not self._remote_state.upload:
            self._remote_state = replace(self._remote_state, upload=os.urandom(6).hex())
        place = os.path.join(remotes_directory(self._state), f"{self._key}.upload")
        return Parts(self._repository.git, place, self._repository.objects_dir, self._remote_state.upload)

    def _objects_to_send(
        self, moves: Sequence[RefPush], remote_refs: RemoteRefs, parts: Parts
    ) -> list[OutgoingObject]:
        heads = [move.new for move in moves if move.new is not None and move.ref.startswith(HEADS_PREFIX)]
        notes = [move.new for move in moves if move.new is not None and move.ref.startswith(NOTES)]
        grafts = self._grafts(moves, remote_refs, parts, parts.own_uploads(remote_refs.uploads).values())
        return objects_to_send(parts.git, heads, notes, remote_refs.all, grafts)

    def _grafts(
        self, moves: Iterable[RefPush], remote_refs: RemoteRefs, parts: Parts, arrived: Iterable[str]
    ) -> Mapping[bytes, bytes]:
        chains = [(move.new, move.old) for move in moves if move.new is not None]
        bases = [*arrived, *remote_refs.code, *remote_refs.heads.values()]
        return write_grafts(parts.git, os.path.join(remotes_directory(self._state), "grafts"), chains, bases)

    def _examine(
        self, timelines: tuple[TimelinePush, ...], objects: list[OutgoingObject]
    ) -> tuple[PushResult, list[Refused]]:
        largest = self._limits.largest_object
        scan = scan_outgoing(self._repository.git, objects, largest)
        stored = sum(one.stored for one in objects)
        parts = len(self._divided(objects))
        problems: list[Refused] = [
            Diverged(one.timeline, self._remote) for one in timelines if one.outcome is PushOutcome.DIVERGED
        ]
        allow = self._options.allow
        large = [one for one in too_large(objects, largest) if not is_allowed(place_text(one), allow)]
        problems += [TooLarge(large, largest)] if large else []
        tokens = [token for token in scan.tokens if not is_allowed(token.path, allow)]
        problems += [TokensFound(tokens)] if tokens else []
        texts = tuple(problem.message for problem in problems)
        first = not self._remote_state.agreed and not self._options.delete
        new = tuple(kind for kind in consent_words(scan) if kind not in self._remote_state.kinds)
        warnings = (*self._limits.warnings, *self._unsigned)
        planned = PushResult(
            self._remote, timelines, len(objects), stored, parts, scan, first, texts, warnings,
            tuple(map(shown_consent, new)),
        )  # fmt: skip
        return planned, problems

    def _divided(self, objects: Sequence[OutgoingObject]) -> list[list[OutgoingObject]]:
        max_size = min(self._limits.upload_size, self._options.max_size or self._limits.upload_size)
        if sum(one.stored for one in objects) <= max_size:
            return []
        return list(split_into_parts(objects, max_size))

    def _send(
        self,
        timelines: Iterable[TimelinePush],
        objects: list[OutgoingObject],
        remote_refs: RemoteRefs,
        parts: Parts,
        kinds: tuple[str, ...],
    ) -> None:
        agreed = tuple(sorted({*self._remote_state.kinds, *kinds}))
        self._save_state(replace(self._remote_state, agreed=True, kinds=agreed))
        arrived = parts.own_uploads(remote_refs.uploads)
        for part in self._divided(objects):
            ref, commit = parts.make(part)
            self._move([RefPush(ref, arrived.get(ref), commit)], parts.environment, NO_DELTAS)
            arrived[ref] = commit
        moves = [one.moves for one in timelines]
        grafts = self._grafts(chain.from_iterable(moves), remote_refs, parts, arrived.values())
        environment = {**parts.environment, **grafts}
        for start in range(0, len(moves), MAX_TIMELINES):
            some = list(chain.from_iterable(moves[start : start + MAX_TIMELINES]))
            if not some:
                continue
            new = {move.ref: move.new for move in some}
            self._save_state(before_push(self._remote_state, new))
            self._move_atomic(some, environment)
            self._save_state(after_push(self._remote_state, new))
        if arrived:
            self._move([RefPush(ref, oid, None) for ref, oid in sorted(arrived.items())], environment)
        parts.remove()

    def _move_atomic(self, moves: Sequence[RefPush], environment: Mapping[bytes, bytes]) -> None:
        """Move timelines and notes in one transaction; without atomic pushes move the timelines last."""
        done = self._push(moves, environment, atomic=True) if len(moves) > 1 else None
        if done is not None and NO_ATOMIC_PUSH not in done.err:
            self._check_result(done)
            return
        for group in update_order(moves):
            self._move(group, environment)

    def _move(
        self, moves: Sequence[RefPush], environment: Mapping[bytes, bytes], before: Sequence[str] = ()
    ) -> None:
        self._check_result(self._push(moves, environment, before))

    def _push(
        self,
        moves: Sequence[RefPush],
        environment: Mapping[bytes, bytes],
        before: Sequence[str] = (),
        *,
        atomic: bool = False,
    ) -> GitResult:
        leases = {move.ref: move.old or "" for move in moves}
        refspecs = [move.refspec for move in moves]
        return self._transport.push(refspecs, leases, environment, before, atomic=atomic)

    def _check_result(self, done: GitResult) -> None:
        refusals = [line for line in done.out.decode("utf-8", "replace").splitlines() if line.startswith("!")]
        if refusals:
            raise rejected(self._remote, refusals, remote_error(self._remote, done))
        if done.status != 0:
            raise remote_error(self._remote, done)

    def _save_state(self, state: RemoteState) -> None:
        self._remote_state = replace(state, address=without_password(self._remote.push_url))
        write_remote_state(self._state, self._key, self._remote_state)


def _refuse_mixed(options: PushOptions) -> None:
    """Raise `UsageError` for a deletion together with a push."""
    if options.delete and options.timelines:
        raise UsageError("--delete takes only the timelines to delete; nothing else is pushed with it")


def _is_ancestor(git: Git, old: str, new: str) -> bool:
    return git.ask("merge-base", "--is-ancestor", old, new).status == 0
