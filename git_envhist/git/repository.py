"""Open the repository of a directory, name its refs and directories, and move its refs by compare-and-swap.

`Repository.open` asks git where the repository is; for the usual layout it derives that from git's list of the
configuration instead, because each start of git takes 2 ms.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from git_envhist.disk import OUT_OF_SPACE_ERRNOS, READ_ONLY_ERRNOS, cannot_write
from git_envhist.errors import EnvhistError, GitFailed, NotARepository
from git_envhist.git.current_actor import SHOW_SOURCES
from git_envhist.git.list_config import Config, parse_config, shared_bits
from git_envhist.git.process import (
    COMMAND,
    SAFE_GIT,
    Git,
    GitProcess,
    GitResult,
    clean_environment,
    run_to_end,
)
from git_envhist.lazy import dataclass, field
from git_envhist.platform import open_file_only

if TYPE_CHECKING:
    from git_envhist.git.running_git import RunningGit

FORKS = "envhist-forks"


# The place of a repository with the usual layout. If `.git` is a directory here and git's list contains the
# configuration in it, git has accepted the repository (it checks the owner first). Everything unusual (a linked
# worktree, an environment variable, a configured place) is left to `git rev-parse`.

OWN = (b"local", b"file:.git/config")
PLACES = (b"GIT_DIR", b"GIT_WORK_TREE", b"GIT_COMMON_DIR")
EXTENSIONS = frozenset(("extensions.objectformat", "extensions.refstorage", "extensions.partialclone"))
READ_FIRST = (
    "config",
    "HEAD",
    "packed-refs",
    "index",
    "shallow",
    "info/exclude",
    "info/attributes",
    "info/grafts",
)
"""Files in a git directory that most git commands open."""
HEX = frozenset(b"0123456789abcdef")

_running: dict[str, GitProcess] = {}
"""Running listings by directory. The first caller takes the result."""


class RepositoryPlace(NamedTuple):
    """The place and the object format of a repository."""

    root: str
    git_dir: str
    common_dir: str
    object_format: str


def search_environment(environment: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the environment for git's search for a repository: clean, but with the variables that name one."""
    named = (*PLACES, b"GIT_CEILING_DIRECTORIES")
    return {
        **clean_environment(environment),
        **{name: environment[name] for name in named if name in environment},
    }


def start_config_listing() -> None:
    """Start git's listing of the configuration while our own modules are still being loaded."""
    _running[os.getcwd()] = _list(".", search_environment(os.environb))


def list_config_text(directory: str, asked: Mapping[bytes, bytes]) -> GitResult:
    """Return the configuration in force in a directory, each item with its source."""
    running = _running.pop(os.path.realpath(directory), None)
    return (running or _list(directory, asked)).finish()


def _list(directory: str, asked: Mapping[bytes, bytes]) -> GitProcess:
    # Our own overrides would be listed as the user's.
    return GitProcess([*SAFE_GIT, "-C", directory, *SHOW_SOURCES], asked)


def refuse_pipes(directory: str) -> None:
    """Raise GitFailed if a file that git reads first is a pipe: every git would wait for ever."""
    for name in READ_FIRST:
        path = os.path.join(directory, ".git", name)
        try:
            is_pipe = stat.S_ISFIFO(os.lstat(path).st_mode)
        except OSError:
            continue
        if is_pipe:
            for process in _running.values():
                process.stop()
            _running.clear()
            raise GitFailed(
                f"git would wait for ever: '{path}' is a pipe", hint="move it away, or put the file back"
            )


def find_repository_fast(
    directory: str, environment: Mapping[bytes, bytes], listed: bytes, config: Mapping[str, str | None]
) -> RepositoryPlace | None:
    """Return the repository whose top is this directory; None if git must be asked. `listed` is git's list."""
    sources = listed.split(b"\0")
    if any(name in environment for name in PLACES) or OWN not in zip(
        sources[::3], sources[1::3], strict=False
    ):
        return None
    object_format = config.get("extensions.objectformat", "sha1")
    if not _is_plain(config) or object_format not in ("sha1", "sha256"):
        return None
    top = os.path.realpath(directory)
    git_dir = os.path.join(top, ".git")
    return RepositoryPlace(top, git_dir, git_dir, object_format) if _is_git_directory(git_dir) else None


