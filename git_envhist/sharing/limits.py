"""What hosts take in one go, as it is configured; the defaults serve at the common ones."""

from __future__ import annotations

from git_envhist.settings import parse_duration, parse_size
from git_envhist.store.asconfigured import Config
from git_envhist.store.bounds import FETCH_MEMORY
from git_envhist.store.remotes import last
from git_envhist.values import dataclass

UPLOAD_SIZE = 1_500_000_000
"""The common hosts take packs of 2 GB."""
LARGEST_OBJECT = 100_000_000
"""The common hosts refuse an object of 100 MB and keep it out for ever."""
SMALLEST = 1 << 16
FETCH_PATIENCE = 300.0
"""A server that packs what nobody has asked for before tells how far it is; one that asks for a password waits, too."""
DEFAULTS = {
    "envhist.uploadsize": UPLOAD_SIZE,
    "envhist.largestobject": LARGEST_OBJECT,
    "envhist.fetchmemory": FETCH_MEMORY,
}


@dataclass(frozen=True, slots=True)
class Limits:
    """How much goes at once."""

    upload_size: int = UPLOAD_SIZE
    largest_object: int = LARGEST_OBJECT
    fetch_memory: int = FETCH_MEMORY
    fetch_patience: float = FETCH_PATIENCE
    """Seconds."""
    warnings: tuple[str, ...] = ()


def read_limits(config: Config) -> Limits:
    """The limits that hold; what makes no sense is told, and the default stays."""
    warnings: list[str] = []
    found = []
    for key, default in DEFAULTS.items():
        text = last(config, key)
        size = parse_size(text) if text is not None else default
        if size is None:
            warnings.append(f"{key} is not a size: '{text}'")
            size = default
        found.append(max(SMALLEST, size))
    text = last(config, "envhist.fetchpatience")
    patience = parse_duration(text) if text is not None else FETCH_PATIENCE
    if patience is None:
        warnings.append(f"envhist.fetchpatience is not a duration: '{text}'")
        patience = FETCH_PATIENCE
    return Limits(found[0], found[1], found[2], patience, tuple(warnings))
