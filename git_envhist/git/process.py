"""Runs git as a child process: posix_spawn, a sealed environment, bytes in and out.

Nothing of the user's configuration may change what we read or run a command: no hooks, no fsmonitor, no replace
objects, no optional locks. What `git -c` gave the user's command line stays in force for `git config`.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from typing import NamedTuple

from git_envhist import trace
from git_envhist.errors import EnvhistError, GitFailed, GitKilled, StorageFull
from git_envhist.platform import DIRECTORY, anonymous_file, pipe_ours

MAX_MESSAGE = 64 << 20


def quote_alternate(path: str) -> str:
    """Return a directory as GIT_ALTERNATE_OBJECT_DIRECTORIES names it."""
    # A path with the separator or a quote in it is read by git only in C quotes.
    if os.pathsep not in path and '"' not in path:
        return path
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


# `git rev-parse --local-env-vars` without the variables that carry `git -c`: a hook sets these for itself, and none
# of them may reach a command of ours.
LOCAL_VARIABLES = (
    b"GIT_ALTERNATE_OBJECT_DIRECTORIES",
    b"GIT_CONFIG",
    b"GIT_OBJECT_DIRECTORY",
    b"GIT_DIR",
    b"GIT_WORK_TREE",
    b"GIT_IMPLICIT_WORK_TREE",
    b"GIT_GRAFT_FILE",
    b"GIT_INDEX_FILE",
    b"GIT_NO_REPLACE_OBJECTS",
    b"GIT_REPLACE_REF_BASE",
    b"GIT_PREFIX",
    b"GIT_SHALLOW_FILE",
    b"GIT_COMMON_DIR",
    b"GIT_INTERNAL_SUPER_PREFIX",
    b"GIT_QUARANTINE_PATH",
)
ALSO_UNSET = (
    b"GIT_EXTERNAL_DIFF",
    b"GIT_DIFF_OPTS",
    b"GIT_NAMESPACE",
    b"GIT_DEFAULT_HASH",
    b"GIT_LITERAL_PATHSPECS",
    b"GIT_GLOB_PATHSPECS",
    b"GIT_NOGLOB_PATHSPECS",
    b"GIT_ICASE_PATHSPECS",
    b"GIT_NOTES_REF",
    b"GIT_NOTES_DISPLAY_REF",
    b"GIT_TRACE",
)
ALWAYS = {
    b"GIT_OPTIONAL_LOCKS": b"0",
    b"GIT_NO_REPLACE_OBJECTS": b"1",
    b"GIT_TERMINAL_PROMPT": b"0",
    # In a partial clone git would fetch what it misses, by commands that the configuration names. The first is for
    # git 2.45 and newer, the other stops any transport of the older ones.
    b"GIT_NO_LAZY_FETCH": b"1",
    b"GIT_ALLOW_PROTOCOL": b"none",
    b"GIT_PAGER": b"cat",
    b"LC_ALL": b"C",
}
RUN_OUT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
OVERRIDES = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    # From git 2.54 on the configuration may name hooks, too, which the directory does not switch off.
    "hook.reference-transaction.enabled=false",
    "hook.post-checkout.enabled=false",
    "hook.post-index-change.enabled=false",
    "hook.pre-push.enabled=false",
    "hook.pre-auto-gc.enabled=false",
    "core.logAllRefUpdates=false",
    "core.quotePath=false",
    "core.warnAmbiguousRefs=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "color.ui=false",
    "diff.external=",
    "log.showSignature=false",
    "log.mailmap=false",
    "i18n.logOutputEncoding=UTF-8",
    "advice.graftFileDeprecated=false",
)
# A bare repository may lie in a clone, as files of its tree, and bring a configuration of its own.
SAFE_GIT = ["git", "-c", "safe.bareRepository=explicit"]
COMMAND = [*SAFE_GIT, *(word for override in OVERRIDES for word in ("-c", override))]


INHERITED = 3
"""The number under which a git that works in a held directory has that directory open."""
INSIDE = f"/proc/self/fd/{INHERITED}"
NO_ROOM = ("No space left on device", "Out of diskspace", "Disk quota exceeded")


class GitResult(NamedTuple):
    """What a git command left: its status and what it said."""

    status: int
    out: bytes
    err: bytes

    @property
    def complaint(self) -> str:
        text = self.err.decode("utf-8", "replace").strip()
        if self.status < 0:
            return f"git was ended by signal {-self.status}"
        return text.removeprefix("fatal: ").removeprefix("error: ") or f"git ended with status {self.status}"

    def by_itself(self) -> GitResult:
        """The same, where git came to an end of its own, well or not; `GitKilled` where somebody ended it."""
        if self.status < 0:
            raise GitKilled(-self.status)
        return self


def why_it_failed(done: GitResult) -> EnvhistError:
    """A git that found no room to write is told as any other that finds none."""
    complaint = done.complaint
    if any(sign in complaint for sign in NO_ROOM):
        return StorageFull(
            f"git cannot write: no space left on device ({complaint.splitlines()[-1]})",
            hint="make room there (or raise the quota) and run the command again; nothing was changed",
        )
    return GitFailed(complaint)


def clean_environment(base: Mapping[bytes, bytes] | None = None) -> dict[bytes, bytes]:
    """The environment without what a hook or a caller set for its own git commands."""
    environment = dict(os.environb if base is None else base)
    for name in LOCAL_VARIABLES + ALSO_UNSET:
        environment.pop(name, None)
    environment.update(ALWAYS)
    return environment


def spawn(
    arguments: Sequence[str | bytes],
    environment: Mapping[bytes, bytes],
    *,
    stdin: bytes | None = None,
) -> GitResult:
    """Run a command to its end."""
    return GitProcess(arguments, environment, stdin=stdin).finish()


class GitProcess:
    """A command that was started; its input and its complaints go through memory files, so that no pipe can fill.

    `finish` has to be called, whatever happens meanwhile.
    """

    def __init__(
        self,
        arguments: Sequence[str | bytes],
        environment: Mapping[bytes, bytes],
        *,
        stdin: bytes | None = None,
        inherited: int | None = None,
    ) -> None:
        """`inherited`: a descriptor that the command gets as number `INHERITED`."""
        source = memory_file(stdin) if stdin else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._complaints = memory_file(b"")
        self._reading, writing = pipe_ours()
        actions = [
            (os.POSIX_SPAWN_DUP2, source, 0),
            (os.POSIX_SPAWN_DUP2, writing, 1),
            (os.POSIX_SPAWN_DUP2, self._complaints, 2),
        ]
        if inherited is not None:
            actions.append((os.POSIX_SPAWN_DUP2, inherited, INHERITED))
        self._told, self._began = arguments, trace.now()
        try:
            self._child = os.posix_spawnp(
                os.fsencode(arguments[0]), list(arguments), environment, file_actions=actions
            )
        except BaseException as failure:
            self._close()
            refuse_without_git(failure)
            raise
        finally:
            os.close(writing)
            os.close(source)

    def finish(self) -> GitResult:
        """Wait for its end, and say what came of it."""
        try:
            out = read_all(self._reading)
            status = os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
            trace.trace_git(self._told, self._began, status)
            os.lseek(self._complaints, 0, os.SEEK_SET)
            return GitResult(status, out, read_all(self._complaints))
        finally:
            self._close()

    def stop(self) -> None:
        """End it, whatever it is doing."""
        os.kill(self._child, signal.SIGKILL)
        self.finish()

    def _close(self) -> None:
        os.close(self._complaints)
        os.close(self._reading)


def refuse_without_git(failure: BaseException) -> None:
    """Say that there is no git to run, where that is why none could be started.

    What the system has run out of is told by its own name, by whoever knows what helps.
    """
    if isinstance(failure, FileNotFoundError):
        raise GitFailed("git is not on the PATH", hint="install git 2.30 or newer") from failure
    if isinstance(failure, OSError) and failure.errno not in RUN_OUT:
        why = os.strerror(failure.errno or 0).lower()
        raise GitFailed(
            f"the git on the PATH cannot be run: {why}", hint="try it: git --version"
        ) from failure


class Git:
    """git, bound to one repository; every command is given the same sealed environment."""

    def __init__(
        self,
        git_dir: str,
        work_tree: str | None,
        *,
        alternates: tuple[str, ...] = (),
        base: Mapping[bytes, bytes] | None = None,
    ) -> None:
        """`base`: the environment that is sealed; this process's own, where none is said."""
        self.git_dir = git_dir
        self.work_tree = work_tree
        self.alternates = alternates
        self.base = base
        self.directory: str | None = None
        """The directory that the commands run in; None: the one of this process."""
        self.environment = clean_environment(base)
        self.environment[b"GIT_DIR"] = os.fsencode(git_dir)
        if work_tree is not None:
            self.environment[b"GIT_WORK_TREE"] = os.fsencode(work_tree)
        if alternates:
            quoted = os.pathsep.join(quote_alternate(path) for path in alternates)
            self.environment[b"GIT_ALTERNATE_OBJECT_DIRECTORIES"] = os.fsencode(quoted)

    @property
    def command(self) -> list[str]:
        """The words that every command begins with."""
        return COMMAND if self.directory is None else [*COMMAND, "-C", self.directory]

    def try_run(
        self,
        *arguments: str | bytes,
        stdin: bytes | None = None,
        environment: Mapping[bytes, bytes] | None = None,
    ) -> GitResult:
        """Run git and return what came of it, success or not."""
        full = self.environment if environment is None else {**self.environment, **environment}
        return spawn([*self.command, *arguments], full, stdin=stdin)

    def try_run_inside(self, *arguments: str | bytes, stdin: bytes | None = None) -> GitResult:
        """Run git in its own directory, which is held open, for a command that needs no working tree.

        git makes missing directories of a path that it was given. If the repository is moved meanwhile, it works on at
        the new place and makes nothing at the old one.
        """
        try:
            held = os.open(self.git_dir, DIRECTORY)
        except OSError:
            return self.try_run(*arguments, stdin=stdin)  # git itself says what is wrong
        try:
            if not os.path.isdir(f"/proc/self/fd/{held}"):
                return self.try_run(*arguments, stdin=stdin)
            environment = {**self.environment, b"GIT_DIR": b"."}
            environment.pop(b"GIT_WORK_TREE", None)
            words = [*COMMAND, "-C", INSIDE, *arguments]
            return GitProcess(words, environment, stdin=stdin, inherited=held).finish()
        finally:
            os.close(held)

    def ask(
        self,
        *arguments: str | bytes,
        stdin: bytes | None = None,
        environment: Mapping[bytes, bytes] | None = None,
    ) -> GitResult:
        """Run git and return what came of it, success or not; half an answer is none: killed, it is `GitKilled`.

        For whatever decides by what git does not say: a ref that is not listed, a commit that is not there.
        """
        return self.try_run(*arguments, stdin=stdin, environment=environment).by_itself()

    def run(
        self,
        *arguments: str | bytes,
        stdin: bytes | None = None,
        environment: Mapping[bytes, bytes] | None = None,
    ) -> bytes:
        """Run git and return its output; a failure is `GitFailed` with git's own words."""
        done = self.try_run(*arguments, stdin=stdin, environment=environment)
        if done.status != 0:
            raise why_it_failed(done)
        return done.out

    @property
    def no_index(self) -> dict[bytes, bytes]:
        """For commands that compare trees: git reads the index for them too, and fails where that is damaged."""
        return {b"GIT_INDEX_FILE": os.fsencode(self.git_dir) + b"/envhist/no-index"}

    def with_objects(self, directory: str) -> Git:
        """The same repository, seeing the objects of one more directory."""
        return self.with_alternates(directory, *self.alternates)

    def with_alternates(self, *alternates: str) -> Git:
        """Return the same repository with these directories of further objects, and an environment of its own."""
        git = Git(self.git_dir, self.work_tree, alternates=alternates, base=self.base)
        git.directory = self.directory
        return git