def is_inside(path: str, directory: str) -> bool:
    """Return whether a path is a directory or below it, with links resolved."""
    top = os.path.realpath(directory).rstrip("/")
    return f"{os.path.realpath(path)}/".startswith(f"{top}/")


def bare_repository(git_dir: str) -> NotARepository:
    """Return the error for a repository without a working tree, or for a place inside `.git`."""
    if os.path.basename(git_dir) == ".git":
        return NotARepository(
            f"'{git_dir}' is the git directory of a working tree",
            hint="run the command in the working tree: cd ..",
        )
    return NotARepository(
        f"'{git_dir}' is a bare repository: there is no environment to capture",
        hint="git envrestore <rev> --to <directory> needs no working tree; "
        "for other commands set both variables: GIT_DIR=<repository> GIT_WORK_TREE=<directory>",
    )


def find_bare(directory: str) -> str | None:
    """Return the git directory that a directory is in, unless it may be part of another repository's working tree.

    A repository among the files of a clone has a configuration that the user never agreed to.
    """
    place = os.path.realpath(directory)
    while not _is_git_directory(place):
        place, below = os.path.dirname(place), place
        if place == below:
            return None
    above = place
    while above != os.path.dirname(above):
        above = os.path.dirname(above)
        if os.path.lexists(os.path.join(above, ".git")) or _is_git_directory(above):
            return None
    return place


def _is_git_directory(path: str) -> bool:
    # The same rule as git's own search.
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode) or os.path.lexists(os.path.join(path, "commondir")):
            return False
        with open(os.path.join(path, "HEAD"), "rb", opener=open_file_only) as file:
            head = file.read(70)
    except OSError:
        return False
    is_head = head.startswith(b"ref: refs/") or (len(head) > 40 and HEX.issuperset(head.strip()))
    return is_head and all(os.access(os.path.join(path, name), os.X_OK) for name in ("objects", "refs"))


def _is_plain(config: Mapping[str, str | None]) -> bool:
    if config.get("core.bare") != "false" or "core.worktree" in config:
        return False
    return all(key in EXTENSIONS for key in config if key.startswith("extensions."))


TIMELINE_REFS = "refs/envhist/heads/"
NOTES_REFS = "refs/notes/envhist/"
TRASH_REFS = "refs/envhist/trash/"
SYNCED = ("-c", "core.fsync=reference", "-c", "core.fsyncMethod=fsync")
"""git syncs the file of a ref before it gets its name (2.36 and newer); otherwise a power cut leaves it empty."""

QUESTIONS = ("--absolute-git-dir", "--git-common-dir", "--show-object-format", "--is-bare-repository")
# Our own overrides would be listed as the user's.
LIST_CONFIG = ("config", "--list", "-z")


@dataclass(frozen=True, slots=True)
class RefUpdate:
    """The change of one ref in a transaction. `old` None: it must not exist; `new` None: delete it."""

    ref: str
    new: str | None
    old: str | None


class NoRepository(NotARepository):
    """There is no repository in a directory or above it."""


class RefsMoved(EnvhistError):
    """A ref had another value than expected; nothing was changed."""

    code = "refs-moved"
    usual_hint = "another process writes here as well: run the command again"


