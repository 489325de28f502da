"""git itself as an integration: hooks of the configuration where git runs those, else the directory it really uses."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any

from git_envhist.disk import Durability, replace_file, state_directory
from git_envhist.errors import EnvhistError, GitFailed, Refused
from git_envhist.git.process import SAFE_GIT, clean_environment, spawn
from git_envhist.git.repository import Repository
from git_envhist.integrations.base import NOT_NAMED, InstallPlan, InstallTarget
from git_envhist.integrations.edits import PROGRAM_MODE, look, rewrite
from git_envhist.lazy import replace
from git_envhist.model import Trigger
from git_envhist.model.work import FileEdit, FileState, HookRun, InstalledPart, PendingHook
from git_envhist.platform import open_file_only

# The hooks of git that we answer, and what each causes: a kind of capture, or a push that rides along.

EVENTS = {
    "post-commit": Trigger.COMMIT,
    "post-merge": Trigger.MERGE,
    "post-checkout": Trigger.CHECKOUT,
    "post-rewrite": Trigger.REWRITE,
}
RIDING = "pre-push"
"""Here nothing is captured: the history is pushed too, where `envhist.autoPush` says so."""
HOOKS = (*EVENTS, RIDING)


# What hooks left to do, and what came of it: a mark and a short log in the git directory of the working tree.
#
# The mark is written before anything else and goes when a capture holds what it stands for: whatever kills a worker,
# the next hook makes up for it. The log is bounded; it is written by the worker that holds the lock, and may be lost.

MAX_COUNT = 50
"""So many outcomes are kept."""
MAX_LENGTH = 500
"""So much is kept of what went wrong."""


UNREADABLE = (0, 0)


def place_of(state: str) -> str:
    """The directory of hooks in a working tree's state."""
    return os.path.join(state, "hooks")


def leave_mark(place: str, event: str) -> None:
    """Say that a capture is wanted."""
    state_directory(place)
    data = json.dumps([event, time.time()]).encode("ascii")
    replace_file(os.path.join(place, "pending"), data, durability=Durability.NONE, unique=True)


def read_mark(place: str) -> PendingHook | None:
    """The latest mark that nobody has answered."""
    path = os.path.join(place, "pending")
    try:
        with open(path, encoding="ascii", opener=open_file_only) as file:
            seen = os.fstat(file.fileno())
            event, at = json.load(file)
        return PendingHook(str(event), float(at), (seen.st_ino, seen.st_mtime_ns))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):
        # A mark that cannot be read wants a capture all the same.
        return PendingHook("post-commit", time.time(), UNREADABLE) if os.path.exists(path) else None


def take_mark(place: str, mark: PendingHook) -> bool:
    """Remove a mark that was answered; False where a newer one has come."""
    path, taken = os.path.join(place, "pending"), os.path.join(place, "taken")
    with suppress(FileNotFoundError):
        # Out of the way first, then looked at: what comes between the two is not removed for the one before.
        os.rename(path, taken)
        seen = os.stat(taken)
        newer = mark.seen not in (UNREADABLE, (seen.st_ino, seen.st_mtime_ns))
        if newer:
            with suppress(FileExistsError):
                os.link(taken, path)
        os.unlink(taken)
        return not newer
    return True


def write_outcome(place: str, outcome: HookRun) -> None:
    """Add to the log; the oldest go."""
    rows = [_row(one) for one in read_outcomes(place)[-(MAX_COUNT - 1) :]]
    text = "".join(json.dumps(row) + "\n" for row in [*rows, _row(outcome)])
    path = os.path.join(place, "log")
    replace_file(path, text.encode("utf-8"), durability=Durability.NONE)


def read_outcomes(place: str) -> tuple[HookRun, ...]:
    """The log, oldest first; a line that cannot be read is passed over."""
    try:
        with open(
            os.path.join(place, "log"), encoding="utf-8", errors="replace", opener=open_file_only
        ) as file:
            lines = file.read().splitlines()
    except OSError:
        return ()
    return tuple(outcome for line in lines if (outcome := _read(line)) is not None)


