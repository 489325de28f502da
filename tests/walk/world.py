"""Carry out the steps of a history with the real programs, and compare every tree with an independent model.

The model stores what the kernel, and at intervals find and sha256sum, listed at each capture and each restore
(`tests/support/oracle.py`). It computes the expected tree of a restore from those lists, never from a program's
report.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from git_envhist import EnvHistory
from tests.support.oracle import Listed, Listing, git_fsck, kernel_listing, listing
from tests.support.repository import Repo, make_repo
from tests.support.trees import Edit, HardLink, Put, apply
from tests.walk.steps import Step

NOTHING_TO_DO = 0


class Wrong(AssertionError):
    """The program did not do what the model expects."""


@dataclass
class Shot:
    """A snapshot as the model knows it."""

    id: str
    tree: Listing
    is_live: bool = True
    is_purged: bool = False
    """A path was erased from this snapshot: a remote has the old one until its own timeline is pushed again."""


@dataclass
class Place:
    """A working tree, and the states that undo and redo lead to."""

    repo: Repo
    undo: list[Listing] = field(default_factory=list)
    redo: list[Listing] = field(default_factory=list)

    looks: int = 0

    def look(self) -> Listing:
        """List the working tree from lstat and hashlib; each 16th time, find and sha256sum must agree."""
        found = kernel_listing(self.repo.path)
        self.looks += 1
        if self.looks % 16 == 1 and found != listing(self.repo.path, top=True):
            raise Wrong("find and the kernel's calls list different trees")
        return found

    def forget_steps(self) -> None:
        self.undo.clear()
        self.redo.clear()


class World:
    """All working trees of one history, their snapshots and the remote they share."""

    def __init__(self, base: Path) -> None:
        self.base = base
        repo = make_repo(base / "tree0")
        repo.git("config", "envhist.timeline", "walk/tree-000000")
        repo.git("init", "-q", "--bare", "--template=", str(base / "remote.git"))
        repo.git("remote", "add", "origin", str(base / "remote.git"))
        self.places = [Place(repo)]
        self.here = self.places[0]
        self.shots: list[Shot] = []
        self.made = 0
        self.clone: Repo | None = None

    def carry_out(self, step: Step) -> None:
        """Carry out one step; raise Wrong if the result is not the expected one."""
        action: Callable[[Step], None] = getattr(self, f"_do_{step.kind}")
        action(step)

    def check_all(self) -> None:
        """Restore every live snapshot into a new directory and compare it; check the repository with git and with
        fsck."""
        live = [shot for shot in self.shots if shot.is_live]
        for shot in {shot.id: shot for shot in (*live[:1], *live[-2:])}.values():
            self._write_and_compare(shot)
        self._write_by_library(live[1:-2])
        if complaint := git_fsck(self.places[0].repo.path):
            raise Wrong(f"git fsck: {complaint}")
        self._run("envlog", "fsck")

    # The steps.

    def _do_edit(self, step: Step) -> None:
        assert step.edit is not None
        if _links_a_directory(step.edit, self.here.repo.path):
            return
        before = self.here.look()
        apply([step.edit], self.here.repo.path)
        if self.here.look() != before:
            self.here.forget_steps()

    def _do_commit(self, step: Step) -> None:
        repo = self.here.repo
        repo.run_git(
            *("add", "-A", "--", *(name for name in ("app.py", "src", "a") if (repo.path / name).exists())),
            check=False,  # git adds no FIFO
        )
        repo.run_git("commit", "-q", "--allow-empty", "-m", "a commit", check=False)
        self.here.forget_steps()

    def _do_capture(self, step: Step) -> None:
        tree = self.here.look()
        taken = self._json("envlog", "capture", "a capture", "--json")
        if self.here.look() != tree:
            raise Wrong("a capture changed the working tree")
        if taken["missing"]:
            raise Wrong(f"a capture left out {taken['missing']}")
        self._record(taken["id"], tree)
        self.here.forget_steps()

    def _do_restore(self, step: Step) -> None:
        if shot := self._choose(step.choice):
            self._restore([shot.id], lambda before: shot.tree)

    def _do_restore_paths(self, step: Step) -> None:
        if not (shot := self._choose(step.choice)):
            return
        paths = sorted(path for path in {*shot.tree, *self.here.look()} if path)
        if not paths:
            return
        path = paths[step.other % len(paths)]

        def expected(before: Listing) -> Listing | None:
            return _with_path(before, shot.tree, path)

        self._restore([shot.id, "--", b":(top,literal)" + path], expected, partial=path)

    def _do_keep_new(self, step: Step) -> None:
        if shot := self._choose(step.choice):
            self._restore(["--keep-new", shot.id], lambda before: _kept_new(before, shot.tree), partial=b"")

    def _do_keep_tracked(self, step: Step) -> None:
        if not (shot := self._choose(step.choice)):
            return
        listed = self.here.repo.run_git("ls-tree", "-rz", "--name-only", "HEAD").stdout
        tracked = set(listed.split(b"\0")[:-1])
        blocked = any(
            _is_below(one, two) and one != two and (one in tracked) != (two in tracked)
            for one in {*shot.tree, *self.here.look()} - {b""}
            for two in tracked
        )
        if blocked or any(entry.linked for entry in (*shot.tree.values(), *self.here.look().values())):
            return  # a tracked file where the snapshot has a directory: the model does not cover which one is kept
        self._restore(
            ["--keep-tracked", shot.id],
            lambda before: _mixed(before, shot.tree, lambda one: one not in tracked),
            partial=b"",
        )

    def _do_undo(self, step: Step) -> None:
        place = self.here
        before = place.look()
        done = self._result("envrestore", "--undo", "--json")
        if done is None:
            return
        after = place.look()
        self._record_saved(done, before)
        if place.undo:
            expected = place.undo.pop()
            place.redo.append(before)
            self._compare("undo", expected, after)
        else:
            place.forget_steps()
            self._compare_target("undo", done, after)
        self._record(done["id"], after)

    def _do_redo(self, step: Step) -> None:
        place = self.here
        before = place.look()
        done = self._result("envrestore", "--redo", "--json")
        if done is None:
            if place.redo:
                raise Wrong("redo refused right after an undo")
            return
        after = place.look()
        self._record_saved(done, before)
        if place.redo:
            place.undo.append(before)
            self._compare("redo", place.redo.pop(), after)
        else:
            place.forget_steps()
            self._compare_target("redo", done, after)
        self._record(done["id"], after)

    def _do_write_to(self, step: Step) -> None:
        if shot := self._choose(step.choice):
            self._write_and_compare(shot)

    def _do_fork(self, step: Step) -> None:
        shot = self._choose(step.choice)
        if shot is None or len(self.places) > 2:
            return
        self.made += 1
        root = self.base / f"fork{self.made}"
        done = self._json("envlog", "fork", str(root), shot.id, "--json")
        place = Place(Repo(root, self.here.repo.env))
        self.places.append(place)
        self._compare("fork", _without_top(shot.tree), _without_top(place.look()))
        self._record(done["id"], place.look())

    def _do_switch(self, step: Step) -> None:
        self.here = self.places[step.choice % len(self.places)]

    def _do_drop(self, step: Step) -> None:
        live = [shot for shot in self.shots if shot.is_live]
        if len(live) > 3:
            done = self._result("envlog", "drop", live[step.choice % (len(live) - 1)].id, "--json")
            if done is not None:
                self._mark({one["id"] for one in done["dropped"]}, is_live=False)
            for place in self.places:
                place.forget_steps()

    def _do_undrop(self, step: Step) -> None:
        trash = self._json("envlog", "undrop", "--json")["trash"]
        if trash:
            self._run("envlog", "undrop", "--all")
            self._mark({one["id"] for one in trash}, is_live=True)
            for place in self.places:
                place.forget_steps()

    def _do_prune(self, step: Step) -> None:
        done = self._json("envlog", "prune", "--keep-last", str(2 + step.choice % 4), "--json")
        gone = {one["id"] for line in done["timelines"] for one in line["snapshots"] if not one["keep"]}
        self._mark(gone, is_live=False)
        for place in self.places:
            place.forget_steps()

    def _do_purge(self, step: Step) -> None:
        paths = sorted({path for shot in self.shots for path in shot.tree if path and path != b"app.py"})
        if not paths:
            return
        path = paths[step.choice % len(paths)]
        before = self.here.look()
        done = self.here.repo.run("envlog", "purge", "--", path)
        if done.status not in (0, 5):
            raise Wrong(f"purge ended with {done.status}: {done.err}")
        self._compare("purge", before, self.here.look())
        for shot in self.shots:
            tree = _purged(shot.tree, path)
            shot.is_purged = shot.is_purged or tree != shot.tree
            shot.tree = tree
        for place in self.places:
            place.forget_steps()

    def _do_gc(self, step: Step) -> None:
        self._run("envlog", "gc")

    def _do_export(self, step: Step) -> None:
        archive = self.base / "export.tar.zst"
        archive.unlink(missing_ok=True)
        if self._has_snapshots():
            self._run("envlog", "export", str(archive))

    def _do_share(self, step: Step) -> None:
        shot = self._choose(step.choice)
        if shot is None or not self._has_snapshots():
            return
        self._run("envlog", "push", "--yes")
        clone = self._other_clone()
        self._run("envlog", "fetch", repo=clone)
        known = {
            one["id"] for one in json.loads(self._run("envlog", "--all", "--json", "-n", "5000", repo=clone))
        }
        if shot.id in known and not shot.is_purged:
            self._write_and_compare(shot, repo=clone)

    # Helpers of the steps.

    def _has_snapshots(self) -> bool:
        """Return whether this timeline has any snapshots; all of a fork's may have been dropped."""
        return bool(json.loads(self._run("envlog", "--json", "-n", "1")))

    def _other_clone(self) -> Repo:
        if self.clone is None:
            self.clone = make_repo(self.base / "clone")
            self.clone.git("remote", "add", "origin", str(self.base / "remote.git"))
        key = self.base / "key"
        key.unlink(missing_ok=True)
        if self.here.repo.run("envlog", "key", "export", "-o", str(key)).status == 0:
            self.clone.run("envlog", "key", "import", str(key))
        return self.clone

    def _restore(
        self,
        words: list[str | bytes],
        expect: Callable[[Listing], Listing | None],
        partial: bytes | None = None,
    ) -> None:
        place = self.here
        before = place.look()
        expected = expect(before)
        done = self._result("envrestore", "--json", *words)
        after = place.look()
        if done is None:
            self._compare("a refused restore", before, after)
            return
        if expected is not None:
            compare = self._compare if partial is None else self._compare_files
            compare(f"restore {words}", expected, after)
        self._record_saved(done, before)
        if done["changed"]:
            place.undo.append(before)
            place.redo.clear()
            self._record(done["id"], after)

    def _write_and_compare(self, shot: Shot, repo: Repo | None = None) -> None:
        out = self.base / "out"
        _remove(out)
        self._run("envrestore", "--to", str(out), shot.id, repo=repo)
        found = kernel_listing(out)
        self._compare(f"--to of {shot.id}", shot.tree, found)
        _remove(out)

    def _write_by_library(self, shots: list[Shot]) -> None:
        """Write snapshots by the library in this process, in a sixth of the time that a program takes."""
        environ = {**self.here.repo.env, "GIT_ENVHIST_WORKERS": "here"}
        history = EnvHistory.open(str(self.places[0].repo.path), environ=environ)
        out = self.base / "out"
        for shot in shots:
            _remove(out)
            history.write_to(shot.id, out)
            self._compare(f"write_to of {shot.id}", shot.tree, kernel_listing(out))
        _remove(out)

    def _record(self, oid: str | None, tree: Listing) -> None:
        if oid and all(shot.id != oid for shot in self.shots):
            self.shots.append(Shot(oid, tree))

    def _record_saved(self, done: dict[str, Any], before: Listing) -> None:
        known = next((shot for shot in self.shots if shot.id == done.get("safety")), None)
        if known is not None:
            self._compare(f"saved state {known.id}", known.tree, before)
        self._record(done.get("safety"), before)

    def _compare_target(self, what: str, done: dict[str, Any], after: Listing) -> None:
        for shot in self.shots:
            if shot.id == done["target"]:
                self._compare_files(what, shot.tree, after)

    def _choose(self, number: int) -> Shot | None:
        live = [shot for shot in self.shots if shot.is_live]
        return live[number % len(live)] if live else None

    def _mark(self, ids: set[str], *, is_live: bool) -> None:
        for shot in self.shots:
            if shot.id in ids:
                shot.is_live = is_live

    def _run(self, program: str, *words: str | bytes, repo: Repo | None = None) -> str:
        done = (repo or self.here.repo).run(program, *words)
        if done.status != 0 or "Traceback" in done.err:
            raise Wrong(f"{program} {words} ended with {done.status}: {done.err}")
        return done.out

    def _json(self, program: str, *words: str | bytes) -> dict[str, Any]:
        return json.loads(self._run(program, *words))  # type: ignore[no-any-return]

    def _result(self, program: str, *words: str | bytes) -> dict[str, Any] | None:
        """Return the JSON of a command, None if it refused (status 3 or 4)."""
        done = self.here.repo.run(program, *words)
        if done.status in (3, 4) and done.err.count("\n") <= 3:
            return None
        if done.status != 0:
            raise Wrong(f"{program} {words} ended with {done.status}: {done.err}")
        return json.loads(done.out)  # type: ignore[no-any-return]

    def _compare(self, what: str, expected: Listing, found: Listing) -> None:
        if expected != found:
            raise Wrong(f"{what}:\n" + "\n".join(_differences(expected, found)))

    def _compare_files(self, what: str, expected: Listing, found: Listing) -> None:
        """Compare everything but directories and hard links, which a partial restore may leave unchanged."""
        self._compare(what, _plain_files(expected), _plain_files(found))