@dataclass(frozen=True, slots=True)
class Repository:
    """A git repository, and the working tree that is captured."""

    root: str
    """The top of the working tree, absolute."""
    git_dir: str
    common_dir: str
    object_format: str
    """`sha1` or `sha256`."""
    git: Git
    config: Config | None = field(default=None, repr=False, compare=False)
    """The configuration when the repository was opened."""
    bare: bool = False
    """There is no working tree; `root` is the git directory."""
    plain: bool = False
    """Created by git-envhist for a directory without git: there is no index and no code commit."""
    library: bool = False
    """It belongs to a checkpoint class of `compat/`, which alone decides what is dropped."""
    ignores_hidden: bool = False
    """True to ignore gits of other users whose repository the system hides (`--force`)."""

    @classmethod
    def open(
        cls, directory: str = ".", environment: Mapping[bytes, bytes] | None = None, *, bare: bool = False
    ) -> Repository:
        """Find the repository of a directory as git does, including GIT_DIR and GIT_WORK_TREE.

        `bare`: also open a repository without a working tree; it can be read, and restored to a new directory.
        """
        given = dict(os.environb if environment is None else environment)
        if bare and b"GIT_DIR" not in given and (place := find_bare(directory)) is not None:
            _refuse_distrusted(place, given)
            given[b"GIT_DIR"] = os.fsencode(place)
        return _open(directory, given, bare=bare)

    def require_tree(self) -> None:
        """Raise NotARepository if there is no working tree."""
        if self.bare:
            raise bare_repository(self.git_dir)

    @property
    def objects_dir(self) -> str:
        return os.path.join(self.common_dir, "objects")

    @property
    def pack_dir(self) -> str:
        return os.path.join(self.objects_dir, "pack")

    @property
    def common_state(self) -> str:
        """The directory of state shared by all working trees: keys, the common lock, staging."""
        return os.path.join(self.common_dir, "envhist")

    @property
    def state(self) -> str:
        """The directory of state of this working tree: the name of its timeline, its lock, its cache."""
        return os.path.join(self.git_dir, "envhist")

    @property
    def hash_length(self) -> int:
        return 20 if self.object_format == "sha1" else 32

    @property
    def zero_id(self) -> str:
        return "0" * (2 * self.hash_length)

    def read_config(self) -> Config:
        """Return every (key, value) in force, as git reads them; None is a key without a value, which means true."""
        if self.config is not None:
            return self.config
        return parse_config(run_to_end([*SAFE_GIT, *LIST_CONFIG], self.git.environment))

    @property
    def shared(self) -> int:
        """The permissions that `core.sharedRepository` gives to files of the repository; 0 for none."""
        return 0 if self.plain else shared_bits(self.read_config())

    def resolve_ref(self, ref: str) -> str | None:
        """Return the hash of a ref; None if it does not exist."""
        from git_envhist.git.loose_ref import read_loose_ref  # loaded late: only writers need it

        found = (
            read_loose_ref(self.common_dir, ref)
            if ref.startswith((TIMELINE_REFS, NOTES_REFS, TRASH_REFS))
            else None
        )
        if found is not None:
            return found
        done = self.git.ask("rev-parse", "--verify", "--quiet", "--end-of-options", ref)
        return done.out.decode("ascii").strip() if done.status == 0 else None

    def list_refs(self, prefix: str) -> dict[str, str]:
        """Return the refs below a prefix with their hashes; damaged refs are left out."""
        done = self.git.ask("for-each-ref", "--format=%(objectname) %(refname)", prefix)
        found = {}
        for line in done.out.splitlines():
            oid, _, name = line.partition(b" ")
            found[os.fsdecode(name)] = oid.decode("ascii")
        return found

    def move_refs(self, moves: Sequence[RefUpdate]) -> None:
        """Move all refs or none; raise RefsMoved if one has another value than expected."""
        lines = ["start"]
        for move in moves:
            if move.new is None:
                lines.append(f"delete {move.ref}\0{move.old or ''}")
            else:
                lines.append(f"update {move.ref}\0{move.new}\0{move.old or self.zero_id}")
        lines += ["prepare", "commit"]
        text = os.fsencode("".join(line + "\0" for line in lines))
        done = self._update_refs(text)
        if done.status != 0 and self._remove_stale_locks(done, moves):
            done = self._update_refs(text)
        if done.status != 0:
            raise _why_not_moved(done, self.common_dir, self.git_dir)

    def _update_refs(self, transaction: bytes) -> GitResult:
        from git_envhist.git.running_git import WAIT  # loaded late: only writers need it

        return self.git.try_run_inside(
            *WAIT, *SYNCED, "update-ref", "--no-deref", "-z", "--stdin", stdin=transaction
        )

    def _remove_stale_locks(self, done: GitResult, moves: Sequence[RefUpdate]) -> bool:
        from git_envhist.git.stale_locks import remove_stale_lock  # loaded late: only writers need it

        if b"File exists" not in done.err:
            return False
        locks = [os.path.join(self.common_dir, move.ref + ".lock") for move in moves]
        removed = [lock for lock in locks if remove_stale_lock(lock, self.gits_at_work)]
        return bool(removed)

    def gits_at_work(self) -> list[RunningGit] | None:
        """Return every git that can be working in this repository now; None if the system has no list."""
        from git_envhist.git.running_git import gits_at_work, is_hidden  # loaded late: only writers need it

        gits = gits_at_work(self.common_dir, (self.root, self.git_dir))
        if gits is None or not self.ignores_hidden:
            return gits
        return [git for git in gits if not is_hidden(git)]

    def sync_refs(self, refs: Sequence[str]) -> None:
        """Sync moved refs to the medium."""
        sync_refs(self.common_dir, refs)


