"""Install hooks for git, and exchange marks and results with them.

From git 2.54 on the configuration names our hooks: a few sections between two marks, which hook managers keep.
For an older git the hooks are scripts in the directory that git uses. A shell script gets our lines before its own
and keeps its name, place, input and exit status (husky runs scripts by name, pre-commit recognises its own by
content). Anything else (another language, a binary, a link, a disabled script) is renamed to `.pre-envhist` and
called by our hook.

A hook starts `git-envhist` in the background and never fails. It writes a `pending` mark before anything else; the
capture that covers the mark removes it, so the next hook repeats the work of a killed process. A log with a bounded
number of results is written under the capture lock.
"""

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
from git_envhist.git.process import SAFE_GIT, clean_environment, run_to_end
from git_envhist.git.repository import Repository
from git_envhist.integrations.base import NOT_NAMED, InstallPlan, InstallTarget
from git_envhist.integrations.edits import PROGRAM_MODE, plan_content, read_state
from git_envhist.lazy import replace
from git_envhist.model import Trigger
from git_envhist.model.integrations import FileEdit, FileState, HookRun, InstalledPart, PendingHook
from git_envhist.platform import open_file_only

# The hooks of git that call us and the trigger of the capture that each one starts.

EVENTS = {
    "post-commit": Trigger.COMMIT,
    "post-merge": Trigger.MERGE,
    "post-checkout": Trigger.CHECKOUT,
    "post-rewrite": Trigger.REWRITE,
}
PUSH_HOOK = "pre-push"
"""This hook captures nothing: it pushes the history if `envhist.autoPush` is set."""
HOOKS = (*EVENTS, PUSH_HOOK)


# Marks and results of hooks, in the state directory of the working tree.

MAX_RESULTS = 50
"""Number of results in the log."""
MAX_MESSAGE = 500
"""Length of an error message in the log."""


UNREADABLE = (0, 0)


def hooks_state(state: str) -> str:
    """Return the directory for hook state of a working tree."""
    return os.path.join(state, "hooks")


def write_pending(place: str, event: str) -> None:
    """Record that a capture is wanted."""
    state_directory(place)
    data = json.dumps([event, time.time()]).encode("ascii")
    replace_file(os.path.join(place, "pending"), data, durability=Durability.NONE, unique=True)


def read_pending(place: str) -> PendingHook | None:
    """Return the pending mark, or None if there is none."""
    path = os.path.join(place, "pending")
    try:
        with open(path, encoding="ascii", opener=open_file_only) as file:
            status = os.fstat(file.fileno())
            event, at = json.load(file)
        return PendingHook(str(event), float(at), (status.st_ino, status.st_mtime_ns))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):
        # Capture for a mark that cannot be read, too.
        return PendingHook("post-commit", time.time(), UNREADABLE) if os.path.exists(path) else None


def remove_pending(place: str, mark: PendingHook) -> bool:
    """Remove a mark after its capture; return False and keep it if a newer one replaced it."""
    path, taken = os.path.join(place, "pending"), os.path.join(place, "taken")
    with suppress(FileNotFoundError):
        # Rename it before comparing it, so that a mark written between the two steps is not removed.
        os.rename(path, taken)
        status = os.stat(taken)
        newer = mark.seen not in (UNREADABLE, (status.st_ino, status.st_mtime_ns))
        if newer:
            with suppress(FileExistsError):
                os.link(taken, path)
        os.unlink(taken)
        return not newer
    return True


def write_outcome(place: str, outcome: HookRun) -> None:
    """Append to the log; drop the oldest results."""
    rows = [_row(one) for one in read_outcomes(place)[-(MAX_RESULTS - 1) :]]
    text = "".join(json.dumps(row) + "\n" for row in [*rows, _row(outcome)])
    path = os.path.join(place, "log")
    replace_file(path, text.encode("utf-8"), durability=Durability.NONE)


