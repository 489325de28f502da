"""Snapshots, captures, diffs, plans and restores as values for JSON.

docs/schema/ describes them. Keys are only ever added. `dump` writes a value as one line that is safe on a terminal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from git_envhist.diff.path_classes import is_nested_repository
from git_envhist.diff.summary import changes_phrase, count_changes, with_ascii_signs
from git_envhist.history.tasks_and_effects import effects_of, observed_of, tasks_of
from git_envhist.history.titles import title
from git_envhist.lazy import dataclass
from git_envhist.model import (
    Actor,
    CaptureResult,
    Change,
    ChangeCount,
    ChangeKind,
    ChangeSide,
    Effect,
    EnvPath,
    FactChange,
    GitChange,
    MissingPath,
    ObservedCheckpoint,
    PlanStep,
    RestorePlan,
    RestoreResult,
    SkippedPath,
    Snapshot,
    ToolCall,
    Verdict,
)
from git_envhist.printable_text import escape_invalid

if TYPE_CHECKING:
    from git_envhist.diff.size_history import EnvironmentSize
    from git_envhist.restore.execute import ExecuteResult

SCHEMA = 1
PATHS_IN_LISTS = 200
SURROGATE = re.compile("[\ud800-\udfff]")

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Details:
    """The parts of a snapshot that are read from its tree: facts, changes, missing paths."""

    missing: tuple[MissingPath, ...] = ()
    git_changed: tuple[GitChange, ...] = ()
    changes: tuple[Change, ...] = ()
    facts: tuple[FactChange, ...] = ()
    services: tuple[str, ...] = ()


def snapshot_json(snapshot: Snapshot, details: Details, *, most_paths: int | None = None) -> Json:
    """Return a snapshot according to the schema; `most_paths` limits the list of changed paths."""
    return {
        "schema": SCHEMA,
        **_commit_fields(snapshot),
        **_note_fields(snapshot),
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
        **_work_fields(snapshot),
        "restored_from": snapshot.restored_from,
        "merged": snapshot.merged,
        "format": snapshot.format,
    }


def _commit_fields(snapshot: Snapshot) -> Json:
    """Return the fields about the snapshot itself: when, why and by whom it was taken."""
    return {
        "id": snapshot.id,
        "commit": snapshot.commit,
        "timeline": snapshot.timeline,
        "at": iso_time(snapshot.at),
        **text_fields("intent", snapshot.intent),
        "intent_source": snapshot.intent_source.value,
        "title": escape_invalid(title(snapshot)),
        "names": [escape_invalid(name) for name in snapshot.names],
        "trigger": snapshot.trigger.value,
        "actor": actor_json(snapshot.actor),
        "calls": [call_json(call) for call in snapshot.calls],
        "trusted": snapshot.trusted,
        "head": snapshot.head,
        "branch": snapshot.branch and escape_invalid(snapshot.branch),
    }


def _note_fields(snapshot: Snapshot) -> Json:
    """Return the fields that notes add to a snapshot: verdicts, remarks, attachments."""
    latest = snapshot.verdict
    return {
        "verify": verdict_json(latest) if latest else None,
        "verdicts": [verdict_json(verdict) for verdict in snapshot.verdicts],
        "notes": [
            {"text": escape_invalid(remark.text), "at": iso_time(remark.at)} for remark in snapshot.remarks
        ],
        "meta": {escape_invalid(key): escape_invalid(value) for key, value in snapshot.meta},
        "attachments": [
            escape_invalid(name) for name in (*snapshot.attachments, *(one.name for one in snapshot.attached))
        ],
    }


def _work_fields(snapshot: Snapshot) -> Json:
    """Return the fields about tasks, effects and checkpoints of a platform."""
    return {
        "tasks": [
            {"text": escape_invalid(task.text), "status": task.status.value, "at": iso_time(task.at)}
            for task in tasks_of((snapshot,))
        ],
        "effects": [effect_json(effect) for effect in effects_of((snapshot,))],
        "observed": [observed_json(observed) for observed in observed_of((snapshot,))],
    }


def extent_json(extent: EnvironmentSize) -> Json:
    """Return the size of an environment, and the directories with changes."""
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
    """Return a recorded checkpoint of the platform."""
    return {
        "external_id": escape_invalid(observed.external_id),
        "taken_at": iso_time(observed.taken_at),
        "found_at": iso_time(observed.at),
        "comment": escape_invalid(observed.comment),
        "source": escape_invalid(observed.source),
        "intent": None,
        "snapshot": observed.snapshot_id,
    }


def effect_json(effect: Effect) -> Json:
    """Return an effect."""
    return {
        "text": escape_invalid(effect.text),
        "at": iso_time(effect.at),
        "irreversible": effect.irreversible,
        "command": effect.command and escape_invalid(effect.command),
        "exit_code": effect.exit_code,
        "snapshot": effect.snapshot_id,
        "refused": effect.refused,
    }


def captured_json(captured: CaptureResult, snapshot: Json | None) -> Json:
    """Return the result of a capture: the snapshot, null if none was taken, and the counts."""
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
        "at": iso_time(verdict.at),
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


def call_json(call: ToolCall) -> Json:
    """Return a call of an agent's tool; `began` is null if the call was about to run."""
    texts = {
        "tool": call.tool,
        "agent": call.agent,
        "session": call.session,
        "call_id": call.id,
        "subagent": call.subagent,
        "subagent_type": call.subagent_type,
        "intent": call.intent,
        "command": call.command,
        "trace": call.trace,
    }
    return {
        **{key: value and escape_invalid(value) for key, value in texts.items()},
        "began": _iso_seconds(call.began),
        "ended": _iso_seconds(call.ended),
        "failed": call.failed,
        "paths": [escape_invalid(path) for path in call.paths],
    }


