"""Call our service or the original one and print results, messages and events, without ids and times."""

import asyncio
import hashlib
import json
import os
import sys
import tempfile

workspace, whose = sys.argv[1:]
if whose == "ours":
    from git_envhist.compat.praisonai.service import CheckpointService
    from git_envhist.compat.praisonai.types import CheckpointEvent
else:
    from praisonaiagents.checkpoints.service import CheckpointService
    from praisonaiagents.checkpoints.types import CheckpointEvent


def put(name, text):
    with open(os.path.join(workspace, name), "w") as file:
        file.write(text)


def get(name):
    with open(os.path.join(workspace, name)) as file:
        return file.read()


def told(result):
    one = result.checkpoint
    said = None if one is None else [one.message, one.step, one.id[:8] == one.short_id]
    return [result.success, said, result.error]


async def main():
    tell = {}
    storage = tempfile.mkdtemp(dir=os.path.dirname(workspace))
    service = CheckpointService(workspace, storage, max_checkpoints=4)
    events = []

    def fail(data):
        raise RuntimeError("error in a handler")

    for event in CheckpointEvent:
        service.on(event, fail)
        service.on(event, lambda data, event=event: events.append(event.value))
    tell["before"] = [
        told(await service.save("x")),
        told(await service.restore("x")),
        told(await service.rewind()),
    ]
    tell["before"] += [await service.list_checkpoints(), service.is_initialized]
    tell["initialized"] = [
        await service.initialize(),
        service.is_initialized,
        os.path.exists(service.git_dir),
    ]
    place = hashlib.sha256(workspace.encode()).hexdigest()[:12]
    tell["place"] = os.path.relpath(service.checkpoint_dir, storage) == place
    tell["nothing"] = told(await service.save("Nothing"))
    put("a.txt", "one\n")
    first = await service.save("First")
    tell["first"] = told(first)
    tell["same"] = [told(await service.save("Same")), told(await service.save("Empty", allow_empty=True))]
    put("a.txt", "two\n")
    put("b.txt", "new\n")
    diff = await service.diff()
    tell["diff"] = [diff.to_checkpoint, sorted(file.path for file in diff.files), diff.total_additions]
    tell["step"] = [told(await service.save("[step-9] edit", step=1)), told(await service.save("x", step=-1))]
    tell["by step"] = [
        (await service.get_checkpoint_by_step(1)).message,
        await service.get_checkpoint_by_step(7),
    ]
    tell["listed"] = [one.message for one in await service.list_checkpoints()]
    tell["limited"] = len(await service.list_checkpoints(limit=2))
    tell["got"] = (await service.get_checkpoint(first.checkpoint.short_id)).message
    tell["missing"] = await service.get_checkpoint("0" * 40)
    tell["wrong"] = [
        told(await service.restore("x", step=1)),
        told(await service.restore(step=9)),
        told(await service.restore()),
        told(await service.rewind(0)),
        told(await service.rewind(99)),
    ]
    tell["stepped"] = told(await service.restore(step=1))
    tell["rewound"] = told(await service.rewind())
    put("a.txt", "unsaved\n")
    tell["restored"] = told(await service.restore(first.checkpoint.id))
    tell["tree"] = [sorted(os.listdir(workspace)), get("a.txt")]
    put("a.txt", "three\n")
    await service.save("Third")
    tell["events"] = events
    tell["cleanup"] = [await service.cleanup(), service.is_initialized, told(await service.save("x"))]
    await service.initialize()
    tell["deleted"] = [
        await service.delete_all(),
        os.path.exists(service.checkpoint_dir),
        service.is_initialized,
    ]
    refused = [
        CheckpointService(place, storage) for place in ("~", "/", "/tmp", "/etc", workspace + "/missing")
    ]
    refused.append(CheckpointService(workspace, storage, enabled=False))
    tell["refused"] = [await service.initialize() for service in refused]
    print(json.dumps(tell))


asyncio.run(main())
