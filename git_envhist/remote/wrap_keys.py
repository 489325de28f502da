"""Wrap the keys of a history for its recipients, in the notes of timelines that are pushed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from git_envhist.disk import state_directory
from git_envhist.errors import EnvhistError, SealingError
from git_envhist.git.cat_file import CatFile
from git_envhist.git.repository import NOTES_REFS, Repository
from git_envhist.locks import COMMON_LOCK, locked
from git_envhist.secrets.key_text import write_opening_key
from git_envhist.secrets.keys import KeyRing
from git_envhist.snapshots.publish import annotate
from git_envhist.snapshots.staging import Staging
from git_envhist.snapshots.wrapped_keys import DIRECTORY, LIST, path_of, write_list


def wrap_keys(
    repository: Repository, names: Sequence[str], ring: KeyRing, recipients: Iterable[str], signature: bytes
) -> list[str]:
    """Write the wrapped keys where a key or recipient changed; return a sentence for each failure.

    `recipients` are the lines of the list, `signature` the author line of the notes commit.
    """
    lines = tuple(recipients)
    wanted = _list(ring, lines)
    if lines and wanted is None:
        return ["no key is wrapped: the key of this repository is not stored here"]
    with CatFile(repository.git) as reader:
        before = [reader.read(f"{NOTES_REFS}{name}:{os.fsdecode(LIST)}") for name in names]
    problems = []
    for name, found in zip(names, before, strict=True):
        if (found.data if found is not None else None) != wanted:
            try:
                _write(repository, name, wrapped_for(ring, lines), signature)
            except (EnvhistError, OSError) as error:
                problems.append(f"the keys are not wrapped in the notes of '{name}': {error}")
    return problems


def wrapped_for(ring: KeyRing, lines: Sequence[str]) -> dict[bytes, bytes]:
    """Return the files of the notes tree that give the keys of a repository to recipients."""
    wanted = _list(ring, lines)
    if wanted is None:
        return {}
    # loaded late: most histories have no recipients
    from git_envhist.secrets.age_file import encrypt
    from git_envhist.secrets.age_keys import read_recipient

    recipients = [read_recipient(line)[0] for line in lines]
    wrapped = {path_of(key.id): encrypt(write_opening_key(key), recipients) for key in ring.to_share()}
    return {LIST: wanted, **wrapped}


def _list(ring: KeyRing, lines: Sequence[str]) -> bytes | None:
    current = ring.current_id()
    key = ring.get(current) if current is not None else None
    return write_list(key, ring.to_share(), lines) if key is not None and lines else None


def _write(repository: Repository, name: str, files: Mapping[bytes, bytes], signature: bytes) -> None:
    common = os.path.join(state_directory(repository.common_state), COMMON_LOCK)
    with (
        locked(common, shared=True),
        Staging.create(repository.common_state, repository.pack_dir) as staging,
    ):
        annotate(repository, staging, name, {}, signature, files, (DIRECTORY,))


def recipients_of(ring: KeyRing) -> tuple[tuple[str, ...] | None, str | None]:
    """Return the list of recipients, or the reason why it cannot be read; existing wrapped keys are then kept."""
    try:
        return ring.recipients(), None
    except SealingError as error:
        return None, f"no key is wrapped: {error.message}"
