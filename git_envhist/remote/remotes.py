"""Find the remote of a push or fetch, run git against it, and plan which refs move.

`find_remote` resolves a name or address. `Transport` runs git with the user's transport settings, credentials and
proxies, under limits. git gets the address, never the name of the remote, so that settings for code (`remote.*.push`,
`mirror`, tracking refs) do not apply and git writes none of the user's refs. `read_remote_refs` accepts only refs
with valid names; `plan_push` decides for each whether it moves forward, replaces our own rewritten chain, or
diverged.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from git_envhist.config import parse_duration, parse_size
from git_envhist.errors import EnvhistError, UsageError
from git_envhist.git.config import Config
from git_envhist.git.limits import (
    FETCH_MEMORY,
    STREAMED,
    NoOutputTimeout,
    ResourceLimits,
    limits_for_fetch,
    parse_progress,
    run_limited,
)
from git_envhist.git.process import COMMAND as SAFE_COMMAND
from git_envhist.git.process import Git, GitResult
from git_envhist.git.repository import TIMELINE_REFS, Repository
from git_envhist.lazy import dataclass
from git_envhist.model.sharing import PushOutcome, RefPush, Remote, TimelinePush, without_password
from git_envhist.remote.errors import fetch_error, no_output_error

if TYPE_CHECKING:
    from git_envhist.remote.upload import RemoteState

# The environment of git: transport settings and credentials. An address may contain a password. git gets it through
# the environment; git-envhist writes it to no file and no message.

TRANSPORT_KEY = re.compile(r"(?:http|credential|url|protocol|ssh)\.|core\.(?:sshcommand|askpass|gitproxy)$")
"""Settings of one repository about the connection to others."""


def transport_environment(git: Git, environ: Mapping[str, str], config: Config) -> dict[bytes, bytes]:
    environment = dict(git.environment)
    # Other git calls allow no network. Here the user's own setting applies, or git's default.
    for name in ("GIT_ALLOW_PROTOCOL", "GIT_TERMINAL_PROMPT"):
        environment.pop(name.encode(), None)
        if name in environ:
            environment[name.encode()] = os.fsencode(environ[name])
    words = [
        # git before 2.31 reads only the first form, whose key contains no "=".
        _quoted(f"{key}={value}") if "=" not in key else f"{_quoted(key)}={_quoted(value)}"
        for key, value in config
        if value is not None and TRANSPORT_KEY.match(key)
    ]
    if words:
        before = os.fsdecode(environment.get(b"GIT_CONFIG_PARAMETERS", b""))
        environment[b"GIT_CONFIG_PARAMETERS"] = os.fsencode(f"{' '.join(words)} {before}".strip())
    return environment


def credentials_config(url: str) -> Config:
    """Return the configuration that adds user and password to an address; our files store it without them."""
    shown = without_password(url)
    return ((f"url.{url}.insteadOf", shown),) if url != shown else ()


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''").replace("!", "'\\!'") + "'"


# Plan the refs that a push moves (pure): forward, or with a lease if we rewrote our own chain; other refs are not
# moved. Refs of the remote with invalid names are skipped and counted.

HEADS_PREFIX, NOTES, UPLOAD = "refs/envhist/heads/", "refs/notes/envhist/", "refs/envhist/upload/"
_WORD = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
TIMELINE = re.compile(rf"{_WORD}/{_WORD}")
MAX_REFS = 100_000


def read_listing(out: bytes) -> list[tuple[str, str]]:
    """Parse the output of `git ls-remote`; other lines are skipped."""
    found = []
    for line in out.split(b"\n"):
        oid, tab, ref = line.partition(b"\t")
        if tab and re.fullmatch(rb"[0-9a-f]{40}|[0-9a-f]{64}", oid):
            found.append((os.fsdecode(ref), oid.decode("ascii")))
    return found


@dataclass(frozen=True, slots=True)
class RemoteRefs:
    """The valid refs of the remote."""

    heads: Mapping[str, str]
    """Hashes by timeline."""
    notes: Mapping[str, str]
    uploads: Mapping[str, str]
    """Hashes of the upload refs of all clients, by ref."""
    code: tuple[str, ...] = ()
    refused: int = 0
    """The number of refs with invalid names."""

    @property
    def all(self) -> tuple[str, ...]:
        """Return the hashes that the remote has."""
        return (*self.heads.values(), *self.notes.values(), *self.uploads.values(), *self.code)


def is_timeline(name: str) -> bool:
    """Return whether a name is a valid timeline name."""
    bad = ".." in name or name.endswith((".lock", ".")) or ".lock/" in name or "./" in name
    return TIMELINE.fullmatch(name) is not None and not bad


def read_remote_refs(listed: Iterable[tuple[str, str]]) -> RemoteRefs:
    """Sort the refs of the remote by kind; invalid ones are counted."""
    heads: dict[str, str] = {}
    notes: dict[str, str] = {}
    uploads: dict[str, str] = {}
    code: list[str] = []
    refused = 0
    for number, (ref, oid) in enumerate(listed):
        if number >= MAX_REFS:
            refused += 1
        elif ref.startswith(HEADS_PREFIX) and is_timeline(ref[len(HEADS_PREFIX) :]):
            heads[ref[len(HEADS_PREFIX) :]] = oid
        elif ref.startswith(NOTES) and is_timeline(ref[len(NOTES) :]):
            notes[ref[len(NOTES) :]] = oid
        elif ref.startswith(UPLOAD) and is_timeline(ref[len(UPLOAD) :]):
            uploads[ref] = oid
        elif ref.startswith("refs/heads/"):
            code.append(oid)
        else:
            refused += 1
    return RemoteRefs(heads, notes, uploads, tuple(code), refused)


@dataclass(frozen=True, slots=True)
class LocalTimeline:
    """A timeline of this repository."""

    timeline: str
    head: str
    notes: str | None


def plan_push(
    local: Iterable[LocalTimeline],
    remote: RemoteRefs,
    ours: Mapping[str, str],
    grows: Mapping[tuple[str, str], bool],
) -> tuple[TimelinePush, ...]:
    """Return the moves of a push.

    `ours` maps refs to the hash that we pushed last; `grows` maps (old, new) to whether old is an ancestor of new.
    """
    return tuple(_plan_one(one, remote, ours, grows) for one in local)


def ancestry_questions(local: Iterable[LocalTimeline], remote: RemoteRefs) -> set[tuple[str, str]]:
    """Return the pairs (old, new) whose ancestry `plan_push` needs."""
    pairs = set()
    for one in local:
        pairs_of_one = (
            (remote.heads.get(one.timeline), one.head),
            (remote.notes.get(one.timeline), one.notes),
        )
        pairs |= {
            (old, new) for old, new in pairs_of_one if old is not None and new is not None and old != new
        }
    return pairs


def plan_deletion(timelines: Iterable[str], remote: RemoteRefs) -> tuple[TimelinePush, ...]:
    """Return the moves that delete timelines on the remote."""
    found = []
    for timeline in timelines:
        places = ((HEADS_PREFIX, remote.heads.get(timeline)), (NOTES, remote.notes.get(timeline)))
        moves = tuple(RefPush(place + timeline, old, None) for place, old in places if old is not None)
        found.append(TimelinePush(timeline, PushOutcome.DELETED if moves else PushOutcome.SAME, moves))
    return tuple(found)


def update_order(moves: Iterable[RefPush]) -> list[list[RefPush]]:
    """Return the order of moves without an atomic push: notes before the timelines that they describe, deletions
    after.
    """
    known = list(moves)
    groups = [
        [move for move in known if move.new is not None and move.ref.startswith(NOTES)],
        [move for move in known if not move.ref.startswith(NOTES)],
        [move for move in known if move.new is None and move.ref.startswith(NOTES)],
    ]
    return [group for group in groups if group]


def _plan_one(
    one: LocalTimeline, remote: RemoteRefs, ours: Mapping[str, str], grows: Mapping[tuple[str, str], bool]
) -> TimelinePush:
    moves, outcomes = [], []
    for ref, old, new in (
        (HEADS_PREFIX + one.timeline, remote.heads.get(one.timeline), one.head),
        (NOTES + one.timeline, remote.notes.get(one.timeline), one.notes),
    ):
        if new is None or old == new:
            outcomes.append(PushOutcome.SAME)
            continue
        outcomes.append(_outcome(old, new, ours.get(ref), grows))
        moves.append(RefPush(ref, old, new))
    if PushOutcome.DIVERGED in outcomes:
        return TimelinePush(one.timeline, PushOutcome.DIVERGED, ())
    if outcomes[0] is PushOutcome.SAME and moves:
        return TimelinePush(one.timeline, PushOutcome.UPDATED, tuple(moves))
    return TimelinePush(one.timeline, outcomes[0], tuple(moves))


def _outcome(
    old: str | None, new: str, ours: str | None, grows: Mapping[tuple[str, str], bool]
) -> PushOutcome:
    if old is None:
        return PushOutcome.NEW
    if grows.get((old, new), False):
        return PushOutcome.UPDATED
    return PushOutcome.REWRITTEN if old == ours else PushOutcome.DIVERGED


URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?://|:)")
SCP_LIKE = re.compile(r"[^/:]+:(?!:)")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*")
# Hooks and push settings of the user are for code, and do not apply to a push of the history.
PUSH_COMMAND = (
    "push",
    "--no-verify",
    "--porcelain",
    "--no-follow-tags",
    "--recurse-submodules=no",
    "--no-signed",
)
OUR_REFS = ("refs/envhist/heads/*", "refs/notes/envhist/*", "refs/envhist/upload/*")
CODE_REFS = "refs/heads/*"


class NoRemote(EnvhistError):
    """No remote is configured, or there is no remote of this name."""

    code = "no-remote"


def remote_key(remote: Remote) -> str:
    """Return the name of a remote in our own files: a hash of its address without the password."""
    return hashlib.sha256(os.fsencode(without_password(remote.push_url))).hexdigest()[:16]


def find_remote(repository: Repository, word: str | None, directory: str) -> Remote:
    """Return the remote that a word names; without one `envhist.remote`, or the default remote of `git fetch`."""
    config = repository.read_config()
    typed = word is not None
    chosen = (
        word
        if word is not None
        else last_value(config, "envhist.remote") or _default_remote(repository, config)
    )
    if not chosen or chosen.startswith("-"):
        raise UsageError(f"not a remote: '{chosen}'", hint="'git remote -v' lists the named remotes")
    if last_value(config, f"remote.{chosen}.url") is not None:
        return _configured(repository, config, chosen)
    base = os.path.abspath(directory) if typed else repository.root
    if not _is_address(chosen, base):
        raise NoRemote(f"no remote is called '{chosen}'", hint="'git remote -v' lists the named remotes")
    url = _absolute(chosen, base)
    return Remote(name_for(url), url, url)


def find_fetched_remote(repository: Repository, fetched: Git, name: str) -> Remote:
    """Return the remote of a fetched timeline; the repository of fetched timelines stores addresses without a name."""
    config = repository.read_config()
    if last_value(config, f"remote.{name}.url") is not None:
        return _configured(repository, config, name)
    done = fetched.ask("config", "--get", f"remote.{name}.url")
    url = os.fsdecode(done.out).removesuffix("\n")
    if not url:
        raise NoRemote(
            f"there is no longer a remote called '{name}'", hint="run git remote add, then git envlog fetch"
        )
    return Remote(name, url, url)


def pushed_tip(repository: Repository, remote_name: str, timeline: str) -> str | None:
    """Return the commit of an own timeline that the last push sent to a remote, or None.

    After an interrupted push it is unknown which of two tips the remote has; then this is the older one.
    """
    from git_envhist.remote.upload import read_remote_state  # loaded late: only own timelines need it

    state, config = repository.common_state, repository.read_config()
    if last_value(config, f"remote.{remote_name}.url") is not None:
        memory = read_remote_state(state, remote_key(_configured(repository, config, remote_name)))
    else:
        memory = _memory_by_address(state, remote_name)
    tips = [oid for ref, oid in memory.put if ref == TIMELINE_REFS + timeline]
    if not tips:
        return None
    # An octopus of one commit is this commit, if it exists.
    done = repository.git.ask("merge-base", "--octopus", *tips)
    return done.out.decode("ascii").strip() or None if done.status == 0 else None


def _memory_by_address(state: str, remote_name: str) -> RemoteState:
    """Return the stored state of a remote that was given by address."""
    from git_envhist.remote.upload import (  # loaded late: only own timelines need it
        RemoteState,
        read_remote_state,
        remotes_directory,
    )

    with suppress(FileNotFoundError):
        for key in sorted(os.listdir(remotes_directory(state))):
            memory = read_remote_state(state, key)
            if memory.address and name_for(memory.address) == remote_name:
                return memory
    return RemoteState()


def own_config(repository: Repository) -> Config:
    """Return the configuration of this repository alone, without the user's."""
    done = repository.git.ask("config", "--list", "--show-scope", "-z")
    words = os.fsdecode(done.out).split("\0") if done.status == 0 else []
    found = []
    for scope, item in zip(words[::2], words[1::2], strict=False):
        key, newline, value = item.partition("\n")
        if scope in ("local", "worktree"):
            found.append((key, value if newline else None))
    return tuple(found)


