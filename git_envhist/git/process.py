"""Run git as a child process with a clean environment.

The user's configuration must neither change what we read nor run a command: hooks, fsmonitor, replace objects and
optional locks are disabled. `git -c` options of the user's command line still apply to `git config`.

All fronts start a command by `start`: `GitProcess` runs it to its end, `GitStream` reads and writes while it runs, and
`limits.run_limited` holds it to limits. `Git` binds commands to a repository.
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
from git_envhist.platform import DIRECTORY, anonymous_file, guarded_pipe

MAX_MESSAGE = 64 << 20


def quote_alternate(path: str) -> str:
    """Return a directory as GIT_ALTERNATE_OBJECT_DIRECTORIES quotes it."""
    # git reads a path that contains the separator or a quote only if it is quoted like a C string.
    if os.pathsep not in path and '"' not in path:
        return path
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


# `git rev-parse --local-env-vars` without the variables that carry `git -c`. A hook sets them for its own repository,
# and none may reach our commands.
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
    # In a partial clone git would fetch missing objects by commands that the configuration names. The first variable
    # prevents this in git 2.45 and newer, the second stops every transport in older versions.
    b"GIT_NO_LAZY_FETCH": b"1",
    b"GIT_ALLOW_PROTOCOL": b"none",
    b"GIT_PAGER": b"cat",
    b"LC_ALL": b"C",
}
RUN_OUT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
OVERRIDES = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    # Since git 2.54 the configuration can name hooks as well, which core.hooksPath does not disable.
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
# A bare repository may be part of a clone's working tree and have a configuration of its own.
SAFE_GIT = ["git", "-c", "safe.bareRepository=explicit"]
COMMAND = [*SAFE_GIT, *(word for override in OVERRIDES for word in ("-c", override))]


INHERITED = 3
"""The number of the descriptor of the directory that a git process works in."""
INSIDE = f"/proc/self/fd/{INHERITED}"
NO_SPACE = ("No space left on device", "Out of diskspace", "Disk quota exceeded")


class GitResult(NamedTuple):
    """The status and output of a git command."""

    status: int
    out: bytes
    err: bytes

    @property
    def complaint(self) -> str:
        text = self.err.decode("utf-8", "replace").strip()
        if self.status < 0:
            return f"git was ended by signal {-self.status}"
        return text.removeprefix("fatal: ").removeprefix("error: ") or f"git ended with status {self.status}"

    def unless_killed(self) -> GitResult:
        """Return the result unless git was killed; raise GitKilled then."""
        if self.status < 0:
            raise GitKilled(-self.status)
        return self


def git_error(done: GitResult) -> EnvhistError:
    """Return the error for a failed git command; a full disk has an error of its own."""
    complaint = done.complaint
    if any(sign in complaint for sign in NO_SPACE):
        return StorageFull(
            f"git cannot write: no space left on device ({complaint.splitlines()[-1]})",
            hint="make room there (or raise the quota) and run the command again; nothing was changed",
        )
    return GitFailed(complaint)


def clean_environment(base: Mapping[bytes, bytes] | None = None) -> dict[bytes, bytes]:
    """Return the environment without variables that a hook or caller set for its own git commands."""
    environment = dict(os.environb if base is None else base)
    for name in LOCAL_VARIABLES + ALSO_UNSET:
        environment.pop(name, None)
    environment.update(ALWAYS)
    return environment


def run_to_end(
    arguments: Sequence[str | bytes],
    environment: Mapping[bytes, bytes],
    *,
    stdin: bytes | None = None,
) -> GitResult:
    """Run a command to its end."""
    return GitProcess(arguments, environment, stdin=stdin).finish()


def start(
    words: Sequence[str | bytes],
    environment: Mapping[bytes, bytes],
    streams: Sequence[int],
    *,
    inherited: int | None = None,
) -> int:
    """Start a command with three descriptors as its standard streams; return its process id.

    `inherited` is a descriptor that the command gets as number `INHERITED`.
    """
    given = streams if inherited is None else (*streams, inherited)
    actions = [(os.POSIX_SPAWN_DUP2, descriptor, number) for number, descriptor in enumerate(given)]
    program = os.fsencode(words[0])
    try:
        # Python ignores SIGPIPE, and the child would inherit that; it must end when its output has no reader.
        return os.posix_spawnp(
            program, list(words), environment, file_actions=actions, setsigdef=[signal.SIGPIPE]
        )
    except OSError as failure:
        refuse_without_program(os.fsdecode(program), failure)
        raise


class GitProcess:
    """A running command. Input and error messages are files in memory, so that no pipe can fill.

    The caller must call `finish`.
    """

    def __init__(
        self,
        words: Sequence[str | bytes],
        environment: Mapping[bytes, bytes],
        *,
        stdin: bytes | int | None = None,
        keeps_output: bool = False,
        inherited: int | None = None,
    ) -> None:
        """`stdin` is the input, or an open file for it, which is closed here.

        `keeps_output`: the output goes to a file in memory as well, so that a long one does not stop the command.
        """
        self._words, self._began, self._keeps_output = words, trace.now(), keeps_output
        self._process = 0
        source = stdin if isinstance(stdin, int) else _input_file(stdin)
        # Python's file objects: a signal cannot arrive between closing the descriptor and marking it closed, where a
        # second close would close another file.
        self._complaints = FileIO(memory_file(b""), "r+")
        answer, sink = _memory_pair() if keeps_output else guarded_pipe()
        self._output = FileIO(answer)
        streams = (source, sink, self._complaints.fileno())
        try:
            self._process = start(words, environment, streams, inherited=inherited)
        finally:
            os.close(source)
            os.close(sink)
            if not self._process:
                self._close_files()

    @property
    def process(self) -> int:
        """The process id while it runs and nothing waits for its end, else 0."""
        return self._process

    def finish(self) -> GitResult:
        """Wait for the command to end and return its result."""
        process, self._process = self._process, 0
        try:
            out = b"" if self._keeps_output else read_all(self._output.fileno())
            status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            trace.trace_git(self._words, self._began, status)
            out = _content(self._output) if self._keeps_output else out
            return GitResult(status, out, _content(self._complaints))
        finally:
            self._close_files()

    def stop(self) -> None:
        """Kill the command."""
        if self._process:
            os.kill(self._process, signal.SIGKILL)
            self.finish()

    def _close_files(self) -> None:
        self._output.close()
        self._complaints.close()


def refuse_without_program(program: str, failure: OSError) -> None:
    """Raise GitFailed if a program could not be started because it is missing or cannot be executed.

    Errors about exhausted resources keep their type; callers add a hint to them.
    """
    is_git = program == "git"
    if isinstance(failure, FileNotFoundError):
        hint = "install git 2.30 or newer" if is_git else None
        raise GitFailed(f"{program} is not on the PATH", hint=hint) from failure
    if failure.errno not in RUN_OUT:
        why = os.strerror(failure.errno or 0).lower()
        hint = "try it: git --version" if is_git else None
        raise GitFailed(f"the {program} on the PATH cannot be run: {why}", hint=hint) from failure


class Git:
    """git commands for one repository, all with the same clean environment."""

    def __init__(
        self,
        git_dir: str,
        work_tree: str | None,
        *,
        alternates: tuple[str, ...] = (),
        base: Mapping[bytes, bytes] | None = None,
    ) -> None:
        """`base` is the environment to clean, by default that of this process."""
        self.git_dir = git_dir
        self.work_tree = work_tree
        self.alternates = alternates
        self.base = base
        self.directory: str | None = None
        """The directory that commands run in; None: the current directory."""
        self.environment = clean_environment(base)
        self.environment[b"GIT_DIR"] = os.fsencode(git_dir)
        if work_tree is not None:
            self.environment[b"GIT_WORK_TREE"] = os.fsencode(work_tree)
        if alternates:
            quoted = os.pathsep.join(quote_alternate(path) for path in alternates)
            self.environment[b"GIT_ALTERNATE_OBJECT_DIRECTORIES"] = os.fsencode(quoted)

    @property
    def command(self) -> list[str]:
        """The first words of every command."""
        return COMMAND if self.directory is None else [*COMMAND, "-C", self.directory]

    def try_run(
        self,
        *arguments: str | bytes,
        stdin: bytes | None = None,
        environment: Mapping[bytes, bytes] | None = None,
    ) -> GitResult:
        """Run git and return its result, whether it succeeded or not."""
        full = self.environment if environment is None else {**self.environment, **environment}
        return run_to_end([*self.command, *arguments], full, stdin=stdin)

    def try_run_inside(self, *arguments: str | bytes, stdin: bytes | None = None) -> GitResult:
        """Run git in its open git directory, for a command that needs no working tree.

        git creates missing directories of a path it is given. If the repository is moved meanwhile, a git that runs
        inside it continues in the new place and creates nothing in the old one.
        """
        try:
            directory = os.open(self.git_dir, DIRECTORY)
        except OSError:
            return self.try_run(*arguments, stdin=stdin)  # git reports the error
        try:
            if not os.path.isdir(f"/proc/self/fd/{directory}"):
                return self.try_run(*arguments, stdin=stdin)
            environment = {**self.environment, b"GIT_DIR": b"."}
            environment.pop(b"GIT_WORK_TREE", None)
            words = [*COMMAND, "-C", INSIDE, *arguments]
            return GitProcess(words, environment, stdin=stdin, inherited=directory).finish()
        finally:
            os.close(directory)

    def ask(
        self,
        *arguments: str | bytes,
        stdin: bytes | None = None,
        environment: Mapping[bytes, bytes] | None = None,
    ) -> GitResult:
        """Run git and return its result; raise GitKilled if it was killed.

        For callers that conclude something from missing output: a ref that is not listed, a commit that does not
        exist.
        """
        return self.try_run(*arguments, stdin=stdin, environment=environment).unless_killed()

    def run(
        self,
        *arguments: str | bytes,
        stdin: bytes | None = None,
        environment: Mapping[bytes, bytes] | None = None,
    ) -> bytes:
        """Run git and return its output; raise GitFailed with git's message if it fails."""
        done = self.try_run(*arguments, stdin=stdin, environment=environment)
        if done.status != 0:
            raise git_error(done)
        return done.out

    @property
    def no_index(self) -> dict[bytes, bytes]:
        """The environment for commands that compare trees.

        They read the index as well, and fail if it is damaged.
        """
        return {b"GIT_INDEX_FILE": os.fsencode(self.git_dir) + b"/envhist/no-index"}

    def with_objects(self, directory: str) -> Git:
        """Return the same repository with one more directory of objects."""
        return self.with_alternates(directory, *self.alternates)

    def with_alternates(self, *alternates: str) -> Git:
        """Return the same repository with these additional directories of objects, and an environment of its own."""
        git = Git(self.git_dir, self.work_tree, alternates=alternates, base=self.base)
        git.directory = self.directory
        return git