def read_outcomes(place: str) -> tuple[HookRun, ...]:
    """Return the results in the log, oldest first; lines that cannot be read are skipped."""
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
    return {**row, "message": outcome.message[:MAX_MESSAGE], "hint": outcome.hint[:MAX_MESSAGE]}


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


# The directory and the configuration files in which git looks for hooks.

CONFIGURED_SINCE = (2, 54)
"""From this version on git runs hooks that the configuration names."""


def git_version() -> tuple[int, ...]:
    """Return the version of the git on the PATH."""
    done = run_to_end(["git", "version"], clean_environment())
    found = re.search(rb"(\d+)\.(\d+)(?:\.(\d+))?", done.out)
    if found is None:
        raise GitFailed(f"'git version' prints no version: {done.complaint}")
    return tuple(int(part) for part in found.groups(b"0"))


def hooks_directory(repository: Repository) -> str:
    """Return the hooks directory that git uses for this working tree, by any configuration."""
    # Call git without our own overrides: they would hide the configured directory.
    words = [*SAFE_GIT, "-C", repository.root, "rev-parse", "--git-path", "hooks"]
    done = run_to_end(words, repository.git.environment)
    if done.status != 0:
        raise GitFailed(done.complaint)
    return os.path.join(repository.root, os.fsdecode(done.out).removesuffix("\n"))


def user_config(target: InstallTarget) -> str:
    """Return the file that `git config --global` writes."""
    named = target.environ.get("GIT_CONFIG_GLOBAL")
    if named:
        return named
    usual = os.path.join(target.home, ".gitconfig")
    xdg = os.path.join(target.config_home, "git", "config")
    # Like git: the second file is used only if it exists and the first one does not.
    return xdg if os.path.exists(xdg) and not os.path.exists(usual) else usual


def user_value(target: InstallTarget, key: str) -> str | None:
    """Return a path from the user's own configuration with `~` resolved, or None."""
    environment = clean_environment()
    words = ["git", "config", "--file", user_config(target), "--includes", "--type=path", "--get", key]
    done = run_to_end(words, environment)
    return os.fsdecode(done.out).removesuffix("\n") if done.status == 0 else None


def is_below(path: str, directory: str) -> bool:
    """Return whether a path is the directory or is inside it."""
    inner, outer = os.path.realpath(path), os.path.realpath(directory)
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")


def is_ignored(repository: Repository, path: str) -> bool:
    """Return whether git ignores a path in the working tree."""
    return repository.git.try_run("check-ignore", "-q", "--no-index", "--", path).status == 0


def auto_push_state(state: str) -> str:
    """Return the directory for marks and results of automatic pushes of a working tree."""
    return os.path.join(hooks_state(state), "push")


# The hook scripts: made from the templates in `hooks/`, found in other scripts and removed from them. A template
# starts the program in the background of its own subshell. So the surrounding script has no child to wait for, its
# `$!` does not change, its input is not read, and none of our commands can make it fail.

START = b"# >>> git-envhist"
END = b"# <<< git-envhist"
NAMED = "--named"
"""The option of a global hook: the program then captures only repositories that a person has enabled."""
EARLIER = ".pre-envhist"
"""The suffix of a hook that existed before and to which lines cannot be added."""
UNLESS = {
    "post-commit": '[ -d "${GIT_DIR:-.git}/rebase-merge" ] || ',
    "pre-push": '[ "$(git config --type=bool envhist.autoPush 2>/dev/null)" != true ] || ',
}
"""Conditions under which a hook starts no process: other hooks at the start and end of a rebase cover its commits, and
a push matters only if the history is pushed automatically.
"""
HEAD = b"#!/bin/sh\n"
BLOCK = re.compile(rb"(?ms)^# >>> git-envhist[^\n]*\n.*?^# <<< git-envhist[^\n]*\n?")
SHELL = re.compile(rb"#!\s*(/usr/bin/env\s+)?(/\S*/)?(sh|bash|dash|ash|ksh|mksh|zsh)(\s+-[a-z]+)*\s*\n")


