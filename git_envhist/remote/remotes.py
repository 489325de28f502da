"""Where a history is shared: which remote is meant, what it is called here, and the git that talks to it.

git itself carries everything, with the user's transport, credentials and proxies. The address is handed over, never
the name of the remote: so nothing that is configured for fetches and pushes of code (`remote.*.push`, `mirror`,
tracking refs) has a part in it, and nothing of it is written.
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
from git_envhist.git.process import COMMAND as SEALED
from git_envhist.git.process import Git, GitResult
from git_envhist.git.repository import TIMELINE_REFS, Repository
from git_envhist.lazy import dataclass
from git_envhist.model.storage import PushOutcome, RefPush, Remote, TimelinePush, without_password
from git_envhist.remote.errors import says_nothing, why_nothing_came

if TYPE_CHECKING:
    from git_envhist.remote.upload import RemoteState

# The environment of a git that talks to a remote: the user's transport settings, and the user of an address.
#
# An address may hold a password. It is in no file of ours and in no message; git is told in its environment.

TRANSPORT = re.compile(r"(?:http|credential|url|protocol|ssh)\.|core\.(?:sshcommand|askpass|gitproxy)$")
"""What the configuration of one repository says of how others are reached."""


def environment_of(git: Git, environ: Mapping[str, str], config: Config) -> dict[bytes, bytes]:
    environment = dict(git.environment)
    # Elsewhere nothing may go out on the network; here the user's own rules hold, or git's.
    for name in ("GIT_ALLOW_PROTOCOL", "GIT_TERMINAL_PROMPT"):
        environment.pop(name.encode(), None)
        if name in environ:
            environment[name.encode()] = os.fsencode(environ[name])
    words = [
        # A git before 2.31 reads the first form alone, which has no "=" in the key.
        _quoted(f"{key}={value}") if "=" not in key else f"{_quoted(key)}={_quoted(value)}"
        for key, value in config
        if value is not None and TRANSPORT.match(key)
    ]
    if words:
        before = os.fsdecode(environment.get(b"GIT_CONFIG_PARAMETERS", b""))
        environment[b"GIT_CONFIG_PARAMETERS"] = os.fsencode(f"{' '.join(words)} {before}".strip())
    return environment


def user_of(url: str) -> Config:
    """Return the configuration that gives an address its user and password again, which our files do not hold."""
    shown = without_password(url)
    return ((f"url.{url}.insteadOf", shown),) if url != shown else ()


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''").replace("!", "'\\!'") + "'"


# What a push moves at the other side, and how (pure): forward, by lease where we rewrote our own, else not at all.
#
# Names come from the other side: a ref that is not spelled as ours are is passed over, and counted.

REMOTEREFS_HEADS, NOTES, UPLOAD = "refs/envhist/heads/", "refs/notes/envhist/", "refs/envhist/upload/"
_WORD = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
TIMELINE = re.compile(rf"{_WORD}/{_WORD}")
MAX_REFS = 100_000


def read_listing(out: bytes) -> list[tuple[str, str]]:
    """The lines of `git ls-remote`; what is no such line is passed over."""
    found = []
    for line in out.split(b"\n"):
        oid, tab, ref = line.partition(b"\t")
        if tab and re.fullmatch(rb"[0-9a-f]{40}|[0-9a-f]{64}", oid):
            found.append((os.fsdecode(ref), oid.decode("ascii")))
    return found


@dataclass(frozen=True, slots=True)
class RemoteRefs:
    """What the other side told of its refs, as far as it is believed."""

    heads: Mapping[str, str]
    """timeline -> hash"""
    notes: Mapping[str, str]
    uploads: Mapping[str, str]
    """ref -> hash: what pushes of whoever left."""
    code: tuple[str, ...] = ()
    refused: int = 0
    """So many refs were not spelled as any of ours."""

    @property
    def all(self) -> tuple[str, ...]:
        """The hashes that the other side has."""
        return (*self.heads.values(), *self.notes.values(), *self.uploads.values(), *self.code)


def is_timeline(name: str) -> bool:
    """Whether a word is spelled as the names of timelines are."""
    bad = ".." in name or name.endswith((".lock", ".")) or ".lock/" in name or "./" in name
    return TIMELINE.fullmatch(name) is not None and not bad


def read_there(listed: Iterable[tuple[str, str]]) -> RemoteRefs:
    """The refs of the other side, sorted; whatever is odd is passed over."""
    heads: dict[str, str] = {}
    notes: dict[str, str] = {}
    uploads: dict[str, str] = {}
    code: list[str] = []
    refused = 0
    for number, (ref, oid) in enumerate(listed):
        if number >= MAX_REFS:
            refused += 1
        elif ref.startswith(REMOTEREFS_HEADS) and is_timeline(ref[len(REMOTEREFS_HEADS) :]):
            heads[ref[len(REMOTEREFS_HEADS) :]] = oid
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
    """One timeline of ours."""

    timeline: str
    head: str
    notes: str | None


def plan_push(
    here: Iterable[LocalTimeline],
    there: RemoteRefs,
    ours: Mapping[str, str],
    grows: Mapping[tuple[str, str], bool],
) -> tuple[TimelinePush, ...]:
    """What is to be pushed. `ours`: what we put there last, by ref; `grows`: whether one hash leads on to another."""
    return tuple(_plan_one(one, there, ours, grows) for one in here)


def questions(here: Iterable[LocalTimeline], there: RemoteRefs) -> set[tuple[str, str]]:
    """The (old, new) for which `plan_push` has to know whether the one leads to the other."""
    pairs = set()
    for one in here:
        told = ((there.heads.get(one.timeline), one.head), (there.notes.get(one.timeline), one.notes))
        pairs |= {(old, new) for old, new in told if old is not None and new is not None and old != new}
    return pairs


def plan_deletion(timelines: Iterable[str], there: RemoteRefs) -> tuple[TimelinePush, ...]:
    """Timelines that shall be there no longer."""
    found = []
    for timeline in timelines:
        places = ((REMOTEREFS_HEADS, there.heads.get(timeline)), (NOTES, there.notes.get(timeline)))
        moves = tuple(RefPush(place + timeline, old, None) for place, old in places if old is not None)
        found.append(TimelinePush(timeline, PushOutcome.DELETED if moves else PushOutcome.SAME, moves))
    return tuple(found)


def update_order(moves: Iterable[RefPush]) -> list[list[RefPush]]:
    """The order for a server that moves refs one by one: notes before what they are about, and removed after it."""
    known = list(moves)
    turns = [
        [move for move in known if move.new is not None and move.ref.startswith(NOTES)],
        [move for move in known if not move.ref.startswith(NOTES)],
        [move for move in known if move.new is None and move.ref.startswith(NOTES)],
    ]
    return [turn for turn in turns if turn]


def _plan_one(
    one: LocalTimeline, there: RemoteRefs, ours: Mapping[str, str], grows: Mapping[tuple[str, str], bool]
) -> TimelinePush:
    moves, outcomes = [], []
    for ref, old, new in (
        (REMOTEREFS_HEADS + one.timeline, there.heads.get(one.timeline), one.head),
        (NOTES + one.timeline, there.notes.get(one.timeline), one.notes),
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
# A push that was asked for pushes what was asked for.
PUSH = (
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
    """It is not known where the history shall go."""

    code = "no-remote"


def key_of(remote: Remote) -> str:
    """Names a remote in our own files: another address is another remote; a password is no part of it."""
    return hashlib.sha256(os.fsencode(without_password(remote.push_url))).hexdigest()[:16]


def find_remote(repository: Repository, word: str | None, directory: str) -> Remote:
    """The remote that a word means; without one `envhist.remote`, else what `git fetch` would take."""
    config = repository.read_config()
    typed = word is not None
    chosen = word if word is not None else last(config, "envhist.remote") or _usual(repository, config)
    if not chosen or chosen.startswith("-"):
        raise UsageError(f"not a remote: '{chosen}'", hint="'git remote -v' lists those that have a name")
    if last(config, f"remote.{chosen}.url") is not None:
        return _configured(repository, config, chosen)
    base = os.path.abspath(directory) if typed else repository.root
    if not _is_address(chosen, base):
        raise NoRemote(f"no remote is called '{chosen}'", hint="'git remote -v' lists those that have a name")
    url = _absolute(chosen, base)
    return Remote(name_for(url), url, url)


def find_fetched_remote(repository: Repository, fetched: Git, name: str) -> Remote:
    """The remote that something was fetched from; the repository of what was fetched remembers those without a name."""
    config = repository.read_config()
    if last(config, f"remote.{name}.url") is not None:
        return _configured(repository, config, name)
    done = fetched.ask("config", "--get", f"remote.{name}.url")
    url = os.fsdecode(done.out).removesuffix("\n")
    if not url:
        raise NoRemote(
            f"no remote is called '{name}' any more", hint="git remote add, and then git envlog fetch"
        )
    return Remote(name, url, url)


def pushed_tip(repository: Repository, remote_name: str, timeline: str) -> str | None:
    """Return the commit that the last push left at a remote as the tip of an own timeline; None where there is none.

    After an interrupted push the remote may have the tip before it; the older of the two is there in any case.
    """
    from git_envhist.remote.upload import read_memory  # loaded late: only own timelines need it

    state, config = repository.common_state, repository.read_config()
    if last(config, f"remote.{remote_name}.url") is not None:
        memory = read_memory(state, key_of(_configured(repository, config, remote_name)))
    else:
        memory = _memory_by_address(state, remote_name)
    tips = [oid for ref, oid in memory.put if ref == TIMELINE_REFS + timeline]
    if not tips:
        return None
    # An octopus of one commit is this commit, if it exists.
    done = repository.git.ask("merge-base", "--octopus", *tips)
    return done.out.decode("ascii").strip() or None if done.status == 0 else None


def _memory_by_address(state: str, remote_name: str) -> RemoteState:
    """Return what is remembered of a remote that was given by address."""
    from git_envhist.remote.upload import (  # loaded late: only own timelines need it
        RemoteState,
        directory_of,
        read_memory,
    )

    with suppress(FileNotFoundError):
        for key in sorted(os.listdir(directory_of(state))):
            memory = read_memory(state, key)
            if memory.address and name_for(memory.address) == remote_name:
                return memory
    return RemoteState()


def own_config(repository: Repository) -> Config:
    """What the configuration of this one repository says, and no other's."""
    done = repository.git.ask("config", "--list", "--show-scope", "-z")
    words = os.fsdecode(done.out).split("\0") if done.status == 0 else []
    found = []
    for scope, item in zip(words[::2], words[1::2], strict=False):
        key, newline, value = item.partition("\n")
        if scope in ("local", "worktree"):
            found.append((key, value if newline else None))
    return tuple(found)