def _row(outcome: HookRun) -> dict[str, Any]:
    row = {name: getattr(outcome, name) for name in ("event", "at", "result", "seconds", "snapshot")}
    return {**row, "message": outcome.message[:MAX_LENGTH], "hint": outcome.hint[:MAX_LENGTH]}


def _read(line: str) -> HookRun | None:
    try:
        row = json.loads(line)
        texts = {name: str(row[name]) for name in ("event", "result", "message", "hint")}
        snapshot = row["snapshot"]
        return HookRun(
            at=float(row["at"]),
            seconds=float(row["seconds"]),
            snapshot=None if snapshot is None else str(snapshot),
            **texts,
        )
    except (ValueError, KeyError, TypeError):
        return None


# Where git looks for hooks: its version decides whether the configuration may name them, and it says itself where the
# directory is.

CONFIGURED_SINCE = (2, 54)
"""From this version on git runs hooks that the configuration names."""


def git_version() -> tuple[int, ...]:
    """The version of the git on the PATH."""
    done = spawn(["git", "version"], clean_environment())
    found = re.search(rb"(\d+)\.(\d+)(?:\.(\d+))?", done.out)
    if found is None:
        raise GitFailed(f"git does not say its version: {done.complaint}")
    return tuple(int(part) for part in found.groups(b"0"))


def hooks_directory(repository: Repository) -> str:
    """The directory that git really uses for this working tree, whoever configured it."""
    # Without our own overrides: they would hide it.
    words = [*SAFE_GIT, "-C", repository.root, "rev-parse", "--git-path", "hooks"]
    done = spawn(words, repository.git.environment)
    if done.status != 0:
        raise GitFailed(done.complaint)
    return os.path.join(repository.root, os.fsdecode(done.out).removesuffix("\n"))


def user_config(place: InstallTarget) -> str:
    """The file that `git config --global` writes."""
    named = place.environ.get("GIT_CONFIG_GLOBAL")
    if named:
        return named
    usual = os.path.join(place.home, ".gitconfig")
    xdg = os.path.join(place.config_home, "git", "config")
    # As git has it: the second is written only where it is there and the first is not.
    return xdg if os.path.exists(xdg) and not os.path.exists(usual) else usual


def user_value(place: InstallTarget, key: str) -> str | None:
    """A path in the user's own configuration, `~` resolved; None where there is none."""
    environment = clean_environment()
    words = ["git", "config", "--file", user_config(place), "--includes", "--type=path", "--get", key]
    done = spawn(words, environment)
    return os.fsdecode(done.out).removesuffix("\n") if done.status == 0 else None


def is_below(path: str, directory: str) -> bool:
    """Whether a path is the directory or stands in it."""
    inner, outer = os.path.realpath(path), os.path.realpath(directory)
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")


def is_ignored(repository: Repository, path: str) -> bool:
    """Whether the code takes no notice of a path in the working tree."""
    return repository.git.try_run("check-ignore", "-q", "--no-index", "--", path).status == 0


def place_of_pushes(state: str) -> str:
    """Where marks and outcomes of these pushes are kept, in a working tree's state."""
    return os.path.join(place_of(state), "push")


# The texts that git runs: made from the shims in `hooks/`, found again in others' files, cut out of them. Pure but for
# reading the shims.
#
# A shim starts the program in the background of a subshell of its own: whoever's script it stands in has no child to
# wait for and no `$!` that it did not set, its input is untouched, and nothing of it can fail.

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
    package = os.path.realpath(__file__).rsplit("/", 2)[0]
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


# Hooks that git's configuration names (git 2.54 and newer): a few sections at the end of a file, between two marks.
#
# They stand beside whatever is in the hooks directory, so nothing has to be chained, and no other tool's installation
# can lose them.


