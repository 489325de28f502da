"""One coding agent as an integration: its settings call a shim in the data directory of the user.

The shim is never in a repository: the directory that an agent works in may be one that came with a clone.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tomllib
from collections.abc import Collection, Iterator
from typing import Any

from git_envhist.errors import Refused
from git_envhist.integrations.agents import jsonc
from git_envhist.integrations.agents.events import PROJECT_VARIABLES, READING, held
from git_envhist.integrations.agents.outcomes import last_outcome
from git_envhist.integrations.base import NOT_NAMED, InstallPlan, InstallTarget
from git_envhist.integrations.edits import PROGRAM_MODE, look, read_record, rewrite
from git_envhist.integrations.git_hooks import template
from git_envhist.integrations.remove_history import states_of
from git_envhist.lazy import dataclass, field
from git_envhist.model.work import FileEdit, InstalledPart

# What agents that were installed leave in our own directories: it goes with the last of them.

SPOOL = "spool"


def leftovers(place: InstallTarget, gone: Collection[str]) -> tuple[str, ...]:
    """The directories that no agent needs once those agents are gone: what was spooled, the state of sessions."""
    return tuple(path for path in _unneeded(place, gone) if os.path.isdir(path))


def remove(directories: Collection[str]) -> None:
    """Remove them; a process that takes from a spool ends that first."""
    for directory in directories:
        if os.path.basename(directory) == SPOOL:
            with held(directory):
                shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(directory, ignore_errors=True)


def _unneeded(place: InstallTarget, gone: Collection[str]) -> Iterator[str]:
    trusted, named = place.trusted, place.named
    if trusted.agents(named) - set(gone):
        return
    if not any(one != named for one in trusted.places_of()):
        yield os.path.join(place.own_data, "hooks", SPOOL)
    if place.repository is None:
        return
    # An agent that is installed for every repository has its sessions in this one, too, and the other way round.
    other = place.repository.common_dir if place.everywhere else None
    if not trusted.agents(other):
        yield from (os.path.join(state, "agents") for state in states_of(place.repository))


# What stands in each agent's settings: where they are, what its events are called, how a hook is written there.

MARK = "envhist/hooks/agent-"
"""What every command of ours holds; by it ours is told from others'."""
BRIEFLY, PATIENTLY, AT_LAST = 10, 120, 3
"""Seconds after which an agent may end a hook: one that leaves at once, one that a tool waits for, one that is called
as the agent itself ends (Codex grants those no more, and warns of more).
"""
TIMEOUTS = {"before": PATIENTLY, "end": AT_LAST}
TRUSTED = "{} runs the hooks of a project only where its directory is trusted: {}"


@dataclass(frozen=True, slots=True)
class Hook:
    """One event of an agent, and what it is to us."""

    event: str
    kind: str
    """`prompt`, `before`, `after`, `end`."""
    matcher: str | None = None
    """Which tools it is about, where the agent can be told."""


@dataclass(frozen=True, slots=True)
class AgentSettingsForm:
    """The settings of one agent."""

    name: str
    project: str
    """The file below the top of the working tree."""
    user: str
    """The file below the home directory, or below what `home_variable` says."""
    hooks: tuple[Hook, ...]
    home_variable: str | None = None
    """Says where the first directory of `user` is, where it is set."""
    grouped: bool = True
    """Whether hooks stand in groups with a matcher each."""
    command: str = "command"
    """The member that holds the command."""
    timeout: str = "timeout"
    unit: int = 1
    """Of the timeout: 1 for seconds, 1000 for milliseconds."""
    named: bool = False
    typed: bool = True
    skeleton: dict[str, Any] = field(default_factory=dict)
    """What the file needs beside the hooks."""
    remark: str = ""
    """What the user has to do beside."""

    def element(self, hook: Hook, command: str) -> dict[str, Any]:
        """What stands in the list of an event."""
        seconds = TIMEOUTS.get(hook.kind, BRIEFLY)
        handler: dict[str, Any] = {"name": "git-envhist"} if self.named else {}
        if self.typed:
            handler["type"] = "command"
        handler |= {self.command: command, self.timeout: seconds * self.unit}
        matcher = {} if hook.matcher is None else {"matcher": hook.matcher}
        return {**matcher, "hooks": [handler]} if self.grouped else {**handler, **matcher}


