"""Pager and colour are chosen as git chooses them."""

from __future__ import annotations

import pytest

from git_envhist.cli.output import pager_environment, pager_words, wants_colour


@pytest.mark.parametrize(
    ("when", "environ", "terminal", "configured", "wanted"),
    [
        (None, {}, True, True, True),
        (None, {}, True, False, False),
        ("always", {"NO_COLOR": "1", "TERM": "dumb"}, False, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, True, False),
        (None, {"NO_COLOR": "1"}, True, True, False),
        (None, {"NO_COLOR": ""}, True, True, True),
        (None, {"FORCE_COLOR": "1"}, False, False, True),
        (None, {"FORCE_COLOR": "0"}, True, False, False),
        ("auto", {}, True, False, True),
        ("auto", {}, False, True, False),
        ("auto", {"TERM": "dumb"}, True, True, False),
    ],
)
def test_colour_option_wins_over_environment_and_configuration(
    when: str | None, environ: dict[str, str], terminal: bool, configured: bool, wanted: bool
) -> None:
    environ = {"TERM": "xterm", **environ}
    assert wants_colour(when, environ, terminal, lambda terminal: configured) is wanted


def test_dumb_terminal_is_no_terminal_for_git() -> None:
    asked: list[bool] = []
    wants_colour(None, {"TERM": "dumb"}, True, lambda terminal: bool(asked.append(terminal)))
    assert asked == [False]


def test_pager_environment_has_gits_defaults() -> None:
    assert pager_environment({}) == {"LESS": "FRX", "LV": "-c"}
    assert pager_environment({"LESS": "R"})["LESS"] == "R"


def test_only_a_pager_with_arguments_needs_a_shell() -> None:
    assert pager_words("less") == ["less"]
    assert pager_words("less -S | cat") == ["/bin/sh", "-c", "less -S | cat"]
