"""Objects that the facts of a capture are taken with, and facts taken over from a snapshot of the same files."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from git_envhist.capture.pool import WorkerHandle
from git_envhist.capture.statcache import CachedFacts
from git_envhist.errors import EnvhistError
from git_envhist.facts import tree_probes
from git_envhist.facts.probe import ProbeTarget
from git_envhist.store.facts import SUFFIX, read_fact_text
from git_envhist.store.keys import Key
from git_envhist.store.layout import FACTS, RESERVED
from git_envhist.store.packs import OwnPacks, PackWriter
from git_envhist.store.repository import Repository
from git_envhist.store.trees import decode_tree
from git_envhist.values import dataclass

if TYPE_CHECKING:
    from git_envhist.capturing.gather import ScanDriver
    from git_envhist.capturing.landed import KnownWritesDriver

HOOKS_PATH = "core.hookspath"


class Taking(Protocol):
    """The capture that is under way."""

    writer: PackWriter
    known: OwnPacks
    repository: Repository

    def begin(self, progress: None) -> ScanDriver | KnownWritesDriver: ...


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """What is needed of a capture."""

    writer: PackWriter
    known: OwnPacks
    object_format: str
    how: str
    place: ProbeTarget
    key: Key | None
    lines: list[WorkerHandle]
    """Those to the workers: a process of ours must not hold them open."""


def facts_of_tree(read: Callable[[bytes], bytes], tree: str) -> dict[str, CachedFacts] | None:
    """Return the texts of a snapshot's tree; None unless the present probes would write the same."""
    kept: dict[str, CachedFacts] = {}
    try:
        oids = _fact_ids(read, tree)
        for name, probe in tree_probes().items():
            found = read_fact_text(name, read(bytes.fromhex(oids[name])))
            if found is None or found.version != probe.version:
                return None
            held = (one for one in (name, name + SUFFIX) if one in oids)
            kept.update((one, CachedFacts(probe.version, "", oids[one])) for one in held)
    except (KeyError, EnvhistError):
        return None
    return kept


def _fact_ids(read: Callable[[bytes], bytes], tree: str) -> dict[str, str]:
    oid, width = bytes.fromhex(tree), len(tree) // 2
    for wanted in (RESERVED, FACTS):
        oid = {name: below for name, _, below in decode_tree(read(oid), width)}[wanted]
    return {name.decode("ascii", "replace"): one.hex() for name, _, one in decode_tree(read(oid), width)}


def hooks_of(repository: Repository) -> str:
    """Where git looks for hooks: what is configured is meant from the top of the working tree."""
    configured = dict(repository.read_config()).get(HOOKS_PATH)
    if configured:
        return os.path.join(repository.root, os.path.expanduser(configured))
    return os.path.join(repository.common_dir, "hooks")
