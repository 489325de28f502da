"""Text in a column: rows of a story, lines that hang where they are too long, so that where they begin is seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text as Styled

from git_envhist.diff.fact_keys import name_of
from git_envhist.diff.facts import SERVICE, fact_rows, fact_words, facts_from_values, row_cells
from git_envhist.diff.summary import SummaryRow as Folded
from git_envhist.diff.summary import describe_marks, fold_by_directory
from git_envhist.model import Change, ChangeKind, EntryKind, FactChange
from git_envhist.text import escape, for_people
from git_envhist.tui.programs import Json, SnapshotRow, changes_of, steps_of

# Text for the screen: the only type of text that the browser shows, without anything that could command a terminal.

if TYPE_CHECKING:
    # The type of what is made of such texts as well: rich makes its own of them.
    from rich.text import Text
else:

    class Text(Styled):
        """A styled text that spells out every control character but newlines and tabs."""

        def __init__(self, text: str = "", *styled: Any, **more: Any) -> None:
            super().__init__(for_people(text), *styled, **more)

        def append(self, text: Any, style: Any = None) -> Styled:
            """Add a text at the end."""
            return super().append(for_people(text) if isinstance(text, str) else text, style)


__all__ = ["Text", "diff_text", "headline", "snapshot_text"]

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
"""Measures and breaks; nothing is ever written by it."""


def headline(row: SnapshotRow) -> Text:
    """Why a moment was taken, when, and whether it was good."""
    about = [row.time, row.trigger, row.verdict or "not checked", *([row.name] if row.name else [])]
    return Text.assemble((row.intent, "bold"), "\n", (" · ".join(about), "dim"))


def field(label: str, words: str, style: str = "") -> Text:
    """`Timeline: laptop/main`."""
    return Text.assemble((f"{label}:".ljust(LABEL + 1), "dim"), (escape(words), style))


def paragraph(text: str, indent: int = HANG) -> list[Text]:
    """Somebody's text, line by line."""
    lines = escape(text, lines=True).expandtabs(4).rstrip("\n").split("\n")
    return [Text(" " * indent + line.rstrip()) for line in lines]


def wrap_lines(lines: Iterable[Text], columns: int) -> Text:
    """All of it in lines of at most so many columns: what is longer goes on below, set in."""
    return Text("\n").join(part for line in lines for part in _hung(line, columns))


def story(facts: Sequence[FactChange], changes: Sequence[Change], columns: int) -> list[Text]:
    """Packages, services, databases, variables, and then the files, folded by directory."""
    lines: list[Text] = []
    places: dict[str, int] = {}
    rows = fact_rows(facts, tuple(dict.fromkeys(fact.probe for fact in facts)))
    for row in rows:
        places[row.probe] = places.get(row.probe, 0) + 1
        if places[row.probe] <= MAX_PLACES:
            cells = row_cells(row, MAX_CELLS, lambda fact: escape(fact_words(fact)))
            lines += _row(row.probe, row.place, cells, columns)
    for probe, number in places.items():
        if number > MAX_PLACES:
            lines += _row(probe, "", [f"… in {number - MAX_PLACES:,} more places"], columns)
    if changes:
        lines += _row("files", "", folded(changes), columns)
    return lines


def folded(changes: Sequence[Change], *, marked: bool = True) -> list[str]:
    """The changed paths in few words: `+ app.py`, `.venv/ +1,187`; `marked`: with what was done to a single one."""
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
    """A label, a place in a column of its own, and as many cells on a line as fit."""
    shown = escape(place)
    head = Text.assemble((escape(label).ljust(LABEL - 1) + " ", "bold"))
    lines = []
    # In a narrow column, and where it is longer than its own, a place stands on a line by itself.
    beside = shown and cell_len(shown) < PLACE and columns >= 2 * (LABEL + PLACE)
    if shown and not beside:
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
            # What is wider than the column itself has all the room there is.
            head, gap = Text(" " * (indent if indent + wide <= columns else HANG)), ""
        head += Text.assemble(gap, (cell, COLOURS.get(cell[:1], "")))
        is_first = False
    return [*lines, head]


def _hung(line: Text, columns: int) -> list[Text]:
    if line.cell_len <= columns:
        return [line]
    first, *rest = line.wrap(CONSOLE, columns)
    if not rest:
        return [first]
    begins = len(first.plain)
    while begins < len(line.plain) and line.plain[begins] == " ":
        begins += 1
    # What is left is broken anew, for it has less room.
    after = line[begins:].wrap(CONSOLE, max(10, columns - HANG))
    return [first, *(Text(" " * HANG) + part for part in after)]


# What a restore would do, and what it did: text out of the values of `envrestore --json`.

TITLES = (("write", "write"), ("replace", "replace"), ("adjust", "set modes and times"), ("remove", "remove"))
MAX_TOLD = 20
MAX_OUTSIDE = 3


def is_idle(value: Json) -> bool:
    """Whether there is nothing to do."""
    plan = value["plan"]
    return not (any(plan["counts"].values()) or plan["steps"] or value["services"] or value["head"])