def plan_configured_hooks(path: str, program: str, *, everywhere: bool = False) -> FileEdit:
    """The sections in a file of git's configuration, in place of older ones."""
    return rewrite(path, _with(_read_hook_configuration(path), sections(program, everywhere=everywhere)))


def plan_configured_removal(path: str) -> FileEdit | None:
    """The file without them; None where they are not in it."""
    text = _read_hook_configuration(path)
    left = BLOCK.sub(b"", text)
    if left == text:
        return None
    return rewrite(path, left or None)


def sections(program: str, *, everywhere: bool = False) -> bytes:
    """What is written."""
    lines = []
    for event in HOOKS:
        told = _quoted(command(event, program, everywhere=everywhere))
        lines += [f'[hook "envhist-{event}"]', f"\tevent = {event}", f"\tcommand = {told}"]
    return marked("\n".join([*lines, ""]).encode("utf-8", "surrogateescape"))


def marked(ours: bytes) -> bytes:
    """Lines of a configuration between our marks."""
    return START + b": git envlog uninstall takes these lines away\n" + ours + END + b"\n"


def configured_parts(
    path: str, version: tuple[int, ...], since: tuple[int, ...]
) -> tuple[InstalledPart, ...]:
    """The events that the sections name; nothing where there are none."""
    found = BLOCK.search(_read_hook_configuration(path))
    if found is None:
        return ()
    old = version < since
    remark = (
        f"git {_dotted(version)} does not run hooks of the configuration: git envlog install" if old else ""
    )
    there = set(re.findall(r"event = (\S+)", found.group().decode("utf-8", "replace")))
    return tuple(
        InstalledPart(
            event, event in there and not old, path, remark if event in there else "not named there"
        )
        for event in HOOKS
    )


def _with(text: bytes, ours: bytes) -> bytes:
    if BLOCK.search(text):
        return BLOCK.sub(lambda _: ours, text, count=1)
    return text + (b"" if not text or text.endswith(b"\n") else b"\n") + ours


def _read_hook_configuration(path: str) -> bytes:
    edit = rewrite(path, b"")
    content = look(edit.path)
    return content.data if content is not None else b""


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


# Hooks in the directory that git uses: what stands there keeps running, and comes back byte for byte.
#
# A script of the shell gets our lines before all that it does: it keeps its name, its place, its input and its status,
# whatever it goes by (husky's scripts go by their own name, pre-commit's are known to it by their content). Anything
# else (another language, a program, a link, a script that is switched off) gets the ending `.pre-envhist` and is called
# by ours.

EXECUTABLE = 0o111
MOVED_AWAY = (".legacy", ".old")
"""What pre-commit and lefthook call the hook that stood in their place; the first still calls it."""


def plan(directory: str, program: str, *, everywhere: bool = False) -> tuple[FileEdit, ...]:
    """Every event's hook calls us first, and then what was there."""
    return tuple(edit for event in HOOKS for edit in _plan(directory, event, program, everywhere))


def plan_away(directory: str) -> tuple[FileEdit, ...]:
    """Nothing of ours is left in the directory, also where another tool has moved it aside."""
    return tuple(edit for event in HOOKS for edit in _plan_away(directory, event))


def parts(directory: str) -> tuple[InstalledPart, ...]:
    """What of ours is there, event by event; nothing where there is none at all."""
    found = [_part(directory, event) for event in HOOKS]
    return tuple(found) if any(part.active or part.remark for part in found) else ()


def _plan(directory: str, event: str, program: str, everywhere: bool) -> Iterator[FileEdit]:
    path = os.path.join(directory, event)
    there = look(path)
    if there is None:
        yield FileEdit(path, None, FileState(whole(event, program, everywhere=everywhere), PROGRAM_MODE))
    elif calls_another(there.data):
        yield FileEdit(
            path, there, FileState(before_another(event, program, everywhere=everywhere), PROGRAM_MODE)
        )
    elif is_ours(there.data) or _takes_lines(there):
        yield FileEdit(
            path,
            there,
            FileState(with_block(there.data, block(event, program, everywhere=everywhere)), there.mode),
        )
    else:
        yield _put_aside(path + KEPT, there)
        yield FileEdit(
            path, there, FileState(before_another(event, program, everywhere=everywhere), PROGRAM_MODE)
        )


