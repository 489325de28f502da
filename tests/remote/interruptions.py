"""Pushes and fetches killed at random times: `python -m tests.remote.interruptions [--kills N] [--size MB] [--what …]`.

The campaign pushes an environment of `--size` MB to a strict remote, alternating between ssh and http, or fetches it
completely. At a random time it kills the program, one of its git processes or a git process of the server, or cuts
the connection. Afterwards each ref has its old or its new value, and all objects it refers to exist. After several
interrupted attempts one is not interrupted: it must transfer only the objects that have not arrived yet. Errors are
printed, and the exit status is then 1.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.conftest import sealed_environment
from tests.interop.servers import Counted, http_server, ssh_server
from tests.remote.conftest import make_remote, refs
from tests.support.oracle import git_fsck, tree_differences
from tests.support.repository import Repo, make_repo

SERVER = ("receive-pack", "upload-pack", "index-pack", "pack-objects", "http-backend", "unpack-objects")
ATTEMPTS = 7
"""Number of interrupted attempts before an uninterrupted one."""
PATIENCE = 120.0
ENDED = "none: it had finished"


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--kills", type=int, default=200, help="number of kills per kind")
    words.add_argument("--size", type=int, default=100, help="MB in one push")
    words.add_argument("--seed", type=int, default=7)
    words.add_argument("--what", choices=("push", "fetch", "full"), action="append")
    asked = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="interruptions-") as place, ExitStack() as servers:
        campaign = Campaign(Path(place), asked.size * 1_000_000, random.Random(asked.seed), servers)
        for what in asked.what or ("push", "fetch", "full"):
            getattr(campaign, f"run_{what}")(asked.kills)
        print("\n".join(campaign.wrong))
        return 1 if campaign.wrong else 0


class Line:
    """Forward a local port to a server, until the connections are cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._serve, daemon=True).start()

    def cut(self) -> bool:
        """Cut all connections; return whether any was open."""
        talking = list(self._open)
        for one in talking:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        return bool(talking)

    def _serve(self) -> None:
        while True:
            near, _ = self._door.accept()
            far = socket.create_connection(("127.0.0.1", self._port))
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source: socket.socket, goal: socket.socket) -> None:
        self._open.add(source)
        try:
            while part := source.recv(1 << 16):
                goal.sendall(part)
            goal.shutdown(socket.SHUT_WR)
        except OSError:
            # The receiver has closed the connection. Close both ends, or the sender blocks on full buffers for ever.
            for one in (source, goal):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        self._open.discard(source)