def plan_text(value: Json, columns: int) -> Text:
    """The plan: how much of what, which paths, what it cannot bring back."""
    return wrap_lines(_planned(value), columns)


def result_text(value: Json, columns: int) -> Text:
    """What came of it, and what takes it back."""
    return wrap_lines(_done(value), columns)


def _planned(value: Json) -> Iterator[Text]:
    plan = value["plan"]
    left = plan["left_alone"]
    if is_idle(value):
        why = "what differs stays as it is" if left else "the environment is as it was then"
        yield Text(f"nothing to restore: {why}")
    else:
        counts = [f"{action} {number:,}" for action, number in plan["counts"].items() if number]
        yield Text(" · ".join([*counts, *([f"left alone {len(left):,}"] if left else [])]), "bold")
    for action, title in TITLES:
        steps = [step for step in plan["steps"] if step["action"] == action]
        if steps:
            yield Text(f"{title}:")
            yield from (Text(" " * HANG + row) for row in _rows(steps))
    if left:
        yield Text("left alone:")
        yield from _cut(f"{' ' * HANG}{escape(one['path'])}: {escape(one['why'])}" for one in left)
    yield from (Text(f"service {escape(line)}") for line in value["services"])
    if value["head"]:
        yield Text(f"then: {escape(value['head'])}")
    yield from _beyond(value)
    if not is_idle(value):
        yield Text("what is here now is saved first, and can be brought back", "dim")


def _rows(steps: Sequence[Json]) -> Iterator[str]:
    # A directory that comes or goes with all that is in it is one step.
    whole = [step for step in steps if step["holds"]]
    others = steps_of(step for step in steps if not step["holds"])
    if others:
        # What is done to them stands above, and is the same for all.
        yield from folded(others, marked=False)
    yield from _first(f"{escape(step['path'])}/ and {step['holds']:,} below it" for step in whole)


def _done(value: Json) -> Iterator[Text]:
    if not value["changed"]:
        yield from _planned(value)
        return
    safety = value["safety"]
    if safety:
        yield Text(f"saved what was here as {safety[:7]}")
    yield Text(f"restored in {value['duration_ms'] / 1000:.1f} s, verified {value['verified']:,} paths")
    if value["head"]:
        yield Text(escape(value["head"]))
    if value["tracked_differing"]:
        number = value["tracked_differing"]
        yield Text(f"{number:,} tracked {'file differs' if number == 1 else 'files differ'} from HEAD now")
    if value["services"]:
        yield Text(escape(f"services: {'; '.join(value['services'])}"))
    for words, listed in (("kept as it is", value["kept"]), ("not as it was", value["losses"])):
        yield from _cut(f"{words}: '{escape(one['path'])}': {escape(one['why'])}" for one in listed)
    yield from _beyond(value)
    if value["undo"]:
        yield Text(f"go back with: {escape(value['undo'])}")


def _beyond(value: Json) -> Iterator[Text]:
    """What no restore brings back, and what is to be known beside it."""
    outside = value["outside"]
    told = [escape(_outside_words(one)) for one in outside[:MAX_OUTSIDE]]
    if len(outside) > MAX_OUTSIDE:
        told.append(f"{len(outside) - MAX_OUTSIDE:,} more packages and services")
    told += [f"{escape(process)} still runs the old code" for process in value["running"][:MAX_TOLD]]
    if told:
        yield Text("not restored: " + "; ".join(told))
    yield from _cut(f"not undone: {escape(effect['text'])}" for effect in value["effects"])
    if value["executables"]:
        yield Text(
            f"{len(value['executables']):,} programs in it are somebody else's: to run them is to trust them"
        )
    yield from (Text(escape(f"warning: {warning}"), "yellow") for warning in value["warnings"])


def _outside_words(fact: Json) -> str:
    (change,) = facts_from_values([fact])
    running = f" {fact['after'] or ''}" if fact["probe"] == SERVICE else ""
    return f"{fact['probe']} {name_of(change)}{running}" + (
        f" ({fact['command']})" if fact["command"] else ""
    )


def _first(words: Iterable[str]) -> Iterator[str]:
    told = list(words)
    yield from told[:MAX_TOLD]
    if len(told) > MAX_TOLD:
        yield f"and {len(told) - MAX_TOLD:,} more"


def _cut(words: Iterable[str]) -> Iterator[Text]:
    yield from map(Text, _first(words))


# A moment in full, what differs between two: text out of the values of `envlog show --json`, `envdiff --json`.

VERDICTS = {
    "pass": ("✓", "verify passing", "green"),
    "fail": ("✗", "verify failing", "red"),
    "error": ("!", "verify could not run", "yellow"),
}
MAX_LISTED = 20
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
    yield from (Text(" " * HANG + escape(one)) for one in words[:MAX_LISTED])
    if len(words) > MAX_LISTED:
        yield Text(f"{' ' * HANG}and {len(words) - MAX_LISTED:,} more")
