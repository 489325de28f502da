"""The session manager and the commands of praisonai-code, with our service or the original one."""

import asyncio
import contextlib
import io
import json
import os
import re
import sys

workspace, whose = sys.argv[1:]
os.environ["HOME"] = os.path.dirname(workspace)
os.environ.pop("PRAISONAI_CHECKPOINTS", None)
if whose == "ours":
    from git_envhist.compat import praisonai
    from git_envhist.compat.praisonai import service, types

    sys.modules["praisonaiagents.checkpoints"] = praisonai
    sys.modules["praisonaiagents.checkpoints.service"] = service
    sys.modules["praisonaiagents.checkpoints.types"] = types

from praisonai_code.cli.features.checkpoints import CheckpointsHandler  # noqa: E402
from praisonai_code.cli.features.session_checkpoints import SessionCheckpointManager  # noqa: E402


class Store:
    """A conversation with the methods that the manager calls."""

    def __init__(self, *messages):
        self.messages = list(messages)

    def get_messages(self, _session):
        return list(self.messages)

    def revert_to_message(self, _session, index):
        self.messages = self.messages[: index + 1]
        return True


def write(text, name="app.py"):
    with open(os.path.join(workspace, name), "w") as file:
        file.write(text)


def read(name="app.py"):
    with open(os.path.join(workspace, name)) as file:
        return file.read()


def session():
    """Take two turns and revert each with its messages."""
    store = Store("u1", "a1")
    manager = SessionCheckpointManager.from_config(
        workspace_dir=workspace, config={"checkpoints": {"auto": True}}, session_store=store, session_id="one"
    )
    told = []
    write("zero\n")
    for turn in ("one", "two"):
        assert manager.checkpoint_turn(f"before {turn}") is not None
        write(f"{turn}\n")
        write("new\n", f"{turn}.txt")
        store.messages += [f"u {turn}", f"a {turn}"]
    told.append(SessionCheckpointManager.render_diff(manager.diff(), scope="session"))
    told.append(manager.dropped_message_count(1))
    for _ in range(2):
        assert manager.revert(1) is not None
        told.append([read(), sorted(os.listdir(workspace)), list(store.messages), len(manager.turns)])
    told.append(manager.revert(5) is None)
    return told


async def commands():
    """Call the handlers of `praisonai checkpoint`."""
    handler = CheckpointsHandler(workspace)
    done = []
    for text in ("first", "second"):
        write(f"{text}\n")
        done.append(await handler.save(text))
    done.append(await handler.save("nothing"))
    every = await handler.list_checkpoints(limit=2)
    done.append([one["message"] for one in every])
    await handler.diff()
    done.append([await handler.rewind(1), read()])
    done.append([await handler.restore(every[0]["short_id"]), read()])
    done.append(await handler.rewind(0))
    done.append(await handler.delete_all())
    return done


def main():
    told = session()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        done = asyncio.run(commands())
    said = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "<time>", printed.getvalue())
    said = re.sub(r"\b[0-9a-f]{8}\b", "<id>", said)
    print(json.dumps({"session": told, "commands": done, "said": said.splitlines()}))


main()
