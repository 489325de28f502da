"""The steps of a history: values that mean something in any state, so that a history can be shortened."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from tests.support.trees import (
    Append,
    Chmod,
    Directory,
    Edit,
    Fifo,
    File,
    Forge,
    HardLink,
    Link,
    Node,
    Put,
    Remove,
    Rename,
    Touch,
)

NAMES = (b"a", b"b", b"src/m.py", b"src/n.py", b"src/deep/er/x", b"node_modules/p/index.js", b".env", b"data",
         b"odd \xff\n", b"src", b"node_modules", b"src/deep", b"app.py")  # fmt: skip
WEIGHTS = {
    "edit": 34, "capture": 14, "restore": 9, "restore_paths": 7, "keep_new": 4, "keep_tracked": 3, "undo": 7, "redo": 4,
    "write_to": 4, "fork": 2, "switch": 5, "commit": 3, "drop": 3, "undrop": 2, "prune": 1, "purge": 1, "gc": 2,
    "export": 1, "share": 2,
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """A step: its kind, an edit, and numbers that choose among the existing snapshots and paths."""

    kind: str
    edit: Edit | None = None
    choice: int = 0
    other: int = 0

    def __str__(self) -> str:
        if self.edit is not None:
            return f"edit {self.edit}"
        return f"{self.kind} {self.choice} {self.other}"


def draw_history(seed: int, length: int) -> list[Step]:
    """Return the history of a seed; it begins with files and a capture."""
    rng = random.Random(seed)
    steps = [Step("edit", _edit(rng)) for _ in range(4)] + [Step("capture")]
    kinds = rng.choices(list(WEIGHTS), weights=list(WEIGHTS.values()), k=max(0, length - len(steps)))
    return steps + [_step(rng, kind) for kind in kinds]


def _step(rng: random.Random, kind: str) -> Step:
    if kind == "edit":
        return Step(kind, _edit(rng))
    return Step(kind, None, rng.randrange(1 << 16), rng.randrange(1 << 16))


def _edit(rng: random.Random) -> Edit:
    path = rng.choice(NAMES)
    makers: list[Any] = [
        lambda: Put(path, _node(rng)),
        lambda: Put(path, _node(rng)),
        lambda: Remove(path),
        lambda: Append(path, bytes([rng.randrange(256)]) * rng.randrange(1, 90)),
        lambda: Forge(path),
        lambda: Chmod(path, rng.choice((0o600, 0o644, 0o755, 0o750, 0o700))),
        lambda: Touch(path, rng.randrange(10**18, 2 * 10**18)),
        lambda: Rename(path, rng.choice(NAMES)),
    ]
    return rng.choice(makers)()  # type: ignore[no-any-return]


def _node(rng: random.Random) -> Node:
    content = b"%d\n" % rng.randrange(1000) * rng.choice((1, 1, 3, 200, 40_000))
    nodes: list[Node] = [
        File(content),
        File(content, rng.choice((0o644, 0o600, 0o755)), rng.randrange(10**18, 2 * 10**18)),
        File(content, xattrs=(("user.walk", b"%d" % rng.randrange(9)),)),
        Link(rng.choice((b"a", b"src/m.py", b"nowhere", b"../elsewhere"))),
        Directory(rng.choice((0o755, 0o700, 0o750))),
        Fifo(),
        HardLink(rng.choice(NAMES)),
    ]
    return rng.choices(nodes, weights=(5, 3, 1, 1, 1, 0.3, 1))[0]
