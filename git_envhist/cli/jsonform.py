"""Snapshots and what a capture did as plain values for JSON: docs/schema/ describes them, keys are only ever added."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from git_envhist.cli.terminal import escape_invalid
from git_envhist.history.areas import EnvironmentSize
from git_envhist.history.doings import effects_of, observed_of, tasks_of
from git_envhist.history.story import changes_phrase, with_ascii_signs
from git_envhist.model import (
    Actor,
    CaptureResult,
    Change,
    ChangeCount,
    Effect,
    EnvPath,
    FactChange,
    GitChange,
    MissingPath,
    ObservedCheckpoint,
    Snapshot,
    Verdict,
)
from git_envhist.values import dataclass

SCHEMA = 1
PATHS_IN_LISTS = 200
SURROGATE = re.compile("[\ud800-\udfff]")

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Details:
    """What a snapshot's tree holds beside the files, and how it differs from the snapshot before."""

    missing: tuple[MissingPath, ...] = ()
    git_changed: tuple[GitChange, ...] = ()
    changes: tuple[Change, ...] = ()
    facts: tuple[FactChange, ...] = ()
    services: tuple[str, ...] = ()


def snapshot_json(snapshot: Snapshot, details: Details, *, most_paths: int | None = None) -> Json:
    """A snapshot as contract and schema have it; `most_paths` cuts the list of changed paths."""
    latest = snapshot.verdict
    return {
        "schema": SCHEMA,
        "id": snapshot.id,
        "commit": snapshot.commit,
        "timeline": snapshot.timeline,
        "at": moment(snapshot.at),
        **text_fields("intent", snapshot.intent),
        "intent_source": snapshot.intent_source.value,
        "names": [escape_invalid(name) for name in snapshot.names],
        "trigger": snapshot.trigger.value,
        "actor": actor_json(snapshot.actor),
        "trusted": snapshot.trusted,
        "head": snapshot.head,
        "branch": snapshot.branch and escape_invalid(snapshot.branch),
        "verify": verdict_json(latest) if latest else None,
        "verdicts": [verdict_json(verdict) for verdict in snapshot.verdicts],
        "notes": [
            {"text": escape_invalid(remark.text), "at": moment(remark.at)} for remark in snapshot.remarks
        ],
        "meta": {escape_invalid(key): escape_invalid(value) for key, value in snapshot.meta},
        "attachments": [
            escape_invalid(name) for name in (*snapshot.attachments, *(one.name for one in snapshot.attached))
        ],
        "external_id": snapshot.external_id and escape_invalid(snapshot.external_id),
        "complete": snapshot.complete,
        "missing": [missing_json(missing) for missing in details.missing],
        "git_changed": [
            {"status": change.status, **path_fields(change.path)} for change in details.git_changed
        ],
        "env_changed": changed_json(snapshot.changed, details.changes[:most_paths]),
        "summary": escape_invalid(with_ascii_signs(changes_phrase(snapshot))),
        "story": [fact_json(fact) for fact in details.facts],
        "services": [escape_invalid(name) for name in details.services],
        "tasks": [
            {"text": escape_invalid(task.text), "status": task.status.value, "at": moment(task.at)}
            for task in tasks_of((snapshot,))
        ],
        "effects": [effect_json(effect) for effect in effects_of((snapshot,))],
        "observed": [observed_json(observed) for observed in observed_of((snapshot,))],
        "restored_from": snapshot.restored_from,
        "format": snapshot.format,
    }


def extent_json(extent: EnvironmentSize) -> Json:
    """How large the environment was, and where what changed lies."""
    return {
        "files": extent.files,
        "bytes": extent.bytes,
        "packages": extent.packages,
        "areas": [
            {
                **path_fields(area.path),
                "added": area.added,
                "modified": area.modified,
                "removed": area.removed,
                "bytes_before": area.bytes_before,
                "bytes_after": area.bytes_after,
            }
            for area in extent.areas
        ],
    }


def observed_json(observed: ObservedCheckpoint) -> Json:
    """A checkpoint of the platform that was made without us."""
    return {
        "external_id": escape_invalid(observed.external_id),
        "taken_at": moment(observed.taken_at),
        "found_at": moment(observed.at),
        "comment": escape_invalid(observed.comment),
        "source": escape_invalid(observed.source),
        "intent": None,
        "snapshot": observed.stands_on,
    }