def name_for(url: str) -> str:
    """What a remote without a name is called: the end of its address, told apart from others that end so."""
    url = without_password(url)
    last_part = re.split(r"[/:]", url.rstrip("/").removesuffix("/.git").removesuffix(".git"))[-1]
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", last_part).strip("-.")[:40] or "remote"
    return f"{plain}-{hashlib.sha256(os.fsencode(url)).hexdigest()[:6]}"


def last(config: Config, key: str) -> str | None:
    """The value that holds; git tells section and key in lower case, and the name between as it was typed."""
    found = [value for name, value in config if name == key]
    return found[-1] if found else None


def _usual(repository: Repository, config: Config) -> str:
    names = sorted({key[len("remote.") : -len(".url")] for key, _ in config if _is_url_key(key)})
    head = repository.git.ask("symbolic-ref", "--quiet", "--short", "HEAD")
    branch = os.fsdecode(head.out).strip()
    configured = last(config, f"branch.{branch}.remote") if branch else None
    if configured and configured != ".":
        return configured
    if "origin" in names or len(names) == 1:
        return "origin" if "origin" in names else names[0]
    raise NoRemote(
        "no remote is named, and none is configured here"
        if not names
        else "there is more than one remote, and none is called 'origin'",
        hint="a name or an address behind 'push' or 'fetch', or for good: git config envhist.remote <remote>",
    )


