"""git's configuration under `envhist.*`, read once into a frozen value.

A value that cannot be read costs a warning and leaves the default in force: no typing slip in a configuration file
may cost a snapshot.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from git_envhist.lazy import dataclass, pattern

GIB = 1 << 30
BUDGET, MAX_SIZE, BIG_FILE = 4 * GIB, 40 * GIB, 8 << 20
KEEP_LAST, KEEP_HOURLY, KEEP_DAILY, KEEP_WEEKLY = 200, 0, 30, 26
HOUR = 3600.0
VERIFY_ON = ("manual",)
KEY_IN = ("both", "home")
TRANSCRIPT_LIMIT = 16 << 20
AGENT_WAIT = 3.0
DURATIONS = {"": 1, "s": 1, "m": 60, "h": 3600}
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": GIB, "t": 1 << 40}
SERVICE_VERBS = ("dump", "restore", "stop", "start")
SERVICE_NAME = pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
TRUE = {"true", "yes", "on", "1"}
FALSE = {"false", "no", "off", "0", ""}


@dataclass(frozen=True, slots=True)
class Service:
    """How the state of a server is taken along: commands of the user's own."""

    name: str
    dump: str | None = None
    restore: str | None = None
    stop: str | None = None
    start: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user configured; the defaults serve."""

    enabled: bool = True
    auto_push: bool = False
    """Whether the history is pushed along with `git push`."""
    remote: str | None = None
    """Where the history goes, if not where the code goes."""
    has_remote: bool = False
    """Whether there is a place to push to and fetch from."""
    timeline: str | None = None
    exclude: tuple[str, ...] = ()
    named_only: bool = False
    """The environment is a few paths that a program named: `.envhistignore` leaves none of them out, and they may lie
    in a home directory. Only `compat/` sets it."""
    fingerprint: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    roots: tuple[tuple[str, str], ...] = ()
    services: tuple[Service, ...] = ()
    budget: int = BUDGET
    max_size: int = MAX_SIZE
    big_file: int = BIG_FILE
    cross_mounts: bool = False
    workers: int | None = None
    key_in: str = "both"
    """Where keys are kept: `both`, or `home`, the user's configuration alone."""
    identity: str | None = None
    """The file of the private key that opens what others sealed for this user."""
    verify: str | None = None
    """The check that runs where none is given."""
    verify_on: tuple[str, ...] = VERIFY_ON
    """The triggers of the captures that run it."""
    verify_timeout: float | None = HOUR
    """Seconds after which a check is ended; None: never."""
    agent_every: int = 1
    """Before every n-th tool that may change something a capture is taken; 0: before the first of a turn alone."""
    agent_wait: float = AGENT_WAIT
    """Seconds that such a tool may be held until the capture before it is done."""
    transcript_limit: int = TRANSCRIPT_LIMIT
    """Bytes of an agent's transcript that a snapshot keeps, the newest ones; 0: none."""
    keep_last: int = KEEP_LAST
    """Retention: so many of the newest moments, …"""
    keep_hourly: int = KEEP_HOURLY
    keep_daily: int = KEEP_DAILY
    """… and of so many days the newest each."""
    keep_weekly: int = KEEP_WEEKLY
    platform_list: str | None = None
    """Tells the checkpoints of the platform below us."""
    platform_create: str | None = None
    """Makes one, and says its id."""
    user_name: str | None = None
    user_email: str | None = None
    filters: tuple[str, ...] = ()
    """The names of the `filter.<name>` drivers that are configured."""
    warnings: tuple[str, ...] = ()


def read_settings(pairs: Iterable[tuple[str, str | None]]) -> Settings:
    """The settings that a list of git's (key, value) pairs makes; later pairs win, as in git."""
    return _Reader(pairs).settings()


class _Reader:
    """Takes the pairs apart; keeps a warning for each value that makes no sense."""

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
            cross_mounts=self.boolean("envhist.crossmounts", False),
            workers=self.size("envhist.workers", 0) or None,
            verify=(self.text("envhist.verify") or "").strip() or None,
            identity=self.text("envhist.identity") or None,
            key_in=self.choice("envhist.keyin", KEY_IN),
            verify_on=self.words("envhist.verifyon", VERIFY_ON),
            verify_timeout=self.duration("envhist.verifytimeout", HOUR) or None,
            agent_every=self.size("envhist.agentevery", 1),
            agent_wait=self.duration("envhist.agentwait", AGENT_WAIT),
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
        """Words of one value, or of several; an empty one stands for none."""
        if key not in self.all:
            return default
        return tuple(" ".join(value or "" for value in self.all[key]).replace(",", " ").lower().split())

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        """One of some words, in lower case; the first is the default."""
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
                self.warnings.append(f"{prefix}{key} is not understood: envhist.service.<name>.dump, …")
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
    """A number with git's suffixes k, m, g (and t), or None."""
    digits = text.strip().lower().rstrip("kmgt")
    unit = text.strip().lower()[len(digits) :]
    if not digits.isdecimal() or unit not in UNITS:
        return None
    return int(digits) * UNITS[unit]


def parse_duration(text: str) -> float | None:
    """Seconds: a number with s, m or h behind it (`90`, `10m`), or None."""
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
    """The directory of the user's configuration, as the XDG base directories have it."""
    home = environ.get("HOME") or os.path.expanduser("~")
    configured = environ.get("XDG_CONFIG_HOME", "")
    return configured if configured.startswith("/") else f"{home}/.config"


def data_home(environ: Mapping[str, str]) -> str:
    """The directory of the user's data, as the XDG base directories have it."""
    home = environ.get("HOME") or os.path.expanduser("~")
    configured = environ.get("XDG_DATA_HOME", "")
    return configured if configured.startswith("/") else f"{home}/.local/share"
