"""What hosts take in one go, as it is configured; the defaults serve at the common ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from git_envhist.settings import parse_duration, parse_size
from git_envhist.store.asconfigured import Config
from git_envhist.store.bounds import FETCH_MEMORY
from git_envhist.store.remotes import last
from git_envhist.values import dataclass

N = TypeVar("N", int, float)
UPLOAD_SIZE = 200_000_000
"""So much is lost, at most, when a push is broken off. The common hosts take packs of 2 GB."""
LARGEST_OBJECT = 100_000_000
"""The common hosts refuse an object of 100 MB and keep it out for ever."""
SMALLEST = 1 << 16
FETCH_PATIENCE = 300.0
"""A server that packs what nobody has asked for before tells how far it is; one that asks for a password waits, too."""
PUSH_PATIENCE = 900.0
"""What a server does with what it was sent, checks and hooks, takes its time, and it may not tell how far it is."""
SIZES = {
    "envhist.uploadsize": UPLOAD_SIZE,
    "envhist.largestobject": LARGEST_OBJECT,
    "envhist.fetchmemory": FETCH_MEMORY,
}
DURATIONS = {"envhist.fetchpatience": FETCH_PATIENCE, "envhist.pushpatience": PUSH_PATIENCE}


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """How much goes at once."""

    upload_size: int = UPLOAD_SIZE
    largest_object: int = LARGEST_OBJECT
    fetch_memory: int = FETCH_MEMORY
    fetch_patience: float = FETCH_PATIENCE
    """Seconds."""
    push_patience: float = PUSH_PATIENCE
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