class Campaign:
    def __init__(self, place: Path, size: int, dice: random.Random, servers: ExitStack) -> None:
        for name in ("home", "their-home", "ssh", "srv"):
            (place / name).mkdir()
        os.environ.update(sealed_environment(place / "home"))
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.place, self.size, self.dice = place, size, dice
        self.wrong: list[str] = []
        command = servers.enter_context(ssh_server(place / "ssh"))
        config = place / "ssh" / "ssh"
        port = int(config.read_text().partition("Port ")[2].split()[0])
        self.ssh_line = Line(port)
        config.write_text(config.read_text().replace(f"Port {port}", f"Port {self.ssh_line.port}"))
        os.environ["GIT_SSH_COMMAND"] = command
        self.counted = Counted()
        address = servers.enter_context(http_server(place / "srv", self.counted))
        self.http_line = Line(int(address.rpartition(":")[2]))
        self.bare = make_remote(place / "srv" / "remote.git")
        self.bare.git("config", "receive.unpackLimit", "1")
        self.bare.git("config", "gc.auto", "0")
        self.ours = make_repo(place / "ours")
        self.ours.git("config", "envhist.timeline", "lab/one-000001")
        # After a git process of the server is killed, client and server can wait for each other over http:
        # only our timeout ends them.
        self.ours.git("config", "envhist.pushTimeout", f"{PATIENCE / 4:.0f}s")
        self.theirs = make_repo(place / "theirs")
        self.theirs.env["XDG_CONFIG_HOME"] = str(place / "their-home")
        for repo in (self.ours, self.theirs):
            repo.git("config", "remote.ssh.url", f"ssh://loopback{self.bare.path}")
            repo.git("config", "remote.http.url", f"http://127.0.0.1:{self.http_line.port}/remote.git")
        self.line = {"ssh": self.ssh_line, "http": self.http_line}
        self.round = 0

    def more(self) -> None:
        """Capture another snapshot with `size` bytes of new data."""
        self.round += 1
        left, number = self.size, 0
        while left > 0:
            part = min(left, self.dice.choice((20_000, 400_000, 3_000_000, 12_000_000)))
            self.ours.write(f"data/{number % 40}/{number}", self.dice.randbytes(part))
            left, number = left - part, number + 1
        self.ours.run("envlog", "capture", f"snapshot {self.round}", check=True)

    def run_push(self, kills: int) -> None:
        tally: Counter[str] = Counter()
        done, whole, parts, planned_again = 0, 0, 0, 0
        self.ours.git("config", "envhist.uploadSize", str(max(self.size // 6, 1 << 20)))
        self.more()
        longest = self.time(self.ours, "envlog", "push", "--yes", "ssh")
        while done < kills:
            self.more()
            way = ("ssh", "http")[self.round % 2]
            before, goal = (
                refs(self.bare, "refs/envhist/heads", "refs/notes"),
                refs(self.ours, "refs/envhist", "refs/notes"),
            )
            planned = self.planned(way)
            total = planned
            for _ in range(ATTEMPTS):
                victim = self.broken_off(self.ours, way, longest, "envlog", "push", "--yes", way)
                outcome = self.judge_push(before, goal)
                if victim == ENDED:
                    longest *= 0.9
                    break
                tally[victim] += 1
                tally[outcome] += 1
                done += 1
                arrived = self.left_there()
                left = self.planned(way)
                if left > total - arrived + 100_000 or left > planned:
                    self.wrong.append(
                        f"{way}: {left} of {total} bytes remain to be sent, though {arrived} arrived"
                    )
                planned = left
                parts += arrived > 0
                longest *= 1.02
            planned_again += planned
            whole += total
            let_through = self.ours.run("envlog", "push", "--yes", way)
            if let_through.status != 0:
                self.wrong.append(f"{way}: the push without an interruption fails: {let_through.err}")
            self.judge_push(goal, goal)
            if refs(self.bare, "refs/envhist/upload"):
                self.wrong.append("refs of an upload remain on the remote")
            print(f"{done} pushes interrupted: {dict(tally)}", flush=True)
        self.wrong += git_fsck(self.bare.path).splitlines()
        print(f"{done} pushes of {self.size / 1e6:,.0f} MB were interrupted: {dict(tally)}")
        print(
            f"after {parts} of them a part had arrived; the last of each had {planned_again / whole:.0%} left to send"
        )

    def judge_push(self, before: dict[str, str], goal: dict[str, str]) -> str:
        there = refs(self.bare, "refs/envhist/heads", "refs/notes")
        self.wrong += [
            f"'{ref}' is neither the old nor the new one: {oid}"
            for ref, oid in there.items()
            if oid not in (before.get(ref), goal.get(ref))
        ]
        self.wrong += [f"'{ref}' disappeared" for ref in before if ref not in there]
        if self.bare.run_git("rev-list", "--objects", "--all", "--quiet", check=False).status != 0:
            self.wrong.append("a ref refers to a missing object")
        if refs(self.ours, "refs/envhist", "refs/notes") != goal:
            self.wrong.append("local refs changed")
        news = [ref for ref in goal if there.get(ref) == goal[ref] != before.get(ref)]
        return {0: "(nothing there)", len([r for r in goal if goal[r] != before.get(r)]): "(all there)"}.get(
            len(news), "(one ref of two there)"
        )

    def planned(self, way: str) -> int:
        output = self.ours.run("envlog", "push", "--dry-run", "--json", way, check=True).out
        return int(json.loads(output)["bytes"])

    def left_there(self) -> int:
        uploads = list(refs(self.bare, "refs/envhist/upload"))
        if not uploads:
            return 0
        listed = self.bare.git("rev-list", "--objects", "--no-object-names", *uploads)
        sizes = self.bare.git(
            "cat-file", "--batch-check=%(objecttype) %(objectsize:disk)", input=listed + "\n"
        )
        return sum(int(line.split()[1]) for line in sizes.splitlines() if line.startswith("blob"))

    def run_fetch(self, kills: int) -> None:
        self.run_in(kills, "restored on demand", self.lazily)

    def run_full(self, kills: int) -> None:
        self.run_in(kills, "fetched whole", self.wholly)

    def lazily(self, way: str) -> tuple[str, ...]:
        if not refs_of(self.theirs):
            self.theirs.run("envlog", "fetch", way, check=True)
        out = self.place / "out"
        subprocess.run(["rm", "-rf", str(out)], check=True)
        return ("envrestore", "--to", str(out), f"{way}/lab/one-000001")

    def wholly(self, way: str) -> tuple[str, ...]:
        return ("envlog", "fetch", "--full", way)

    def run_in(self, kills: int, what: str, words) -> None:  # type: ignore[no-untyped-def]
        tally: Counter[str] = Counter()
        done, again, whole = 0, 0, 0
        if not refs(self.bare, "refs/envhist/heads"):
            self.more()
            self.ours.run("envlog", "push", "--yes", "ssh", check=True)
        tip = refs(self.bare, "refs/envhist/heads").popitem()[1]
        fetched = self.theirs.path / ".git/envhist/fetched.git"
        longest = self.time(self.theirs, *words("ssh"))
        for number in itertools.count():
            if done >= kills:
                break
            way = ("http", "ssh")[number % 2]
            subprocess.run(["rm", "-rf", str(fetched)], check=True)
            for _ in range(ATTEMPTS):
                victim = self.broken_off(self.theirs, way, longest, *words(way))
                self.judge_fetch(fetched, tip)
                if victim == ENDED:
                    longest *= 0.9
                    break
                tally[victim] += 1
                done += 1
                longest *= 1.02
            here = packed_bytes(fetched)
            if self.theirs.run(*words(way)).status != 0:
                self.wrong.append(f"{way}: the command without an interruption fails")
            whole += packed_bytes(fetched)
            again += packed_bytes(fetched) - here
            left = self.theirs.git(
                "--git-dir", str(fetched), "rev-list", "--objects", "--quiet", "--all", check=False
            )
            if left:
                self.wrong.append(f"something is missing: {left[:200]}")
            out = self.place / "compared"
            done_so = self.theirs.run("envrestore", "--to", str(out), f"{way}/lab/one-000001")
            self.wrong += tree_differences(self.ours.path / "data", out / "data")
            if done_so.status not in (0, 5):
                self.wrong.append(done_so.err[-300:])
            subprocess.run(["rm", "-rf", str(out), str(self.place / "out")], check=True)
            print(f"{done} interrupted, {what}: {dict(tally)}", flush=True)
        print(f"{done} times {what}, {self.size / 1e6:,.0f} MB, interrupted: {dict(tally)}")
        print(f"the last of each had {again / max(whole, 1):.0%} left to fetch")

    def judge_fetch(self, fetched: Path, tip: str) -> None:
        here = refs_of(self.theirs)
        self.wrong += [
            f"'{ref}' is neither old nor new" for ref, oid in here.items() if "/heads" in ref and oid != tip
        ]
        if here and self.theirs.run("envlog", "--all").status != 0:
            self.wrong.append("the fetched timelines cannot be listed")
        if refs(self.theirs, "refs/envhist") or self.theirs.git(
            "config", "--get-regexp", "promisor|partial", check=False
        ):
            self.wrong.append("the fetch changed the user's repository")

    def time(self, repo: Repo, *words: str) -> float:
        began = time.monotonic()
        repo.run(*words, check=True)
        return time.monotonic() - began

    def broken_off(self, repo: Repo, way: str, longest: float, *words: str) -> str:
        """Run a command, interrupt it at a random time and return the killed part."""
        at = self.dice.uniform(0, longest)
        kind = self.dice.choice(("program", "git here", "git there", "line"))
        program = f"git-{words[0]}"
        with subprocess.Popen(
            [program, *words[1:]],
            cwd=repo.path,
            env=repo.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as child:
            with suppress(subprocess.TimeoutExpired):
                child.wait(at)
            victim = ENDED if child.poll() is not None else self.break_off(child.pid, kind, way)
            child.wait(PATIENCE)
        self.settle()
        return victim

    def break_off(self, program: int, kind: str, way: str) -> str:
        if kind == "line" and self.line[way].cut():
            return "line"
        if kind.startswith("git"):
            mine = dict(descendants(os.getpid()))
            there = {pid for pid, line in mine.items() if any(word in line for word in SERVER)}
            here = {pid for pid, line in descendants(program)} - there
            found = sorted(there if kind == "git there" else here)
            if found:
                with suppress(ProcessLookupError):
                    os.kill(self.dice.choice(found), signal.SIGKILL)
                return kind
        with suppress(ProcessLookupError):
            os.kill(program, signal.SIGKILL)
        return "program"

    def settle(self) -> None:
        """Wait until all git processes have ended: a server continues for a while without its client."""
        until = time.monotonic() + PATIENCE
        while any("git" in line.split("\0")[0] for _, line in descendants(os.getpid())):
            if time.monotonic() > until:
                self.wrong.append("a git process is still running after two minutes")
                return
            time.sleep(0.05)


def packed_bytes(git_dir: Path) -> int:
    return sum(path.stat().st_size for path in git_dir.glob("objects/pack/*.pack"))


def refs_of(repo: Repo) -> dict[str, str]:
    place = repo.path / ".git/envhist/fetched.git"
    if not (place / "HEAD").exists():
        return {}
    return refs(Repo(place, repo.env), "refs/envhist")


def descendants(top: int) -> Iterator[tuple[int, str]]:
    """Yield the descendants of a process, each with its command line."""
    above: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError, IndexError):
                above[int(entry)] = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
    for pid in above:
        one = pid
        while one in above and one != top:
            one = above[one]
        if one == top and pid != top:
            with suppress(OSError):
                yield pid, Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")


if __name__ == "__main__":
    sys.exit(main())
