"""An agent's settings with our hooks in them, and without: pure texts, all that is not ours kept byte for byte."""

from __future__ import annotations

import json
import tomllib

from git_envhist.triggers.agents import jsonc
from git_envhist.triggers.agents.shapes import AgentSettingsForm, Hook, is_ours

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
