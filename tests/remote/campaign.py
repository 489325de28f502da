"""Whole environments through real servers: `python -m tests.remote.campaign [--scale F] [--count N]` prints a table.

The campaign captures environments of every kind (odd names, nested repositories, large files, links, databases,
secrets). It pushes each to a strict remote, alternating between ssh and http (every tenth to a server without partial
clones). A colleague fetches it and restores it into a new directory, and rsync compares both trees byte by byte. At
the end another colleague lists and compares every history over http without a restore, and the bytes received are
counted. Errors are printed, and the exit status is then 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import sealed_environment
from tests.end_to_end.test_capture_is_true import EVERYTHING
from tests.interop.servers import Counted, http_server, ssh_server
from tests.remote.conftest import hook, make_remote
from tests.support.oracle import git_fsck, tree_differences
from tests.support.repository import Repo, make_repo
from tests.support.trees import File, Node, Socket, build

TOTAL = 3 << 30
HOSTS_LIMITS = """\
GIT_ALTERNATE_OBJECT_DIRECTORIES= git --git-dir="$GIT_DIR" cat-file --batch-all-objects --batch-check='%(objectsize)' |
	awk '$1 > 100000000 { large = 1 } END { exit large }' || { echo "an object over 100 MB" >&2; exit 1; }
