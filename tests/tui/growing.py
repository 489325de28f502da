"""Make a timeline long: snapshots with the same tree as the newest one, written by git itself."""

from __future__ import annotations

from tests.support.repository import Repo

BEGAN = 1_790_000_000
MINUTE = 60


def grow_timeline(repo: Repo, number: int) -> None:
    """Append this many snapshots, a minute apart, with numbered intents."""
    ref = repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads/")
    _, _, rest = repo.git("log", "-1", "--format=%B", ref).partition("\n")
    # The snapshots have no signature and need none, because they are only listed.
    kept = [line for line in rest.split("\n") if not line.startswith(("Env-Mac:", "Env-Key:"))]
    body = "\n".join(kept)
    stream = []
    for count in range(1, number + 1):
        message = f"moment-{count}-\n{body}\n".encode()
        origin = f"from {ref}^0\n" if count == 1 else f"from :{count - 1}\n"
        head = f"commit {ref}\nmark :{count}\ncommitter A <a@b> {BEGAN + count * MINUTE} +0000\n"
        stream.append(f"{head}data {len(message)}\n".encode() + message + origin.encode())
    repo.git("fast-import", "--quiet", input=b"".join(stream))
