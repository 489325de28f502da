"""A moment in full, what differs between two: text out of the values of `envlog show --json`, `envdiff --json`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from git_envhist.browse.plaintext import Text
from git_envhist.browse.texts import HANG, field, paragraph, story, wrap_lines
from git_envhist.browse.values import Json, changes_of
from git_envhist.history.facts import facts_from_values
from git_envhist.spelling import escape

VERDICTS = {
    "pass": ("✓", "verify passing", "green"),
    "fail": ("✗", "verify failing", "red"),
    "error": ("!", "verify could not run", "yellow"),
}
MOST_LISTED = 20
SHORT = 12


def snapshot_text(value: Json, columns: int) -> Text:
    """What a moment changed, and below it its card: what it changed is what it is looked at for."""
    changed = value["env_changed"]
    lines = story(facts_from_values(value["story"]), changes_of(changed["paths"]), columns)
    return wrap_lines([*(lines or [Text("nothing changed")]), Text(), *_card(value, columns)], columns)


def diff_text(value: Json, columns: int) -> Text:
    """What differs between two moments."""
    lines = story(facts_from_values(value["facts"]), changes_of(value["files"]), columns)
    return wrap_lines(lines or [Text("nothing differs")], columns)


def _card(value: Json, columns: int) -> Iterator[Text]:
    head = f"snapshot {value['id']}"
    yield Text(head if len(head) <= columns else f"snapshot {value['id'][:SHORT]}", "yellow")
    yield from (field(label, words) for label, words in _fields(value) if words)
    for verdict in value["verdicts"]:
        yield from _verdict(verdict)
    if not value["complete"]:
        yield field("Complete", "no: what follows is not in it", "yellow")
        yield from _listed([f"{one['path']}: {one['why']}" for one in value["missing"]])
    yield Text()
    yield from paragraph(value["intent"] or "(no intent)")
    for note in value["notes"]:
        yield Text()
        yield field("Note", _when(note["at"]))
        yield from paragraph(note["text"])


def _fields(value: Json) -> Iterator[tuple[str, str]]:
    actor = value["actor"]
    who = f"{actor['name']} <{actor['email']}>"
    yield "Names", ", ".join(value["names"])
    yield "Timeline", value["timeline"]
    if value["trusted"] is False:
        yield "Claimed", f"by {who}: no key that is here signed it"
    else:
        yield "Actor", who
    yield "Agent", " ".join(filter(None, (actor["agent"], actor["agent_version"])))
    yield "Session", actor["session"] or ""
    yield "Tool", actor["tool"] or ""
    yield "Date", _when(value["at"])
    yield "Trigger", value["trigger"]
    branch = (value["branch"] or "").removeprefix("refs/heads/")
    # Enough of it to be found, and little enough for a narrow column.
    yield "Head", " ".join(filter(None, ((value["head"] or "")[:SHORT], f"({branch})" if branch else "")))
    yield "External", value["external_id"] or ""
    yield "Restored", f"from {value['restored_from'][:SHORT]}" if value["restored_from"] else ""
    yield "Services", ", ".join(value["services"])
    yield from (("Meta", f"{key}={told}") for key, told in value["meta"].items())
    yield from (("Attached", name) for name in value["attachments"])
    yield from (("Task", f"{task['status']}: {task['text']}") for task in value["tasks"])
    for effect in value["effects"]:
        signs = [word for word in ("irreversible", "refused") if effect[word]]
        yield "Effect", effect["text"] + (f" ({', '.join(signs)})" if signs else "")


def _verdict(verdict: Json) -> Iterator[Text]:
    mark, words, colour = VERDICTS[verdict["status"]]
    if verdict["claimed_by"]:
        mark, words = "?", f"{words}, claimed by {verdict['claimed_by']}"
    told = [verdict["command"], *_how(verdict)]
    yield field("Verdict", "") + Text.assemble(
        (escape(f"{mark} {words}"), colour), escape(f" ({', '.join(told)})")
    )
    if verdict["output_tail"].strip():
        yield from paragraph(verdict["output_tail"])


def _how(verdict: Json) -> Iterator[str]:
    if verdict["timed_out"]:
        yield "it took too long"
    elif verdict["signal"] is not None:
        yield f"signal {verdict['signal']}"
    elif verdict["exit_code"]:
        yield f"exit {verdict['exit_code']}"
    if verdict["duration_ms"] is not None:
        yield f"{verdict['duration_ms']:,} ms"
    if verdict["carried_from"]:
        yield f"carried over from {verdict['carried_from'][:7]}"
        if verdict.get("services"):
            yield "services differ" if verdict["services"] == "differ" else "services not compared"
    if verdict["tree_after"] is not None and verdict["tree_before"] != verdict["tree_after"]:
        yield "the check changed the environment"


def _when(at: str) -> str:
    # By the clock of whoever looks, as in the list beside it.
    return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")


def _listed(words: list[str]) -> Iterator[Text]:
    yield from (Text(" " * HANG + escape(one)) for one in words[:MOST_LISTED])
    if len(words) > MOST_LISTED:
        yield Text(f"{' ' * HANG}and {len(words) - MOST_LISTED:,} more")
