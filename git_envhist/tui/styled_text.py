"""Format snapshots, diffs and plans as styled text for a column of the terminal.

`Text` is the only kind of text that the browser shows: it escapes all control characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text as Styled

from git_envhist.diff.facts import SERVICE, fact_rows, fact_words, facts_from_values, row_cells
from git_envhist.diff.split_fact_key import name_of
from git_envhist.diff.summary import SummaryRow as Folded
from git_envhist.diff.summary import describe_marks, fold_by_directory
from git_envhist.model import Change, ChangeKind, EntryKind, FactChange
from git_envhist.printable_text import escape, for_people, format_duration, plain_output
from git_envhist.tui.own_programs import Json, SnapshotRow, changes_of, path_of, steps_of

if TYPE_CHECKING:
    # rich creates its own texts from these, so annotations use its type.
    from rich.text import Text
else:

    class Text(Styled):
        """A styled text that escapes all control characters except newlines and tabs."""

        def __init__(self, text: str = "", *styled: Any, **more: Any) -> None:
            super().__init__(for_people(text), *styled, **more)

        def append(self, text: Any, style: Any = None) -> Styled:
            """Append a text."""
            return super().append(for_people(text) if isinstance(text, str) else text, style)


__all__ = ["Text", "diff_text", "headline", "snapshot_text", "why_text"]

HANG = 4
LABEL = 10
PLACE = 15
GAP = "  "
MAX_CELLS = 10
MAX_PLACES = 6
MAX_FILES = 12
COLOURS = {"+": "green", "−": "red", "~": "yellow", "→": "yellow"}
MARKS = {ChangeKind.ADDED: "+", ChangeKind.REMOVED: "−", ChangeKind.RENAMED: "→"}
CONSOLE = Console(width=80, color_system=None, file=None)
"""Measures and wraps text; nothing is ever written to it."""


def headline(row: SnapshotRow) -> Text:
    """Return the intent, time and check result of a snapshot."""
    about = [row.time, row.trigger, row.verdict or "not checked", *([row.name] if row.name else [])]
    return Text.assemble((row.intent, "bold"), "\n", (" · ".join(about), "dim"))


def field(label: str, words: str, style: str = "") -> Text:
    """Return a labelled line, such as `Timeline: laptop/main`."""
    return Text.assemble((f"{label}:".ljust(LABEL + 1), "dim"), (escape(words), style))


def paragraph(text: str, indent: int = HANG) -> list[Text]:
    """Return text from the history, line by line."""
    lines = escape(text, lines=True).expandtabs(4).rstrip("\n").split("\n")
    return [Text(" " * indent + line.rstrip()) for line in lines]


def wrap_lines(lines: Iterable[Text], columns: int) -> Text:
    """Wrap lines to a number of columns, with a hanging indent."""
    return Text("\n").join(part for line in lines for part in _wrap_line(line, columns))


def story(facts: Sequence[FactChange], changes: Sequence[Change], columns: int) -> list[Text]:
    """Return rows for packages, services, databases and variables, and then the files, folded by directory."""
    lines: list[Text] = []
    places: dict[str, int] = {}
    rows = fact_rows(facts, tuple(dict.fromkeys(fact.probe for fact in facts)))
    for row in rows:
        places[row.probe] = places.get(row.probe, 0) + 1
        if places[row.probe] <= MAX_PLACES:
            cells = row_cells(row, MAX_CELLS, lambda fact: escape(fact_words(fact)))
            lines += _row(row.label, row.place, cells, columns)
    for probe, number in places.items():
        if number > MAX_PLACES:
            lines += _row(probe, "", [f"… in {number - MAX_PLACES:,} more places"], columns)
    if changes:
        lines += _row("files", "", folded(changes), columns)
    return lines


def folded(changes: Sequence[Change], *, marked: bool = True) -> list[str]:
    """Return the changed paths in short form, such as `+ app.py` or `.venv/ +1,187`; `marked` adds the kind of
    change.
    """
    return [_folded(row, marked) for row in fold_by_directory(changes, MAX_FILES)]


def _folded(row: Folded, marked: bool) -> str:
    path = escape(row.path) or "."
    if row.change is not None:
        side = row.change.after or row.change.before
        slash = "/" if side is not None and side.kind is EntryKind.DIRECTORY else ""
        return (f"{MARKS.get(row.change.kind, '~')} " if marked else "") + path + slash
    if row.more:
        return f"{path} and {row.more:,} more: {describe_marks(row.count)}"
    places = f"({row.places:,} places) " if row.places > 1 else ""
    return f"{path} {places}{describe_marks(row.count)}"


def _row(label: str, place: str, cells: Sequence[str], columns: int) -> list[Text]:
    """Return the lines of a row: a label, a place in its own column, and as many cells per line as fit."""
    shown = escape(place)
    head = Text.assemble((escape(label).ljust(LABEL - 1) + " ", "bold"))
    lines = []
    # A long place, or any place in a narrow column, gets its own line.
    on_same_line = shown and cell_len(shown) < PLACE and columns >= 2 * (LABEL + PLACE)
    if shown and not on_same_line:
        lines.append(head + Text(shown))
        head = Text(" " * HANG)
    elif shown:
        head += Text(shown + " " * (PLACE - cell_len(shown)))
    indent, is_first = head.cell_len, True
    for cell in cells:
        wide = cell_len(cell)
        gap = "" if is_first else GAP
        if head.cell_len + len(gap) + wide > columns and head.cell_len > HANG:
            lines.append(head)
            # A cell that is wider than its column uses the whole width.
            head, gap = Text(" " * (indent if indent + wide <= columns else HANG)), ""
        head += Text.assemble(gap, (cell, COLOURS.get(cell[:1], "")))
        is_first = False
    return [*lines, head]


def _wrap_line(line: Text, columns: int) -> list[Text]:
    if line.cell_len <= columns:
        return [line]
    first, *rest = line.wrap(CONSOLE, columns)
    if not rest:
        return [first]
    start = len(first.plain)
    while start < len(line.plain) and line.plain[start] == " ":
        start += 1
    # Wrap the rest again, because it has less space.
    after = line[start:].wrap(CONSOLE, max(10, columns - HANG))
    return [first, *(Text(" " * HANG) + part for part in after)]


# Plans and results of a restore, from `envrestore --json`.

TITLES = (("write", "write"), ("replace", "replace"), ("adjust", "set modes and times"), ("remove", "remove"))
MAX_ITEMS = 20
MAX_OUTSIDE = 3


def is_idle(value: Json) -> bool:
    """Return whether a plan changes nothing."""
    plan = value["plan"]
    return not (any(plan["counts"].values()) or plan["steps"] or value["services"] or value["head"])


def conflicts_of(value: Json) -> Sequence[Json]:
    """Return the paths that a revert cannot decide about."""
    return value.get("conflicts") or ()


def plan_text(value: Json, columns: int) -> Text:
    """Return a restore plan as text: counts, paths, and the paths that it skips."""
    return wrap_lines(_planned(value), columns)


def result_text(value: Json, columns: int) -> Text:
    """Return the result of a restore as text, and how to undo it."""
    return wrap_lines(_done(value), columns)


def _planned(value: Json) -> Iterator[Text]:
    plan = value["plan"]
    left = plan["left_alone"]
    if is_idle(value):
        verb, unchanged = _idle_words(value)
        yield Text(f"nothing to {verb}: {'all differences are skipped' if left else unchanged}")
    else:
        counts = [f"{action} {number:,}" for action, number in plan["counts"].items() if number]
        yield Text(" · ".join([*counts, *([f"skipped {len(left):,}"] if left else [])]), "bold")
    for action, title in TITLES:
        steps = [step for step in plan["steps"] if step["action"] == action]
        if steps:
            yield Text(f"{title}:")
            yield from (Text(" " * HANG + row) for row in _rows(steps))
    if left:
        yield Text("skipped:")
        yield from _cut(f"{' ' * HANG}{escape(one['path'])}: {escape(one['why'])}" for one in left)
    yield from (Text(f"service {escape(line)}") for line in value["services"])
    if value["head"]:
        yield Text(f"then: {escape(value['head'])}")
    yield from _not_restored(value)
    if not is_idle(value):
        yield Text("the current state is captured first, so that undo can return to it", "dim")


def _idle_words(value: Json) -> tuple[str, str]:
    """Return the name of the operation, and why it changes nothing."""
    if "merged" in value:
        return "merge", "the files have all changes of it"
    if "reverted" in value:
        return "revert", "no change of it is left"
    return "restore", "the environment is unchanged since then"


def conflict_rows(conflicts: Sequence[Json]) -> list[tuple[str, str]]:
    """Return each path in conflict, as an argument of a program, with all reasons in one line."""
    found: dict[str, list[Json]] = {}
    for one in conflicts:
        found.setdefault(path_of(one), []).append(one)
    return [
        (path, f"{same[0]['path']}: {'; '.join(str(one['why']) for one in same)}")
        for path, same in found.items()
    ]


def _rows(steps: Sequence[Json]) -> Iterator[str]:
    # A directory that is written or removed with its content is one step.
    whole = [step for step in steps if step["holds"]]
    others = steps_of(step for step in steps if not step["holds"])
    if others:
        # The heading above names the action for all of them.
        yield from folded(others, marked=False)
    yield from _first(f"{escape(step['path'])}/ and {step['holds']:,} below it" for step in whole)


def _done(value: Json) -> Iterator[Text]:
    if not value["changed"]:
        yield from _planned(value)
        return
    safety = value["safety"]
    if safety:
        yield Text(f"captured the current state as {safety[:7]}")
    did = "merged" if "merged" in value else "reverted" if "reverted" in value else "restored"
    yield Text(f"{did} in {value['duration_ms'] / 1000:.1f} s, verified {value['verified']:,} paths")
    if value["head"]:
        yield Text(escape(value["head"]))
    if value["tracked_differing"]:
        number = value["tracked_differing"]
        yield Text(f"{number:,} tracked {'file differs' if number == 1 else 'files differ'} from HEAD now")
    if value["services"]:
        yield Text(escape(f"services: {'; '.join(value['services'])}"))
    for words, listed in (("kept unchanged", value["kept"]), ("not restored exactly", value["losses"])):
        yield from _cut(f"{words}: '{escape(one['path'])}': {escape(one['why'])}" for one in listed)
    yield from _not_restored(value)
    if value["undo"]:
        yield Text(f"to go back: {escape(value['undo'])}")


def _not_restored(value: Json) -> Iterator[Text]:
    """Yield what no restore can change, and warnings."""
    outside = value["outside"]
    parts = [escape(_outside_text(one)) for one in outside[:MAX_OUTSIDE]]
    if len(outside) > MAX_OUTSIDE:
        parts.append(f"{len(outside) - MAX_OUTSIDE:,} more packages and services")
    parts += [f"{escape(process)} still runs the old code" for process in value["running"][:MAX_ITEMS]]
    if parts:
        yield Text("not restored: " + "; ".join(parts))
    yield from _cut(
        f"outside this machine, not undone: {escape(effect['text'])}" for effect in value["effects"]
    )
    if value["executables"]:
        yield Text(
            f"{len(value['executables']):,} restored programs come from an unsigned snapshot: check them before running"
        )
    yield from (Text(escape(f"warning: {warning}"), "yellow") for warning in value["warnings"])


def _outside_text(fact: Json) -> str:
    (change,) = facts_from_values([fact])
    running = f" {fact['after'] or ''}" if fact["probe"] == SERVICE else ""
    return f"{fact['probe']} {name_of(change)}{running}" + (
        f" ({fact['command']})" if fact["command"] else ""
    )


def _first(words: Iterable[str]) -> Iterator[str]:
    parts = list(words)
    yield from parts[:MAX_ITEMS]
    if len(parts) > MAX_ITEMS:
        yield f"and {len(parts) - MAX_ITEMS:,} more"


def _cut(words: Iterable[str]) -> Iterator[Text]:
    yield from map(Text, _first(words))


# Details and diffs of snapshots, from `envlog show --json` and `envdiff --json`.

VERDICTS = {
    "pass": ("✓", "passed", "green"),
    "fail": ("✗", "failed", "red"),
    "error": ("!", "gave no result", "yellow"),
}
MAX_LISTED = 20
SHORT = 12


def snapshot_text(value: Json, columns: int) -> Text:
    """Return the changes of a snapshot, followed by its details."""
    changed = value["env_changed"]
    lines = story(facts_from_values(value["story"]), changes_of(changed["paths"]), columns)
    return wrap_lines([*(lines or [Text("nothing changed")]), Text(), *_details(value, columns)], columns)


def diff_text(value: Json, columns: int) -> Text:
    """Return the differences between two snapshots."""
    lines = story(facts_from_values(value["facts"]), changes_of(value["files"]), columns)
    return wrap_lines(lines or [Text("nothing differs")], columns)


MAX_CANDIDATES = 4


def why_text(value: Json, columns: int) -> Text:
    """Return the steps that changed something, from `envlog why --json`."""
    lines: list[Text] = []
    for step in value["steps"]:
        lines += [Text(), *_step(step)] if lines else _step(step)
    return wrap_lines(lines, columns)


def _step(step: Json) -> Iterator[Text]:
    yield Text.assemble(
        (step["snapshot"][:7], "yellow"), f"  {_local_time(step['at'])}  ", (escape(step["title"]), "bold")
    )
    yield field("Change", step["change"])
    if step["call"]:
        yield field("Call", call_words(step["call"]))
        yield field("Intent", step["call"]["intent"].split("\n")[0])
    else:
        sure = step["certainty"] != "uncertain"
        yield field("By" if sure else "Call", step["reason"] if sure else f"uncertain: {step['reason']}")
    yield from (field("perhaps", call_words(call)) for call in step["candidates"][:MAX_CANDIDATES])
    if len(step["candidates"]) > MAX_CANDIDATES:
        yield field("or", f"one of {len(step['candidates']) - MAX_CANDIDATES} more")


def call_words(call: Json) -> str:
    """Return the tool of a call, what it ran, and the agent."""
    what = " ".join((call["command"] or " ".join(call["paths"])).split())
    subagent = call["subagent_type"] or call["subagent"]
    about = [f"by {call['agent']}" + (f" (subagent {subagent})" if subagent else "")] if call["agent"] else []
    about += [f"call {call['call_id']}"] if call["call_id"] else []
    about += ["failed"] if call["failed"] else []
    return ", ".join([f"{call['tool']} {what}".rstrip(), *about])


def _details(value: Json, columns: int) -> Iterator[Text]:
    head = f"snapshot {value['id']}"
    yield Text(head if len(head) <= columns else f"snapshot {value['id'][:SHORT]}", "yellow")
    yield from (field(label, words) for label, words in _fields(value) if words)
    for verdict in value["verdicts"]:
        yield from _verdict(verdict)
    if not value["complete"]:
        yield field("Complete", "no, these were not captured:", "yellow")
        yield from _listed([f"{one['path']}: {one['why']}" for one in value["missing"]])
    yield Text()
    yield from paragraph(value["intent"] or "(no intent)")
    for note in value["notes"]:
        yield Text()
        yield field("Note", _local_time(note["at"]))
        yield from paragraph(note["text"])


def _fields(value: Json) -> Iterator[tuple[str, str]]:
    actor = value["actor"]
    who = f"{actor['name']} <{actor['email']}>"
    yield "Names", ", ".join(value["names"])
    yield "Timeline", value["timeline"]
    if value["trusted"] is False:
        yield "Unsigned", f"by {who}: none of your keys signed it"
    else:
        yield "Actor", who
    yield "Agent", " ".join(filter(None, (actor["agent"], actor["agent_version"])))
    yield "Session", actor["session"] or ""
    yield "Tool", actor["tool"] or ""
    yield "Date", _local_time(value["at"])
    yield "Trigger", value["trigger"]
    branch = (value["branch"] or "").removeprefix("refs/heads/")
    # Long enough to be found, and short enough for a narrow column.
    yield "Head", " ".join(filter(None, ((value["head"] or "")[:SHORT], f"({branch})" if branch else "")))
    yield "External", value["external_id"] or ""
    yield "Restored", f"from {value['restored_from'][:SHORT]}" if value["restored_from"] else ""
    yield "Services", ", ".join(value["services"])
    yield from (("Meta", f"{key}={parts}") for key, parts in value["meta"].items())
    yield from (("Attached", name) for name in value["attachments"])
    yield from (("Task", f"{task['status']}: {task['text']}") for task in value["tasks"])
    for effect in value["effects"]:
        signs = [word for word in ("irreversible", "refused") if effect[word]]
        yield "Effect", effect["text"] + (f" ({', '.join(signs)})" if signs else "")


def _verdict(verdict: Json) -> Iterator[Text]:
    mark, words, colour = VERDICTS[verdict["status"]]
    if verdict["claimed_by"]:
        mark, words = "?", f"{words}, unsigned, by {verdict['claimed_by']}"
    parts = [verdict["command"], *_verdict_details(verdict)]
    yield field("Check", "") + Text.assemble(
        (escape(f"{mark} {words}"), colour), escape(f" ({', '.join(parts)})")
    )
    if output := plain_output(verdict["output_tail"]):
        yield from paragraph(output)


def _verdict_details(verdict: Json) -> Iterator[str]:
    if verdict["timed_out"]:
        yield "timeout"
    elif verdict["signal"] is not None:
        yield f"signal {verdict['signal']}"
    elif verdict["exit_code"]:
        yield f"exit {verdict['exit_code']}"
    if verdict["duration_ms"] is not None:
        yield format_duration(verdict["duration_ms"] / 1000)
    if verdict["carried_from"]:
        yield f"result from {verdict['carried_from'][:7]}"
        if verdict.get("services"):
            yield "services differ" if verdict["services"] == "differ" else "services not compared"
    if verdict["tree_after"] is not None and verdict["tree_before"] != verdict["tree_after"]:
        yield "the check changed files after the snapshot"


def _local_time(at: str) -> str:
    # In local time, as in the list.
    return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")


def _listed(words: list[str]) -> Iterator[Text]:
    yield from (Text(" " * HANG + escape(one)) for one in words[:MAX_LISTED])
    if len(words) > MAX_LISTED:
        yield Text(f"{' ' * HANG}and {len(words) - MAX_LISTED:,} more")