find "$GIT_QUARANTINE_PATH" -name '*.pack' -size +2097152k | grep -q . && { echo "a pack over 2 GB" >&2; exit 1; }
exit 0
"""
# Sockets are left out: no restore creates them.
ODD: dict[bytes, Node] = {path: node for path, node in EVERYTHING.items() if not isinstance(node, Socket)}
ODD |= {b"carriage\rreturn": File(b"3"), b"new\n\rline/and\x0bmore": File(b"4")}


@dataclass
class Tally:
    """Totals of the environments sent over one transport."""

    environments: int = 0
    bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def add(self, what: str, started: float) -> None:
        self.seconds[what] = self.seconds.get(what, 0.0) + time.monotonic() - started


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--scale", type=float, default=1.0, help="factor of the total size (1 is 3 GB)")
    words.add_argument("--count", type=int, default=50, help="number of environments")
    words.add_argument("--seed", type=int, default=7)
    words.add_argument("--large", action="store_true", help="one large timeline, fetched without contents")
    asked = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="sharing-") as place, ExitStack() as servers:
        campaign = Campaign(Path(place), asked.count, int(TOTAL * asked.scale), asked.seed, servers)
        return campaign.large() if asked.large else campaign.run()


class Campaign:
    def __init__(self, place: Path, number: int, total: int, seed: int, servers: ExitStack) -> None:
        for name in ("home", "their-home", "ssh", "srv"):
            (place / name).mkdir()
        os.environ.update(sealed_environment(place / "home"))
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.place = place
        self.count = number
        self.each = total // number
        self.dice = random.Random(seed)
        os.environ["GIT_SSH_COMMAND"] = servers.enter_context(ssh_server(place / "ssh"))
        self.counted = Counted()
        self.http = servers.enter_context(http_server(place / "srv", self.counted))
        self.remotes = {
            name: make_remote(place / "srv" / f"{name}.git", lazy=name != "whole")
            for name in ("ssh", "http", "whole")
        }
        for bare in self.remotes.values():
            hook(bare, HOSTS_LIMITS)
        self.remotes["whole"].git("config", "uploadpack.allowAnySHA1InWant", "false")
        self.ours = make_repo(place / "ours")
        self.theirs = make_repo(place / "theirs")
        self.theirs.env["XDG_CONFIG_HOME"] = str(place / "their-home")
        self.tallies = {name: Tally() for name in self.remotes}

    def run(self) -> int:
        for number in range(self.count):
            way = "whole" if number % 10 == 9 else ("ssh", "http")[number % 2]
            self.carry(number, way, self.tallies[way])
            print(".", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        for name, bare in self.remotes.items():
            self.tallies[name].wrong += git_fsck(bare.path).splitlines()
            left = bare.git("for-each-ref", "refs/envhist/upload")
            self.tallies[name].wrong += [f"left there: {left}"] if left else []
        self.report()
        self.look()
        wrong = [line for tally in self.tallies.values() for line in tally.wrong]
        print("\n".join(wrong))
        return 1 if wrong else 0

    def large(self) -> int:
        """Push one timeline of the whole size in parts; then count the bytes that a colleague's commands receive."""
        self.ours.git("config", "remote.http.url", self.address("http"))
        for number in range(10):
            for part in range(8):
                self.ours.write(
                    f"data/{number}-{part}.bin", self.dice.randbytes(self.each * self.count // 80)
                )
            self.ours.write("src/app.py", f"print({number})\n")
            self.ours.run("envlog", "capture", f"snapshot {number}", check=True)
        output = json.loads(self.ours.run("envlog", "push", "--json", "--yes", "http", check=True).out)
        print(
            f"pushed {output['bytes'] / 1e6:,.0f} MB in {output['parts']} parts, {output['objects']:,} objects"
        )
        self.theirs.git("remote", "add", "origin", self.address("http"))
        line = json.loads(self.theirs.run("envlog", "fetch", "--json", check=True).out)["timelines"][0][
            "timeline"
        ]
        self.count_line("fetch")
        for what, words in {
            "list": ("envlog", line),
            "details": ("envlog", "show", line),
            "changed paths": ("envdiff", "--name-status", f"{line}~5", line),
            "summary of the changes up to now": ("envdiff", f"{line}..now"),
            "one file": ("envlog", "show", line, "--", "src/app.py"),
        }.items():
            self.theirs.run(*words, check=True)
            self.count_line(what)
        left = self.remotes["http"].git("for-each-ref", "refs/envhist/upload")
        return 1 if left or git_fsck(self.remotes["http"].path) else 0

    def count_line(self, what: str) -> None:
        print(f"{what}: {self.counted.sent / 1000:,.0f} KB received", flush=True)
        self.counted.sent = 0

    def address(self, way: str) -> str:
        if way == "ssh":
            return f"ssh://loopback{self.remotes[way].path}"
        return f"{self.http}/{way}.git"

    def carry(self, number: int, way: str, tally: Tally) -> None:
        """Capture, push, fetch, restore, compare."""
        clear(self.ours)
        tally.bytes += generate(self.ours, self.dice, self.each)
        tally.environments += 1
        name = f"lab/env-{number:06x}"
        for repo in (self.ours, self.theirs):
            repo.git("config", f"remote.{way}.url", self.address(way))
        self.ours.git("config", "envhist.timeline", name)
        started = time.monotonic()
        self.ours.run("envlog", "capture", f"environment {number}", check=True)
        tally.add("capture", started)
        started = time.monotonic()
        self.ours.run("envlog", "push", "--yes", "--allow", "notes.txt", way, check=True)
        tally.add("push", started)
        started = time.monotonic()
        self.theirs.run("envlog", "fetch", way, check=True)
        tally.add("fetch", started)
        if number == 0:
            key = self.ours.run("envlog", "key", "export", check=True).out
            self.theirs.run("envlog", "key", "import", "-", input=key, check=True)
        out = self.place / "out"
        started = time.monotonic()
        done = self.theirs.run("envrestore", "--to", str(out), f"{way}/{name}")
        tally.add("restore", started)
        if done.status != 0:
            tally.wrong.append(f"{name}: restore ended with {done.status}: {done.err[-500:]}")
        else:
            tally.wrong += [f"{name}: {line}" for line in tree_differences(self.ours.path, out)]
        shutil.rmtree(out, ignore_errors=True)

    def report(self) -> None:
        print("| way | environments | in all | capture | push | fetch | restore with contents | wrong |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
        for name, tally in self.tallies.items():
            times = " | ".join(
                f"{tally.seconds.get(w, 0):.0f} s" for w in ("capture", "push", "fetch", "restore")
            )
            size = f"{tally.bytes / 1e6:,.0f} MB"
            print(f"| {name} | {tally.environments} | {size} | {times} | {len(tally.wrong)} |", flush=True)

    def look(self) -> None:
        """Count the bytes that a new colleague receives to list and compare all histories over http."""
        watcher = make_repo(self.place / "watcher")
        watcher.env["XDG_CONFIG_HOME"] = str(self.place / "watcher-home")
        watcher.git("remote", "add", "origin", f"{self.http}/http.git")
        before = self.counted.sent
        output = json.loads(watcher.run("envlog", "fetch", "--json", check=True).out)
        fetched = self.counted.sent - before
        names = [one["timeline"] for one in output["timelines"]]
        before = self.counted.sent
        watcher.run("envlog", "--all", check=True)
        listed = self.counted.sent - before
        for name in names:
            watcher.run("envdiff", f"{name}..now", check=True)
        compared = self.counted.sent - before - listed
        stored = int(self.remotes["http"].git("count-objects", "-v").partition("size-pack: ")[2].split()[0])
        each = compared / 1000 / len(names)
        print(
            f"\nlooking at {len(names)} histories of {stored / 1000:,.0f} MB over http: fetch {fetched / 1000:,.0f} KB,"
        )
        print(f"list {listed / 1000:,.0f} KB, each compared with the working tree {each:,.0f} KB")


def clear(repo: Repo) -> None:
    for path in repo.path.iterdir():
        if path.name != ".git":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def generate(repo: Repo, dice: random.Random, size: int) -> int:
    """Write an environment of about `size` bytes and return its exact size."""
    build(ODD, repo.path)
    repo.write(".env.local", f"TOKEN={dice.random()}\n")
    repo.write("id_ed25519", f"-----BEGIN OPENSSH PRIVATE KEY-----\n{dice.random()}\n")
    for number in range(dice.randrange(50, 400)):
        path = f"node_modules/p{number % 37}/{dice.random()}/index.js".encode() + bytes(
            [dice.randrange(128, 256)]
        )
        repo.write(path, f"module.exports = {dice.random()}\n" * dice.randrange(1, 200))
    for name in ("vendored", "deep/er/fork"):
        repo.write(f"{name}/file", str(dice.random()))
        repo.git("init", "-q", "--template=", name)
        repo.git("-C", name, "add", "-A")
        repo.git("-C", name, "commit", "-q", "-m", "nested")
    with closing(sqlite3.connect(repo.path / "app.db")) as database, database:
        database.execute("create table t (a)")
        database.executemany("insert into t values (?)", [(dice.random(),) for _ in range(20_000)])
    database.close()
    left = size
    while left > 0:
        # A quarter of the files is larger than a host's limit for one object.
        part = min(left, dice.choice((300_000, 4 << 20, 20 << 20, 130 << 20)))
        repo.write(f"data/{dice.random()}.bin", dice.randbytes(part))
        left -= part
    listed = repo.execute("du", "-s", "-b", "--exclude=.git", ".", check=True).out
    return int(listed.split()[0])


if __name__ == "__main__":
    sys.exit(main())
