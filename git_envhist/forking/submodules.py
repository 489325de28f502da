"""The submodules of a fork get git directories of their own.

The `.git` file of a submodule says by a path where its git directory is. From another place that path leads nowhere,
and git fails in the whole working tree, or to the original's, and what git does here it does there. So each is copied
to where git keeps those of a linked worktree, and the file is pointed there. git's objects, which nobody ever writes
to, are shared as `git clone` shares those of a repository on the same disk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from git_envhist.errors import EnvhistError, in_words
from git_envhist.forking.pointing import PathReference, read_file, write_anew
from git_envhist.model import EnvPath, Snapshot
from git_envhist.store.git import Git
from git_envhist.store.layout import GIT_CHANGED, RESERVED
from git_envhist.store.listings import read_git_changes
from git_envhist.store.modules import GITDIR, git_directory_of, is_own, module_of
from git_envhist.store.objects import CatFile
from git_envhist.store.repository import Repository
from git_envhist.system import open_file_only

NOT_COPIED = frozenset(("index", "modules", "worktrees", "envhist"))
"""Made anew; told by `.git` files of their own; of other working trees; of other histories."""
PASSING = ("tmp_", "fsmonitor--daemon")
ALTERNATES = "objects/info/alternates"


class SubmoduleInstaller(NamedTuple):
    """Gives submodules of one working tree git directories of their own."""

    repository: Repository
    origins: tuple[str, ...]
    """The working trees that a path in a `.git` file may have been meant from."""
    moved: frozenset[bytes]
    """Submodules that stood at the moment at another commit than its code commit says."""

    def settle(self, places: Iterable[PathReference]) -> tuple[tuple[EnvPath, ...], tuple[str, ...]]:
        """(the `.git` files that were pointed there, what could not be done)"""
        done, warnings = [], []
        for path, module, name in list(self._found(places)):
            try:
                self._settle(path, module, name)
            except (OSError, EnvhistError) as error:
                above = os.fsdecode(os.path.dirname(path))
                warnings.append(
                    f"the git directory of the submodule '{above}' could not be copied: {in_words(error)}"
                )
            else:
                done.append(path)
        return tuple(done), tuple(warnings)

    def _found(self, places: Iterable[PathReference]) -> Iterator[tuple[EnvPath, str, str]]:
        """(the `.git` file, the git directory that is its submodule's, the submodule's name) of each."""
        for path, is_link in places:
            if is_link or not path.endswith(b"/.git"):
                continue
            found = self._module(path, read_file(self.repository.root, path))
            if found is not None:
                yield path, *found

    def _module(self, path: EnvPath, pointer: bytes) -> tuple[str, str] | None:
        for root in self.origins:
            above = os.path.join(os.path.realpath(os.fsencode(root)), os.path.dirname(path))
            place = git_directory_of(above, pointer)
            named = None if place is None else module_of(place, self.repository.common_dir)
            if place is None or named is None or is_own(place, self.repository.git_dir):
                continue
            name = os.fsdecode(named)
            # What a worktree had that is gone is still had by the first one.
            for module in (os.fsdecode(place), os.path.join(self.repository.common_dir, "modules", name)):
                if _is_git_directory(module):
                    return module, name
        return None

    def _settle(self, path: EnvPath, module: str, name: str) -> None:
        root, git = os.path.realpath(self.repository.root), self.repository.git
        to = os.path.join(os.path.realpath(self.repository.git_dir), "modules", name)
        work_tree = os.path.join(root, os.fsdecode(os.path.dirname(path)))
        os.makedirs(os.path.dirname(to), exist_ok=True)
        # Somebody else's, or that of a second file which names the same: it stays.
        os.mkdir(to)
        try:
            copy_git_directory(module, to)
            _name_work_tree(git, to, os.path.relpath(work_tree, to))
            self._check_out(path, Git(to, work_tree))
            leads_to = os.path.relpath(to, work_tree)
            write_anew(root, path, GITDIR + os.fsencode(leads_to) + b"\n")
        except BaseException:
            shutil.rmtree(to, ignore_errors=True)
            raise

    def _check_out(self, path: EnvPath, inner: Git) -> None:
        """Have its HEAD say what it said at the moment, as far as that is known; its index is that commit's."""
        now = inner.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        commit = self._recorded(os.path.dirname(path))
        if commit is None or inner.ask("cat-file", "-e", commit + "^{tree}").status != 0:
            commit = now.out.decode("ascii").strip()
        elif now.out.decode("ascii").strip() != commit:
            inner.run("update-ref", "--no-deref", "HEAD", commit)
        if commit:
            inner.run("read-tree", commit)

    def _recorded(self, path: bytes) -> str | None:
        """The commit of a submodule that the code commit of the moment names, where it stood there then."""
        if path in self.moved:
            return None
        # The fork has just been made, at that commit.
        listed = self.repository.git.ask("ls-tree", "-z", "--full-tree", "HEAD", "--", path).out
        mode, _, rest = listed.partition(b" ")
        return rest.split(b" ")[1].partition(b"\t")[0].decode("ascii") if mode == b"160000" else None


def changed_submodules(git: Git, snapshot: Snapshot) -> frozenset[bytes]:
    """What git saw as changed at a moment; of submodules that is where they stood."""
    with CatFile(git) as reader:
        found = reader.read(f"{snapshot.tree}:{(RESERVED + b'/' + GIT_CHANGED).decode()}")
    changes = read_git_changes(found.data) if found is not None else ()
    return frozenset(change.path for change in changes)


def copy_git_directory(module: str, to: str) -> None:
    """Copy a submodule's git directory into an empty one; what of it is another working tree's stays behind."""

    def ignored(directory: str, names: list[str]) -> set[str]:
        passing = {name for name in names if name.startswith(PASSING) or name.endswith(".lock")}
        return passing | (NOT_COPIED & set(names) if directory == module else set())

    objects = os.path.join(module, "objects") + "/"

    def copy(source: str, target: str) -> None:
        if not source.startswith(objects) or not _link(source, target):
            shutil.copy2(source, target, follow_symlinks=False)

    shutil.copytree(module, to, symlinks=True, ignore=ignored, copy_function=copy, dirs_exist_ok=True)
    _name_alternates(module, to)


def _link(source: str, target: str) -> bool:
    # The one file below `objects` that git writes to.
    if source.endswith(ALTERNATES):
        return False
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        return False
    return True


def _name_alternates(module: str, to: str) -> None:
    """Other stores of objects are named by paths that are meant from the one that names them."""
    try:
        with open(os.path.join(module, ALTERNATES), "rb", opener=open_file_only) as told:
            lines = told.read().splitlines()
    except FileNotFoundError:
        return
    objects = os.path.join(os.fsencode(os.path.realpath(module)), b"objects")
    absolute = [line if line.startswith(b"#") else os.path.join(objects, line) for line in lines]
    with open(os.path.join(to, ALTERNATES), "wb") as writing:
        writing.write(b"".join(line + b"\n" for line in absolute))


def _name_work_tree(git: Git, to: str, work_tree: str) -> None:
    own = os.path.join(to, "config.worktree")
    is_there = git.try_run("config", "--file", own, "--get", "core.worktree").status == 0
    # The one for the worktree, where there is one, is what git goes by.
    git.run("config", "--file", own if is_there else os.path.join(to, "config"), "core.worktree", work_tree)


def _is_git_directory(place: str) -> bool:
    whole = all(os.path.isdir(os.path.join(place, name)) for name in ("objects", "refs"))
    return whole and os.path.lexists(os.path.join(place, "HEAD"))
