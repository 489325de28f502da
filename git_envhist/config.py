"""Read git's configuration under `envhist.*` once, into a frozen value.

An invalid value gives a warning and the default is used: a typing error in a configuration file must not prevent a
snapshot.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from git_envhist.lazy import dataclass, pattern

GIB = 1 << 30
BUDGET, MAX_SIZE, BIG_FILE = 4 * GIB, 40 * GIB, 8 << 20
MERGE_LIMIT = 64 << 20
KEEP_LAST, KEEP_HOURLY, KEEP_DAILY, KEEP_WEEKLY = 200, 0, 30, 26
HOUR = 3600.0
VERIFY_ON = ("manual",)
KEY_IN = ("both", "home")
TRANSCRIPT_LIMIT = 16 << 20
AGENT_TIMEOUT = 3.0
AGENT_IDLE = 120.0
WATCHER_IDLE = 7200.0
DURATIONS = {"": 1, "s": 1, "m": 60, "h": 3600}
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": GIB, "t": 1 << 40}
SERVICE_VERBS = ("dump", "restore", "stop", "start")
SERVICE_NAME = pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
TRUE = {"true", "yes", "on", "1"}
FALSE = {"false", "no", "off", "0", ""}


@dataclass(frozen=True, slots=True)
class Service:
    """The commands that store and load the state of one server."""

    name: str
    dump: str | None = None
    restore: str | None = None
    stop: str | None = None
    start: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """The user's configuration."""

    enabled: bool = True
    auto_push: bool = False
    """Whether `git push` also pushes the history."""
    remote: str | None = None
    """The remote of the history, if it is not the code's."""
    has_remote: bool = False
    """Whether a remote exists."""
    timeline: str | None = None
    exclude: tuple[str, ...] = ()
    named_only: bool = False
    """True if the environment consists of paths that a program named; only `compat/` sets it.

    `.envhistignore` excludes none of them then, and they may be in a home directory.
    """
    fingerprint: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    roots: tuple[tuple[str, str], ...] = ()
    services: tuple[Service, ...] = ()
    budget: int = BUDGET
    max_size: int = MAX_SIZE
    big_file: int = BIG_FILE
    merge_limit: int = MERGE_LIMIT
    """The size of the largest database that a revert merges by rows, in bytes."""
    cross_mounts: bool = False
    workers: int | None = None
    key_in: str = "both"
    """`both`, or `home` to store keys in the user's configuration only."""
    identity: str | None = None
    """The file of the private key that opens files sealed for this user."""
    verify: str | None = None
    """The default check."""
    verify_on: tuple[str, ...] = VERIFY_ON
    """The triggers of captures that run the check."""
    verify_timeout: float | None = HOUR
    """Seconds after which a check is killed; None: never."""
    agent_every: int = 1
    """Capture before every n-th tool that may change something; 0: only before the first of a turn."""
    agent_timeout: float = AGENT_TIMEOUT
    """Seconds that such a tool waits for the capture before it."""
    agent_idle: float = AGENT_IDLE
    """Seconds for which a process waits for the next tool of an agent; 0: none waits."""
    watcher: bool = False
    """Start the watcher of the working tree with a capture."""
    watcher_idle: float = WATCHER_IDLE
    """Seconds without a capture after which the watcher ends."""
    transcript_limit: int = TRANSCRIPT_LIMIT
    """The size of the newest part of an agent's transcript that a snapshot stores, in bytes; 0: none."""
    keep_last: int = KEEP_LAST
    """Retention: the number of newest snapshots that are kept."""
    keep_hourly: int = KEEP_HOURLY
    keep_daily: int = KEEP_DAILY
    """Retention: the number of days of which the newest snapshot is kept."""
    keep_weekly: int = KEEP_WEEKLY
    platform_list: str | None = None
    """The command that lists the checkpoints of the platform."""
    platform_create: str | None = None
    """The command that makes a checkpoint and prints its id."""
    user_name: str | None = None
    user_email: str | None = None
    filters: tuple[str, ...] = ()
    """The names of the configured `filter.<name>` drivers."""
    warnings: tuple[str, ...] = ()


def read_settings(pairs: Iterable[tuple[str, str | None]]) -> Settings:
    """Return the settings of git's (key, value) pairs; later pairs win, as in git."""
    return _Reader(pairs).settings()