@cache
def read_template(name: str) -> str:
    """Return a template from `hooks/`; an installation contains them inside the package."""
    package = os.path.realpath(__file__).rsplit("/", 2)[0]
    carried = os.path.join(package, "_hooks", name)
    in_checkout = os.path.join(os.path.dirname(package), "hooks", name)
    with open(carried if os.path.exists(carried) else in_checkout, encoding="utf-8") as file:
        return file.read()


def hook_lines(event: str, program: str, *, everywhere: bool = False) -> bytes:
    """Return the lines for a hook that is a shell script."""
    return _fill("git-hook.sh", event, program, everywhere)


def hook_script(event: str, program: str, *, everywhere: bool = False) -> bytes:
    """Return a complete hook of our own."""
    return HEAD + hook_lines(event, program, everywhere=everywhere)


def script_before_another(event: str, program: str, *, everywhere: bool = False) -> bytes:
    """Return our own hook, which then runs the earlier hook."""
    ours = hook_script(event, program, everywhere=everywhere)
    return ours + _fill("git-hook-before-another.sh", event, program, everywhere)


def hook_command(event: str, program: str, *, everywhere: bool = False) -> str:
    """Return the command of a configured hook."""
    return (
        _fill("git-config-hook.sh", event, program, everywhere)
        .decode("utf-8", "surrogateescape")
        .rstrip("\n")
    )


def add_lines(script: bytes, lines: bytes) -> bytes:
    """Return a shell script with our lines: in place of older ones, or before all of its commands."""
    if BLOCK.search(script):
        return BLOCK.sub(lambda _: lines, script, count=1)
    first, newline, rest = script.partition(b"\n")
    return first + newline + lines + rest


def remove_lines(script: bytes) -> bytes | None:
    """Return a script without our lines; None if only our own hook would be left."""
    left = BLOCK.sub(b"", script)
    alone = left == HEAD or left.startswith(HEAD + _another_line())
    return None if alone else left


def is_ours(script: bytes) -> bool:
    """Return whether a script contains our lines."""
    return BLOCK.search(script) is not None


def is_for_named(script: bytes) -> bool:
    """Return whether our lines in a script capture only enabled repositories."""
    return any(f" hook {NAMED} ".encode() in found for found in BLOCK.findall(script))


def calls_another(script: bytes) -> bool:
    """Return whether a script is our own hook that runs the earlier one."""
    return is_ours(script) and _another_line() in script


def is_shell(script: bytes) -> bool:
    """Return whether shell lines can be added to a script."""
    return SHELL.match(script) is not None


def _another_line() -> bytes:
    return read_template("git-hook-before-another.sh").partition("\n")[0].encode()


def _fill(name: str, event: str, program: str, everywhere: bool) -> bytes:
    text = read_template(name).replace("@UNLESS@", UNLESS.get(event, ""))
    text = text.replace("@NAMED@", f"{NAMED} " if everywhere else "")
    text = text.replace("@PROGRAM@", shlex.quote(program)).replace("@EVENT@", event)
    return os.fsencode(text)


# Hooks that git's configuration names (git 2.54 and newer): sections at the end of a file, between two marks. git
# runs them in addition to those of the hooks directory, so they need not call each other.


def plan_configured_hooks(path: str, program: str, *, everywhere: bool = False) -> FileEdit:
    """Return the edit that puts the sections into a git configuration file, in place of older ones."""
    return plan_content(
        path, _with_sections(_read_hook_configuration(path), config_sections(program, everywhere=everywhere))
    )


def plan_configured_removal(path: str) -> FileEdit | None:
    """Return the edit that removes the sections; None if there are none."""
    text = _read_hook_configuration(path)
    left = BLOCK.sub(b"", text)
    if left == text:
        return None
    return plan_content(path, left or None)


