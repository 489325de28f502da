"""Write the script that the hooks of an agent's plugin call: `git-envhist agent-shim <agent>`.

A plugin brings its own hooks, so nobody runs `git envlog install`. Its first hook calls this once. The agent counts as
installed for every repository of the user: `git envlog uninstall --global --agent <agent>` removes the script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from git_envhist.directories_of_others import refuse_others_directory
from git_envhist.integrations.agents.install import AgentIntegration
from git_envhist.integrations.agents.registry import AGENTS
from git_envhist.integrations.base import InstallTarget, installed_program
from git_envhist.integrations.edits import apply_edits, changed_edits


def handle_agent_shim(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Write the script of the named agent; print nothing and return 0, because a hook calls this."""
    with suppress(Exception):
        (name,) = words
        integration = AGENTS[name]
        if isinstance(integration, AgentIntegration):
            target = InstallTarget(None, environ, installed_program(environ), everywhere=True)
            edit = integration.plan_script(target)
            refuse_others_directory(edit.path)
            apply_edits(changed_edits((edit,)))
            target.trusted.add_agent(name, target.named)
    return 0
