"""What a restore would do, and what it did: text out of the values of `envrestore --json`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from git_envhist.browse.plaintext import Text
from git_envhist.browse.texts import HANG, folded, wrap_lines
from git_envhist.browse.values import Json, steps_of
from git_envhist.history.factkeys import name_of
from git_envhist.history.facts import facts_from_values
from git_envhist.history.outside import SERVICE
from git_envhist.spelling import escape

TITLES = (("write", "write"), ("replace", "replace"), ("adjust", "set modes and times"), ("remove", "remove"))
MOST_TOLD = 20
MOST_OUTSIDE = 3


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
    told = [escape(_outside_words(one)) for one in outside[:MOST_OUTSIDE]]
    if len(outside) > MOST_OUTSIDE:
        told.append(f"{len(outside) - MOST_OUTSIDE:,} more packages and services")
    told += [f"{escape(process)} still runs the old code" for process in value["running"][:MOST_TOLD]]
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
    yield from told[:MOST_TOLD]
    if len(told) > MOST_TOLD:
        yield f"and {len(told) - MOST_TOLD:,} more"


def _cut(words: Iterable[str]) -> Iterator[Text]:
    yield from map(Text, _first(words))