def config_sections(program: str, *, everywhere: bool = False) -> bytes:
    """Return the sections for all hooks."""
    lines = []
    for event in HOOKS:
        hook = _quoted(hook_command(event, program, everywhere=everywhere))
        lines += [f'[hook "envhist-{event}"]', f"\tevent = {event}", f"\tcommand = {hook}"]
    return with_marks("\n".join([*lines, ""]).encode("utf-8", "surrogateescape"))


def with_marks(ours: bytes) -> bytes:
    """Return lines of a configuration file between our marks."""
    return START + b": git envlog uninstall removes these lines\n" + ours + END + b"\n"


def configured_parts(
    path: str, version: tuple[int, ...], since: tuple[int, ...]
) -> tuple[InstalledPart, ...]:
    """Return a part for each hook; none if the file has none of our sections."""
    found = BLOCK.search(_read_hook_configuration(path))
    if found is None:
        return ()
    old = version < since
    remark = (
        f"git {_dotted(version)} does not run hooks of the configuration: git envlog install" if old else ""
    )
    configured = set(re.findall(r"event = (\S+)", found.group().decode("utf-8", "replace")))
    return tuple(
        InstalledPart(
            event,
            event in configured and not old,
            path,
            remark if event in configured else "not in the configuration",
        )
        for event in HOOKS
    )


def _with_sections(text: bytes, ours: bytes) -> bytes:
    if BLOCK.search(text):
        return BLOCK.sub(lambda _: ours, text, count=1)
    return text + (b"" if not text or text.endswith(b"\n") else b"\n") + ours


def _read_hook_configuration(path: str) -> bytes:
    content = read_state(os.path.realpath(path))
    return content.data if content is not None else b""


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


# Hooks in the directory that git uses.

EXECUTABLE = 0o111
RENAMED = (".legacy", ".old")
"""Suffixes that pre-commit and lefthook give to the hook that they replaced; pre-commit still calls it."""


def plan_directory(directory: str, program: str, *, everywhere: bool = False) -> tuple[FileEdit, ...]:
    """Return the edits after which every hook calls us first, and then the earlier hook."""
    return tuple(edit for event in HOOKS for edit in _plan_event(directory, event, program, everywhere))


def plan_directory_removal(directory: str) -> tuple[FileEdit, ...]:
    """Return the edits that remove our lines from the directory, also from hooks that another tool renamed."""
    return tuple(edit for event in HOOKS for edit in _plan_removal(directory, event))


def directory_parts(directory: str) -> tuple[InstalledPart, ...]:
    """Return a part for each hook event, or nothing if the directory has none of our hooks."""
    found = [_part(directory, event) for event in HOOKS]
    return tuple(found) if any(part.active or part.remark for part in found) else ()


def _plan_event(directory: str, event: str, program: str, everywhere: bool) -> Iterator[FileEdit]:
    path = os.path.join(directory, event)
    existing = read_state(path)
    if existing is None:
        yield FileEdit(
            path, None, FileState(hook_script(event, program, everywhere=everywhere), PROGRAM_MODE)
        )
    elif calls_another(existing.data):
        yield FileEdit(
            path,
            existing,
            FileState(script_before_another(event, program, everywhere=everywhere), PROGRAM_MODE),
        )
    elif is_ours(existing.data) or _is_editable(existing):
        yield FileEdit(
            path,
            existing,
            FileState(
                add_lines(existing.data, hook_lines(event, program, everywhere=everywhere)), existing.mode
            ),
        )
    else:
        yield _keep_earlier(path + EARLIER, existing)
        yield FileEdit(
            path,
            existing,
            FileState(script_before_another(event, program, everywhere=everywhere), PROGRAM_MODE),
        )