def read_all(descriptor: int) -> bytes:
    chunks = []
    while chunk := os.read(descriptor, 1 << 20):
        chunks.append(chunk)
    return b"".join(chunks)


def memory_file(content: bytes) -> int:
    descriptor = anonymous_file()
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


# A git command that is talked to while it runs: its answers are read as they come, closing ends it.

_meanwhile: list[Callable[[], None]] = []


def meanwhile(work: Callable[[], None]) -> None:
    """Have something done while the next git that is talked to thinks: modules loaded that are needed in any case."""
    _meanwhile.append(work)


# What a pipe holds: more is never there at once.
READ_SIZE = 1 << 16


class GitStream:
    """One running git command, with a pipe from its output and, if asked for, one to its input."""

    def __init__(
        self, git: Git, *arguments: str | bytes, talks: bool = False, source: int | None = None
    ) -> None:
        """`source`: an open file that it reads, which is closed here."""
        self._complaints = memory_file(b"")
        # Files of Python's: what stops this program comes before or after they are closed, and never between that
        # and the mark of it, where the next one to close them would close what is not there, or somebody else's.
        self._input: FileIO | None = None
        if source is None and talks:
            source, asked = pipe_ours()
            self._input = FileIO(asked, "w")
        elif source is None:
            source = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        answer, sink = pipe_ours()
        self._output = FileIO(answer)
        self._process = 0
        try:
            self._process = _start(git, arguments, source, sink, self._complaints)
        finally:
            os.close(source)
            os.close(sink)
            if not self._process:
                self._close_pipes()
                os.close(self._complaints)
        while _meanwhile:
            _meanwhile.pop()()

    @property
    def process(self) -> int:
        """Its number, while it runs."""
        return self._process

    def write(self, data: bytes) -> None:
        assert self._input is not None
        view = memoryview(data)
        while view:
            view = view[self._input.write(view) :]

    def read(self, size: int = READ_SIZE) -> bytes:
        """Up to `size` bytes of what it says, as soon as there are any; nothing at its end."""
        return os.read(self._output.fileno(), size)

    def finish(self) -> GitResult:
        """Let it come to its own end, with all that it has still to say, and say what came of it."""
        if self._input is not None:
            self._input.close()
        said = read_all(self._output.fileno())
        done = self.close()
        return GitResult(done.status, said, done.err)

    def stop(self) -> None:
        """Have it end now, whatever it is doing; `close` then waits for that."""
        if self._process:
            with suppress(ProcessLookupError):
                os.kill(self._process, signal.SIGTERM)

    def close(self) -> GitResult:
        """End it, whatever it is doing, and say what came of it."""
        if not self._process:
            return GitResult(0, b"", b"")
        # Its input ends, and what it still has to say has no reader: either way it ends by itself.
        self._close_pipes()
        status = _wait(self._process)
        self._process = 0
        os.lseek(self._complaints, 0, os.SEEK_SET)
        complaints = read_all(self._complaints)
        os.close(self._complaints)
        return GitResult(status, b"", complaints)

    def _close_pipes(self) -> None:
        if self._input is not None:
            self._input.close()
        self._output.close()


