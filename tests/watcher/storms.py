"""Storms of changes with captures in a loop, each compared with one that looks at everything.

    python -m tests.watcher.storms [--captures N] [--seed S] [--directory D]

Each round makes changes as programs do: `npm install`, branch switches, `git clean -fdx`, renames of large
directories, hard links in and out, files changed through mappings, bind mounts; some beside a capture, and some while
the watcher is killed, stopped or its queue overflows. After each round, at rest, a capture with the watcher is compared
with one that uses the stat cache alone, at intervals with one that reads every file, and with git's own tree.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from git_envhist.objects.deflate import crc32
from git_envhist.worktree.stat_cache import StatCache, cut, decode
from tests.watcher.helpers import Look, RunningWatcher, asked, full_look, look, open_history
from tests.watcher.states import Storm

QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
EVERYTHING_EVERY = 20
"""Rounds between two captures that read every file, and between two comparisons with git's tree."""


class StormCampaign:
    """One working tree, its watcher, and the rounds of changes."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.top, self.outside = directory / "top", directory / "outside"
        self.top.mkdir()
        self.outside.mkdir()
        self._random = random.Random(seed)
        self._storm = Storm(os.fsencode(self.top), os.fsencode(self.outside), seed)
        self._git("init", "-q")
        self._git("config", "user.name", "storm")
        self._git("config", "user.email", "storm@example.com")
        (self.top / ".gitignore").write_text("node_modules\n")
        self._branches()
        self._install()
        self._mounted = False
        self.watcher = RunningWatcher(str(self.top))
        self.counts: Counter[str] = Counter()
        self.rounds: list[Callable[[], None]] = [
            *[self._random_changes] * 8, *[self._small_change] * 6, self._install, self._switch, self._switch,
            self._clean,
            self._rename_large, self._rename_large, self._link_in, self._link_within, self._change_links,
            self._map, self._map, self._nothing, self._nothing,
        ]  # fmt: skip
        self.accidents: list[Callable[[], None]] = [self._kill, self._stop, self._overflow, self._mount]

    def round(self, number: int) -> str:
        """Make changes, capture and compare; return what differs, or an empty text."""
        change = self._random.choice(self.accidents if self._random.random() < 0.08 else self.rounds)
        if self._random.random() < 0.3:
            self._capture_beside(change)
        else:
            change()
        name = getattr(change, "__name__", "").strip("_")
        self.counts[name] += 1
        return self._compare(number, name)

    def close(self) -> None:
        self.watcher.close()
        self._unmount()

    # Comparisons.

    def _compare(self, number: int, name: str) -> str:
        with asked() as told:
            open_history(str(self.top)).capture("storm", if_changed=self._random.random() < 0.5)
        self.counts[
            "captures that looked at everything" if told[0] is None else "captures with the watcher"
        ] += 1
        found, full = look(str(self.top)), full_look(str(self.top))
        if found != full:
            return f"round {number} ({name}): {_differences(found, full)}; {self._suspects()}"
        if number % EVERYTHING_EVERY == 0:
            return self._compare_with_everything(number, name, found)
        return ""

    def _suspects(self) -> list[object]:
        """Return the directories that differ from the stat cache, with their entries that do."""
        cache = StatCache(str(self.top / ".git/envhist/cache"), crc32)
        head = cache.read_head()
        assert head is not None
        found: list[object] = []
        for shard in head.shards:
            for _, encoded in cut(cache.read_shard(shard) or b""):
                record = decode(encoded)
                with suppress(OSError):
                    place = os.path.join(os.fsencode(self.top), record.path)
                    now = {name: os.lstat(os.path.join(place, name)) for name in record.names}
                    rows = zip(
                        record.names,
                        record.mtimes,
                        (record.extras.get(at, b"") for at in range(len(record.names))),
                        strict=True,
                    )
                    found += [
                        (record.path, name, time, extras, now[name].st_mtime_ns, now[name].st_nlink)
                        for name, time, extras in rows
                        if now[name].st_mtime_ns != time or (now[name].st_nlink > 1) != (b" l=" in extras)
                    ]
        return found[:5]

    def _compare_with_everything(self, number: int, name: str, found: Look) -> str:
        cache, aside = self.top / ".git/envhist/cache", self.top / ".git/envhist/cache-aside"
        cache.rename(aside)
        try:
            if full_look(str(self.top)) != found:
                return f"round {number} ({name}): differs from a capture that reads every file"
        finally:
            shutil.rmtree(cache, ignore_errors=True)
            aside.rename(cache)
        if self._mounted:
            # git would add the files of the volume.
            return ""
        snapshot = open_history(str(self.top)).log(1)[0]
        index = self.outside.parent / "index"
        environment = {**os.environ, "GIT_INDEX_FILE": str(index)}
        subprocess.run(["git", "add", "-A", "-f", "."], cwd=self.top, env=environment, check=True, **QUIET)  # type: ignore[call-overload]
        tree = subprocess.run(
            ["git", "write-tree"], cwd=self.top, env=environment, capture_output=True, check=True
        ).stdout
        index.unlink()
        ours, gits = self._files(snapshot.tree), self._files(tree.decode().strip())
        return (
            ""
            if ours == gits
            else f"round {number} ({name}): differs from git's tree: {sorted(ours ^ gits)[:5]}"
        )

    def _files(self, tree: str) -> set[bytes]:
        listed = subprocess.run(
            ["git", "ls-tree", "-r", "-z", tree], cwd=self.top, capture_output=True, check=True
        ).stdout
        return {line for line in listed.split(b"\0") if line and b"\t.envhist" not in line}

    def _capture_beside(self, change: Callable[[], None]) -> None:
        """Make changes beside a capture; what it finds is not compared."""
        beside = threading.Thread(target=change)
        beside.start()
        with suppress(Exception):
            open_history(str(self.top)).capture("beside")
        beside.join()

    # Changes.

    def _git(self, *words: str) -> None:
        subprocess.run(["git", *words], cwd=self.top, check=False, **QUIET)  # type: ignore[call-overload]

    def _branches(self) -> None:
        for branch in ("one", "two", "three"):
            self._git("checkout", "-q", "-b", branch)
            for number in range(40):
                place = self.top / "src" / f"{branch if number % 2 else 'shared'}{number % 7}"
                place.mkdir(parents=True, exist_ok=True)
                (place / f"{number}.py").write_text(f"{branch} {number}\n")
            self._git("add", "-A")
            self._git("commit", "-q", "-m", branch)

    def _nothing(self) -> None:
        pass

    def _random_changes(self) -> None:
        for _ in range(self._random.randint(1, 40)):
            self._storm.step()

    def _small_change(self) -> None:
        with suppress(OSError, IndexError):
            self._storm.write()

    def _install(self) -> None:
        """Write packages as npm does: into a directory aside that gets its name at the end."""
        modules = self.top / "node_modules"
        for number in range(self._random.randint(1, 25)):
            aside, place = modules / f".p{number}-{self._random.random()}", modules / f"p{number}"
            for part in ("lib", "lib/inner", "test"):
                (aside / part).mkdir(parents=True, exist_ok=True)
                for file in range(3):
                    (aside / part / f"{file}.js").write_text(f"{self._random.random()}\n")
            with suppress(FileNotFoundError):
                place.rename(modules / ".old")
            aside.rename(place)
            shutil.rmtree(modules / ".old", ignore_errors=True)

    def _switch(self) -> None:
        self._git("checkout", "-q", "-f", self._random.choice(("one", "two", "three")))

    def _clean(self) -> None:
        self._git("clean", "-q", "-fdx")

    def _rename_large(self) -> None:
        modules, renamed = self.top / "node_modules", self.top / "src/renamed"
        if modules.exists() and not renamed.exists() and renamed.parent.exists():
            modules.rename(renamed)
        elif renamed.exists() and not modules.exists():
            renamed.rename(modules)

    def _link_in(self) -> None:
        source = self.outside / f"stored{self._random.randint(0, 9)}"
        source.touch()
        with suppress(FileExistsError):
            os.link(source, self.top / f"linked{self._random.randint(0, 9)}")

    def _link_within(self) -> None:
        with suppress(OSError, IndexError):
            self._storm.link()

    def _change_links(self) -> None:
        """Change files through their names outside of the environment, and remove some of these names."""
        for path in self.outside.iterdir():
            if path.is_file():
                path.write_text(f"{self._random.random()}\n")
                if self._random.random() < 0.2:
                    path.unlink()

    def _map(self) -> None:
        """Store through a mapping whose descriptor is closed, with a capture while it exists."""
        path = self.top / f"mapped{self._random.randint(0, 3)}"
        path.write_bytes(b"\0" * 8192)
        with suppress(Exception):
            open_history(str(self.top)).capture("before the mapping")
        with open(path, "r+b") as file:
            mapped = mmap.mmap(file.fileno(), 8192)
        try:
            mapped[self._random.randint(0, 8191)] = self._random.randint(1, 255)
            mapped.flush()
            time.sleep(0.005)
        finally:
            mapped.close()

    # Accidents.

    def _kill(self) -> None:
        self.watcher.close()
        self._random_changes()
        self.watcher = RunningWatcher(str(self.top))

    def _stop(self) -> None:
        self.watcher.signal(signal.SIGSTOP)
        self._random_changes()
        with suppress(Exception):
            open_history(str(self.top)).capture("while it is stopped")
        self.watcher.signal(signal.SIGCONT)

    def _overflow(self) -> None:
        self.watcher.signal(signal.SIGSTOP)
        limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
        one, other = self.top, self.top / "overflow"
        other.mkdir(exist_ok=True)
        for number in range(limit + 10):
            os.utime(other if number % 2 else one)
        self._random_changes()
        self.watcher.signal(signal.SIGCONT)

    def _mount(self) -> None:
        if self._mounted:
            self._unmount()
            return
        (self.top / "point").mkdir(exist_ok=True)
        (self.outside / "volume").mkdir(exist_ok=True)
        words = ["mount", "--bind", str(self.outside / "volume"), str(self.top / "point")]
        self._mounted = subprocess.run(words, check=False, **QUIET).returncode == 0  # type: ignore[call-overload]

    def _unmount(self) -> None:
        if self._mounted:
            subprocess.run(["umount", "-l", str(self.top / "point")], check=False, **QUIET)  # type: ignore[call-overload]
            self._mounted = False


def _differences(found: Look, full: Look) -> str:
    names = ("content", "manifest", "missing")
    return "differs in " + ", ".join(name for name, a, b in zip(names, found, full, strict=True) if a != b)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Compare captures with the watcher with captures of everything."
    )
    parser.add_argument("--captures", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", default=None)
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="storms-", dir=options.directory))
    os.environ.update(
        HOME=str(directory / "home"), GIT_CONFIG_NOSYSTEM="1", XDG_DATA_HOME=str(directory / "home/data")
    )
    campaign = StormCampaign(directory, options.seed)
    wrong: list[str] = []
    try:
        for number in range(1, options.captures + 1):
            difference = campaign.round(number)
            if difference:
                wrong.append(difference)
                print(difference, flush=True)
            if number % 100 == 0:
                print(f"{number} captures, {len(wrong)} differences", flush=True)
    finally:
        campaign.close()
        shutil.rmtree(directory, ignore_errors=True)
    print(f"{options.captures} captures, {len(wrong)} differences; {dict(campaign.counts)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