def _keep_earlier(kept: str, existing: FileState) -> FileEdit:
    already = read_state(kept)
    # An interrupted installation may have written this file already.
    if already not in (None, existing):
        raise Refused(
            f"an earlier hook is still stored there: '{kept}'",
            hint="move it away or run 'git envlog uninstall', then install again",
        )
    return FileEdit(kept, already, existing)


def _is_editable(existing: FileState) -> bool:
    return existing.mode is not None and bool(existing.mode & EXECUTABLE) and is_shell(existing.data)


def _plan_removal(directory: str, event: str) -> Iterator[FileEdit]:
    path = os.path.join(directory, event)
    for place in (path, *(path + ending for ending in RENAMED)):
        existing = read_state(place)
        if existing is None or existing.mode is None or not is_ours(existing.data):
            continue
        kept = read_state(path + EARLIER) if calls_another(existing.data) else None
        left = remove_lines(existing.data)
        if kept is not None:
            yield FileEdit(place, existing, kept)
            yield FileEdit(path + EARLIER, kept, None)
        else:
            yield FileEdit(place, existing, FileState(left, existing.mode) if left is not None else None)


def _part(directory: str, event: str) -> InstalledPart:
    path = os.path.join(directory, event)
    existing = read_state(path)
    if existing is not None and is_ours(existing.data):
        switched_off = existing.mode is None or not existing.mode & EXECUTABLE
        return InstalledPart(event, not switched_off, path, "it is not executable" if switched_off else "")
    for ending in RENAMED:
        renamed = read_state(path + ending)
        if renamed is not None and is_ours(renamed.data):
            return _renamed_part(event, path, ending, existing)
    return InstalledPart(event, False, path)


def _renamed_part(event: str, path: str, ending: str, existing: FileState | None) -> InstalledPart:
    called = existing is not None and ending == ".legacy" and b"pre-commit" in existing.data
    if called:
        return InstalledPart(event, True, path + ending, "called by pre-commit")
    return InstalledPart(event, False, path + ending, "another tool replaced our hook: git envlog install")


ONLY_NAMED = (
    "these hooks capture only in repositories in which a person ran git envlog capture or git envlog install"
)


class GitHooks:
    """The integration of git's own hooks."""

    @property
    def name(self) -> str:
        return "git"

    def plan_install(self, target: InstallTarget) -> InstallPlan:
        if git_version() >= CONFIGURED_SINCE:
            return _plan_in_configuration(target)
        return _plan_for_user(target) if target.everywhere else _plan_in_directory(target)

    def plan_uninstall(self, target: InstallTarget) -> InstallPlan:
        found = [plan_configured_removal(_config_file(target))]
        return InstallPlan(
            (
                *filter(None, found),
                *(e for each in _directories(target) for e in plan_directory_removal(each)),
            )
        )

    def parts(self, target: InstallTarget) -> tuple[InstalledPart, ...]:
        version = git_version()
        found = configured_parts(_config_file(target), version, CONFIGURED_SINCE)
        if target.everywhere:
            found = (*found, *(part for each in _directories(target) for part in directory_parts(each)))
        else:
            found = (*found, *_parts_of_directory(target, bool(found)))
        return _mark_unnamed(target, found)


def _mark_unnamed(target: InstallTarget, found: tuple[InstalledPart, ...]) -> tuple[InstalledPart, ...]:
    """Return the parts, with global hooks marked as inactive if no person has enabled this repository."""
    repository = target.repository
    if repository is None or target.trusted.has_repository(repository.common_dir):
        return found
    return tuple(
        replace(part, active=False, remark=NOT_NAMED) if part.active and _is_for_named(part.place) else part
        for part in found
    )


def _is_for_named(path: str) -> bool:
    content = read_state(path)
    return content is not None and is_for_named(content.data)


def _plan_in_configuration(target: InstallTarget) -> InstallPlan:
    """Use the configuration alone: git would also call hooks that were installed in the directory for an older git."""
    removals = [edit for each in _directories(target) for edit in plan_directory_removal(each)]
    remarks = (ONLY_NAMED,) if target.everywhere else ()
    return InstallPlan(
        (
            plan_configured_hooks(_config_file(target), target.program, everywhere=target.everywhere),
            *removals,
        ),
        remarks,
    )