class _Reader:
    """Parse the pairs and collect a warning for each invalid value."""

    def __init__(self, pairs: Iterable[tuple[str, str | None]]) -> None:
        self.all: dict[str, list[str | None]] = {}
        for key, value in pairs:
            self.all.setdefault(key, []).append(value)
        self.warnings: list[str] = []

    def settings(self) -> Settings:
        return Settings(
            enabled=self.boolean("envhist.enabled", True),
            auto_push=self.boolean("envhist.autopush", False),
            remote=self.text("envhist.remote") or None,
            has_remote=any(_is_place(key) and any(self.all[key]) for key in self.all),
            timeline=self.text("envhist.timeline"),
            exclude=self.every("envhist.exclude"),
            fingerprint=self.every("envhist.fingerprint"),
            secret=self.every("envhist.secret"),
            roots=self.named("envhist.root."),
            services=self.services("envhist.service."),
            budget=self.size("envhist.budget", BUDGET),
            transcript_limit=self.size("envhist.transcriptlimit", TRANSCRIPT_LIMIT),
            max_size=self.size("envhist.maxsize", MAX_SIZE),
            big_file=max(1 << 16, self.size("envhist.bigfile", BIG_FILE)),
            merge_limit=self.size("envhist.mergelimit", MERGE_LIMIT),
            cross_mounts=self.boolean("envhist.crossmounts", False),
            workers=self.size("envhist.workers", 0) or None,
            verify=(self.text("envhist.verify") or "").strip() or None,
            identity=self.text("envhist.identity") or None,
            key_in=self.choice("envhist.keyin", KEY_IN),
            verify_on=self.words("envhist.verifyon", VERIFY_ON),
            verify_timeout=self.duration("envhist.verifytimeout", HOUR) or None,
            agent_every=self.size("envhist.agentevery", 1),
            agent_timeout=self.duration("envhist.agenttimeout", AGENT_TIMEOUT),
            watcher=self.boolean("envhist.watcher", False),
            watcher_idle=self.duration("envhist.watcheridle", WATCHER_IDLE) or WATCHER_IDLE,
            agent_idle=self.duration("envhist.agentidle", AGENT_IDLE),
            keep_last=self.size("envhist.keeplast", KEEP_LAST),
            keep_hourly=self.size("envhist.keephourly", KEEP_HOURLY),
            keep_daily=self.size("envhist.keepdaily", KEEP_DAILY),
            keep_weekly=self.size("envhist.keepweekly", KEEP_WEEKLY),
            platform_list=(self.text("envhist.platformlist") or "").strip() or None,
            platform_create=(self.text("envhist.platformcreate") or "").strip() or None,
            user_name=self.text("user.name"),
            user_email=self.text("user.email"),
            filters=tuple(
                sorted({key.split(".", 1)[1].rsplit(".", 1)[0] for key in self.all if _is_filter(key)})
            ),
            warnings=tuple(self.warnings),
        )

    def text(self, key: str) -> str | None:
        values = self.all.get(key)
        return values[-1] if values else None

    def every(self, key: str) -> tuple[str, ...]:
        return tuple(value for value in self.all.get(key, ()) if value)

    def words(self, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Return the words of all values of a key; an empty value means none."""
        if key not in self.all:
            return default
        return tuple(" ".join(value or "" for value in self.all[key]).replace(",", " ").lower().split())

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        """Return one of some words, in lower case; the first is the default."""
        value = (self.text(key) or choices[0]).strip().lower()
        if value not in choices:
            self.warnings.append(f"{key} is not one of {', '.join(choices)}: '{value}'")
            return choices[0]
        return value

    def duration(self, key: str, default: float) -> float:
        value = self.text(key)
        if value is None:
            return default
        seconds = parse_duration(value)
        if seconds is None:
            self.warnings.append(f"{key} is not a duration: '{value}'")
            return default
        return seconds

    def named(self, prefix: str) -> tuple[tuple[str, str], ...]:
        found = {}
        for key, values in self.all.items():
            if key.startswith(prefix) and values[-1]:
                found[key[len(prefix) :]] = values[-1]
        return tuple(sorted(found.items()))

    def services(self, prefix: str) -> tuple[Service, ...]:
        found: dict[str, dict[str, str]] = {}
        for key, command in self.named(prefix):
            name, _, verb = key.rpartition(".")
            if verb not in SERVICE_VERBS or not SERVICE_NAME.fullmatch(name):
                self.warnings.append(f"{prefix}{key} is unknown; expected envhist.service.<name>.dump, …")
                continue
            found.setdefault(name, {})[verb] = command
        return tuple(Service(name, **commands) for name, commands in sorted(found.items()))

    def boolean(self, key: str, default: bool) -> bool:
        if key not in self.all:
            return default
        value = self.all[key][-1]
        if value is None or value.lower() in TRUE:
            return True
        if value.lower() in FALSE:
            return False
        self.warnings.append(f"{key} is neither true nor false: '{value}'")
        return default

    def size(self, key: str, default: int) -> int:
        value = self.text(key)
        if value is None:
            return default
        number = parse_size(value)
        if number is None:
            self.warnings.append(f"{key} is not a size: '{value}'")
            return default
        return number


def parse_size(text: str) -> int | None:
    """Return a number with git's suffixes k, m, g (and t); None if it is none."""
    digits = text.strip().lower().rstrip("kmgt")
    unit = text.strip().lower()[len(digits) :]
    if not digits.isdecimal() or unit not in UNITS:
        return None
    return int(digits) * UNITS[unit]


def parse_duration(text: str) -> float | None:
    """Return the seconds of a number with the suffix s, m or h (`90`, `10m`); None if it is none."""
    plain = text.strip().lower()
    digits = plain.rstrip("smh")
    unit = plain[len(digits) :]
    if not digits.isascii() or not digits.isdecimal() or len(digits) > 9 or unit not in DURATIONS:
        return None
    return float(int(digits) * DURATIONS[unit])


def _is_place(key: str) -> bool:
    return key == "envhist.remote" or (key.startswith("remote.") and key.endswith(".url"))


def _is_filter(key: str) -> bool:
    return key.startswith("filter.") and key.endswith((".clean", ".smudge", ".process"))


def config_home(environ: Mapping[str, str]) -> str:
    """Return the user's configuration directory, by the XDG base directory specification."""
    home = environ.get("HOME") or os.path.expanduser("~")
    configured = environ.get("XDG_CONFIG_HOME", "")
    return configured if configured.startswith("/") else f"{home}/.config"


def data_home(environ: Mapping[str, str]) -> str:
    """Return the user's data directory, by the XDG base directory specification."""
    home = environ.get("HOME") or os.path.expanduser("~")
    configured = environ.get("XDG_DATA_HOME", "")
    return configured if configured.startswith("/") else f"{home}/.local/share"