def _is_url_key(key: str) -> bool:
    return key.startswith("remote.") and key.endswith(".url")


def _configured(repository: Repository, config: Config, name: str) -> Remote:
    if not NAME.fullmatch(name) or ".." in name or name.endswith((".lock", ".")):
        raise UsageError(f"not usable as the name of a remote: '{name}'", hint="git remote rename")
    return Remote(
        name,
        _address_of(repository, name),
        _address_of(repository, name, "--push"),
        last(config, f"remote.{name}.receivepack"),
        last(config, f"remote.{name}.uploadpack"),
        last(config, f"remote.{name}.proxy"),
    )


def _address_of(repository: Repository, name: str, *options: str) -> str:
    # `insteadOf` is git's to apply.
    told = repository.git.run("remote", "get-url", *options, "--", name)
    return _absolute(os.fsdecode(told).split("\n")[0], repository.root)


def _is_address(text: str, base: str) -> bool:
    return bool(URL.match(text) or SCP_LIKE.match(text)) or os.path.isdir(os.path.join(base, text))


def _absolute(url: str, base: str) -> str:
    if URL.match(url) or SCP_LIKE.match(url):
        return url
    return os.path.normpath(os.path.join(base, os.path.expanduser(url)))


class Transport:
    """git, on its way to another repository; its objects come from, or go to, a repository of ours."""

    def __init__(
        self,
        git: Git,
        remote: Remote,
        environ: Mapping[str, str],
        config: Config = (),
        *,
        memory: int = 0,
        patience: float = 0,
        verb: str = "fetch",
        step: Callable[[str], None] | None = None,
    ) -> None:
        """`config`: what a repository of the user's says of the way, where `git` is bound to another one.

        Of a fetch `memory`: how much it may take; else the usual. `patience`: so many seconds nothing may be heard of
        what is done (`verb`: a push, a fetch); else as long as it likes. `step`: told how far it is.
        """
        self.remote = remote
        self._place, self._memory = git.git_dir, memory or FETCH_MEMORY
        self._patience, self._verb, self._step = patience or None, verb, step
        self._environment = environment_of(git, environ, (*config, *user_of(remote.url)))
        self._options = [word for pair in self._overrides() for word in ("-c", pair)]

    def _overrides(self) -> list[str]:
        pairs = [
            "push.pushOption=",
            "fetch.prune=false",
            "fetch.recurseSubmodules=false",
            "fetch.writeCommitGraph=false",
            "fetch.fsckObjects=true",
            # As one pack: what is large goes by, and is never held as a whole.
            "fetch.unpackLimit=1",
        ]
        return [*pairs, f"http.proxy={self.remote.proxy}"] if self.remote.proxy is not None else pairs

    def list_refs(self, *patterns: str, pushed: bool = False) -> list[tuple[str, str]]:
        """(ref, hash) of what stands there, or where a push goes to, as it is told: nothing of it is believed yet."""
        url = self.remote.push_url if pushed else self.remote.url
        words = [*self._fetching("ls-remote"), "--refs", "--end-of-options", url, *patterns]
        return read_listing(self._must(words).out)

    def push(
        self,
        refspecs: list[str],
        leases: Mapping[str, str],
        further: Mapping[bytes, bytes],
        before: Sequence[str] = (),
        *,
        together: bool = False,
    ) -> GitResult:
        """Push; each ref that has a lease moves only from that hash (empty: from nothing). Nothing else is forced.

        `together`: all of the refs move, or none; a server that offers no such thing is sent nothing.
        """
        # By how far it is, told whenever something goes, who takes nothing any more is known.
        words = [*before, *PUSH, "--progress", *(["--atomic"] if together else [])]
        words += [f"--force-with-lease={ref}:{old}" for ref, old in leases.items()]
        if self.remote.receive_pack is not None:
            words.append(f"--receive-pack={self.remote.receive_pack}")
        environment = {**self._environment, **further}
        words = [*words, "--end-of-options", self.remote.push_url, *refspecs]
        return self._held(words, environment, ResourceLimits())

    def fetch_objects(self, oids: list[str]) -> GitResult:
        """Fetch objects by their hashes, and nothing that belongs to them."""
        # Who tells that a commit is here is taken to have its contents too.
        telling_nothing = ["-c", "fetch.negotiationAlgorithm=noop"]
        return self.fetch(oids, "--filter=blob:none", before=telling_nothing)

    def fetch(self, wanted: list[str], *options: str, before: Sequence[str] = ()) -> GitResult:
        """Fetch what some refspecs name."""
        # By its name in a repository of ours: git takes no path for the name of one that gives objects on demand.
        words = [
            *before,
            *STREAMED,
            *self._fetching("fetch"),
            # Not quiet: by how far it is, told whenever something comes, who says nothing is known.
            "--progress",
            "--no-tags",
            "--no-write-fetch-head",
        ]
        words += ["--no-recurse-submodules", "--no-auto-maintenance", *options, "--stdin"]
        text = "".join(f"{one}\n" for one in wanted)
        words += ["--end-of-options", self.remote.name]
        return self._run(words, os.fsencode(text))

    def _heard(self, said: bytes) -> None:
        if self._step and (told := parse_progress(said)):
            self._step(told)

    def _bounds(self) -> ResourceLimits:
        return limits_for_fetch(self._memory, self._place)

    def _fetching(self, command: str) -> list[str]:
        program = self.remote.upload_pack
        return [command] if program is None else [command, f"--upload-pack={program}"]

    def _must(self, words: list[str]) -> GitResult:
        done = self._run(words)
        if done.status != 0:
            raise why_nothing_came(self.remote, done)
        return done

    def _run(self, words: list[str], stdin: bytes = b"") -> GitResult:
        return self._held(words, self._environment, self._bounds(), stdin)

    def _held(
        self, words: list[str], environment: Mapping[bytes, bytes], bounds: ResourceLimits, stdin: bytes = b""
    ) -> GitResult:
        words = [*SEALED, *self._options, *words]
        try:
            return run_limited(
                words, environment, bounds, stdin, timeout=self._patience, on_output=self._heard
            )
        except NoOutputTimeout as silent:
            raise says_nothing(self.remote, self._patience or 0, self._verb) from silent