def _links_a_directory(edit: Edit, root: Path) -> bool:
    if not isinstance(edit, Put) or not isinstance(edit.node, HardLink):
        return False
    if _is_below(edit.path, edit.node.to):
        return True  # `apply` first makes the directories above the new name
    target = root / os.fsdecode(edit.node.to)
    return target.is_dir() and not target.is_symlink()


def _is_below(path: bytes, above: bytes) -> bool:
    return path == above or path.startswith(above + b"/")


def _without_top(tree: Listing) -> Listing:
    return {path: entry for path, entry in tree.items() if path}


def _plain_files(tree: Listing) -> Listing:
    return {path: replace(entry, linked=()) for path, entry in tree.items() if entry.kind != "d"}


def _mixed(before: Listing, target: Listing, is_restored: Callable[[bytes], bool]) -> Listing | None:
    """Return the tree with some paths from the target; None if a path of one is below a file of the other."""
    mixed = {path: entry for path, entry in before.items() if not is_restored(path)}
    mixed |= {path: entry for path, entry in target.items() if is_restored(path)}
    return mixed if _is_possible(mixed) else None


def _with_path(before: Listing, target: Listing, path: bytes) -> Listing | None:
    """Return the tree with one path from the target, without a file where that path needs a directory."""
    arrives = path in target
    kept = {
        one: entry
        for one, entry in before.items()
        if entry.kind == "d" or not arrives or one == path or not _is_below(path, one)
    }
    return _mixed(kept, target, lambda one: _is_below(one, path))