def name_for(url: str) -> str:
    """Return a name for a remote given by address: the end of the address, and a hash that makes it unique."""
    url = without_password(url)
    last_part = re.split(r"[/:]", url.rstrip("/").removesuffix("/.git").removesuffix(".git"))[-1]
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", last_part).strip("-.")[:40] or "remote"
    return f"{plain}-{hashlib.sha256(os.fsencode(url)).hexdigest()[:6]}"


def last_value(config: Config, key: str) -> str | None:
    """Return the effective value of a key. git prints section and key in lower case, and a subsection as typed."""
    found = [value for name, value in config if name == key]
    return found[-1] if found else None


def _default_remote(repository: Repository, config: Config) -> str:
    names = sorted({key[len("remote.") : -len(".url")] for key, _ in config if _is_url_key(key)})
    head = repository.git.ask("symbolic-ref", "--quiet", "--short", "HEAD")
    branch = os.fsdecode(head.out).strip()
    configured = last_value(config, f"branch.{branch}.remote") if branch else None
    if configured and configured != ".":
        return configured
    if "origin" in names or len(names) == 1:
        return "origin" if "origin" in names else names[0]
    raise NoRemote(
        "no remote given, and none is configured"
        if not names
        else "there is more than one remote, and none is called 'origin'",
        hint="give a remote or an address, or set a default: git config envhist.remote <remote>",
    )