def sync_refs(git_dir: str, refs: Sequence[str]) -> None:
    """Sync moved refs to the medium: git renames their files and syncs no directory."""
    table_dir = os.path.join(git_dir, "reftable")
    if os.path.isdir(table_dir):
        for name in os.listdir(table_dir):
            _sync_path(os.path.join(table_dir, name))
        _sync_path(table_dir)
        return
    places: dict[str, None] = {}
    for ref in refs:
        place = os.path.join(git_dir, ref)
        while len(place) > len(git_dir):
            places[place] = None
            place = os.path.dirname(place)
    # A concurrent `git pack-refs --prune` may have moved them into that file.
    places[os.path.join(git_dir, "packed-refs")] = None
    places[git_dir] = None
    for place in places:
        _sync_path(place)


def _open(directory: str, environment: dict[bytes, bytes], *, bare: bool) -> Repository:
    if not os.path.isdir(directory):
        raise NotARepository(f"cannot change to '{directory}': no such directory")
    refuse_pipes(directory)
    asked = search_environment(environment)
    listed = list_config_text(directory, asked)
    config = parse_config(listed, 3) if listed.status == 0 else ()
    place = find_repository_fast(directory, asked, listed.out, dict(config))
    answers = place or _ask_all(directory, asked, b"GIT_WORK_TREE" in environment, bare=bare)
    if listed.status != 0:
        raise GitFailed(listed.complaint)
    root, git_dir, common_dir, object_format = answers
    if b"GIT_DIR" not in asked and is_inside(directory, git_dir):
        # git before 2.38 ignores `safe.bareRepository`.
        raise bare_repository(git_dir)
    common = os.path.realpath(os.path.join(directory, common_dir))
    git = Git(git_dir, root, base=environment)
    is_bare = root == git_dir and b"GIT_WORK_TREE" not in environment
    return Repository(root, git_dir, common, object_format, git, config, bare=is_bare)


def _refuse_distrusted(git_dir: str, environment: Mapping[bytes, bytes]) -> None:
    """Refuse a bare repository that git itself refuses: owned by another user, or by the user's safe.bareRepository.

    git checks neither for a repository that GIT_DIR names.
    """
    done = run_to_end(
        ["git", "-C", git_dir, "rev-parse", "--absolute-git-dir"], search_environment(environment)
    )
    if done.status != 0:
        raise _not_a_repository(git_dir, done, {})


def _ask_all(
    directory: str, asked: Mapping[bytes, bytes], named: bool, *, bare: bool
) -> tuple[str, str, str, str]:
    """Return the top of the working tree, the git directory, the common one and the object format.

    `named`: the user named the working tree; `bare`: if there is none, return the git directory for it.
    """
    done = _rev_parse(directory, asked, *QUESTIONS, "--show-toplevel")
    answers = os.fsdecode(done.out).removesuffix("\n").split("\n")
    if done.status == 0 and len(answers) == len(QUESTIONS) + 1 and answers[3] == "false" and answers[4]:
        return answers[4], answers[0], answers[1], answers[2]
    # Ask again step by step, to find the reason.
    git_dir, common_dir, object_format, has_no_tree = _ask(directory, asked, *QUESTIONS)
    if has_no_tree == "true" and not named:
        if bare:
            return git_dir, git_dir, common_dir, object_format
        raise bare_repository(git_dir)
    (root,) = _ask(directory, asked, "--show-toplevel")
    if not root:
        raise NotARepository(
            "this is inside a '.git' directory, not in a working tree", hint="go to the project's directory"
        )
    return root, git_dir, common_dir, object_format


def _rev_parse(directory: str, environment: Mapping[bytes, bytes], *questions: str) -> GitResult:
    return run_to_end([*COMMAND, "-C", directory, "rev-parse", *questions], environment)


def _ask(directory: str, environment: Mapping[bytes, bytes], *questions: str) -> list[str]:
    done = _rev_parse(directory, environment, *questions)
    if done.status != 0:
        if b"must be run in a work tree" in done.err:
            return [""] * len(questions)
        raise _not_a_repository(directory, done, environment)
    text = os.fsdecode(done.out)
    answers = text.removesuffix("\n").split("\n")
    if len(answers) == len(questions):
        return answers
    # A path contains a newline: ask one by one, so that each answer is one path.
    return [_ask_one(directory, environment, question) for question in questions]