def _kept_new(before: Listing, target: Listing) -> Listing | None:
    mixed = {**before, **target}
    return mixed if _is_possible(mixed) else None


def _is_possible(tree: Listing) -> bool:
    files = {path for path, entry in tree.items() if entry.kind != "d"}
    if any(entry.linked for entry in tree.values()):
        return False
    return not any(_is_below(path, file) for file in files for path in tree if path != file)


def _purged(tree: Listing, path: bytes) -> Listing:
    kept = {one: entry for one, entry in tree.items() if not _is_below(one, path)}
    return {
        one: replace(entry, linked=tuple(n for n in entry.linked if n in kept)) for one, entry in kept.items()
    }


def _differences(expected: Listing, found: Listing) -> list[str]:
    lines = []
    for path in sorted(expected.keys() | found.keys()):
        one, other = expected.get(path), found.get(path)
        if one != other:
            lines.append(f"  {path!r}: expected {_brief(one)}, found {_brief(other)}")
    return lines[:12]


def _brief(entry: Listed | None) -> str:
    if entry is None:
        return "nothing"
    digest = (entry.sha256 or "")[:8]
    mode = f"{entry.mode:o}"
    words = (entry.kind, mode, entry.mtime_ns, entry.size, digest, entry.target, entry.linked, entry.xattrs)
    return " ".join(map(str, words))


def _remove(directory: Path) -> None:
    if directory.exists():
        for above, _, _ in os.walk(directory):
            os.chmod(above, 0o700)
        shutil.rmtree(directory)
