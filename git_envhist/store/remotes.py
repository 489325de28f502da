"""Where a history is shared: which remote is meant, what it is called here, and the git that talks to it.

git itself carries everything, with the user's transport, credentials and proxies. The address is handed over, never
the name of the remote: so nothing that is configured for fetches and pushes of code (`remote.*.push`, `mirror`,
tracking refs) has a part in it, and nothing of it is written.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence

from git_envhist.errors import EnvhistError, UsageError
from git_envhist.model.sharing import Remote, without_password
from git_envhist.store.asconfigured import Config
from git_envhist.store.bounds import FETCH_MEMORY, STREAMED, ResourceLimits, bounds_of_a_fetch
from git_envhist.store.git import COMMAND as SEALED
from git_envhist.store.git import Git, GitResult
from git_envhist.store.held import NoOutputTimeout, parse_progress, run_limited
from git_envhist.store.remoteenviron import environment_of, user_of
from git_envhist.store.remotefailures import says_nothing, why_nothing_came
from git_envhist.store.remoterefs import read_listing
from git_envhist.store.repository import Repository

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
        return bounds_of_a_fetch(self._memory, self._place)

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
            return run_limited(words, environment, bounds, stdin, patience=self._patience, heard=self._heard)
        except NoOutputTimeout as silent:
            raise says_nothing(self.remote, self._patience or 0, self._verb) from silent
