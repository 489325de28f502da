"""The library has a verb for each command and a parameter for each option, or a reason; its facade is one class."""

from __future__ import annotations

import inspect
import re
from abc import ABC

import pytest

from git_envhist import EnvHistory, model
from git_envhist.capture.pipeline import CaptureKeywords
from git_envhist.context import HistoryContext
from git_envhist.discovery import InitKeywords
from git_envhist.history.search import LogKeywords
from git_envhist.history.why import WhyKeywords
from git_envhist.restore.options import MergeKeywords, RestoreKeywords, RevertKeywords
from git_envhist.tracking.effects import Effects, Observations
from git_envhist.tracking.tasks import Tasks
from tests.rules.api_map import ASKED, NOT_ASKED, PROGRAMS_ALONE, VERBS
from tests.rules.built import commands, options
from tests.rules.source import CHECKOUT

OBJECTS = {"tasks": Tasks, "effects": Effects, "observed": Observations}
BY_NAME: dict[str, type] = {
    "log": LogKeywords,
    "capture": CaptureKeywords,
    "init": InitKeywords,
    **dict.fromkeys(("restore", "undo", "redo", "preview", "write_to"), RestoreKeywords),
    "revert": RevertKeywords,
    "why": WhyKeywords,
    "merge": MergeKeywords,
}
"""Keywords of a verb, in addition to its own parameters."""
OWN_OPTIONS = sorted(option for option in options() if not option.startswith("every "))


def verb_of(name: str) -> object:
    owner, _, verb = name.rpartition(".")
    return getattr(OBJECTS[owner] if owner else EnvHistory, verb)


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
    assert (option in ASKED) != (option in NOT_ASKED), "add the option to tests/rules/api_map.py"
    if option in ASKED:
        verb, _, parameter = ASKED[option].rstrip(")").partition("(")
        assert parameter in parameters_of(verb)


def test_history_is_one_class_on_top_of_the_context() -> None:
    assert EnvHistory.__mro__ == (EnvHistory, HistoryContext, ABC, object)


@pytest.mark.parametrize("verb", ["log", "capture", "restore", "revert", "merge", "init"])
def test_docstring_names_every_keyword_of_a_verb(verb: str) -> None:
    told = inspect.getdoc(verb_of(verb)) or ""
    assert not {name for name in BY_NAME[verb].__annotations__ if f"`{name}`" not in told}


NO_VALUES = {
    **dict.fromkeys(("None", "Self", "Any", "Callable", "Iterator", "Generator"), "no class of ours"),
    **dict.fromkeys(
        ("Forget", "Asked", "CaptureKeywords", "EnvPath", "Git"),
        "a function, a dictionary, bytes, git itself",
    ),
    **dict.fromkeys(
        ("GuardedWork", "FileReader", "LiveTree", "OriginReader"), "lives as long as its context"
    ),
    **dict.fromkeys(
        ("Origin", "LineOrigin", "FailureAnswer"),
        "a frozen class of history, which the packages below do not know",
    ),
}


def test_results_of_verbs_are_frozen() -> None:
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


def test_map_lists_existing_options_only() -> None:
    assert not {*ASKED, *NOT_ASKED} - set(OWN_OPTIONS)


def test_page_of_the_library_names_every_verb() -> None:
    told = (
        (CHECKOUT / "docs/guide/api.md").read_text(encoding="utf-8").partition("## Programs and methods")[2]
    )
    verbs = {verb.partition(".")[0] for verbs in VERBS.values() for verb in verbs}
    assert not {verb for verb in verbs if verb not in told}