# What hosts take in one go, as it is configured; the defaults serve at the common ones.

N = TypeVar("N", int, float)
UPLOAD_SIZE = 200_000_000
"""So much is lost, at most, when a push is broken off. The common hosts take packs of 2 GB."""
MAX_OBJECT = 100_000_000
"""The common hosts refuse an object of 100 MB and keep it out for ever."""
SMALLEST = 1 << 16
FETCH_TIMEOUT = 300.0
"""A server that packs what nobody has asked for before tells how far it is; one that asks for a password waits, too."""
PUSH_TIMEOUT = 900.0
"""What a server does with what it was sent, checks and hooks, takes its time, and it may not tell how far it is."""
SIZES = {
    "envhist.uploadsize": UPLOAD_SIZE,
    "envhist.largestobject": MAX_OBJECT,
    "envhist.fetchmemory": FETCH_MEMORY,
}
DURATIONS = {"envhist.fetchtimeout": FETCH_TIMEOUT, "envhist.pushtimeout": PUSH_TIMEOUT}


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """How much goes at once."""

    upload_size: int = UPLOAD_SIZE
    largest_object: int = MAX_OBJECT
    fetch_memory: int = FETCH_MEMORY
    fetch_timeout: float = FETCH_TIMEOUT
    """Seconds."""
    push_timeout: float = PUSH_TIMEOUT
    warnings: tuple[str, ...] = ()


def read_limits(config: Config) -> TransferLimits:
    """The limits that hold; what makes no sense is told, and the default stays."""
    warnings: list[str] = []
    sizes = []
    for key, size in SIZES.items():
        sizes.append(max(SMALLEST, _read(config, key, parse_size, size, "a size", warnings)))
    waits = []
    for key, seconds in DURATIONS.items():
        waits.append(_read(config, key, parse_duration, seconds, "a duration", warnings))
    upload_size, largest, memory = sizes
    fetches, pushes = waits
    return TransferLimits(upload_size, largest, memory, fetches, pushes, tuple(warnings))


def _read(
    config: Config, key: str, parse: Callable[[str], N | None], default: N, kind: str, warnings: list[str]
) -> N:
    text = last(config, key)
    value = parse(text) if text is not None else default
    if value is None:
        warnings.append(f"{key} is not {kind}: '{text}'")
    return default if value is None else value
