"""The facts of a snapshot without those that were read from paths which it shall not have had."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from git_envhist.capture.descent import join
from git_envhist.capturing.factfiles import Wake, make_wake
from git_envhist.facts import tree_probes
from git_envhist.model import Fact
from git_envhist.store.erasinglists import lies_in
from git_envhist.store.facts import read_fact, read_fact_text, write_facts

BY_FILE = frozenset(("declared", "env", "redis", "sqlite", "tools"))
"""Probes that name the file of each thing: of its directory nothing else was read from it."""


def facts_less(probe: str, text: bytes, paths: Collection[bytes]) -> bytes:
    """The text of a probe's facts without what is told of some paths, or read from them."""
    told = read_fact_text(probe, text)
    if told is None:
        # Of a later version, or nobody's: what it says cannot be told apart.
        return text if not any(path in text for path in paths) else b""
    kept = [line for line in told.lines if not _is_meant(probe, read_fact(probe, line), paths)]
    return text if len(kept) == len(told.lines) else write_facts(probe, told.version, kept)


def _is_meant(probe: str, fact: Fact | None, paths: Collection[bytes]) -> bool:
    if fact is None:
        return True
    key, by = _raw(fact.key), join(fact.at, _raw(fact.by))
    if lies_in(fact.at, paths) or lies_in(key, paths) or lies_in(by, paths):
        return True
    return probe not in BY_FILE and any(_was_read_from(probe, fact.at, path) for path in paths)


def _was_read_from(probe: str, directory: bytes, path: bytes) -> bool:
    above, _, name = path.rpartition(b"/")
    return above == directory and any(probe in wake.probes(name) for wake in _wake().at(directory))


@cache
def _wake() -> Wake:
    return make_wake(tree_probes())


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