def _plan_in_directory(target: InstallTarget) -> InstallPlan:
    repository = _repository(target)
    where = hooks_directory(repository)
    if not target.force:
        _refuse_shared(repository, where)
    return InstallPlan(plan_directory(where, target.program))


def _plan_for_user(target: InstallTarget) -> InstallPlan:
    """Plan for an older git: the user's own hooks directory, or the template of new repositories."""
    chosen = user_value(target, "core.hooksPath")
    if chosen is not None:
        return InstallPlan(plan_directory(chosen, target.program, everywhere=True), (ONLY_NAMED,))
    template = user_value(target, "init.templateDir")
    remark = f"new repositories get the hooks; in an existing one run: git envlog install; {ONLY_NAMED}"
    if template is not None:
        return InstallPlan(
            plan_directory(os.path.join(template, "hooks"), target.program, everywhere=True), (remark,)
        )
    template = _own_template(target)
    edits = plan_directory(os.path.join(template, "hooks"), target.program, everywhere=True)
    return InstallPlan((*edits, _template_configured(target, template)), (remark,))


def _own_template(target: InstallTarget) -> str:
    return os.path.join(target.state, "template")


def _template_configured(target: InstallTarget, template: str) -> FileEdit:
    edit = plan_content(user_config(target), b"")
    text = edit.before.data if edit.before is not None else b""
    newline = b"" if not text or text.endswith(b"\n") else b"\n"
    quoted = os.fsencode(template.replace("\\", "\\\\").replace('"', '\\"'))
    ours = with_marks(b'[init]\n\ttemplateDir = "' + quoted + b'"\n')
    return plan_content(edit.path, text + newline + ours)


def _refuse_shared(repository: Repository, where: str) -> None:
    if is_below(where, repository.common_dir):
        return
    if not is_below(where, repository.root):
        raise Refused(
            f"the hooks of this repository are shared with others: '{where}'",
            hint="for all of them: --force; to give this repository its own: git config core.hooksPath <directory>",
        )
    if not is_ignored(repository, os.path.join(where, "post-commit")):
        raise Refused(
            f"the hooks of this repository are part of its code: '{where}'",
            hint="to change them anyway: --force; git 2.54 and newer needs no change",
        )


def _config_file(target: InstallTarget) -> str:
    if target.everywhere or target.repository is None:
        return user_config(target)
    return os.path.join(target.repository.common_dir, "config")


def _directories(target: InstallTarget) -> tuple[str, ...]:
    """Return every directory that may contain our hooks: the configured and the default hooks directory."""
    if not target.everywhere and target.repository is not None:
        usual = os.path.join(target.repository.common_dir, "hooks")
        return tuple(dict.fromkeys((os.path.normpath(hooks_directory(target.repository)), usual)))
    template = user_value(target, "init.templateDir") or _own_template(target)
    chosen = user_value(target, "core.hooksPath")
    return tuple(filter(None, (chosen, os.path.join(template, "hooks"))))


def _parts_of_directory(target: InstallTarget, is_configured: bool) -> tuple[InstalledPart, ...]:
    repository = _repository(target)
    used = hooks_directory(repository)
    found = directory_parts(used)
    if found or is_configured:
        return found
    usual = os.path.join(repository.common_dir, "hooks")
    remark = f"git looks for hooks in '{used}' now: git envlog install"
    return tuple(
        InstalledPart(part.event, False, part.place, remark)
        for part in directory_parts(usual)
        if not is_below(usual, used)
    )


def _repository(target: InstallTarget) -> Repository:
    if target.repository is None:
        raise EnvhistError(
            "no repository given", hint="run it in a repository, or install for all of them: --global"
        )
    return target.repository
