"""Install hooks for agents whose settings have a form of their own: named hooks, or a plugin file.

Antigravity CLI maps names to hooks in strict JSON (`antigravity` describes its answers). OpenCode has no hooks in its
settings: it loads every script of its plugin directory, so the installation is one file that is ours as a whole.
"""

from __future__ import annotations

import json
from typing import Any

from git_envhist.integrations.agents import jsonc
from git_envhist.integrations.agents.install import (
    MARK,
    AgentIntegration,
    AgentSettingsForm,
    Hook,
    UnknownSettingsForm,
    is_ours,
)
from git_envhist.integrations.base import InstallTarget
from git_envhist.integrations.git_hooks import read_template

ANTIGRAVITY = AgentSettingsForm(
    "antigravity",
    ".agents/hooks.json",
    ".gemini/config/hooks.json",
    (
        Hook("PreInvocation", "prompt"),
        Hook("PreToolUse", "before", "*"),
        Hook("Stop", "after"),
    ),
)
OPENCODE = AgentSettingsForm(
    "opencode",
    ".opencode/plugins/git-envhist.js",
    ".config/opencode/plugins/git-envhist.js",
    (
        Hook("chat.message", "prompt"),
        Hook("tool.execute.before", "before"),
        Hook("tool.execute.after", "done"),
        Hook("session.idle", "after"),
        Hook("dispose", "end"),
    ),
    home_variable="XDG_CONFIG_HOME",
)
HOOK_NAME = "git-envhist"
ANSWERS = {"before": '{"decision":"ask"}'}
"""Answers of Antigravity's hooks: `ask` leaves the decision about a tool to the user's own settings."""
NO_ANSWER = "{}"
PLUGIN_TEMPLATE = "opencode-plugin.js"
PLUGIN_PATH = "@SCRIPT@"


class NamedHooksIntegration(AgentIntegration):
    """The integration of an agent whose settings map names to hooks."""

    __slots__ = ()

    def _with_hooks(self, path: str, text: str, form: AgentSettingsForm, commands: dict[str, str]) -> str:
        wanted = self._named_hook(form, commands)
        if not text.strip():
            return json.dumps({HOOK_NAME: wanted}, indent=2, ensure_ascii=False) + "\n"
        root = _strict_object(text)
        if HOOK_NAME in root and not _is_our_hook(root[HOOK_NAME]):
            raise UnknownSettingsForm
        if root.get(HOOK_NAME) == wanted:
            return text
        plain = _without(text)
        return jsonc.insert_item(plain, jsonc.parse(plain), HOOK_NAME, wanted)

    def _without_hooks(self, path: str, text: str) -> str | None:
        if not text.strip() or not _is_our_hook(_strict_object(text).get(HOOK_NAME)):
            return text
        left = _without(text)
        return left if json.loads(left) else None

    def _found_hooks(self, path: str, text: str) -> dict[str, list[object]]:
        try:
            ours = _strict_object(text).get(HOOK_NAME) if text.strip() else None
        except UnknownSettingsForm:
            return {}
        return {event: list(rows) for event, rows in ours.items()} if _is_our_hook(ours) and ours else {}

    def _commands(self, target: InstallTarget, form: AgentSettingsForm) -> dict[str, str]:
        """Return the command of each event, with the answer that it prints whether or not our script exists."""
        plain = super()._commands(target, form)
        answers = {hook.event: ANSWERS.get(hook.kind, NO_ANSWER) for hook in form.hooks}
        return {
            event: f"{{ {command}; }} >/dev/null; echo '{answers[event]}'" for event, command in plain.items()
        }

    def _named_hook(self, form: AgentSettingsForm, commands: dict[str, str]) -> dict[str, list[Any]]:
        rows = {}
        for hook in form.hooks:
            row = form.element(hook, commands[hook.event])
            # Only events of tools have groups with a matcher.
            rows[hook.event] = [row if hook.matcher is not None else row["hooks"][0]]
        return rows


class PluginFileIntegration(AgentIntegration):
    """The integration of an agent that loads a plugin file."""

    __slots__ = ()

    def _with_hooks(self, path: str, text: str, form: AgentSettingsForm, commands: dict[str, str]) -> str:
        if text and MARK not in text:
            raise UnknownSettingsForm
        return read_template(PLUGIN_TEMPLATE).replace(PLUGIN_PATH, next(iter(commands.values())))

    def _without_hooks(self, path: str, text: str) -> str | None:
        return None if MARK in text else text

    def _found_hooks(self, path: str, text: str) -> dict[str, list[object]]:
        return {hook.event: [text] for hook in self.form.hooks if MARK in text and f'"{hook.event}"' in text}

    def _commands(self, target: InstallTarget, form: AgentSettingsForm) -> dict[str, str]:
        """Return the JavaScript expression of our script's path; in a repository it names no path of this machine."""
        script = json.dumps(self._script_path(target))
        if target.repository is not None and not target.everywhere and not target.repository.plain:
            script = f"`${{data}}/git-{MARK}{self.name}`"
        return {hook.event: script for hook in form.hooks}


def _strict_object(text: str) -> dict[str, Any]:
    """Return settings in strict JSON; raise `UnknownSettingsForm` if the agent would ignore the file."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
        root = jsonc.parse(text)
    except (ValueError, RecursionError) as error:
        raise UnknownSettingsForm from error
    if not isinstance(value, dict) or root.kind != "object":
        raise UnknownSettingsForm
    return value


def _refuse_constant(_name: str) -> object:
    raise ValueError


def _without(text: str) -> str:
    root = jsonc.parse(text)
    item = jsonc.find(root, HOOK_NAME)
    return text if item is None else jsonc.remove_item(text, root, item)


def _is_our_hook(value: object) -> bool:
    """Return whether a named hook contains only our hooks."""
    if not isinstance(value, dict) or not value:
        return False
    return all(isinstance(rows, list) and rows and all(map(is_ours, rows)) for rows in value.values())