def _start(git: Git, arguments: tuple[str | bytes, ...], source: int, sink: int, complaints: int) -> int:
    trace.trace_git(("git", *arguments, "(goes on)"))
    try:
        return os.posix_spawnp(
            "git",
            [*git.command, *arguments],
            git.environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, source, 0),
                (os.POSIX_SPAWN_DUP2, sink, 1),
                (os.POSIX_SPAWN_DUP2, complaints, 2),
            ],
            # Python ignores SIGPIPE and the child would inherit that: it must die when nobody reads it.
            setsigdef=[signal.SIGPIPE],
        )
    except OSError as failure:
        refuse_without_git(failure)
        raise


def _wait(process: int) -> int:
    try:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    except ChildProcessError:  # somebody made us ignore SIGCHLD: it ended, and nobody knows how
        return 0


# Cuts what git says into NUL-ended fields, as it comes.

Fields = list[bytes]


def cut_into_fields(child: GitStream, width: int) -> Iterator[Fields]:
    """So many fields at a time; what is left of a group that was cut off is none."""
    fields: Fields = []
    open_field: list[bytes] = []
    held = 0
    while chunk := child.read():
        parts = chunk.split(b"\0")
        if len(parts) > 1:
            parts[0] = b"".join(open_field) + parts[0]
            open_field, held = [], 0
            last = parts.pop()
            fields += parts
            whole = len(fields) - len(fields) % width
            yield from [fields[start : start + width] for start in range(0, whole, width)]
            del fields[:whole]
        else:
            last = chunk
        # The rest of what is larger than anything of ours is dropped: cut off, it is recognised as damaged.
        if last and held <= MAX_MESSAGE:
            open_field.append(last)
            held += len(last)