def _is_url_key(key: str) -> bool:
    return key.startswith("remote.") and key.endswith(".url")


def _configured(repository: Repository, config: Config, name: str) -> Remote:
    if not NAME.fullmatch(name) or ".." in name or name.endswith((".lock", ".")):
        raise UsageError(f"not a usable remote name: '{name}'", hint="git remote rename")
    return Remote(
        name,
        _address_of(repository, name),
        _address_of(repository, name, "--push"),
        last_value(config, f"remote.{name}.receivepack"),
        last_value(config, f"remote.{name}.uploadpack"),
        last_value(config, f"remote.{name}.proxy"),
    )


def _address_of(repository: Repository, name: str, *options: str) -> str:
    # git applies `insteadOf`.
    output = repository.git.run("remote", "get-url", *options, "--", name)
    return _absolute(os.fsdecode(output).split("\n")[0], repository.root)


def _is_address(text: str, base: str) -> bool:
    return bool(URL.match(text) or SCP_LIKE.match(text)) or os.path.isdir(os.path.join(base, text))


def _absolute(url: str, base: str) -> str:
    if URL.match(url) or SCP_LIKE.match(url):
        return url
    return os.path.normpath(os.path.join(base, os.path.expanduser(url)))


class Transport:
    """Run git to send objects to a remote, or to fetch them into one of our repositories."""

    def __init__(
        self,
        git: Git,
        remote: Remote,
        environ: Mapping[str, str],
        config: Config = (),
        *,
        memory: int = 0,
        timeout: float = 0,
        verb: str = "fetch",
        step: Callable[[str], None] | None = None,
    ) -> None:
        """Prepare git for a remote.

        `config` adds connection settings of the user's repository, if `git` works in another one. `memory` limits a
        fetch. `timeout` is the number of seconds without progress after which `verb` fails (0: no timeout). `step` is
        called with progress.
        """
        self.remote = remote
        self._git_dir, self._memory = git.git_dir, memory or FETCH_MEMORY
        self._timeout, self._verb, self._step = timeout or None, verb, step
        self._environment = transport_environment(git, environ, (*config, *credentials_config(remote.url)))
        self._options = [word for pair in self._overrides() for word in ("-c", pair)]

    def _overrides(self) -> list[str]:
        pairs = [
            "push.pushOption=",
            "fetch.prune=false",
            "fetch.recurseSubmodules=false",
            "fetch.writeCommitGraph=false",
            "fetch.fsckObjects=true",
            # Keep one pack: large objects are then streamed instead of read whole into memory.
            "fetch.unpackLimit=1",
        ]
        return [*pairs, f"http.proxy={self.remote.proxy}"] if self.remote.proxy is not None else pairs

    def list_refs(self, *patterns: str, pushed: bool = False) -> list[tuple[str, str]]:
        """Return the (ref, hash) pairs of the remote, or of its push address, unchecked."""
        url = self.remote.push_url if pushed else self.remote.url
        words = [*self._fetching("ls-remote"), "--refs", "--end-of-options", url, *patterns]
        return read_listing(self._run_checked(words).out)

    def push(
        self,
        refspecs: list[str],
        leases: Mapping[str, str],
        extra_environment: Mapping[bytes, bytes],
        before: Sequence[str] = (),
        *,
        atomic: bool = False,
    ) -> GitResult:
        """Push refs; a ref with a lease moves only from that hash (empty: only if it does not exist).

        Nothing else is forced. With `together` all refs move or none; a server without atomic pushes is sent nothing.
        """
        # Progress output shows whether the remote still accepts data.
        words = [*before, *PUSH_COMMAND, "--progress", *(["--atomic"] if atomic else [])]
        words += [f"--force-with-lease={ref}:{old}" for ref, old in leases.items()]
        if self.remote.receive_pack is not None:
            words.append(f"--receive-pack={self.remote.receive_pack}")
        environment = {**self._environment, **extra_environment}
        words = [*words, "--end-of-options", self.remote.push_url, *refspecs]
        return self._run_limited(words, environment, ResourceLimits())

    def fetch_objects(self, oids: list[str]) -> GitResult:
        """Fetch objects by hash, without the objects that they reference."""
        # With negotiation, git would claim to have the contents of every commit that is stored here.
        without_negotiation = ["-c", "fetch.negotiationAlgorithm=noop"]
        return self.fetch(oids, "--filter=blob:none", before=without_negotiation)

    def fetch(self, wanted: list[str], *options: str, before: Sequence[str] = ()) -> GitResult:
        """Fetch refspecs or hashes."""
        # Use the name from our own repository: git accepts no path for a remote that provides objects on demand.
        words = [
            *before,
            *STREAMED,
            *self._fetching("fetch"),
            # Progress output shows whether the remote still responds.
            "--progress",
            "--no-tags",
            "--no-write-fetch-head",
        ]
        words += ["--no-recurse-submodules", "--no-auto-maintenance", *options, "--stdin"]
        text = "".join(f"{one}\n" for one in wanted)
        words += ["--end-of-options", self.remote.name]
        return self._run(words, os.fsencode(text))

    def _report(self, output: bytes) -> None:
        if self._step and (progress := parse_progress(output)):
            self._step(progress)

    def _bounds(self) -> ResourceLimits:
        return limits_for_fetch(self._memory, self._git_dir)

    def _fetching(self, command: str) -> list[str]:
        program = self.remote.upload_pack
        return [command] if program is None else [command, f"--upload-pack={program}"]

    def _run_checked(self, words: list[str]) -> GitResult:
        done = self._run(words)
        if done.status != 0:
            raise fetch_error(self.remote, done)
        return done

    def _run(self, words: list[str], stdin: bytes = b"") -> GitResult:
        return self._run_limited(words, self._environment, self._bounds(), stdin)

    def _run_limited(
        self, words: list[str], environment: Mapping[bytes, bytes], bounds: ResourceLimits, stdin: bytes = b""
    ) -> GitResult:
        words = [*SAFE_COMMAND, *self._options, *words]
        try:
            return run_limited(
                words, environment, bounds, stdin, timeout=self._timeout, on_output=self._report
            )
        except NoOutputTimeout as expired:
            raise no_output_error(self.remote, self._timeout or 0, self._verb) from expired


