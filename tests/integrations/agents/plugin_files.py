"""Write the plugin below hooks/plugins/ from the forms of the agents' settings.

`python -m tests.integrations.agents.plugin_files` writes the files, after a change of a form; `test_plugins.py`
compares them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from git_envhist._version import __version__
from git_envhist.integrations.agents.install import CLAUDE_CODE, CODEX, COPILOT, CURSOR, AgentSettingsForm

ROOT = Path(__file__).resolve().parents[3] / "hooks/plugins"
NAME = "git-envhist"
DESCRIPTION = (
    "Snapshots of the whole working environment, before tools that change something and after each turn"
)
AUTHOR = {"name": "git-envhist contributors"}
SERVERS = "./servers.json"
SERVER = {"envhist": {"command": "git", "args": ["envlog", "mcp"]}}
# Cursor replaces this variable. If it did not, git would fail, and no other directory would be captured.
IN_WORKSPACE = {"envhist": {"command": "git", "args": ["-C", "${workspaceFolder}", "envlog", "mcp"]}}
Json = dict[str, Any]


def files() -> dict[str, Json]:
    """Return each file below hooks/plugins/ that is JSON, by its path."""
    common = {
        "name": NAME,
        "version": __version__,
        "description": DESCRIPTION,
        "author": AUTHOR,
        "license": "MIT",
    }
    skills = {"skills": "./skills/"}
    here = f"./{NAME}"
    listed = {"name": NAME, "description": DESCRIPTION}
    plugin = {
        ".claude-plugin/plugin.json": {**common, "mcpServers": SERVERS, "hooks": "./hooks/claude-code.json"},
        ".codex-plugin/plugin.json": {
            **common,
            **skills,
            "mcpServers": SERVERS,
            "hooks": "./hooks/codex.json",
        },
        ".cursor-plugin/plugin.json": {
            **common,
            **skills,
            "mcpServers": IN_WORKSPACE,
            "hooks": "./hooks/cursor.json",
        },
        # Copilot starts the servers of a plugin in the plugin's own directory, which may be a clone of this repository:
        # ours would show the history of that clone. A file `.mcp.json` would be found without being named.
        ".github/plugin/plugin.json": {**common, **skills, "hooks": "./hooks/copilot.json"},
        SERVERS.removeprefix("./"): {"mcpServers": SERVER},
        **{f"hooks/{form.name}.json": hooks(form) for form in (CLAUDE_CODE, CODEX, CURSOR, COPILOT)},
    }
    lists = {
        ".claude-plugin/marketplace.json": _market({**listed, "source": here}),
        ".cursor-plugin/marketplace.json": _market({**listed, "source": here}),
        ".github/plugin/marketplace.json": _market({**listed, "source": here}),
        ".agents/plugins/marketplace.json": {
            "name": NAME,
            "interface": {"displayName": NAME},
            "plugins": [
                {
                    "name": NAME,
                    "source": {"source": "local", "path": here},
                    "policy": {"installation": "AVAILABLE", "authentication": "ON_INSTALL"},
                    "category": "Developer Tools",
                }
            ],
        },
    }
    return {**{f"{NAME}/{path}": value for path, value in plugin.items()}, **lists}


def hooks(form: AgentSettingsForm) -> Json:
    """Return the hooks of a plugin: those of the settings, with commands that write a missing script."""
    rows: Json = {}
    for hook in form.hooks:
        rows.setdefault(hook.event, []).append(form.element(hook, command(form.name, hook.kind)))
    return {**form.skeleton, "hooks": rows}


def command(agent: str, kind: str) -> str:
    script = f'"/${{XDG_DATA_HOME:-$HOME/.local/share}}/git-envhist/hooks/agent-{agent}"'
    write = f"git-envhist agent-shim {agent} </dev/null"
    return f'{{ s={script}; [ -x "$s" ] || {write}; "$s" {kind}; }} 2>/dev/null || :'


def text_of(value: Json) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _market(plugin: Json) -> Json:
    return {"name": NAME, "owner": AUTHOR, "metadata": {"description": DESCRIPTION}, "plugins": [plugin]}


def main() -> None:
    for path, value in files().items():
        place = ROOT / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text_of(value))


if __name__ == "__main__":
    main()