def _put_aside(kept: str, there: FileState) -> FileEdit:
    already = look(kept)
    # An installation that was broken off may have come as far as this.
    if already not in (None, there):
        raise Refused(
            f"what stood there at an earlier time is still there: '{kept}'",
            hint="move it away, or 'git envlog uninstall' first; then install again",
        )
    return FileEdit(kept, already, there)


def _takes_lines(there: FileState) -> bool:
    return there.mode is not None and bool(there.mode & EXECUTABLE) and is_shell(there.data)


def _plan_away(directory: str, event: str) -> Iterator[FileEdit]:
    path = os.path.join(directory, event)
    for place in (path, *(path + ending for ending in MOVED_AWAY)):
        there = look(place)
        if there is None or there.mode is None or not is_ours(there.data):
            continue
        kept = look(path + KEPT) if calls_another(there.data) else None
        left = without_block(there.data)
        if kept is not None:
            yield FileEdit(place, there, kept)
            yield FileEdit(path + KEPT, kept, None)
        else:
            yield FileEdit(place, there, FileState(left, there.mode) if left is not None else None)


def _part(directory: str, event: str) -> InstalledPart:
    path = os.path.join(directory, event)
    there = look(path)
    if there is not None and is_ours(there.data):
        switched_off = there.mode is None or not there.mode & EXECUTABLE
        return InstalledPart(event, not switched_off, path, "it is not executable" if switched_off else "")
    for ending in MOVED_AWAY:
        aside = look(path + ending)
        if aside is not None and is_ours(aside.data):
            return _moved(event, path, ending, there)
    return InstalledPart(event, False, path)


def _moved(event: str, path: str, ending: str, there: FileState | None) -> InstalledPart:
    called = there is not None and ending == ".legacy" and b"pre-commit" in there.data
    if called:
        return InstalledPart(event, True, path + ending, "called by pre-commit")
    return InstalledPart(
        event, False, path + ending, "another tool has put its own hook in place of ours: git envlog install"
    )


ONLY_NAMED = (
    "hooks of every repository capture where a person captured once (git envlog capture), or installed"
)


class GitHooks:
    """The hooks of git."""

    @property
    def name(self) -> str:
        return "git"

    def plan_install(self, place: InstallTarget) -> InstallPlan:
        if git_version() >= CONFIGURED_SINCE:
            return _configured(place)
        return _everywhere(place) if place.everywhere else _in_directory(place)

    def plan_uninstall(self, place: InstallTarget) -> InstallPlan:
        found = [plan_configured_removal(_config_file(place))]
        return InstallPlan(
            (*filter(None, found), *(e for each in _directories(place) for e in plan_away(each)))
        )

    def parts(self, place: InstallTarget) -> tuple[InstalledPart, ...]:
        version = git_version()
        found = configured_parts(_config_file(place), version, CONFIGURED_SINCE)
        if place.everywhere:
            found = (*found, *(part for each in _directories(place) for part in parts(each)))
        else:
            found = (*found, *_parts_of_directory(place, bool(found)))
        return _as_named(place, found)


def _as_named(place: InstallTarget, found: tuple[InstalledPart, ...]) -> tuple[InstalledPart, ...]:
    """Return the parts; hooks of every repository are not active in one that no person named."""
    repository = place.repository
    if repository is None or place.trusted.has_repository(repository.common_dir):
        return found
    return tuple(
        replace(part, active=False, remark=NOT_NAMED) if part.active and _is_for_named(part.place) else part
        for part in found
    )


def _is_for_named(path: str) -> bool:
    content = look(path)
    return content is not None and is_for_named(content.data)


