"""The texts that git runs: made from the shims in `hooks/`, found again in others' files, cut out of them. Pure but for
reading the shims.

A shim starts the program in the background of a subshell of its own: whoever's script it stands in has no child to
wait for and no `$!` that it did not set, its input is untouched, and nothing of it can fail.
"""

from __future__ import annotations

import os
import re
import shlex
from functools import cache

START = b"# >>> git-envhist"
END = b"# <<< git-envhist"
NAMED = "--named"
"""A hook that was installed for every repository calls the program with this: it captures named ones alone."""
KEPT = ".pre-envhist"
"""What stood in a hook's place before, and cannot be added to, bears this ending."""
UNLESS = {
    "post-commit": '[ -d "${GIT_DIR:-.git}/rebase-merge" ] || ',
    "pre-push": '[ "$(git config --type=bool envhist.autoPush 2>/dev/null)" != true ] || ',
}
"""Of the hundred commits of a rebase none needs a process: its beginning and its end are told by other hooks. A push
takes one where the history is to go along."""
HEAD = b"#!/bin/sh\n"
BLOCK = re.compile(rb"(?ms)^# >>> git-envhist[^\n]*\n.*?^# <<< git-envhist[^\n]*\n?")
SHELL = re.compile(rb"#!\s*(/usr/bin/env\s+)?(/\S*/)?(sh|bash|dash|ash|ksh|mksh|zsh)(\s+-[a-z]+)*\s*\n")


@cache
def template(name: str) -> str:
    """A shim as it stands in `hooks/`; an installation carries them inside the package."""
    package = os.path.realpath(__file__).rsplit("/", 3)[0]
    carried = os.path.join(package, "_hooks", name)
    beside = os.path.join(os.path.dirname(package), "hooks", name)
    with open(carried if os.path.exists(carried) else beside, encoding="utf-8") as file:
        return file.read()


def block(event: str, program: str, *, everywhere: bool = False) -> bytes:
    """The lines for a hook that is a script of the shell."""
    return _fill("git-hook.sh", event, program, everywhere)


def whole(event: str, program: str, *, everywhere: bool = False) -> bytes:
    """A hook of our own."""
    return HEAD + block(event, program, everywhere=everywhere)


def before_another(event: str, program: str, *, everywhere: bool = False) -> bytes:
    """A hook of our own that goes on with what stood there before."""
    ours = whole(event, program, everywhere=everywhere)
    return ours + _fill("git-hook-before-another.sh", event, program, everywhere)


def command(event: str, program: str, *, everywhere: bool = False) -> str:
    """The command of a hook that is configured."""
    return (
        _fill("git-config-hook.sh", event, program, everywhere)
        .decode("utf-8", "surrogateescape")
        .rstrip("\n")
    )


def with_block(script: bytes, lines: bytes) -> bytes:
    """A script of the shell with our lines in it: in place of older ones, else before all that it does."""
    if BLOCK.search(script):
        return BLOCK.sub(lambda _: lines, script, count=1)
    first, newline, rest = script.partition(b"\n")
    return first + newline + lines + rest


def without_block(script: bytes) -> bytes | None:
    """What is left of a script when ours is cut out; None where that is nothing anybody wrote."""
    left = BLOCK.sub(b"", script)
    alone = left == HEAD or left.startswith(HEAD + _another_line())
    return None if alone else left


def is_ours(script: bytes) -> bool:
    """Whether our lines stand in it."""
    return BLOCK.search(script) is not None


def is_for_named(script: bytes) -> bool:
    """Return whether our lines in it capture named repositories alone."""
    return any(f" hook {NAMED} ".encode() in found for found in BLOCK.findall(script))


def calls_another(script: bytes) -> bool:
    """Whether it is our own hook that goes on with what stood there before."""
    return is_ours(script) and _another_line() in script


def is_shell(script: bytes) -> bool:
    """Whether lines can be added to it that the shell reads."""
    return SHELL.match(script) is not None


def _another_line() -> bytes:
    return template("git-hook-before-another.sh").partition("\n")[0].encode()


def _fill(name: str, event: str, program: str, everywhere: bool) -> bytes:
    text = template(name).replace("@UNLESS@", UNLESS.get(event, ""))
    text = text.replace("@NAMED@", f"{NAMED} " if everywhere else "")
    text = text.replace("@PROGRAM@", shlex.quote(program)).replace("@EVENT@", event)
    return os.fsencode(text)
