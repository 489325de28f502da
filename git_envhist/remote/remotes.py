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
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from git_envhist.config import parse_duration, parse_size
from git_envhist.errors import EnvhistError, UsageError
from git_envhist.git.limits import (
    FETCH_MEMORY,
)
from git_envhist.git.list_config import Config
from git_envhist.git.process import Git
from git_envhist.git.repository import TIMELINE_REFS, Repository
from git_envhist.lazy import dataclass
from git_envhist.model.sharing import Remote, without_password

if TYPE_CHECKING:
    from git_envhist.remote.upload import RemoteState


URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?://|:)")
SCP_LIKE = re.compile(r"[^/:]+:(?!:)")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*")
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
