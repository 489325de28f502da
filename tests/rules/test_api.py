"""Everything the programs do goes through the library: each command and each option has its verb, or a reason."""

from __future__ import annotations

import inspect
import re

import pytest

from git_envhist import EnvHistory, model
from git_envhist.capture.pipeline import CaptureKeywords
from git_envhist.discovery import InitKeywords
from git_envhist.history.search import LogKeywords
from git_envhist.restore.options import RestoreKeywords
from git_envhist.tracking.effects import Effects, Observations
from git_envhist.tracking.tasks import Tasks
from tests.rules.api_map import ASKED, NOT_ASKED, PROGRAMS_ALONE, VERBS
from tests.rules.built import commands, options
from tests.rules.source import CHECKOUT

ROOMS = {"tasks": Tasks, "effects": Effects, "observed": Observations}
BY_NAME: dict[str, type] = {
    "log": LogKeywords,
    "capture": CaptureKeywords,
    "init": InitKeywords,
    **dict.fromkeys(("restore", "undo", "redo", "preview", "write_to"), RestoreKeywords),
}
"""What a verb is asked by name, beside its own parameters."""
OWN_OPTIONS = sorted(option for option in options() if not option.startswith("every "))


def verb_of(name: str) -> object:
    room, _, verb = name.rpartition(".")
    return getattr(ROOMS[room] if room else EnvHistory, verb)


def parameters_of(name: str) -> set[str]:
    verb = verb_of(name)
    assert callable(verb)
    by_name = BY_NAME.get(name)
    return {*inspect.signature(verb).parameters, *(by_name.__annotations__ if by_name else ())}


def test_every_command_has_its_verb_or_a_reason() -> None:
    assert sorted(commands()) == sorted({**VERBS, **PROGRAMS_ALONE})
    for verbs in VERBS.values():
        for verb in verbs:
            assert verb_of(verb) is not None


@pytest.mark.parametrize("option", OWN_OPTIONS)
def test_every_option_is_a_parameter_or_has_a_reason(option: str) -> None:
    assert (option in ASKED) != (option in NOT_ASKED), "tests/rules/api_map.py says which"
    if option in ASKED:
        verb, _, parameter = ASKED[option].rstrip(")").partition("(")
        assert parameter in parameters_of(verb)


@pytest.mark.parametrize("verb", ["log", "capture", "restore", "init"])
def test_help_names_all_that_a_verb_is_asked_by_name(verb: str) -> None:
    told = inspect.getdoc(verb_of(verb)) or ""
    assert not {name for name in BY_NAME[verb].__annotations__ if f"`{name}`" not in told}


NO_VALUES = {
    **dict.fromkeys(("None", "Self", "Any", "Callable", "Iterator", "Generator"), "no class of ours"),
    **dict.fromkeys(
        ("Forget", "Asked", "CaptureKeywords", "EnvPath", "Git"),
        "a function, a dictionary, bytes, git itself",
    ),
    **dict.fromkeys(("GuardedWork", "FileReader", "LiveTree"), "lives as long as its context"),
}


def test_what_the_verbs_give_is_frozen() -> None:
    verbs = inspect.getmembers(EnvHistory, inspect.isfunction)
    told = [str(verb.__annotations__.get("return")) for name, verb in verbs if not name.startswith("_")]
    given = {word for words in told for word in re.findall(r"\b[A-Z]\w+", words)} - set(NO_VALUES)
    for word in sorted(
        {
            *given,
            "ResumePoint",
            "Task",
            "Effect",
            "ObservedCheckpoint",
            "TrashedSnapshot",
            "PrunedTimeline",
            "PushedTimeline",
            "RemainingObject",
        }
    ):
        kind = getattr(model, word)
        frozen = kind.__dataclass_params__.frozen if hasattr(kind, "__dataclass_params__") else False
        assert frozen or issubclass(kind, tuple), word


def test_nothing_is_told_of_an_option_that_is_none() -> None:
    assert not {*ASKED, *NOT_ASKED} - set(OWN_OPTIONS)


def test_the_page_of_the_library_tells_of_every_verb() -> None:
    told = (
        (CHECKOUT / "docs/api.md").read_text(encoding="utf-8").partition("## The verbs, and the programs")[2]
    )
    verbs = {verb.partition(".")[0] for verbs in VERBS.values() for verb in verbs}
    assert not {verb for verb in verbs if verb not in told}