def _ask_one(directory: str, environment: Mapping[bytes, bytes], question: str) -> str:
    done = _rev_parse(directory, environment, question)
    if done.status != 0:
        raise _not_a_repository(directory, done, environment)
    return os.fsdecode(done.out).removesuffix("\n")


def _not_a_repository(directory: str, done: GitResult, environment: Mapping[bytes, bytes]) -> EnvhistError:
    if b"dubious ownership" in done.err:
        # git's own message and hint: only the user decides to trust a directory.
        message, _, remedy = done.complaint.partition("\n")
        return GitFailed(
            message, hint="\n".join(line.strip() for line in remedy.splitlines() if line.strip())
        )
    if b"safe.bareRepository" in done.err:
        return bare_repository(os.path.realpath(directory))
    if b"not a git repository" in done.err and b"GIT_DIR" in environment:
        # The directory may be in a repository, but GIT_DIR names another place.
        named = os.fsdecode(environment[b"GIT_DIR"])
        return NotARepository(
            f"GIT_DIR names no git repository: '{named}'",
            hint="unset GIT_DIR, or set it to the '.git' directory of a repository",
        )
    if b"not a git repository" in done.err:
        path = os.path.abspath(directory)
        return NoRepository(
            f"not a git repository, and no parent directory is one: '{path}'",
            hint="'git envlog init' creates a history for a directory without git, 'git init' creates a repository",
        )
    return GitFailed(
        done.complaint.partition("\n")[0].removeprefix("fatal: "),
        hint="git itself cannot open this repository: repair what it names, then check with 'git status'",
    )


def _why_not_moved(done: GitResult, common_dir: str, git_dir: str) -> EnvhistError:
    """Return the error for what git printed; its paths are relative to the directory that it worked in."""
    from git_envhist.git.running_git import TABLES_LOCK
    from git_envhist.git.stale_locks import RefLocked  # loaded late: only writers need it

    if b"cannot lock references" in done.err:
        return RefLocked(os.path.join(common_dir, TABLES_LOCK))
    if b"but expected" in done.err or b"reference already exists" in done.err:
        return RefsMoved(done.complaint)
    found = re.search(r"Unable to create '(.+)': (.+?)\.?$", done.complaint, re.MULTILINE)
    place, reason = found.groups() if found else ("refs", done.complaint)
    place = os.path.normpath(os.path.join(git_dir, place))
    if os.strerror(errno.EEXIST) in reason:
        return RefLocked(place)
    for code in (*READ_ONLY_ERRNOS, *OUT_OF_SPACE_ERRNOS):
        if os.strerror(code) in reason:
            return cannot_write(OSError(code, reason), place)
    # git does not print the reason of a failed rename.
    message = done.complaint.partition("\n")[0]
    if "reference broken" in message:
        return GitFailed(message)
    return GitFailed(
        message,
        hint="check whether the disk is full or the git directory is read-only, then run the command again",
    )


def _sync_path(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise EnvhistError(
            f"a ref was moved, but could not be synced to the disk: '{path}': {os.strerror(error.errno or 0).lower()}",
            hint="'git envlog' shows the result; check the disk before you rely on it",
        ) from error
    finally:
        os.close(descriptor)


def state_directories(repository: Repository) -> Iterator[str]:
    """Yield the state directories of all working trees: the main one, linked ones, forks of a plain directory."""
    yield os.path.join(repository.common_dir, "envhist")
    for place in ("worktrees", FORKS):
        linked = os.path.join(repository.common_dir, place)
        for name in sorted(os.listdir(linked)) if os.path.isdir(linked) else []:
            yield os.path.join(linked, name, "envhist")


# The inputs for collecting the facts of a capture, and reuse of the facts of a snapshot with equal files.

HOOKS_PATH = "core.hookspath"


def hooks_of(repository: Repository) -> str:
    """Return the hooks directory of a repository; `core.hooksPath` is relative to the working tree."""
    configured = dict(repository.read_config()).get(HOOKS_PATH)
    if configured:
        return os.path.join(repository.root, os.path.expanduser(configured))
    return os.path.join(repository.common_dir, "hooks")
