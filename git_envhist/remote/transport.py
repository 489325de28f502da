"""Run git against a remote."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence

from git_envhist.git.limits import (
    FETCH_MEMORY,
    STREAMED,
    NoOutputTimeout,
    ResourceLimits,
    limits_for_fetch,
    parse_progress,
    run_limited,
)
from git_envhist.git.list_config import Config
from git_envhist.git.process import COMMAND as SAFE_COMMAND
from git_envhist.git.process import Git, GitResult
from git_envhist.model.sharing import Remote, without_password
from git_envhist.remote.errors import fetch_error, no_output_error
from git_envhist.remote.push_plan import read_listing

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


# Hooks and push settings of the user are for code, and do not apply to a push of the history.
PUSH_COMMAND = (
    "push",
    "--no-verify",
    "--porcelain",
    "--no-follow-tags",
    "--recurse-submodules=no",
    "--no-signed",
)


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
