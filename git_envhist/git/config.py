"""Who takes a snapshot, and when: git's identity where there is one, and something true where there is none."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo

from git_envhist.config import Settings
from git_envhist.errors import Damaged, EnvhistError, GitFailed
from git_envhist.git.process import SAFE_GIT, Git, GitResult, spawn
from git_envhist.lazy import replace
from git_envhist.model import Actor, AgentName

# The zone of this machine with its whole past: what `10:27` last month was, before the clock was set.

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


class LocalZone(tzinfo):
    """The zone that TZ or the system sets; the offset of each moment is that moment's own, not today's."""

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return None if dt is None else _offset_at(dt)

    def dst(self, dt: datetime | None) -> timedelta | None:
        return None

    def tzname(self, dt: datetime | None) -> str | None:
        return None if dt is None else _as_local(dt).tzname()

    def fromutc(self, dt: datetime) -> datetime:
        local = _told(dt.replace(tzinfo=UTC))
        wall = local.replace(tzinfo=self, fold=0)
        # In the hour that the clock shows twice the first reading has another offset than the second.
        return wall if self.utcoffset(wall) == local.utcoffset() else wall.replace(fold=1)


def _offset_at(dt: datetime) -> timedelta:
    """How far the clock is ahead of UTC when it shows this; where it skips that, by the fold, before or after the jump.

    What `astimezone` says of a time that is skipped differs between versions of Python.
    """
    wall = dt.replace(tzinfo=None, microsecond=0)
    try:
        offset = wall.replace(tzinfo=UTC) - (EPOCH + timedelta(seconds=int(wall.timestamp())))
    except (ValueError, OverflowError, OSError):
        return timedelta(0)
    return offset if abs(offset) < DAY else timedelta(0)


def _as_local(wall: datetime) -> datetime:
    return _told(wall.replace(tzinfo=None))


def _told(moment: datetime) -> datetime:
    try:
        return moment.astimezone()
    except ValueError:
        # TZ may set a zone that is a day or more away, as no place is.
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


# What git itself strips from a name or an address: it would end them too early.
CRUD = str.maketrans("", "", "<>\n\r\0")


EDGES = " .,:;\"\\'" + "".join(map(chr, range(32)))


def identity_line(name: str, email: str, at: datetime) -> bytes:
    """An author line that git's fsck accepts, whatever the name holds."""
    offset = int((at.utcoffset() or timedelta()).total_seconds()) // 60
    sign, minutes = "-" if offset < 0 else "+", abs(offset)
    clean_name, clean_email = (text.translate(CRUD).strip(EDGES) for text in (name, email))
    text = f"{clean_name or 'unknown'} <{clean_email}> {int(at.timestamp())} {sign}{minutes // 60:02}{minutes % 60:02}"
    return text.encode("utf-8", "surrogateescape")


def moment_of(identity: bytes) -> datetime:
    """The moment at the end of an author line."""
    try:
        seconds, offset = identity.rsplit(b"> ", 1)[1].split(b" ")
        minutes = int(offset[1:3]) * 60 + int(offset[3:5])
        zone = (
            timezone(timedelta(minutes=-minutes if offset.startswith(b"-") else minutes)) if minutes else UTC
        )
        return datetime.fromtimestamp(int(seconds), zone)
    except (IndexError, ValueError, OverflowError, OSError):
        raise Damaged("a commit has no moment that can be read") from None


DATE = "GIT_COMMITTER_DATE"
AGENT, AGENT_VERSION = "GIT_ENVHIST_AGENT", "GIT_ENVHIST_AGENT_VERSION"
"""The agent in whose name a program of ours is run."""
AGENT_SESSION, AGENT_DEFINITION = "GIT_ENVHIST_AGENT_SESSION", "GIT_ENVHIST_AGENT_DEFINITION"


def current_actor(settings: Settings, environ: Mapping[str, str]) -> Actor:
    """The person in front of this machine, as git would name them."""
    name = environ.get("GIT_COMMITTER_NAME") or settings.user_name
    email = environ.get("GIT_COMMITTER_EMAIL") or settings.user_email or environ.get("EMAIL")
    person = Actor(name or _login(environ), email or f"{_login(environ)}@{os.uname().nodename}")
    if not environ.get(AGENT):
        return person
    version, session = environ.get(AGENT_VERSION) or None, environ.get(AGENT_SESSION) or None
    return replace(person, agent=environ[AGENT], agent_version=version, session=session)