def _iso_seconds(seconds: float | None) -> str | None:
    return (
        None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    )


def missing_json(missing: MissingPath) -> Json:
    return {**path_fields(missing.path), "why": missing.why.value, "detail": escape_invalid(missing.detail)}


def fact_json(fact: FactChange) -> Json:
    fields: Json = {
        "probe": fact.probe,
        "key": fact.key,
        "before": fact.before,
        "after": fact.after,
        "role": fact.role.value,
    }
    return {**fields, "command": fact.by} if fact.probe == "service" else fields


def path_fields(path: EnvPath) -> Json:
    """Return `path`, and `path_b64` if the path is not UTF-8."""
    text = path.decode("utf-8", "surrogateescape")
    if not SURROGATE.search(text):
        return {"path": text}
    return {"path": escape_invalid(text), "path_b64": _base64(path)}


def text_fields(key: str, text: str) -> Json:
    """Return a text, and its bytes in base64 if they are not UTF-8."""
    if not SURROGATE.search(text):
        return {key: text}
    raw = text.encode("utf-8", "surrogateescape")
    return {key: escape_invalid(text), f"{key}_b64": _base64(raw)}


def iso_time(at: datetime) -> str:
    return at.isoformat(timespec="seconds")


def _base64(data: bytes) -> str:
    import base64  # loaded late: nearly everything is text

    return base64.b64encode(data).decode("ascii")


# Diffs.

KIND_WORDS = {
    "f": "file",
    "l": "link",
    "d": "directory",
    "p": "fifo",
    "s": "socket",
    "c": "character-device",
    "b": "block-device",
    "w": "worktree",
}


def diff_json(before: str, after: str, changes: Sequence[Change], facts: Iterable[FactChange]) -> Json:
    """Return the paths and facts that differ between two snapshots, each an id or `now`."""
    moved = sum(change.kind is ChangeKind.RENAMED for change in changes)
    # A renamed file is counted once, not as one added and one removed.
    counts = count_changes(change for change in changes if change.kind is not ChangeKind.RENAMED)
    return {
        "schema": SCHEMA,
        "before": before,
        "after": after,
        "added": counts.added,
        "modified": counts.modified,
        "removed": counts.removed,
        "renamed": moved,
        "files": [change_json(change) for change in changes],
        "facts": [fact_change_json(fact) for fact in facts],
    }


def change_json(change: Change) -> Json:
    """Return one changed path: both sides and the attributes that differ."""
    fields: Json = {"status": change.kind.value, **path_fields(change.path)}
    if change.kind is ChangeKind.RENAMED and change.before is not None:
        fields.update({f"old_{key}": value for key, value in path_fields(change.before.path).items()})
        fields["similarity"] = change.similarity
    fields["before"] = _side(change.before)
    fields["after"] = _side(change.after)
    fields["attributes"] = list(change.attributes)
    fields["nested_repository"] = is_nested_repository(change)
    return fields


def _side(side: ChangeSide | None) -> Json | None:
    if side is None:
        return None
    return {
        "kind": KIND_WORDS[side.kind.value],
        "mode": f"{side.mode:04o}",
        "oid": None if side.oid is None else side.oid.hex(),
        "stored": side.stored.value,
    }