def is_ours(value: object) -> bool:
    """Whether an element of a list is ours alone: a hook, or a group of nothing but our hooks."""
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
        Hook("PreToolUse", "before", "Bash|PowerShell|Edit|MultiEdit|Write|NotebookEdit|mcp__.*"),
        Hook("Stop", "after"),
        Hook("StopFailure", "after"),
        Hook("SubagentStop", "after"),
        Hook("SessionEnd", "end"),
    ),
    home_variable="CLAUDE_CONFIG_DIR",
)
CODEX = AgentSettingsForm(
    "codex",
    ".codex/hooks.json",
    ".codex/hooks.json",
    (
        Hook("UserPromptSubmit", "prompt"),
        Hook("PreToolUse", "before", "Bash|apply_patch|mcp__.*"),
        Hook("Stop", "after"),
        Hook("SessionEnd", "end"),
    ),
    home_variable="CODEX_HOME",
    remark="codex runs new hooks only once they are approved: it asks when it starts, or at /hooks",
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
    unit=1000,
    named=True,
    remark=TRUSTED.format("gemini", "it asks when it starts there"),
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
        Hook("agentStop", "after"),
        Hook("errorOccurred", "after"),
        Hook("sessionEnd", "end"),
    ),
    home_variable="COPILOT_HOME",
    grouped=False,
    command="bash",
    timeout="timeoutSec",
    skeleton={"version": 1},
    remark=TRUSTED.format("copilot", "it asks when it starts there, with -p it wants --trust-folder"),
)


# An agent's settings with our hooks in them, and without: pure texts, all that is not ours kept byte for byte.

START, END = "# >>> git-envhist", "# <<< git-envhist"


class UnknownSettingsForm(ValueError):
    """The settings are not of the form that the agent documents."""


def with_hooks(text: str, shape: AgentSettingsForm, commands: dict[str, str]) -> str:
    """The settings with a hook for each event; as they are where all of them stand there."""
    if not text.strip("\ufeff \t\r\n"):
        return _fresh(shape, commands)
    if has_hooks(text, shape, commands):
        return text
    try:
        text = jsonc.without(text, is_ours)
        for key, value in shape.skeleton.items():
            text = text if jsonc.find(_object(text), key) else jsonc.put_in(text, _object(text), key, value)
        for hook in shape.hooks:
            text = _with_hook(text, hook, shape.element(hook, commands[hook.event]))
    except (jsonc.NotJson, RecursionError) as error:
        raise UnknownSettingsForm from error
    return text


def without_hooks(text: str, shape: AgentSettingsForm) -> str | None:
    """The settings without ours; None where nothing is left that anybody wrote."""
    if not text.strip("\ufeff \t\r\n"):
        return text
    try:
        left = jsonc.without(text, is_ours)
        value = jsonc.load(left, jsonc.parse(left))
    except (jsonc.NotJson, RecursionError) as error:
        raise UnknownSettingsForm from error
    return None if left != text and value in (shape.skeleton, {}) and not jsonc.COMMENT.search(left) else left


def has_hooks(text: str, shape: AgentSettingsForm, commands: dict[str, str]) -> bool:
    """Whether every hook of ours stands there as it should, and once."""
    found = elements(text)
    return found == {hook.event: [shape.element(hook, commands[hook.event])] for hook in shape.hooks}


def elements(text: str) -> dict[str, list[object]]:
    """What of ours stands in settings, by event; nothing where they cannot be understood."""
    try:
        value = jsonc.load(text, jsonc.parse(text))
    except (jsonc.NotJson, RecursionError):
        return {}
    hooks = value.get("hooks") if isinstance(value, dict) else None
    return _ours(hooks)


