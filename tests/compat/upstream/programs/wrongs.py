"""Known faults of the original service: run each case with one of the services and print which results are right."""

import asyncio
import json
import os
import subprocess
import sys

workspace, whose = sys.argv[1:]
if whose == "ours":
    from git_envhist.compat.praisonai.service import CheckpointService
else:
    from praisonaiagents.checkpoints import CheckpointService


def path(name):
    return os.path.join(workspace, name)


def put(name, data):
    os.makedirs(os.path.dirname(path(name)), exist_ok=True)
    with open(path(name), "wb") as file:
        file.write(data)


def is_now(name, data):
    try:
        with open(path(name), "rb") as file:
            return file.read() == data
    except OSError:
        return False


async def main():
    right = {}
    put(".gitignore", b"ignored.txt\n")
    put("ignored.txt", b"ignored")
    put("large.bin", b"x" * (3 << 20))
    put("before.txt", b"there before")
    put("closed", b"closed")
    os.chmod(path("closed"), 0o600)
    subprocess.run(["git", "init", "-q", path("lib")], check=True)
    put("lib/code.py", b"code")
    for words in (["add", "."], ["commit", "-qm", "inner"]):
        subprocess.run(["git", "-C", path("lib"), *words], check=True)
    storage = os.path.join(os.path.dirname(workspace), "storage")
    service = CheckpointService(workspace, storage)
    await service.initialize()
    saved = await service.save("one")
    put("ignored.txt", b"other")
    put("large.bin", b"small")
    put("lib/code.py", b"other")
    os.chmod(path("closed"), 0o644)
    put("later", b"later")
    await service.save("later")
    await service.restore(saved.checkpoint.id)
    right["ignored files"] = is_now("ignored.txt", b"ignored")
    right["files over 2 MB"] = is_now("large.bin", b"x" * (3 << 20))
    right["nested repositories"] = is_now("lib/code.py", b"code")
    right["modes"] = os.stat(path("closed")).st_mode & 0o777 == 0o600
    right["lists after a restore"] = "later" in [one.message for one in await service.list_checkpoints()]
    await service.rewind()
    right["files older than the first checkpoint"] = is_now("before.txt", b"there before")
    right["the list of changed files"] = isinstance(saved.checkpoint.files_changed, list)
    renamed = workspace + "-renamed"
    os.rename(workspace, renamed)
    service = CheckpointService(renamed, storage)
    await service.initialize()
    right["renamed directories"] = "later" in [one.message for one in await service.list_checkpoints()]
    with open(os.path.join(renamed, "later"), "w") as file:
        file.write("once more")
    await service.save("one|two|three")
    right["messages with '|'"] = [one.message for one in await service.list_checkpoints()][:1] == [
        "one|two|three"
    ]
    print(json.dumps(right))


asyncio.run(main())
