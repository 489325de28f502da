"""The end of what a check wrote: kept in the notes, sealed, and opened for whoever has the key."""

from __future__ import annotations

import base64
from collections.abc import Callable

from git_envhist.capture.seal import SealingKey, seal, unseal
from git_envhist.errors import SealingError
from git_envhist.model import Snapshot, SnapshotId, Verdict
from git_envhist.values import replace

OUTPUT = b"output"
CLOSED = "(sealed with a key that is not here)"


def seal_output(verdict: Verdict, snapshot: SnapshotId, key: SealingKey) -> str:
    """The end of the output as a note may hold it: it opens for this moment only."""
    if not verdict.output_tail:
        return ""
    plain = verdict.output_tail.encode("utf-8", "surrogateescape")
    return base64.b64encode(seal(key, snapshot.encode("ascii"), OUTPUT, plain)).decode("ascii")


def with_output(snapshot: Snapshot, find_key: Callable[[str], SealingKey | None]) -> Snapshot:
    """The snapshot, with the output of its checks opened as far as the keys are here."""
    if not any(verdict.sealed_output for verdict in snapshot.verdicts):
        return snapshot
    return replace(
        snapshot, verdicts=tuple(_opened(verdict, snapshot, find_key) for verdict in snapshot.verdicts)
    )


def _opened(verdict: Verdict, snapshot: Snapshot, find_key: Callable[[str], SealingKey | None]) -> Verdict:
    if not verdict.sealed_output:
        return verdict
    try:
        sealed = base64.b64decode(verdict.sealed_output, validate=True)
        plain = unseal(find_key, snapshot.id.encode("ascii"), OUTPUT, sealed)
    except (SealingError, ValueError):
        return replace(verdict, output_tail=CLOSED)
    return replace(verdict, output_tail=plain.decode("utf-8", "replace"))
