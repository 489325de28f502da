"""Read git's configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping

from git_envhist.errors import GitFailed
from git_envhist.git.current_actor import EVERYBODY, GROUP, PRIVATE, SHOW_SOURCES
from git_envhist.git.process import SAFE_GIT, GitResult, run_to_end

# git's configuration as `git config --list` prints it.

Config = tuple[tuple[str, str | None], ...]
FILE = b"file:"
SHARED = "core.sharedrepository"
WORDS = {
    **dict.fromkeys(("group", "true", "yes", "on", "1"), GROUP),
    **dict.fromkeys(("all", "world", "everybody", "2"), EVERYBODY),
}


def parse_config(done: GitResult, words: int = 1) -> Config:
    """Return the (key, value) pairs of a listing; `words` is the number of fields per pair, the pair being the last."""
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
    """Return the configuration in force, and the files it comes from."""
    # Our own overrides would be listed as the user's.
    done = run_to_end([*SAFE_GIT, *SHOW_SOURCES], environment)
    pairs, sources = parse_config(done, 3), set(done.out.split(b"\0")[1::3])
    files = sorted(os.fsdecode(one[len(FILE) :]) for one in sources if one.startswith(FILE))
    return pairs, tuple(os.path.join(root, one) for one in files)


def shared_bits(pairs: Config) -> int:
    """Return the permissions that `core.sharedRepository` gives to the files of a repository; 0 if it gives none."""
    value: str | None = ""
    for key, configured in pairs:
        if key == SHARED:
            value = configured
    if value is None:
        return GROUP  # the key alone means true
    word = value.lower()
    if word in WORDS:
        return WORDS[word]
    bits = int(word, 8) & 0o666 if word.isdigit() and not set(word) & set("89") else 0
    return bits if bits & 0o600 == 0o600 else PRIVATE
