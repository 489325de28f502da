"""An agent of praisonaiagents that edits files with its tool, with our checkpoint service or the original one."""

import asyncio
import json
import os
import sys

from model import SCRIPT, serve

workspace, whose = sys.argv[1:]
serve()

from praisonaiagents import Agent  # noqa: E402
from praisonaiagents.escalation.pipeline import EscalationPipeline  # noqa: E402
from praisonaiagents.escalation.types import EscalationStage  # noqa: E402
from praisonaiagents.session.hierarchy import HierarchicalSessionStore  # noqa: E402
from praisonaiagents.session.store import DefaultSessionStore  # noqa: E402

if whose == "ours":
    from git_envhist.compat.praisonai.service import CheckpointService
else:
    from praisonaiagents.checkpoints import CheckpointService


def change_text(name: str, text: str) -> str:
    """Change the text of a file.

    Args:
        name: the file
        text: the new text
    """
    with open(os.path.join(workspace, name), "w") as file:
        file.write(text)
    return "changed"


def read():
    found = {}
    for name in sorted(os.listdir(workspace)):
        with open(os.path.join(workspace, name)) as file:
            found[name] = file.read()
    return found


async def main():
    tell = {}
    with open(os.path.join(workspace, "app.py"), "w") as file:
        file.write("original\n")
    service = CheckpointService(workspace, os.path.join(os.path.dirname(workspace), "storage"))
    await service.initialize()
    agent = Agent(name="coder", instructions="You edit files.", llm="none", tools=[change_text])
    if whose == "ours":
        service.bind(agent)
    pipeline = EscalationPipeline(agent=agent, checkpoint_service=service)
    SCRIPT[:] = [("change_text", {"name": "app.py", "text": "edited\n"}), "edited it"]
    result = await pipeline.execute_at_stage("edit app.py", EscalationStage.AUTONOMOUS)
    tell["result"] = [result.success, result.response]
    tell["edited"] = read()
    tell["roles"] = [message["role"] for message in agent.chat_history]
    tell["saved"] = next(one.message for one in await service.list_checkpoints())
    SCRIPT[:] = [("change_text", {"name": "new.py", "text": "new\n"}), "made it"]
    agent.chat("now make another")
    tell["both"] = read()
    tell["back"] = (await service.restore(result.checkpoint_id)).success
    tell["was"] = read()
    tell["left"] = len(agent.chat_history)
    if whose == "ours":
        tell["stores"] = [
            await with_store(service, kind) for kind in (DefaultSessionStore, HierarchicalSessionStore)
        ]
    print(json.dumps(tell))


async def with_store(service, kind):
    """Return the number of messages in the library's store after restoring an earlier and then a later checkpoint."""
    store = kind(session_dir=os.path.join(os.path.dirname(workspace), kind.__name__))
    service.bind(store, "session")
    store.add_message("session", "user", "one")
    saved = await service.save("one", allow_empty=True)
    store.add_message("session", "assistant", "two")
    store.add_message("session", "user", "three")
    later = await service.save("two", allow_empty=True)
    counts = []
    for checkpoint in (saved, later):
        await service.restore(checkpoint)
        counts.append(len(store.get_chat_history("session")))
    return counts


asyncio.run(main())