def _configured(place: InstallTarget) -> InstallPlan:
    """The configuration alone: what stood in the directory for an older git would be called, too."""
    away = [edit for each in _directories(place) for edit in plan_away(each)]
    remarks = (ONLY_NAMED,) if place.everywhere else ()
    return InstallPlan(
        (plan_configured_hooks(_config_file(place), place.program, everywhere=place.everywhere), *away),
        remarks,
    )


def _in_directory(place: InstallTarget) -> InstallPlan:
    repository = _repository(place)
    where = hooks_directory(repository)
    if not place.force:
        _refuse_anothers(repository, where)
    return InstallPlan(plan(where, place.program))


def _everywhere(place: InstallTarget) -> InstallPlan:
    """An older git: the user's own hooks directory, else the template of repositories to come."""
    chosen = user_value(place, "core.hooksPath")
    if chosen is not None:
        return InstallPlan(plan(chosen, place.program, everywhere=True), (ONLY_NAMED,))
    template = user_value(place, "init.templateDir")
    remark = f"repositories made from now on have the hooks; in one that is there: git envlog install; {ONLY_NAMED}"
    if template is not None:
        return InstallPlan(plan(os.path.join(template, "hooks"), place.program, everywhere=True), (remark,))
    template = _own_template(place)
    edits = plan(os.path.join(template, "hooks"), place.program, everywhere=True)
    return InstallPlan((*edits, _template_configured(place, template)), (remark,))


def _own_template(place: InstallTarget) -> str:
    return os.path.join(place.state, "template")


def _template_configured(place: InstallTarget, template: str) -> FileEdit:
    edit = rewrite(user_config(place), b"")
    text = edit.before.data if edit.before is not None else b""
    newline = b"" if not text or text.endswith(b"\n") else b"\n"
    quoted = os.fsencode(template.replace("\\", "\\\\").replace('"', '\\"'))
    ours = marked(b'[init]\n\ttemplateDir = "' + quoted + b'"\n')
    return rewrite(edit.path, text + newline + ours)


def _refuse_anothers(repository: Repository, where: str) -> None:
    if is_below(where, repository.common_dir):
        return
    if not is_below(where, repository.root):
        raise Refused(
            f"the hooks of this repository are shared with others: '{where}'",
            hint="for all that use them: --force; or give this one its own: git config core.hooksPath <directory>",
        )
    if not is_ignored(repository, os.path.join(where, "post-commit")):
        raise Refused(
            f"the hooks of this repository are part of its code: '{where}'",
            hint="to change them all the same: --force; with git 2.54 and newer they need no change",
        )


def _config_file(place: InstallTarget) -> str:
    if place.everywhere or place.repository is None:
        return user_config(place)
    return os.path.join(place.repository.common_dir, "config")


def _directories(place: InstallTarget) -> tuple[str, ...]:
    """Every directory where ours may stand: the one that git uses, and the one that it would use by itself."""
    if not place.everywhere and place.repository is not None:
        usual = os.path.join(place.repository.common_dir, "hooks")
        return tuple(dict.fromkeys((os.path.normpath(hooks_directory(place.repository)), usual)))
    template = user_value(place, "init.templateDir") or _own_template(place)
    chosen = user_value(place, "core.hooksPath")
    return tuple(filter(None, (chosen, os.path.join(template, "hooks"))))


def _parts_of_directory(place: InstallTarget, is_configured: bool) -> tuple[InstalledPart, ...]:
    repository = _repository(place)
    used = hooks_directory(repository)
    found = parts(used)
    if found or is_configured:
        return found
    usual = os.path.join(repository.common_dir, "hooks")
    remark = f"git looks for hooks in '{used}' now: git envlog install"
    return tuple(
        InstalledPart(part.event, False, part.place, remark)
        for part in parts(usual)
        if not is_below(usual, used)
    )


def _repository(place: InstallTarget) -> Repository:
    if place.repository is None:
        raise EnvhistError("no repository is meant", hint="go to one, or install for all of them: --global")
    return place.repository
