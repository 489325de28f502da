"""chimera's commands on a session with our manager and environment or the original ones."""

import json
import os
import re
import sys

from chimera.cli.code import cmd_checkpoint
from chimera.otter import slash

workspace, whose = sys.argv[1:]
os.environ["CHIMERA_HOME"] = os.path.join(os.path.dirname(workspace), "chimera-home")
os.environ["CHIMERA_SNAPSHOT_ROOT"] = os.path.join(os.path.dirname(workspace), "snapshots")
if whose == "theirs":
    from chimera.checkpoints import CheckpointManager
    from chimera.env.local import LocalEnvironment
else:
    from git_envhist.compat.chimera.checkpoints import CheckpointManager
    from git_envhist.compat.chimera.env.local import LocalEnvironment
if whose == "our words":
    from git_envhist.compat.chimera.commands import cmd_checkpoint


class Context:
    def __init__(self):
        self.messages = []


class Session:
    def __init__(self, manager):
        self.checkpoint_manager = manager
        self.context = Context()


def main():
    env = LocalEnvironment(workdir=workspace)
    env.setup()
    session = Session(CheckpointManager(env))
    lines = []

    def say(line):
        lines.append(re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "<time>", line))

    env.write_file("a", "1")
    for words in ("", "undo", "save first", "save", "list", "restore", "restore x"):
        cmd_checkpoint(session, env, words, say)
    env.write_file("a", "2")
    cmd_checkpoint(session, env, "restore first", say)
    lines.append(env.read_file("a"))
    cmd_checkpoint(session, env, "undo", say)
    cmd_checkpoint(session, env, "what", say)
    tell = {"checkpoint": lines}
    # chimera's undo and redo of turns, with the chosen environment.
    session = Session(None)
    lines = tell["turns"] = []
    slash.snapshot_after_turn(session, env)
    for turn in ("one", "two"):
        env.write_file("a", turn)
        session.context.messages.append(turn)
        slash.snapshot_after_turn(session, env)
    for command in (slash.cmd_undo, slash.cmd_redo, slash.cmd_undo):
        command(session, env, "", say)
        lines.append([env.read_file("a"), list(session.context.messages)])
    print(json.dumps(tell))


main()
