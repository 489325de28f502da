"""The facts of a snapshot without those that were read from paths which it shall not have had."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from git_envhist.capture.descent import join
from git_envhist.capture.seal import sealed_key_id
from git_envhist.capturing.factfiles import FileTriggers, compile_file_triggers
from git_envhist.capturing.factsealing import FindFactsKey, open_facts, seal_facts
from git_envhist.facts import tree_probes
from git_envhist.model import Fact
from git_envhist.store.erasinglists import lies_in
from git_envhist.store.facts import SUFFIX, read_fact, read_fact_text, write_facts
from git_envhist.store.layout import FACTS, RESERVED

BY_FILE = frozenset(("declared", "env", "redis", "sqlite", "tools"))
"""Probes that name the file of each thing: of its directory nothing else was read from it."""


VARIABLES = "env"
FACTS_OF_VARIABLES = b"/".join((RESERVED, FACTS, VARIABLES.encode("ascii")))


def facts_less(probe: str, text: bytes, paths: Collection[bytes], find_key: FindFactsKey) -> bytes:
    """Return the text of a probe's facts without what is told of some paths, or was read from them."""
    if not probe.endswith(SUFFIX):
        return _less(probe, text, paths)
    probe = probe.removesuffix(SUFFIX)
    sealed, key_id = open_facts(find_key, probe, text), sealed_key_id(text)
    key = find_key(key_id) if key_id is not None else None
    if sealed is None or key is None:
        return b""  # it may tell of them, and cannot be looked into
    plain = write_facts(probe, sealed.version, sealed.lines)
    less = _less(probe, plain, paths)
    left = read_fact_text(probe, less)
    return text if less == plain or left is None else seal_facts(key, probe, left.version, left.lines)


def without_variable_names(probe: str, text: bytes) -> bytes:
    """Return the facts of variables without their lines, where these are not sealed; any other text as it is."""
    told = read_fact_text(probe, text) if probe == VARIABLES else None
    return write_facts(probe, told.version, []) if told is not None and told.lines else text


def _less(probe: str, text: bytes, paths: Collection[bytes]) -> bytes:
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
def _wake() -> FileTriggers:
    return compile_file_triggers(tree_probes())


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
