"""Read whether an agent runs our hooks: each agent stores in its own form what a person approved.

Codex approves each hook by its position and by a hash of its definition, in a trusted directory. Gemini CLI and
Copilot CLI run the hooks of a project in a trusted directory. Other agents ask for no approval of hooks. A file in a
form that is not known here gives `HookApproval.UNKNOWN`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from glob import escape, glob
from typing import Any, NamedTuple

from git_envhist.errors import EnvhistError
from git_envhist.integrations.agents import jsonc
from git_envhist.integrations.base import InstallTarget
from git_envhist.integrations.edits import read_state
from git_envhist.lazy import replace
from git_envhist.model.integrations import HookApproval

UNKNOWN_STEP = "cannot read what is approved in {0}: look in {0} whether it runs the hooks"
IsOurs = Callable[[object], bool]


class UnknownForm(ValueError):
    """A file of the agent is not in the known form."""


class HookSettings(NamedTuple):
    """The settings of an agent with our hooks."""

    path: str
    text: str
    events: Sequence[str]
    is_ours: IsOurs


class Approvals(NamedTuple):
    """The approval of each hook, and the step that is left."""

    of: Mapping[str, HookApproval]
    """By event; an event that is missing needs no approval."""
    step: str = ""
    """The step that is left to the person before the agent runs all hooks; empty if none."""


def read_approvals(agent: str, target: InstallTarget, settings: HookSettings) -> Approvals:
    """Return what a person approved of the hooks of an agent in these settings."""
    read = READERS.get(agent)
    if read is None:
        return Approvals({})
    try:
        return read(target, settings)
    except (UnknownForm, RecursionError):
        return _all(settings, HookApproval.UNKNOWN, UNKNOWN_STEP.format(agent))


def _all(settings: HookSettings, approval: HookApproval, step: str = "") -> Approvals:
    return Approvals(dict.fromkeys(settings.events, approval), step)


# Codex: `hooks.state."<settings>:<event>:<group>:<hook>".trusted_hash` and `projects."<directory>".trust_level`.

CODEX_LABELS = {
    "UserPromptSubmit": "user_prompt_submit",
    "PreToolUse": "pre_tool_use",
    "PostToolUse": "post_tool_use",
    "Stop": "stop",
    "SessionEnd": "session_end",
}
WITHOUT_MATCHER = ("UserPromptSubmit", "Stop")
CODEX_TIMEOUT, CODEX_EXIT_TIMEOUT = 600, 3
"""Seconds that Codex grants a hook that names no timeout, and at most a hook at the end of a session."""
CODEX_STEP = "codex does not run hooks before they are approved: approve {} when codex starts, or at /hooks"
CODEX_DISABLED = "codex does not run hooks: 'features.hooks' is false in '{}'"
CODEX_WORKTREE = (
    "codex takes the hooks of a linked worktree from the main working tree: "
    "git -C {} envlog install --agent codex"
)
DIRECTORY_STEP = "{0} runs hooks of a project only in a trusted directory: start {0} in '{1}' and trust it"


def _codex(target: InstallTarget, settings: HookSettings) -> Approvals:
    path = os.path.join(_home(target, "CODEX_HOME", ".codex"), "config.toml")
    config = _toml(_text(path))
    if _table(config, "features").get("hooks") is False:
        return _all(settings, HookApproval.MISSING, CODEX_DISABLED.format(path))
    if _is_of_project(target):
        main = _main_working_tree(target)
        if main is not None:
            settings = _settings_below(main, settings)
        if not _is_trusted_by_codex(config, target, main):
            return _all(settings, HookApproval.MISSING, DIRECTORY_STEP.format("codex", _root(target)))
        if main is not None and not any(_codex_hooks(settings).values()):
            return _all(settings, HookApproval.MISSING, CODEX_WORKTREE.format(shlex.quote(main)))
    states = _table(_table(config, "hooks"), "state")
    found = {event: _codex_approval(states, rows) for event, rows in _codex_hooks(settings).items()}
    missing = [event for event, approval in found.items() if approval is HookApproval.MISSING]
    return Approvals(found, CODEX_STEP.format(", ".join(missing)) if missing else "")


def _codex_hooks(settings: HookSettings) -> dict[str, list[tuple[str, str]]]:
    """Return (key, hash) of each of our hooks, by event, as Codex names and hashes them."""
    value = _toml(settings.text) if settings.path.endswith(".toml") else _strict_json(settings.text)
    hooks = _table(value, "hooks")
    found: dict[str, list[tuple[str, str]]] = {event: [] for event in settings.events}
    for event in settings.events:
        for number, group in enumerate(_list(hooks.get(event))):
            for index, hook in enumerate(_list(_dict(group).get("hooks"))):
                if settings.is_ours(hook):
                    key = f"{settings.path}:{CODEX_LABELS[event]}:{number}:{index}"
                    found[event].append((key, _codex_hash(event, _dict(group), _dict(hook))))
    return found


def _codex_hash(event: str, group: Mapping[str, Any], hook: Mapping[str, Any]) -> str:
    """Return the hash that Codex stores for an approved hook."""
    timeout, command = hook.get("timeout", CODEX_TIMEOUT), hook.get("command")
    if not isinstance(timeout, int) or not isinstance(command, str):
        raise UnknownForm
    if event == "SessionEnd":
        timeout = min(timeout, CODEX_EXIT_TIMEOUT)
    one = {"type": "command", "command": command, "timeout": max(timeout, 1), "async": False}
    identity: dict[str, object] = {"event_name": CODEX_LABELS[event], "hooks": [one]}
    if "matcher" in group and event not in WITHOUT_MATCHER:
        identity["matcher"] = group["matcher"]
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()}"


def _codex_approval(states: Mapping[str, Any], hooks: Sequence[tuple[str, str]]) -> HookApproval:
    found = ((_dict(states.get(key, {})), wanted) for key, wanted in hooks)
    # A second hash, of the files of the plugin, can follow.
    is_approved = any(
        str(state.get("trusted_hash")).partition("/")[0] == wanted and state.get("enabled", True) is True
        for state, wanted in found
    )
    return HookApproval.APPROVED if is_approved else HookApproval.MISSING


def _is_trusted_by_codex(config: Mapping[str, Any], target: InstallTarget, main: str | None) -> bool:
    projects = _table(config, "projects")
    named = [_dict(projects[place]) for place in (_root(target), main or "") if place in projects]
    return bool(named) and named[0].get("trust_level") == "trusted"


def _main_working_tree(target: InstallTarget) -> str | None:
    """Return the main working tree, if the target is a linked worktree of it."""
    repository = target.repository
    if repository is None or os.path.realpath(repository.git_dir) == os.path.realpath(repository.common_dir):
        return None
    main, name = os.path.split(os.path.realpath(repository.common_dir))
    return main if name == ".git" else None


def _settings_below(main: str, settings: HookSettings) -> HookSettings:
    path = os.path.join(main, *settings.path.rsplit("/", 2)[1:])
    return settings._replace(path=path, text=_text(path))


# A plugin of Codex is copied to its cache, and its hooks are approved by the name of the plugin.

CODEX_PLUGIN = "git-envhist@git-envhist:hooks/codex.json"
CODEX_PLUGIN_FILES = "plugins/cache/git-envhist/git-envhist/*/hooks/codex.json"


def read_plugin_approvals(agent: str, target: InstallTarget) -> Approvals:
    """Return what a person approved of the hooks of our plugin."""
    if agent != "codex":
        return Approvals({})
    pattern = os.path.join(escape(_home(target, "CODEX_HOME", ".codex")), CODEX_PLUGIN_FILES)
    newest = max(glob(pattern), key=os.path.getmtime, default=None)
    if newest is None:
        return Approvals({})
    settings = HookSettings(CODEX_PLUGIN, "", tuple(CODEX_LABELS), lambda _hook: True)
    try:
        settings = settings._replace(text=_text(newest))
    except UnknownForm:
        return _all(settings, HookApproval.UNKNOWN, UNKNOWN_STEP.format(agent))
    return read_approvals(agent, replace(target, everywhere=True), settings)


# Gemini CLI: `trustedFolders.json`, the longest path that matches; `security.folderTrust.enabled` and `hooksConfig`.

GEMINI_DISABLED = "gemini does not run our hooks: they are disabled in '{}', see /hooks in gemini"


def _gemini(target: InstallTarget, settings: HookSettings) -> Approvals:
    user = os.path.join(target.home, ".gemini/settings.json")
    config = _json(_text(user))
    for path, value in ((user, config), (settings.path, _json(settings.text))):
        hooks = _table(value, "hooksConfig")
        if hooks.get("enabled") is False or "git-envhist" in _list(hooks.get("disabled")):
            return _all(settings, HookApproval.MISSING, GEMINI_DISABLED.format(path))
    if not _is_of_project(target):
        return Approvals({})
    trust = _table(_table(config, "security"), "folderTrust")
    if trust.get("enabled") is False or _is_trusted_by_gemini(target):
        return _all(settings, HookApproval.APPROVED)
    return _all(settings, HookApproval.MISSING, DIRECTORY_STEP.format("gemini", _root(target)))


def _is_trusted_by_gemini(target: InstallTarget) -> bool:
    own = target.environ.get("GEMINI_CLI_TRUSTED_FOLDERS_PATH")
    rules = _json(_text(own or os.path.join(target.home, ".gemini/trustedFolders.json")))
    matching = []
    for path, level in rules.items():
        place = os.path.dirname(path) if level == "TRUST_PARENT" else path
        if _contains(place, _root(target)):
            matching.append((len(path), level))
    longest = max(matching, key=lambda one: one[0], default=(0, None))
    return longest[1] in ("TRUST_FOLDER", "TRUST_PARENT")


# Copilot CLI: `trustedFolders` of `config.json`, and the directories below them.


def _copilot(target: InstallTarget, settings: HookSettings) -> Approvals:
    if not _is_of_project(target):
        return Approvals({})
    config = _json(_text(os.path.join(_home(target, "COPILOT_HOME", ".copilot"), "config.json")))
    # Earlier versions wrote the other name.
    named = [*_list(config.get("trustedFolders")), *_list(config.get("trusted_folders"))]
    if any(isinstance(place, str) and _contains(place, _root(target)) for place in named):
        return _all(settings, HookApproval.APPROVED)
    return _all(
        settings,
        HookApproval.MISSING,
        DIRECTORY_STEP.format("copilot", _root(target)) + " (with -p: --trust-folder)",
    )


READERS: dict[str, Callable[[InstallTarget, HookSettings], Approvals]] = {
    "codex": _codex,
    "gemini": _gemini,
    "copilot": _copilot,
}


def _is_of_project(target: InstallTarget) -> bool:
    return target.repository is not None and not target.everywhere


def _root(target: InstallTarget) -> str:
    assert target.repository is not None
    return target.repository.root


def _home(target: InstallTarget, variable: str, name: str) -> str:
    return target.environ.get(variable) or os.path.join(target.home, name)


def _contains(place: str, path: str) -> bool:
    """Return whether a directory is a path or above it, links resolved."""
    above = os.path.realpath(place)
    return os.path.commonpath([above, os.path.realpath(path)]) == above if place.startswith("/") else False


def _text(path: str) -> str:
    """Return the text of a file; empty if there is none."""
    try:
        found = read_state(os.path.realpath(path))
    except EnvhistError as error:
        raise UnknownForm from error
    return "" if found is None else found.data.decode("utf-8", "surrogateescape")


def _toml(text: str) -> Mapping[str, Any]:
    try:
        return tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    except ValueError as error:
        raise UnknownForm from error


def _strict_json(text: str) -> Mapping[str, Any]:
    try:
        return _dict(json.loads(text)) if text.strip() else {}
    except ValueError as error:
        raise UnknownForm from error


def _json(text: str) -> Mapping[str, Any]:
    """Return an object of JSON with comments; empty for an empty text."""
    try:
        return _dict(jsonc.load(text, jsonc.parse(text))) if text.strip() else {}
    except jsonc.NotJson as error:
        raise UnknownForm from error


def _table(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return _dict(value.get(name, {}))


def _dict(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UnknownForm
    return value


def _list(value: object) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise UnknownForm
    return value or []
