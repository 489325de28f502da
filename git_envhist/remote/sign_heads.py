"""Sign the heads of timelines before a push.

A head that cannot be signed does not stop the push: the push warns, and a fetch reports that the newest snapshots are
not covered.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from git_envhist.disk import state_directory
from git_envhist.errors import Damaged, EnvhistError
from git_envhist.git.cat_file import CatFile
from git_envhist.git.process import Git
from git_envhist.git.repository import NOTES_REFS, TIMELINE_REFS, Repository
from git_envhist.lazy import dataclass, replace
from git_envhist.locks import COMMON_LOCK, locked
from git_envhist.objects.commits import parse_commit
from git_envhist.secrets.keys import KeyRing, SigningKey
from git_envhist.secrets.ssh_signatures import SshSettings, ssh_sign
from git_envhist.snapshots.heads import (
    NAME,
    NAMESPACE,
    NO_NOTES,
    Head,
    is_signed_by,
    notes_without_head,
    read_head,
    sign_head,
    write_head,
)
from git_envhist.snapshots.publish import annotate
from git_envhist.snapshots.staging import Staging


@dataclass(frozen=True, slots=True)
class Signing:
    """The keys to sign with, and the author of the notes."""

    key: SigningKey | None
    ssh: SshSettings
    environ: Mapping[str, str]
    signature: bytes
    """The author line of the notes commit."""
    ring: KeyRing | None = None
    """The keys that are wrapped for recipients."""


def sign_heads(repository: Repository, names: Sequence[str], signing: Signing) -> list[str]:
    """Wrap keys for recipients and sign the changed heads; return a sentence for each failure."""
    problems = _wrap(repository, names, signing) if signing.ring is not None else []
    for name in names:
        try:
            _sign(repository, name, signing)
        except (EnvhistError, OSError) as error:
            problems.append(f"the head of '{name}' is not signed: {error}")
    return problems


def _wrap(repository: Repository, names: Sequence[str], signing: Signing) -> list[str]:
    from git_envhist.remote.wrap_keys import recipients_of, wrap_keys  # loaded late: only a push needs it

    assert signing.ring is not None
    lines, problem = recipients_of(signing.ring)
    if lines is None:
        return [problem] if problem is not None else []
    return wrap_keys(repository, names, signing.ring, lines, signing.signature)


def _sign(repository: Repository, name: str, signing: Signing) -> None:
    tip = repository.resolve_ref(TIMELINE_REFS + name)
    if tip is None or (signing.key is None and not signing.ssh.signs):
        return
    notes, current = state_of_notes(
        repository.git, repository.resolve_ref(NOTES_REFS + name), repository.object_format
    )
    if current is not None and _is_current(current, name, tip, notes, signing):
        return
    # Use the time, too: the number grows even if an earlier head was lost with its notes.
    number = max(current.number + 1 if current is not None else 1, int(time.time()))
    head = Head(timeline=name, number=number, tip=tip, notes=notes)
    if signing.key is not None:
        head = sign_head(head, signing.key)
    if signing.ssh.signs:
        text = head.text.encode("ascii")
        head = replace(head, ssh=ssh_sign(text, NAMESPACE, signing.ssh, signing.environ))
    common = os.path.join(state_directory(repository.common_state), COMMON_LOCK)
    with (
        locked(common, shared=True),
        Staging.create(repository.common_state, repository.pack_dir) as staging,
    ):
        annotate(repository, staging, name, {}, signing.signature, {NAME: write_head(head)})


def _is_current(head: Head, name: str, tip: str, notes: str, signing: Signing) -> bool:
    if (head.timeline, head.tip, head.notes) != (name, tip, notes):
        return False
    by_key = signing.key is None or is_signed_by(head, signing.key)
    return by_key and (head.ssh is not None) == signing.ssh.signs


def state_of_notes(git: Git, notes: str | None, object_format: str) -> tuple[str, Head | None]:
    """Return the hash of the notes without their head, and the head; None if there is none that can be read."""
    if notes is None:
        return NO_NOTES, None
    with CatFile(git) as reader:
        commit = reader.read(notes)
        if commit is None or commit.kind != "commit":
            raise Damaged(f"the notes cannot be read: '{notes}'")
        tree = reader.read(parse_commit(commit.data).tree)
        if tree is None or tree.kind != "tree":
            raise Damaged(f"the notes cannot be read: '{notes}'")
        file = reader.read(f"{notes}:{NAME.decode('ascii')}")
    head = None
    if file is not None and file.kind == "blob":
        try:
            head = read_head(file.data)
        except Damaged:
            head = None
    return notes_without_head(tree.data, object_format), head
