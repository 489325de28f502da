"""Install hooks in the settings of coding agents, and remove them.

The hooks call our shell script in the user's data directory. It is never in a repository: the directory that an agent
works in may have come with a clone. `AgentSettingsForm` describes the settings of one agent; `with_hooks` and
`without_hooks` edit them as text (JSON with comments, or a block in TOML) and keep every other byte.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import tomllib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from git_envhist.errors import Refused
from git_envhist.git.repository import Repository
from git_envhist.integrations.agents import jsonc
from git_envhist.integrations.agents.approval import Approvals, HookSettings, read_approvals
from git_envhist.integrations.agents.events import (
    OWN_PREFIX,
    OWN_READ_ONLY_TOOLS,
    PROJECT_VARIABLES,
    READ_ONLY_TOOLS,
    spool_lock,
)
from git_envhist.integrations.agents.last_events import last_event
from git_envhist.integrations.base import NOT_NAMED, InstallPlan, InstallTarget
from git_envhist.integrations.edits import PROGRAM_MODE, plan_content, read_record, read_state
from git_envhist.integrations.git_hooks import read_template
from git_envhist.integrations.remove_history import existing_state_directories
from git_envhist.lazy import dataclass, field, replace
from git_envhist.model.integrations import FileEdit, HookApproval, InstalledPart

# Files of agents in our own directories, which are removed with the last agent.

SPOOL = "spool"


def unneeded_directories(target: InstallTarget, gone: Collection[str]) -> tuple[str, ...]:
    """Return the directories that no agent needs after these agents are removed: spool and session states."""
    return tuple(path for path in _unneeded(target, gone) if os.path.isdir(path))


def remove_directories(directories: Collection[str]) -> None:
    """Remove the directories; wait for a process that reads a spool."""
    for directory in directories:
        if os.path.basename(directory) == SPOOL:
            with spool_lock(directory):
                shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(directory, ignore_errors=True)


def _unneeded(target: InstallTarget, gone: Collection[str]) -> Iterator[str]:
    trusted, named = target.trusted, target.named
    if trusted.agents(named) - set(gone):
        return
    if not any(one != named for one in trusted.places_of()):
        yield os.path.join(target.own_data, "hooks", SPOOL)
    if target.repository is None:
        return
    # An agent installed for every repository can also have sessions in this one, and vice versa.
    other = target.repository.common_dir if target.everywhere else None
    if not trusted.agents(other):
        yield from (os.path.join(state, "agents") for state in existing_state_directories(target.repository))


# The settings of each agent: paths, names of events, form of a hook.

MARK = "envhist/hooks/agent-"
"""A text in each of our commands, by which our hooks are found."""
SHORT_TIMEOUT, LONG_TIMEOUT, EXIT_TIMEOUT = 10, 120, 3
"""Seconds after which an agent may kill a hook: a hook that returns at once, a hook that a tool waits for, and a hook
that runs while the agent exits (Codex allows at most 3 and warns about more).
"""
TIMEOUTS = {"before": LONG_TIMEOUT, "end": EXIT_TIMEOUT, "create": LONG_TIMEOUT, "remove": LONG_TIMEOUT}
WORKTREE_KINDS = ("create", "remove")
"""Hooks whose output and status an agent reads."""
OTHER_WORKTREES = (
    "other worktrees of this repository do not have these settings; to capture there too: "
    "git envlog install --global --agent {}"
)
OWN_WORKTREES = (
    "worktrees that the agent makes contain tracked files only; to have .env and node_modules in place: "
    "git envlog install --agent {} --worktrees"
)


@dataclass(frozen=True, slots=True)
class Hook:
    """An event of an agent, and its meaning for captures."""

    event: str
    kind: str
    """`prompt`, `before`, `done`, `after`, `end`; `create`, `remove` for a worktree."""
    matcher: str | None = None
    """The tools for which the hook is called, if the agent supports that."""


@dataclass(frozen=True, slots=True)
class AgentSettingsForm:
    """The form of the settings of one agent."""

    name: str
    project: str
    """The path of the settings below the root of the working tree."""
    user: str
    """The path of the settings below the home directory, or below the value of `home_variable`."""
    hooks: tuple[Hook, ...]
    home_variable: str | None = None
    """The variable that replaces the first directory of `user`."""
    grouped: bool = True
    """Whether hooks are in groups with a matcher each."""
    command: str = "command"
    """The key of the command."""
    timeout: str = "timeout"
    unit: int = 1
    """Unit of the timeout: 1 for seconds, 1000 for milliseconds."""
    named: bool = False
    typed: bool = True
    skeleton: dict[str, Any] = field(default_factory=dict)
    """Members that the file needs in addition to the hooks."""
    makes_worktrees: bool = False
    """Whether an option of the agent makes a worktree, without a hook that could fill it."""
    worktree_hooks: tuple[Hook, ...] = ()
    """Further hooks, with which the agent makes and removes its worktrees; installed on request."""

    def with_worktrees(self) -> AgentSettingsForm:
        """Return the form with the hooks for worktrees among the others."""
        return replace(self, hooks=self.hooks + self.worktree_hooks, worktree_hooks=())

    def as_installed(self, found: Collection[str]) -> AgentSettingsForm:
        """Return the form that settings with hooks for these events have."""
        has_more = any(hook.event in found for hook in self.worktree_hooks)
        return self.with_worktrees() if has_more else self

    def element(self, hook: Hook, command: str) -> dict[str, Any]:
        """Return the entry that the settings list for an event: the command, its time limit, and what it matches."""
        seconds = TIMEOUTS.get(hook.kind, SHORT_TIMEOUT)
        handler: dict[str, Any] = {"name": "git-envhist"} if self.named else {}
        if self.typed:
            handler["type"] = "command"
        handler |= {self.command: command, self.timeout: seconds * self.unit}
        matcher = {} if hook.matcher is None else {"matcher": hook.matcher}
        return {**matcher, "hooks": [handler]} if self.grouped else {**handler, **matcher}


def is_ours(value: object) -> bool:
    """Return whether an element is one of our hooks, or a group of only our hooks."""
    if not isinstance(value, dict):
        return False
    inner = value.get("hooks")
    if isinstance(inner, list):
        return bool(inner) and all(map(is_ours, inner))
    return any(MARK in word for word in (value.get("command"), value.get("bash")) if isinstance(word, str))


CLAUDE_CODE = AgentSettingsForm(
    "claude-code",
    ".claude/settings.local.json",
    ".claude/settings.json",
    (
        Hook("UserPromptSubmit", "prompt"),
        Hook(
            "PreToolUse", "before", "Bash|PowerShell|Edit|MultiEdit|Write|NotebookEdit|ExitWorktree|mcp__.*"
        ),
        Hook("PostToolUse", "done", "Bash|PowerShell|Edit|MultiEdit|Write|NotebookEdit|mcp__.*"),
        Hook("PostToolUseFailure", "done", "Bash|PowerShell|Edit|MultiEdit|Write|NotebookEdit|mcp__.*"),
        Hook("Stop", "after"),
        Hook("StopFailure", "after"),
        Hook("SubagentStop", "after"),
        Hook("SessionEnd", "end"),
    ),
    home_variable="CLAUDE_CONFIG_DIR",
    worktree_hooks=(Hook("WorktreeCreate", "create"), Hook("WorktreeRemove", "remove")),
)
CODEX = AgentSettingsForm(
    "codex",
    ".codex/hooks.json",
    ".codex/hooks.json",
    (
        Hook("UserPromptSubmit", "prompt"),
        Hook("PreToolUse", "before", "Bash|apply_patch|mcp__.*"),
        Hook("PostToolUse", "done", "Bash|apply_patch|mcp__.*"),
        Hook("Stop", "after"),
        Hook("SessionEnd", "end"),
    ),
    home_variable="CODEX_HOME",
    makes_worktrees=True,
)
GEMINI = AgentSettingsForm(
    "gemini",
    ".gemini/settings.json",
    ".gemini/settings.json",
    (
        Hook("BeforeAgent", "prompt"),
        Hook("BeforeTool", "before", "run_shell_command|write_file|replace|mcp_.*"),
        Hook("AfterTool", "after", "run_shell_command|write_file|replace|mcp_.*"),
        Hook("AfterAgent", "after"),
        Hook("SessionEnd", "end"),
    ),
    makes_worktrees=True,
    unit=1000,
    named=True,
)
CURSOR = AgentSettingsForm(
    "cursor",
    ".cursor/hooks.json",
    ".cursor/hooks.json",
    (
        Hook("beforeSubmitPrompt", "prompt"),
        Hook("preToolUse", "before", "Shell|Write|StrReplace|Edit|EditNotebook|ApplyPatch|Delete|MCP:.*"),
        Hook("stop", "after"),
        Hook("sessionEnd", "end"),
    ),
    grouped=False,
    typed=False,
    skeleton={"version": 1},
)
COPILOT = AgentSettingsForm(
    "copilot",
    ".github/hooks/git-envhist.json",
    ".copilot/hooks/git-envhist.json",
    (
        Hook("userPromptSubmitted", "prompt"),
        Hook("preToolUse", "before"),
        Hook("postToolUse", "done"),
        Hook("agentStop", "after"),
        Hook("errorOccurred", "after"),
        Hook("sessionEnd", "end"),
    ),
    home_variable="COPILOT_HOME",
    makes_worktrees=True,
    grouped=False,
    command="bash",
    timeout="timeoutSec",
    skeleton={"version": 1},
)


# Settings with and without our hooks (pure).

START, END = "# >>> git-envhist", "# <<< git-envhist"


class UnknownSettingsForm(ValueError):
    """The settings are not in the documented form."""


def with_hooks(text: str, form: AgentSettingsForm, commands: dict[str, str]) -> str:
    """Return the settings with a hook for each event; unchanged if all are present."""
    if not text.strip("\ufeff \t\r\n"):
        return _new_settings(form, commands)
    if has_hooks(text, form, commands):
        return text
    try:
        text = jsonc.remove_elements(text, is_ours)
        for key, value in form.skeleton.items():
            text = (
                text if jsonc.find(_object(text), key) else jsonc.insert_item(text, _object(text), key, value)
            )
        for hook in form.hooks:
            text = _add_hook(text, hook, form.element(hook, commands[hook.event]))
    except (jsonc.NotJson, RecursionError) as error:
        raise UnknownSettingsForm from error
    return text


def without_hooks(text: str, form: AgentSettingsForm) -> str | None:
    """Return the settings without our hooks; None if nothing that a user wrote is left."""
    if not text.strip("\ufeff \t\r\n"):
        return text
    try:
        left = jsonc.remove_elements(text, is_ours)
        value = jsonc.load(left, jsonc.parse(left))
    except (jsonc.NotJson, RecursionError) as error:
        raise UnknownSettingsForm from error
    return None if left != text and value in (form.skeleton, {}) and not jsonc.COMMENT.search(left) else left


def has_hooks(text: str, form: AgentSettingsForm, commands: dict[str, str]) -> bool:
    """Return whether each of our hooks is present once and unchanged."""
    found = find_hooks(text)
    return found == {hook.event: [form.element(hook, commands[hook.event])] for hook in form.hooks}


def find_hooks(text: str) -> dict[str, list[object]]:
    """Return our hooks in the settings by event; none if the settings cannot be parsed."""
    try:
        value = jsonc.load(text, jsonc.parse(text))
    except (jsonc.NotJson, RecursionError):
        return {}
    hooks = value.get("hooks") if isinstance(value, dict) else None
    return _ours(hooks)


def with_table(text: str, form: AgentSettingsForm, commands: dict[str, str]) -> str:
    """Return settings in TOML with a block of our hooks at the end."""
    plain = without_table(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not plain or plain.endswith("\n") else newline
    block = newline.join((START, *_lines(form, commands), END, ""))
    new = plain + gap + block
    if _ours(_read_toml(new).get("hooks")) != _wanted_table(form, commands):
        raise UnknownSettingsForm
    return new


def without_table(text: str) -> str:
    """Return settings in TOML without our block."""
    start = text.find(START)
    end = text.find(END, start)
    if start < 0 or end < 0:
        return text
    newline = text.find("\n", end)
    return text[:start] + ("" if newline < 0 else text[newline + 1 :])


def find_table_hooks(text: str) -> dict[str, list[object]]:
    """Return our hooks in settings in TOML, by event."""
    try:
        return _ours(_read_toml(text).get("hooks"))
    except UnknownSettingsForm:
        return {}


def has_table_hooks(text: str) -> bool:
    """Return whether settings in TOML contain hooks of any kind."""
    try:
        hooks = _read_toml(text).get("hooks")
    except UnknownSettingsForm:
        return False
    return isinstance(hooks, dict) and any(isinstance(value, list) for value in hooks.values())


def _wanted_table(form: AgentSettingsForm, commands: dict[str, str]) -> dict[str, list[object]]:
    return {hook.event: [form.element(hook, commands[hook.event])] for hook in form.hooks}


def _new_settings(form: AgentSettingsForm, commands: dict[str, str]) -> str:
    hooks = {hook.event: [form.element(hook, commands[hook.event])] for hook in form.hooks}
    return json.dumps({**form.skeleton, "hooks": hooks}, indent=2, ensure_ascii=False) + "\n"


def _add_hook(text: str, hook: Hook, element: object) -> str:
    hooks = jsonc.find(_object(text), "hooks")
    if hooks is None:
        return jsonc.insert_item(text, _object(text), "hooks", {hook.event: [element]})
    if hooks.value.kind != "object":
        raise UnknownSettingsForm
    event = jsonc.find(hooks.value, hook.event)
    if event is None:
        return jsonc.insert_item(text, hooks.value, hook.event, [element])
    if event.value.kind != "array":
        raise UnknownSettingsForm
    return jsonc.insert_item(text, event.value, None, element)


def _object(text: str) -> jsonc.Node:
    root = jsonc.parse(text)
    if root.kind != "object":
        raise UnknownSettingsForm
    return root


def _ours(hooks: object) -> dict[str, list[object]]:
    if not isinstance(hooks, dict):
        return {}
    found = {
        event: [each for each in rows if is_ours(each)]
        for event, rows in hooks.items()
        if isinstance(rows, list)
    }
    return {event: rows for event, rows in found.items() if rows}


def _read_toml(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    except (ValueError, RecursionError) as error:
        raise UnknownSettingsForm from error


def _lines(form: AgentSettingsForm, commands: dict[str, str]) -> list[str]:
    lines = []
    for hook in form.hooks:
        element = form.element(hook, commands[hook.event])
        lines.append(f"[[hooks.{hook.event}]]")
        lines += [f"matcher = {json.dumps(hook.matcher)}"] if hook.matcher else []
        lines.append(f"[[hooks.{hook.event}.hooks]]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in element["hooks"][0].items()]
    return lines


SCRIPT_TEMPLATE = "agent-hook.sh"
PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HANDLERS = os.path.join(PACKAGE, "handlers")
"""The directory from which the script loads one module before a tool."""


@dataclass(frozen=True, slots=True)
class AgentIntegration:
    """The integration of one agent."""

    form: AgentSettingsForm

    @property
    def name(self) -> str:
        return self.form.name

    def plan_install(self, target: InstallTarget) -> InstallPlan:
        """Plan our script, and the settings with our hooks."""
        path = self._settings(target)
        text = _read(path)
        found = self._found_hooks(path, text)
        form = self.form.with_worktrees() if target.worktrees else self.form.as_installed(found)
        commands = self._commands(target, form)
        try:
            new = self._with_hooks(path, text, form, commands)
        except UnknownSettingsForm:
            raise _unknown_form(path) from None
        return InstallPlan(
            (plan_content(path, _bytes(new)),),
            tuple(self._remarks(target, form, path, new)),
            own=(self.plan_script(target),),
        )

    def plan_script(self, target: InstallTarget) -> FileEdit:
        """Plan the script in the user's data directory that the hooks call."""
        reading = " ".join(sorted(READ_ONLY_TOOLS))
        script = (
            read_template(SCRIPT_TEMPLATE)
            .replace("@READ_ONLY_TOOLS@", reading)
            .replace("@OWN_PREFIX@", OWN_PREFIX)
            .replace("@OWN_READ_ONLY_TOOLS@", " ".join(sorted(OWN_READ_ONLY_TOOLS)))
            .replace("@PROGRAM@", shlex.quote(target.program))
            .replace("@PYTHON@", shlex.quote(sys.executable))
            .replace("@HANDLERS@", shlex.quote(HANDLERS))
        )
        variable = PROJECT_VARIABLES.get(self.name)
        script = script.replace("@PROJECT@", f"${{{variable}-}}" if variable else "")
        return plan_content(self._script_path(target), os.fsencode(script), PROGRAM_MODE)

    def _remarks(self, target: InstallTarget, form: AgentSettingsForm, path: str, text: str) -> Iterator[str]:
        """Yield the steps that remain for the user."""
        step = self._approvals(target, form.hooks, path, text).step
        if step:
            yield step
        repository = target.repository
        reaches_all = target.everywhere or self.name in target.trusted.agents(None)
        has_others = form.makes_worktrees or (repository is not None and _has_worktrees(repository))
        if repository is not None and has_others and not reaches_all:
            yield OTHER_WORKTREES.format(self.name)
        if form.worktree_hooks:
            yield OWN_WORKTREES.format(self.name)

    def plan_uninstall(self, target: InstallTarget) -> InstallPlan:
        """Plan the settings without our hooks; the script is removed with the last repository that uses it."""
        # Other working trees of the repository have their own settings, and lose their hooks with this one.
        recorded = read_record(target.state).of(self.name)
        paths = dict.fromkeys(map(os.path.realpath, (*self._settings_files(target), *recorded)))
        # A recorded file that cannot be read now is an error; a file without a record is skipped.
        ours = [path for path in paths if _is_file(path) or (path in recorded and os.path.lexists(path))]
        edits = [self._plan_without(path) for path in ours]
        return InstallPlan(
            tuple(edits),
            own=() if self._is_used_elsewhere(target) else (plan_content(self._script_path(target), None),),
        )

    def _is_used_elsewhere(self, target: InstallTarget) -> bool:
        return any(target.named != one for one in target.trusted.places_of(self.name))

    def parts(self, target: InstallTarget) -> tuple[InstalledPart, ...]:
        """Return a part for each event."""
        script = os.path.exists(self._script_path(target))
        for path in filter(_is_file, self._settings_files(target)):
            text = _read(path)
            found = self._found_hooks(path, text)
            if found:
                hooks = self.form.as_installed(found).hooks
                approvals = self._approvals(target, hooks, path, text)
                several = (self._part(target, hook, path, found, script) for hook in hooks)
                return tuple(_with_approval(part, approvals) for part in several)
        return ()

    def _approvals(self, target: InstallTarget, hooks: Sequence[Hook], path: str, text: str) -> Approvals:
        events = [hook.event for hook in hooks]
        return read_approvals(self.name, target, HookSettings(path, text, events, is_ours))

    def _part(
        self, target: InstallTarget, hook: Hook, path: str, found: dict[str, list[object]], script: bool
    ) -> InstalledPart:
        if hook.event not in found:
            missing = f"no longer in the settings: git envlog install --agent {self.name}"
            return InstalledPart(hook.event, False, path, missing)
        if not script:
            return InstalledPart(
                hook.event,
                False,
                path,
                f"'{self._script_path(target)}' is missing, so the hook calls nothing",
            )
        if target.repository is not None and not target.trusted.has_repository(target.repository.common_dir):
            return InstalledPart(hook.event, False, path, NOT_NAMED)
        last = last_event(target.repository.state, self.name, hook.kind) if target.repository else ""
        return InstalledPart(hook.event, True, path, last)

    def _plan_without(self, path: str) -> FileEdit:
        text = _read(path)
        try:
            left = self._without_hooks(path, text)
        except UnknownSettingsForm:
            if MARK not in text:
                return plan_content(path, _bytes(text))
            raise _unknown_form(path) from None
        return plan_content(path, None if left is None else _bytes(left))

    # The three functions of a form; an agent with another form has its own (`other_forms`).

    def _with_hooks(self, path: str, text: str, form: AgentSettingsForm, commands: dict[str, str]) -> str:
        return (with_table if _is_toml(path) else with_hooks)(text, form, commands)

    def _without_hooks(self, path: str, text: str) -> str | None:
        return without_table(text) if _is_toml(path) else without_hooks(text, self.form)

    def _found_hooks(self, path: str, text: str) -> dict[str, list[object]]:
        return find_table_hooks(text) if _is_toml(path) else find_hooks(text)

    def _settings(self, target: InstallTarget) -> str:
        """Return the file into which hooks are written."""
        json_file, *toml_file = self._settings_files(target)
        # Codex warns if both forms are in use, so the existing hooks decide.
        if (
            toml_file
            and not os.path.exists(json_file)
            and has_table_hooks(without_table(_read(toml_file[0])))
        ):
            return toml_file[0]
        return json_file

    def _settings_files(self, target: InstallTarget) -> tuple[str, ...]:
        """Return the files that may contain our hooks."""
        path = self._path_below(target)
        if self.name != "codex":
            return (path,)
        return (path, os.path.join(os.path.dirname(path), "config.toml"))

    def _path_below(self, target: InstallTarget) -> str:
        if target.repository is not None and not target.everywhere:
            return os.path.join(target.repository.root, self.form.project)
        variable = target.environ.get(self.form.home_variable or "")
        if variable:
            return os.path.join(variable, self.form.user.partition("/")[2])
        return os.path.join(target.home, self.form.user)

    def _script_path(self, target: InstallTarget) -> str:
        return os.path.join(target.own_data, "hooks", f"agent-{self.name}")

    def _commands(self, target: InstallTarget, form: AgentSettingsForm) -> dict[str, str]:
        """Return the command of each event.

        In a repository it names no path of this machine: the settings may be shared.
        """
        script = shlex.quote(self._script_path(target))
        if target.repository is not None and not target.everywhere and not target.repository.plain:
            # The leading slash keeps a relative XDG_DATA_HOME from naming the agent's current directory.
            script = f'"/${{XDG_DATA_HOME:-$HOME/.local/share}}/git-{MARK}{self.name}"'
        silent = " 2>/dev/null || :"
        return {
            hook.event: f"{script} {hook.kind}{'' if hook.kind in WORKTREE_KINDS else silent}"
            for hook in form.hooks
        }


def _with_approval(part: InstalledPart, approvals: Approvals) -> InstalledPart:
    """Return the part of a hook with its approval; a hook that the agent does not run is not active."""
    approval = approvals.of.get(part.event) if part.active else None
    if approval is None:
        return part
    return replace(
        part,
        active=approval is not HookApproval.MISSING,
        approval=approval,
        step="" if approval is HookApproval.APPROVED else approvals.step,
    )


def _has_worktrees(repository: Repository) -> bool:
    place = os.path.join(repository.common_dir, "worktrees")
    return os.path.isdir(place) and bool(os.listdir(place))


def _is_toml(path: str) -> bool:
    return path.endswith(".toml")


def _read(path: str) -> str:
    found = read_state(os.path.realpath(path))
    return "" if found is None else found.data.decode("utf-8", "surrogateescape")


def _is_file(path: str) -> bool:
    """Return whether a path is a readable file, which may contain our hooks."""
    return os.access(path, os.R_OK) and os.path.isfile(path)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _unknown_form(path: str) -> Refused:
    return Refused(
        f"the settings are not in the form that the agent documents: '{path}'",
        hint="nothing was written; docs/guide/agents.md describes the expected settings",
    )
