"""An agent of chimera that edits files in its loop, with our classes or the original ones."""

import json
import os
import sys

from chimera.core.agent import Agent
from chimera.core.loop import ReAct
from chimera.core.loop_config import LoopConfig
from chimera.providers.base import Provider, Response
from chimera.tools.write import WriteFileTool
from chimera.transactions import FileTransaction
from chimera.types import ToolCall

workspace, whose = sys.argv[1:]
os.environ["CHIMERA_HOME"] = os.path.join(os.path.dirname(workspace), "chimera-home")
if whose == "ours":
    from git_envhist.compat.chimera.checkpoints import CheckpointManager
    from git_envhist.compat.chimera.checkpoints_ghost import GhostCommitManager
    from git_envhist.compat.chimera.env.local import LocalEnvironment
else:
    from chimera.checkpoints import CheckpointManager
    from chimera.checkpoints_ghost import GhostCommitManager
    from chimera.env.local import LocalEnvironment


class Scripted(Provider):
    """A fake model that writes the given files."""

    context_window, supports_tool_use, model_name = 100_000, True, "none"

    def __init__(self, *files):
        self.files = list(files)

    def complete(self, messages, tools=None, temperature=0.0, max_tokens=None):
        usage = {"input_tokens": 1, "output_tokens": 1}
        if not self.files:
            return Response("done", [], usage)
        path, content = self.files.pop(0)
        call = ToolCall(
            id=f"call-{len(self.files)}", name="write_file", arguments={"path": path, "content": content}
        )
        return Response("", [call], usage)


def read(env):
    return {path: env.read_file(path) for path in env.list_files()}


def main():
    tell = {}
    env = LocalEnvironment(workdir=workspace)
    env.setup()
    env.write_file("app.py", "original\n")
    manager, ghost = CheckpointManager(env), GhostCommitManager(workdir=workspace)
    tell["first"] = manager.create("first", "before the agent").name
    config = LoopConfig(checkpoint_manager=manager, ghost_commits=ghost, yolo_mode=True)
    provider = Scripted(("app.py", "edited\n"), ("sub/new.py", "new\n"), ("app.py", "edited again\n"))
    agent = Agent(provider, [WriteFileTool()], ReAct(config=config))
    result = agent.run("edit", env)
    tell["result"] = [result.success, result.tool_calls_total]
    tell["edited"] = read(env)
    tell["checkpoints"] = [[info.name, info.description] for info in manager.list_checkpoints()]
    tell["ghosts"] = [[one.id, one.label, one.files] for one in ghost.history]
    tell["undone"] = [ghost.undo(), read(env), ghost.undo(2), read(env), ghost.depth]
    tell["second"] = [manager.restore_by_name("checkpoint-3").description, read(env)]
    tell["back"] = [manager.restore_by_name("first").description, read(env)]
    tell["latest"] = [manager.undo().name, read(env)]
    transaction = FileTransaction(env)
    transaction.stage_write("app.py", "in a transaction\n")
    transaction.stage_write("more.py", "more\n")
    transaction.commit()
    tell["committed"] = read(env)
    transaction.rollback()
    tell["rolled back"] = read(env)
    if whose == "ours":
        config = LoopConfig(checkpoint_manager=manager.every(2), yolo_mode=True)
        provider = Scripted(*((f"{number}.py", "more\n") for number in range(4)))
        before = len(manager.list_checkpoints())
        Agent(provider, [WriteFileTool()], ReAct(config=config)).run("go on", env)
        tell["every second"] = len(manager.list_checkpoints()) - before
    print(json.dumps(tell))


main()
