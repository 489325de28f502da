"""Plans and restores as plain values for JSON."""

from __future__ import annotations

from git_envhist.cli.jsonform import SCHEMA, Json, effect_json, fact_json, path_fields
from git_envhist.cli.planid import plan_id
from git_envhist.cli.terminal import escape_invalid
from git_envhist.history.facts import without_secrets
from git_envhist.history.outside import command_for
from git_envhist.model import FactChange, PlanStep, RestorePlan, RestoreResult, SkippedPath
from git_envhist.restoring.carrying import ExecuteResult
from git_envhist.restoring.foreign import executables


def restored_json(restored: RestoreResult, back: str, *, dry_run: bool) -> Json:
    """The plan, what came of it, and what takes it back; the plan of a dry run is the same."""
    return {
        "schema": SCHEMA,
        "dry_run": dry_run,
        "target": restored.target.id,
        "plan": plan_json(restored.plan),
        "plan_id": plan_id(restored),
        "changed": not dry_run and restored.moment is not None,
        "safety": restored.safety and restored.safety.id,
        "id": restored.moment and restored.moment.id,
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


def _outside(change: FactChange) -> Json:
    told = {**fact_json(change), "command": command_for(change)}
    return {key: escape_invalid(value) if isinstance(value, str) else value for key, value in told.items()}


def _executables(restored: RestoreResult) -> list[Json] | None:
    """The programs that are new or changed, where somebody else made them."""
    if restored.target.trusted is not False:
        return None
    return [path_fields(path) for path in executables(restored.plan)]


def plan_json(plan: RestorePlan) -> Json:
    """What is going to be done, path by path."""
    return {
        "counts": {action.value: number for action, number in plan.counts.items()},
        "steps": [_step(step) for step in plan.steps],
        "left_alone": [_left(item) for item in plan.left_alone if item.why],
    }


def ended_json(carried: ExecuteResult) -> Json:
    """How a restore that was broken off came to its end."""
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
