"""What is said about a snapshot of somebody else, and kept of it beside the snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from git_envhist.errors import GitFailed
from git_envhist.model import DirectoryPair, RestoreResult
from git_envhist.restoring.foreign import Findings, executables
from git_envhist.store.git import Git
from git_envhist.values import replace


def untrusted_warnings(
    restored: RestoreResult, findings: Findings, pairs: Iterable[DirectoryPair]
) -> RestoreResult:
    """With what is not brought as it was told, and a word about running it."""
    plan = restored.plan
    if not plan.steps and not plan.directories:
        return restored
    number = len(executables(plan))
    count = {0: "no program is", 1: "one program is"}.get(number, f"{number:,} programs are")
    warning = f"{count} new or changed: to run what is restored here means trusting whoever made it"
    return replace(
        restored,
        losses=tuple(findings.losses(plan, pairs)),
        warnings=(*restored.warnings, warning),
    )


def write_blobs(git: Git, blobs: Mapping[bytes, bytes]) -> None:
    """Put what stands in no snapshot into the repository: a restore that is broken off reads it again."""
    for oid, data in blobs.items():
        written = git.run("hash-object", "-w", "-t", "blob", "--no-filters", "--stdin", stdin=data)
        if written.strip() != oid.hex().encode("ascii"):
            raise GitFailed("git has another hash for what was written")