def agent_of(environ: Mapping[str, str]) -> AgentName | None:
    """The agent in whose name we are run; None where a person does."""
    if not environ.get(AGENT):
        return None
    told = [environ.get(name) or None for name in (AGENT_VERSION, AGENT_SESSION, AGENT_DEFINITION)]
    return AgentName(environ[AGENT], *told)


def agent_variables(agent: AgentName) -> dict[str, str]:
    """The same, as variables."""
    told = {
        AGENT: agent.name,
        AGENT_VERSION: agent.version,
        AGENT_SESSION: agent.session,
        AGENT_DEFINITION: agent.definition,
    }
    return {name: value or "" for name, value in told.items()}


def _login(environ: Mapping[str, str]) -> str:
    if told := environ.get("LOGNAME") or environ.get("USER"):
        return told
    import pwd  # loaded late: a login sets one of the two

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid{os.getuid()}"


def current_time(git: Git, environ: Mapping[str, str]) -> datetime:
    """Now, or the moment that GIT_COMMITTER_DATE sets, in whatever spelling git takes there."""
    told = environ.get(DATE)
    if not told:
        return datetime.fromtimestamp(int(time.time()), LocalZone())
    identity = {
        b"GIT_COMMITTER_NAME": b"x",
        b"GIT_COMMITTER_EMAIL": b"x",
        DATE.encode("ascii"): os.fsencode(told),
    }
    done = git.try_run("var", "GIT_COMMITTER_IDENT", environment=identity)
    if done.status != 0:
        raise EnvhistError(
            f"{DATE} is no date: '{told}'", hint="git's own formats serve, e.g. 2026-11-18T10:27:00"
        )
    return moment_of(done.out.strip())


def signature(actor: Actor, at: datetime) -> bytes:
    """The author line of a snapshot."""
    return identity_line(actor.name, actor.email, at)


SHOW_SOURCES = ("config", "--list", "-z", "--show-scope", "--show-origin")
"""Each item follows its scope and its file."""


# git's configuration as git lists it.

Config = tuple[tuple[str, str | None], ...]
FILE = b"file:"
SHARED = "core.sharedrepository"
PRIVATE, GROUP, EVERYBODY = 0, 0o660, 0o664
WORDS = {
    **dict.fromkeys(("group", "true", "yes", "on", "1"), GROUP),
    **dict.fromkeys(("all", "world", "everybody", "2"), EVERYBODY),
}


def parse_config(done: GitResult, words: int = 1) -> Config:
    """The pairs; `words`: how many each of them takes, the last of which it is."""
    if done.status != 0:
        raise GitFailed(done.complaint)
    pairs = []
    for item in done.out.split(b"\0")[words - 1 :: words]:
        if item:
            key, newline, value = item.partition(b"\n")
            text = os.fsdecode(value) if newline else None
            pairs.append((os.fsdecode(key), text))
    return tuple(pairs)


def list_config(environment: Mapping[bytes, bytes], root: str) -> tuple[Config, tuple[str, ...]]:
    """The configuration that is in force now, and the files that it stands in."""
    # Without our own overrides: they would be listed as the user's.
    done = spawn([*SAFE_GIT, *SHOW_SOURCES], environment)
    pairs, sources = parse_config(done, 3), set(done.out.split(b"\0")[1::3])
    files = sorted(os.fsdecode(one[len(FILE) :]) for one in sources if one.startswith(FILE))
    return pairs, tuple(os.path.join(root, one) for one in files)


def shared_bits(pairs: Config) -> int:
    """Return the permissions that `core.sharedRepository` gives to the files of a repository; 0 gives none."""
    value: str | None = ""
    for key, told in pairs:
        if key == SHARED:
            value = told
    if value is None:
        return GROUP  # the key alone stands for true
    word = value.lower()
    if word in WORDS:
        return WORDS[word]
    bits = int(word, 8) & 0o666 if word.isdigit() and not set(word) & set("89") else 0
    return bits if bits & 0o600 == 0o600 else PRIVATE