# Limits of a transfer. The defaults suit the common hosts.

N = TypeVar("N", int, float)
UPLOAD_SIZE = 200_000_000
"""An interrupted push loses at most this many bytes. Common hosts accept packs of up to 2 GB."""
MAX_OBJECT = 100_000_000
"""Common hosts refuse objects of 100 MB, permanently."""
MIN_SIZE = 1 << 16
FETCH_TIMEOUT = 300.0
"""A server that packs objects reports progress; a server that waits for a password does not."""
PUSH_TIMEOUT = 900.0
"""A server may run checks and hooks for a long time without reporting progress."""
SIZES = {
    "envhist.uploadsize": UPLOAD_SIZE,
    "envhist.largestobject": MAX_OBJECT,
    "envhist.fetchmemory": FETCH_MEMORY,
}
DURATIONS = {"envhist.fetchtimeout": FETCH_TIMEOUT, "envhist.pushtimeout": PUSH_TIMEOUT}


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """The configured limits of a transfer."""

    upload_size: int = UPLOAD_SIZE
    largest_object: int = MAX_OBJECT
    fetch_memory: int = FETCH_MEMORY
    fetch_timeout: float = FETCH_TIMEOUT
    """Seconds."""
    push_timeout: float = PUSH_TIMEOUT
    warnings: tuple[str, ...] = ()


def read_limits(config: Config) -> TransferLimits:
    """Return the configured limits; an invalid value adds a warning and the default applies."""
    warnings: list[str] = []
    sizes = []
    for key, size in SIZES.items():
        sizes.append(max(MIN_SIZE, _read(config, key, parse_size, size, "a size", warnings)))
    timeouts = []
    for key, seconds in DURATIONS.items():
        timeouts.append(_read(config, key, parse_duration, seconds, "a duration", warnings))
    upload_size, largest, memory = sizes
    fetches, pushes = timeouts
    return TransferLimits(upload_size, largest, memory, fetches, pushes, tuple(warnings))


def _read(
    config: Config, key: str, parse: Callable[[str], N | None], default: N, kind: str, warnings: list[str]
) -> N:
    text = last_value(config, key)
    value = parse(text) if text is not None else default
    if value is None:
        warnings.append(f"{key} is not {kind}: '{text}'")
    return default if value is None else value