def fact_change_json(fact: FactChange) -> Json:
    """Return a changed fact, with unprintable characters escaped."""
    return {
        key: escape_invalid(value) if isinstance(value, str) else value
        for key, value in fact_json(fact).items()
    }


# Plans and restores.


def restored_json(restored: RestoreResult, back: str, *, dry_run: bool) -> Json:
    """Return the plan and the result of a restore; the plan of a dry run is the same."""
    from git_envhist.cli.views.restore import plan_id  # loaded late: only a plan needs it
    from git_envhist.diff.facts import without_secrets  # loaded late: only changed facts need it

    return {
        "schema": SCHEMA,
        "dry_run": dry_run,
        "target": restored.target.id,
        "plan": plan_json(restored.plan),
        "plan_id": plan_id(restored),
        "changed": not dry_run and restored.snapshot is not None,
        "safety": restored.safety and restored.safety.id,
        "id": restored.snapshot and restored.snapshot.id,
        "verified": restored.verified,
        "duration_ms": round(restored.seconds * 1000),
        "kept": [_left(item) for item in restored.kept],
        "losses": [_left(item) for item in restored.losses],
        "tracked_differing": restored.tracked_differing,
        "tracked_differed": restored.tracked_differed,
        "head": restored.head and escape_invalid(restored.head),
        "relocated": [path_fields(path) for path in restored.relocated],
        "story": [fact_json(change) for change in without_secrets(restored.story)],
        "outside": [_outside(change) for change in restored.outside],
        "effects": [effect_json(effect) for effect in restored.effects],
        "running": [escape_invalid(process) for process in restored.running],
        "services": [escape_invalid(line) for line in restored.services],
        "roots": [
            {"name": escape_invalid(name), "directory": escape_invalid(place)}
            for name, place in restored.roots
        ],
        "warnings": [escape_invalid(warning) for warning in restored.warnings],
        "executables": _executables(restored),
        "undo": back if restored.safety is not None else None,
    }


def merged_json(merged: RestoreResult, back: str, *, dry_run: bool) -> Json:
    """Return the plan and the result of a revert or a merge, with its sources and the conflicts."""
    sources = (
        {"merged": escape_invalid(merged.merged), "base": merged.base and merged.base.id}
        if merged.merged
        else {"reverted": escape_invalid(merged.reverted)}
    )
    return {
        **restored_json(merged, back, dry_run=dry_run),
        **sources,
        "conflicts": [
            {**path_fields(conflict.path), "why": escape_invalid(conflict.why)}
            for conflict in merged.conflicts
        ],
    }


def _outside(change: FactChange) -> Json:
    from git_envhist.diff.facts import command_for  # loaded late: only changed facts need it

    fields = {**fact_json(change), "command": command_for(change)}
    return {key: escape_invalid(value) if isinstance(value, str) else value for key, value in fields.items()}


def _executables(restored: RestoreResult) -> list[Json] | None:
    """Return the new and changed programs of an unsigned snapshot; None for others."""
    from git_envhist.restore.inspect_unsigned import executables  # loaded late: only a plan needs it

    if restored.target.trusted is not False:
        return None
    return [path_fields(path) for path in executables(restored.plan)]


def plan_json(plan: RestorePlan) -> Json:
    """Return the steps of a plan, path by path."""
    return {
        "counts": {action.value: number for action, number in plan.counts.items()},
        "steps": [_step(step) for step in plan.steps],
        "left_alone": [_left(item) for item in plan.skipped if item.why],
    }


def ended_json(carried: ExecuteResult) -> Json:
    """Return the result of `--continue` or `--abort`."""
    return {
        "schema": SCHEMA,
        "undone": carried.undone,
        "kept": [_left(item) for item in carried.kept],
        "losses": [_left(item) for item in carried.losses],
    }


def _step(step: PlanStep) -> Json:
    return {
        "action": step.action.value,
        **path_fields(step.shown),
        "before": step.before and step.before.kind.name.lower(),
        "after": step.after and step.after.kind.name.lower(),
        "holds": len(step.below),
    }


def _left(item: SkippedPath) -> Json:
    return {**path_fields(item.path), "why": escape_invalid(item.why)}


# Printing.


def dump(value: object) -> str:
    r"""Return a value as one line of JSON; unprintable characters become \u escapes."""
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in text)


def _escape(letter: str) -> str:
    # Unprintable characters occur only inside strings, where JSON allows this escape for each of them.
    return json.dumps(letter)[1:-1]
