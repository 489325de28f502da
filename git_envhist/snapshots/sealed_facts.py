"""Seal and open the facts that a probe read from sealed files.

`.envhist/facts/<probe>` contains the facts of the other files, `.envhist/facts/<probe>.sealed` these.
"""

from __future__ import annotations

from collections.abc import Callable

from git_envhist.errors import SealingError
from git_envhist.secrets.seal import SealingKey, seal, unseal
from git_envhist.snapshots.fact_text import SUFFIX, FactText, read_fact_text, write_facts
from git_envhist.snapshots.layout import FACTS
from git_envhist.snapshots.stored_names import RESERVED

KIND = b"facts"

FindFactsKey = Callable[[str], SealingKey | None]


def seal_facts(key: SealingKey, probe: str, version: int, lines: list[bytes]) -> bytes:
    """Return the sealed text of some facts."""
    return seal(key, _place(probe), KIND, write_facts(probe, version, lines))


def open_facts(find_key: FindFactsKey | None, probe: str, sealed: bytes) -> FactText | None:
    """Return the facts of a sealed text, or None if its key is missing or it is damaged."""
    if find_key is None:
        return None
    try:
        return read_fact_text(probe, unseal(find_key, _place(probe), KIND, sealed))
    except SealingError:
        return None


def _place(probe: str) -> bytes:
    return b"/".join((RESERVED, FACTS, (probe + SUFFIX).encode("ascii")))