def read_all(descriptor: int) -> bytes:
    chunks = []
    while chunk := os.read(descriptor, 1 << 20):
        chunks.append(chunk)
    return b"".join(chunks)


def _input_file(content: bytes | None) -> int:
    return memory_file(content) if content else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def memory_file(content: bytes) -> int:
    descriptor = anonymous_file()
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _memory_pair() -> tuple[int, int]:
    """Return two descriptors of one file in memory, as the ends of a pipe: to read it afterwards, to write it."""
    descriptor = memory_file(b"")
    return descriptor, os.dup(descriptor)


def _content(file: FileIO) -> bytes:
    file.seek(0)
    return read_all(file.fileno())


# A git command that runs while it is read and written.

_meanwhile: list[Callable[[], None]] = []


def run_during_next_start(work: Callable[[], None]) -> None:
    """Register work to be done while the next GitStream starts, e.g. imports that are needed in any case."""
    _meanwhile.append(work)


# The capacity of a pipe, so a read returns no more.
READ_SIZE = 1 << 16


class GitStream(GitProcess):
    """A running git command with a pipe from its output and, with `talks`, one to its input."""

    def __init__(
        self, git: Git, *arguments: str | bytes, talks: bool = False, source: int | None = None
    ) -> None:
        """`source` is an open file for its input, which is closed here."""
        self._input: FileIO | None = None
        if source is None and talks:
            source, asked = guarded_pipe()
            self._input = FileIO(asked, "w")
        trace.trace_git(("git", *arguments, "(running)"))
        super().__init__([*git.command, *arguments], git.environment, stdin=source)
        while _meanwhile:
            _meanwhile.pop()()

    def write(self, data: bytes) -> None:
        assert self._input is not None
        view = memoryview(data)
        while view:
            view = view[self._input.write(view) :]

    def read(self, size: int = READ_SIZE) -> bytes:
        """Return up to `size` bytes of output as soon as there are any, nothing at the end."""
        return os.read(self._output.fileno(), size)

    def finish(self) -> GitResult:
        """Wait for the command to end and return its result with the remaining output."""
        if self._input is not None:
            self._input.close()
        output = read_all(self._output.fileno())
        return self.close()._replace(out=output)

    def stop(self) -> None:
        """Terminate the command; `close` waits for it."""
        if self._process:
            with suppress(ProcessLookupError):
                os.kill(self._process, signal.SIGTERM)

    def close(self) -> GitResult:
        """Close the pipes, wait for the command to end and return its result."""
        if not self._process:
            return GitResult(0, b"", b"")
        # Its input ends and its output has no reader, so it ends by itself.
        self._close_pipes()
        status = _wait(self._process)
        self._process = 0
        complaints = _content(self._complaints)
        self._complaints.close()
        return GitResult(status, b"", complaints)

    def _close_pipes(self) -> None:
        if self._input is not None:
            self._input.close()
        self._output.close()

    def _close_files(self) -> None:
        self._close_pipes()
        super()._close_files()


def _wait(process: int) -> int:
    try:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    except ChildProcessError:  # SIGCHLD is ignored in this process, so the status is unknown
        return 0


# Split output into fields that end in NUL.

Fields = list[bytes]


def cut_into_fields(child: GitStream, width: int) -> Iterator[Fields]:
    """Yield groups of `width` fields as they arrive; an incomplete last group is dropped."""
    fields: Fields = []
    open_field: list[bytes] = []
    size = 0
    while chunk := child.read():
        parts = chunk.split(b"\0")
        if len(parts) > 1:
            parts[0] = b"".join(open_field) + parts[0]
            open_field, size = [], 0
            last = parts.pop()
            fields += parts
            whole = len(fields) - len(fields) % width
            yield from [fields[start : start + width] for start in range(0, whole, width)]
            del fields[:whole]
        else:
            last = chunk
        # A field above the limit is truncated; the code that parses it reports it as damaged.
        if last and size <= MAX_MESSAGE:
            open_field.append(last)
            size += len(last)