def with_table(text: str, shape: AgentSettingsForm, commands: dict[str, str]) -> str:
    """The same for settings in TOML: a block at the end."""
    plain = without_table(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not plain or plain.endswith("\n") else newline
    block = newline.join((START, *_lines(shape, commands), END, ""))
    new = plain + gap + block
    if _ours(_read_toml(new).get("hooks")) != _wanted_table(shape, commands):
        raise UnknownSettingsForm
    return new


def without_table(text: str) -> str:
    """Settings in TOML without our block."""
    start = text.find(START)
    end = text.find(END, start)
    if start < 0 or end < 0:
        return text
    behind = text.find("\n", end)
    return text[:start] + ("" if behind < 0 else text[behind + 1 :])


def table_elements(text: str) -> dict[str, list[object]]:
    """What of ours stands in settings in TOML, by event."""
    try:
        return _ours(_read_toml(text).get("hooks"))
    except UnknownSettingsForm:
        return {}


def has_table_hooks(text: str) -> bool:
    """Whether hooks of any kind stand in settings in TOML."""
    try:
        hooks = _read_toml(text).get("hooks")
    except UnknownSettingsForm:
        return False
    return isinstance(hooks, dict) and any(isinstance(value, list) for value in hooks.values())


def _wanted_table(shape: AgentSettingsForm, commands: dict[str, str]) -> dict[str, list[object]]:
    return {hook.event: [shape.element(hook, commands[hook.event])] for hook in shape.hooks}


def _fresh(shape: AgentSettingsForm, commands: dict[str, str]) -> str:
    hooks = {hook.event: [shape.element(hook, commands[hook.event])] for hook in shape.hooks}
    return json.dumps({**shape.skeleton, "hooks": hooks}, indent=2, ensure_ascii=False) + "\n"


def _with_hook(text: str, hook: Hook, element: object) -> str:
    hooks = jsonc.find(_object(text), "hooks")
    if hooks is None:
        return jsonc.put_in(text, _object(text), "hooks", {hook.event: [element]})
    if hooks.value.kind != "object":
        raise UnknownSettingsForm
    event = jsonc.find(hooks.value, hook.event)
    if event is None:
        return jsonc.put_in(text, hooks.value, hook.event, [element])
    if event.value.kind != "array":
        raise UnknownSettingsForm
    return jsonc.put_in(text, event.value, None, element)


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


def _lines(shape: AgentSettingsForm, commands: dict[str, str]) -> list[str]:
    lines = []
    for hook in shape.hooks:
        element = shape.element(hook, commands[hook.event])
        lines.append(f"[[hooks.{hook.event}]]")
        lines += [f"matcher = {json.dumps(hook.matcher)}"] if hook.matcher else []
        lines.append(f"[[hooks.{hook.event}.hooks]]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in element["hooks"][0].items()]
    return lines


SHIM = "agent-hook.sh"


@dataclass(frozen=True, slots=True)
class AgentIntegration:
    """A leaf of `AGENTS`."""

    shape: AgentSettingsForm

    @property
    def name(self) -> str:
        return self.shape.name

    def plan_install(self, place: InstallTarget) -> InstallPlan:
        """Our shim, and the settings with our hooks in them."""
        path = self._settings(place)
        text = _read(path)
        commands = self._commands(place)
        try:
            new = (with_table if _is_toml(path) else with_hooks)(text, self.shape, commands)
        except UnknownSettingsForm:
            raise _refused(path) from None
        looking = " ".join(sorted(READING))
        shim = template(SHIM).replace("@LOOKING@", looking).replace("@PROGRAM@", shlex.quote(place.program))
        variable = PROJECT_VARIABLES.get(self.name)
        shim = shim.replace("@PROJECT@", f"${{{variable}-}}" if variable else "")
        return InstallPlan(
            (rewrite(path, _bytes(new)),),
            (self.shape.remark,) if self.shape.remark else (),
            own=(rewrite(self._shim(place), os.fsencode(shim), PROGRAM_MODE),),
        )

    def plan_uninstall(self, place: InstallTarget) -> InstallPlan:
        """The settings without ours, wherever they are; the shim goes with the last repository that uses it."""
        # Another working tree of the repository has settings of its own, and loses its hooks with this one.
        recorded = read_record(place.state).of(self.name)
        paths = dict.fromkeys(map(os.path.realpath, (*self._places(place), *recorded)))
        # What was written there and cannot be read now is told; what never was ours is passed over.
        ours = [path for path in paths if _is_file(path) or (path in recorded and os.path.lexists(path))]
        edits = [self._emptied(path) for path in ours]
        return InstallPlan(
            tuple(edits), own=() if self._is_used_elsewhere(place) else (rewrite(self._shim(place), None),)
        )

    def _is_used_elsewhere(self, place: InstallTarget) -> bool:
        return any(place.named != one for one in place.trusted.places_of(self.name))

    def parts(self, place: InstallTarget) -> tuple[InstalledPart, ...]:
        """Each event that we are called for."""
        shim = os.path.exists(self._shim(place))
        for path in filter(_is_file, self._places(place)):
            text = _read(path)
            found = table_elements(text) if _is_toml(path) else elements(text)
            if found:
                return tuple(self._part(place, hook, path, found, shim) for hook in self.shape.hooks)
        return ()

    def _part(
        self, place: InstallTarget, hook: Hook, path: str, found: dict[str, list[object]], shim: bool
    ) -> InstalledPart:
        if hook.event not in found:
            missing = f"not in the settings any more: git envlog install --agent {self.name}"
            return InstalledPart(hook.event, False, path, missing)
        if not shim:
            return InstalledPart(
                hook.event, False, path, f"'{self._shim(place)}' is missing: it calls nothing"
            )
        if place.repository is not None and not place.trusted.has_repository(place.repository.common_dir):
            return InstalledPart(hook.event, False, path, NOT_NAMED)
        last = last_outcome(place.repository.state, self.name, hook.kind) if place.repository else None
        return InstalledPart(hook.event, True, path, last or "")

    def _emptied(self, path: str) -> FileEdit:
        text = _read(path)
        try:
            left = without_table(text) if _is_toml(path) else without_hooks(text, self.shape)
        except UnknownSettingsForm:
            if MARK not in text:
                return rewrite(path, _bytes(text))
            raise _refused(path) from None
        return rewrite(path, None if left is None else _bytes(left))

    def _settings(self, place: InstallTarget) -> str:
        """The file that hooks are put into."""
        json_file, *toml_file = self._places(place)
        # Codex warns where both forms are in use: what is there decides.
        if (
            toml_file
            and not os.path.exists(json_file)
            and has_table_hooks(without_table(_read(toml_file[0])))
        ):
            return toml_file[0]
        return json_file

    def _places(self, place: InstallTarget) -> tuple[str, ...]:
        """The files that ours may stand in."""
        path = self._below(place)
        if self.name != "codex":
            return (path,)
        return (path, os.path.join(os.path.dirname(path), "config.toml"))

    def _below(self, place: InstallTarget) -> str:
        if place.repository is not None and not place.everywhere:
            return os.path.join(place.repository.root, self.shape.project)
        variable = place.environ.get(self.shape.home_variable or "")
        if variable:
            return os.path.join(variable, self.shape.user.partition("/")[2])
        return os.path.join(place.home, self.shape.user)

    def _shim(self, place: InstallTarget) -> str:
        return os.path.join(place.own_data, "hooks", f"agent-{self.name}")

    def _commands(self, place: InstallTarget) -> dict[str, str]:
        """By event; in a repository without a word about this machine, since such settings may be shared."""
        shim = shlex.quote(self._shim(place))
        if place.repository is not None and not place.everywhere and not place.repository.plain:
            # The first slash: a relative XDG_DATA_HOME must not lead into the directory that the agent is in.
            shim = f'"/${{XDG_DATA_HOME:-$HOME/.local/share}}/git-{MARK}{self.name}"'
        return {hook.event: f"{shim} {hook.kind} 2>/dev/null || :" for hook in self.shape.hooks}


def _is_toml(path: str) -> bool:
    return path.endswith(".toml")


def _read(path: str) -> str:
    found = look(os.path.realpath(path))
    return "" if found is None else found.data.decode("utf-8", "surrogateescape")


def _is_file(path: str) -> bool:
    """Whether there is something that hooks of ours could stand in: what cannot be read holds none."""
    return os.access(path, os.R_OK) and os.path.isfile(path)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _refused(path: str) -> Refused:
    return Refused(
        f"the settings are not as the agent documents them: '{path}'",
        hint="nothing was written; docs/guide/agents.md says what would stand there",
    )