def effect_json(effect: Effect) -> Json:
    """Something done outside the machine."""
    return {
        "text": escape_invalid(effect.text),
        "at": moment(effect.at),
        "irreversible": effect.irreversible,
        "command": effect.command and escape_invalid(effect.command),
        "exit_code": effect.exit_code,
        "snapshot": effect.stands_on,
        "refused": effect.refused,
    }


def captured_json(captured: CaptureResult, snapshot: Json | None) -> Json:
    """What a capture did: the snapshot, null where none was made, and the counts."""
    return {
        "schema": SCHEMA,
        "id": captured.snapshot and captured.snapshot.id,
        "snapshot": snapshot,
        "files": captured.files,
        "new_files": captured.new_files,
        "new_bytes": captured.new_bytes,
        "stored_bytes": captured.stored_bytes,
        "duration_ms": round(captured.seconds * 1000),
        "missing": [missing_json(missing) for missing in captured.missing],
        "warnings": [escape_invalid(warning) for warning in captured.warnings],
        "directories": [
            {**path_fields(directory), "files": files, "bytes": size}
            for directory, files, size in captured.directories
        ],
        "first": captured.first,
        "services": [
            {"name": escape_invalid(kept.name), "bytes": kept.bytes, "summary": escape_invalid(kept.summary)}
            for kept in captured.services
        ],
        "verify": captured.verdict and verdict_json(captured.verdict),
    }


def changed_json(counts: ChangeCount, changes: Iterable[Change]) -> Json:
    return {
        "added": counts.added,
        "modified": counts.modified,
        "removed": counts.removed,
        "paths": [{"status": change.kind.value, **path_fields(change.path)} for change in changes],
    }


def verdict_json(verdict: Verdict) -> Json:
    return {
        "status": verdict.status.value,
        "exit_code": verdict.exit_code,
        "signal": verdict.signal,
        "timed_out": verdict.timed_out,
        "command": escape_invalid(verdict.command),
        "duration_ms": verdict.duration_ms,
        "at": moment(verdict.at),
        "output_tail": escape_invalid(verdict.output_tail),
        "tree_before": verdict.tree_before,
        "tree_after": verdict.tree_after,
        "carried_from": verdict.carried_from,
        "services": verdict.services,
        "claimed_by": verdict.claimed_by and escape_invalid(verdict.claimed_by),
    }


def actor_json(actor: Actor) -> Json:
    values = {
        "name": actor.name,
        "email": actor.email,
        "agent": actor.agent,
        "agent_version": actor.agent_version,
        "session": actor.session,
        "tool": actor.tool,
    }
    return {key: value and escape_invalid(value) for key, value in values.items()}


def missing_json(missing: MissingPath) -> Json:
    return {**path_fields(missing.path), "why": missing.why.value, "detail": escape_invalid(missing.detail)}


def fact_json(fact: FactChange) -> Json:
    told: Json = {
        "probe": fact.probe,
        "key": fact.key,
        "before": fact.before,
        "after": fact.after,
        "role": fact.role.value,
    }
    return {**told, "command": fact.by} if fact.probe == "service" else told


def path_fields(path: EnvPath) -> Json:
    """`path`, and beside it `path_b64` where the path is no UTF-8."""
    text = path.decode("utf-8", "surrogateescape")
    if not SURROGATE.search(text):
        return {"path": text}
    return {"path": escape_invalid(text), "path_b64": _base64(path)}


def text_fields(key: str, text: str) -> Json:
    """A text, and beside it its bytes in base64 where they are no UTF-8."""
    if not SURROGATE.search(text):
        return {key: text}
    raw = text.encode("utf-8", "surrogateescape")
    return {key: escape_invalid(text), f"{key}_b64": _base64(raw)}


def moment(at: datetime) -> str:
    return at.isoformat(timespec="seconds")


def _base64(data: bytes) -> str:
    import base64  # loaded late: nearly everything is text

    return base64.b64encode(data).decode("ascii")
