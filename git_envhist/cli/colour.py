"""Whether to colour, decided as git does it, and with which colours.

`--color` wins; then NO_COLOR and FORCE_COLOR; then `color.envhist` and `color.ui`, which git itself reads and joins
with whether there is a terminal that can show it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from git_envhist.cli.terminal import MARK, marked
from git_envhist.store.git import SAFE_GIT, spawn
from git_envhist.values import dataclass

Config = Iterable[tuple[str, str | None]]

DECIDING = frozenset(("color.envhist", "color.ui"))
RESET = f"{MARK}[m"
DEFAULTS = {
    "id": "\x1b[33m",
    "time": "",
    "pass": "\x1b[32m",
    "fail": "\x1b[31m",
    "error": "\x1b[35m",
    "none": "\x1b[2m",
    "intent": "",
    "name": "\x1b[1;36m",
    "story": "\x1b[2m",
    "added": "\x1b[32m",
    "removed": "\x1b[31m",
    "modified": "\x1b[36m",
    "heading": "\x1b[1m",
}


@dataclass(frozen=True, slots=True)
class Palette:
    """The colour of each kind of word; an empty palette leaves texts as they are."""

    colours: Mapping[str, str]

    def paint(self, slot: str, text: str) -> str:
        colour = marked(self.colours.get(slot, ""))
        return f"{colour}{text}{RESET}" if colour and text else text

    @property
    def coloured(self) -> bool:
        return bool(self.colours)


PLAIN = Palette({})


def wants_colour(
    when: str | None, environ: Mapping[str, str], terminal: bool, configured: Callable[[bool], bool]
) -> bool:
    """The decision, from the word of `--color`, the environment, the terminal and what is configured."""
    if when in ("always", "never"):
        return when == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR", "0") != "0":
        return True
    terminal = terminal and environ.get("TERM", "dumb") != "dumb"
    return terminal if when == "auto" else configured(terminal)


def ask_git(terminal: bool) -> bool:
    """What `color.envhist` and `color.ui` say, in git's own reading."""
    answer = spawn(
        [*SAFE_GIT, "config", "--get-colorbool", "color.envhist", "true" if terminal else "false"],
        os.environb,
    )
    return answer.status == 0 and answer.out.strip() == b"true"


def _never_without_terminal(terminal: bool) -> bool:
    # Where nothing is configured, git's answer is "auto".
    return terminal and ask_git(terminal)


def choose_palette(when: str | None, *, terminal: bool, config: Config | None = None) -> Palette:
    """The palette for this run: the defaults under what `color.envhist.<slot>` says, or none at all.

    `config` is what git's configuration says, where that is known: then git is asked only if it has a say.
    """
    # With `git -p` the other end of the pipe is git's own pager, which shows colours.
    shown = terminal or os.environ.get("GIT_PAGER_IN_USE") == "true"
    says_nothing = config is not None and DECIDING.isdisjoint(key for key, _ in config)
    if not wants_colour(when, os.environ, shown, _never_without_terminal if says_nothing else ask_git):
        return PLAIN
    return Palette({**DEFAULTS, **_configured_colours()})


def _configured_colours() -> dict[str, str]:
    listed = spawn([*SAFE_GIT, "config", "--name-only", "--get-regexp", r"^color\.envhist\."], os.environb)
    slots = {os.fsdecode(line).rsplit(".", 1)[1] for line in listed.out.splitlines()}
    return {slot: _ask_colour(slot) for slot in sorted(slots & DEFAULTS.keys())}


def _ask_colour(slot: str) -> str:
    answer = spawn([*SAFE_GIT, "config", "--get-color", f"color.envhist.{slot}", ""], os.environb)
    return answer.out.decode("ascii", "replace")
