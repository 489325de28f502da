"""A history repository of many machines: `python -m tests.remote.fleet [--timelines N] [--snapshots N]`.

`git fast-import` writes the timelines of many machines into a bare repository: commits, notes, trees and facts as a
capture writes them, of an environment of 300 files of which some change in each snapshot. Then one more machine
pushes its timeline, and another fetches all of them over http without contents and lists them. The bytes sent and
received are counted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from git_envhist.model import Actor, ChangeCount, IntentSource, Trigger
from git_envhist.snapshots.message import MessageFields, write_message
from tests.conftest import sealed_environment
from tests.interop.servers import Counted, http_server
from tests.remote.conftest import make_remote
from tests.support.repository import make_repo

DIRECTORIES, FILES = 10, 30
STARTED = 1_760_000_000
SAID = (
    b'{"at":"2026-11-18T10:18:03+00:00","command":"npm test","exit_code":0,"kind":"verdict",'
    b'"status":"pass"}\n'
)


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--timelines", type=int, default=500)
    words.add_argument("--snapshots", type=int, default=200)
    words.add_argument("--first", action="store_true", help="run with real-time priority (root)")
    asked = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="fleet-") as place, ExitStack() as servers:
        Fleet(Path(place), asked.timelines, asked.snapshots, servers, first=asked.first).run()
    return 0


class Fleet:
    def __init__(
        self, place: Path, timelines: int, snapshots: int, servers: ExitStack, *, first: bool = False
    ) -> None:
        for name in ("home", "srv"):
            (place / name).mkdir()
        os.environ.update(sealed_environment(place / "home"))
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.place = place
        self.first = first
        self.timelines = timelines
        self.snapshots = snapshots
        self.counted = Counted()
        self.url = f"{servers.enter_context(http_server(place / 'srv', self.counted))}/history.git"
        self.bare = make_remote(place / "srv" / "history.git")

    def run(self) -> None:
        print("| what | time | sent to the server | received |")
        print("| --- | ---: | ---: | ---: |", flush=True)
        self.measure("(the histories are written, and packed as a server packs them)", self.fill)
        if self.first:
            # Other processes on this machine must not slow down the measured commands.
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        self.push()
        self.fetch()
        size = self.bare.git("count-objects", "-v", "-H").partition("size-pack: ")[2].splitlines()[0]
        commits = self.bare.git("rev-list", "--count", "--glob=refs/envhist/heads/*")
        objects = self.bare.git("count-objects", "-v").partition("in-pack: ")[2].splitlines()[0]
        print(f"\n{self.timelines:,} timelines, {int(commits):,} snapshots, {int(objects):,} objects,")
        print(f"{size} on the server")

    def fill(self) -> None:
        words = ["git", "-C", str(self.bare.path), "fast-import", "--quiet", "--done"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, env=self.bare.env) as importing:
            assert importing.stdin is not None
            for number in range(self.timelines):
                importing.stdin.write(b"".join(timeline(number, self.snapshots)))
            importing.stdin.write(b"done\n")
            importing.stdin.close()
        self.bare.git("repack", "-q", "-a", "-d", "--write-bitmap-index")
        self.bare.git("pack-refs", "--all")

    def push(self) -> None:
        """Push the timeline of one more machine."""
        mine = make_repo(self.place / "mine")
        mine.git("remote", "add", "origin", self.url)
        for number in range(300):
            mine.write(f"data/{number}", str(number) * 100)
        for number in range(20):
            mine.write(f"data/{number}", f"{number} again")
            mine.run("envlog", "capture", f"work {number}", check=True)
        self.measure(
            "push of 20 snapshots, the first", lambda: mine.run("envlog", "push", "--yes", check=True)
        )
        mine.write("data/1", "more")
        mine.run("envlog", "capture", "more", check=True)
        self.measure("push of one more", lambda: mine.run("envlog", "push", check=True))

    def fetch(self) -> None:
        """Fetch, list and compare all timelines on another machine."""
        watcher = make_repo(self.place / "watcher")
        watcher.git("remote", "add", "origin", self.url)
        fetch = ("envlog", "fetch")
        self.measure("fetch of all timelines, without contents", lambda: watcher.run(*fetch, check=True))
        self.measure("fetch, nothing new", lambda: watcher.run(*fetch, check=True))
        grown = min(50, self.timelines)
        for number in range(grown):
            ref = f"refs/envhist/heads/{name_of(number)}"
            text = message(number, self.snapshots).decode()
            commit = self.bare.git("commit-tree", f"{ref}^{{tree}}", "-p", ref, "-m", text)
            self.bare.git("update-ref", ref, commit)
        self.measure(f"fetch, {grown} timelines with a new snapshot", lambda: watcher.run(*fetch, check=True))
        line = f"origin/{name_of(1)}"
        self.measure("`git envlog -20` of one", lambda: watcher.run("envlog", "-20", line, check=True))
        self.measure("`git envlog --all -20`", lambda: watcher.run("envlog", "--all", "-20", check=True))
        self.measure("`git envlog --all`, every line", lambda: watcher.run("envlog", "--all", check=True))
        diff = ("envdiff", "--name-status", f"{line}~1", line)
        self.measure("`git envdiff` of two snapshots", lambda: watcher.run(*diff, check=True))
        size = watcher.execute("du", "-s", "-k", ".git/envhist/fetched.git").out.split()[0]
        print(f"| size of the fetched repository | | | {int(size) / 1000:,.0f} MB on the disk |")

    def measure(self, what: str, action: Callable[[], object]) -> None:
        started, sent, received = time.monotonic(), self.counted.received, self.counted.sent
        action()
        took = time.monotonic() - started
        up, down = self.counted.received - sent, self.counted.sent - received
        print(f"| {what} | {took:.2f} s | {up / 1000:,.0f} KB | {down / 1000:,.0f} KB |", flush=True)


def name_of(number: int) -> str:
    return f"machine{number:03d}/app-{number:06x}"


def message(number: int, count: int) -> bytes:
    draft = MessageFields(
        f"step {count} of agent {number}".encode(), IntentSource.GIVEN, name_of(number), Trigger.AGENT,
        Actor(f"Agent {number}", "agent@example.com", "claude-code", "2.1", f"session-{number}-{count // 20}"),
        head="a" * 40, branch="refs/heads/main", content=f"{number:032x}{count:032x}", changed=ChangeCount(1, 2, 0),
        story="pip +flask 3.0.1 +6 · 3 files" if count % 5 == 0 else "~3 files", key="0123456789ab",
    )  # fmt: skip
    return write_message(draft) + b"Env-Mac: " + f"{number:032x}{count:032x}".encode() + b"\n"


def timeline(number: int, snapshots: int) -> Iterator[bytes]:
    """Yield the commits and notes of one timeline as input for `git fast-import`."""
    ref = f"refs/envhist/heads/{name_of(number)}".encode()
    base = 1 + number * snapshots
    for count in range(snapshots):
        at = STARTED + count * 600 + number
        text = message(number, count)
        who = b"Agent <agent@example.com> %d +0000\n" % at
        yield b"commit %b\nmark :%d\nauthor %bcommitter %bdata %d\n%b" % (
            ref,
            base + count,
            who,
            who,
            len(text),
            text,
        )
        if count:
            yield b"from :%d\n" % (base + count - 1)
        yield from files(number, count)
        yield b"\n"
    notes = b"refs/notes/envhist/" + name_of(number).encode()
    who = b"Agent <agent@example.com> %d +0000\n" % (STARTED + snapshots * 600)
    yield b"commit %b\nauthor %bcommitter %bdata 5\nnotes" % (notes, who, who)
    for count in range(snapshots):
        yield b"\nN inline :%d\ndata %d\n%b" % (base + count, len(SAID), SAID)
    yield b"\n\n"


def files(number: int, count: int) -> Iterator[bytes]:
    touched = range(DIRECTORIES) if count == 0 else (count % DIRECTORIES,)
    for directory in touched:
        names = range(FILES) if count == 0 else (count % FILES, (count + 7) % FILES, (count + 11) % FILES)
        for file in names:
            yield blob(f"src{directory}/file{file}", f"{number} {count} {file}\n" * 30)
        times = [count if file == count % FILES else number for file in range(FILES)]
        lines = [f"f 0644 176{at:07d}.000000000 file{file}\n" for file, at in enumerate(times)]
        place = f".envhist/manifest/{directory:02x}/{directory * 7919:030x}"
        yield blob(place, f"envhist-manifest 1 src{directory}\n{''.join(lines)}")
    if count % 5 == 0:
        pip = "".join(
            f".venv/package{each} {count if each == count % 40 else number}.0\n" for each in range(40)
        )
        yield blob(".envhist/facts/pip", f"envhist-facts 1 pip 2\n{pip}")
    if count == 0:
        for probe in ("npm", "system", "tools", "service", "env", "sqlite", "declared"):
            yield blob(f".envhist/facts/{probe}", f"envhist-facts 1 {probe} 1\n")


def blob(path: str, text: str) -> bytes:
    return b"M 100644 inline %b\ndata %d\n%b\n" % (path.encode(), len(text.encode()), text.encode())


if __name__ == "__main__":
    sys.exit(main())
