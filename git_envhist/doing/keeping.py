"""The verbs of what is kept with a moment beside the environment, as `EnvHistory` has them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from git_envhist.core import HistoryContext
from git_envhist.lookup import as_sequence
from git_envhist.model import Attachment, Moment, Snapshot, SnapshotAttachments
from git_envhist.values import replace

if TYPE_CHECKING:
    from git_envhist.doing.values import Value

CONVERSATION, TOOL_OUTPUTS = "conversation.json", "tool-outputs.json"
NUMBERED = r"[0-9]+-(?=.)"
"""What is attached by a capture has its number in front; compiled where it is used."""


class Keeping(HistoryContext):
    """A conversation, outputs of tools, files: attached to a moment, and given back byte for byte."""

    def attach(
        self,
        moment: Moment = "@",
        *,
        conversation: Sequence[Value] | None = None,
        tool_outputs: Sequence[Value] | None = None,
        files: Sequence[str | os.PathLike[str]] = (),
        attached: Sequence[tuple[str, bytes]] = (),
    ) -> Snapshot:
        """Keep something with a moment that is there, sealed; what had the same name before is replaced.

        `files` are read, `attached` is (name, bytes); a conversation and outputs of tools are lists of plain values.
        """
        from git_envhist.capturing.request import read_attachment  # loaded late: few moments have one
        from git_envhist.doing.said import seal_attachment  # loaded late: likewise
        from git_envhist.store.records import attached_record  # loaded late: likewise

        said = attachment_files(conversation, tool_outputs)
        things = [*said, *(read_attachment(os.fspath(file)) for file in as_sequence(files)), *attached]
        snapshot = self._snapshot(moment)
        key, format_ = self.keys.current(), self.repository.object_format
        sealed = [seal_attachment(snapshot, name, data, key, format_) for name, data in things]
        if not sealed:
            return snapshot
        records = [attached_record(one.attached, self.now) for one in sealed]
        self.tell(snapshot, *records, files={one.path: one.content for one in sealed})
        return replace(snapshot, attached=_joined(snapshot.attached, [one.attached for one in sealed]))

    def attachments(self, revision: Moment = "@") -> tuple[tuple[str, bytes], ...]:
        """(name, bytes) of what was attached to a moment: a conversation, outputs of tools, files."""
        from git_envhist.doing.said import attachments_of  # loaded late: few moments have one

        return attachments_of(self, self._snapshot(revision))

    def get(self, revision: Moment = "@") -> SnapshotAttachments:
        """A moment as it is known now, and all that was kept with it, as it was given."""
        from git_envhist.doing.said import snapshot_lists  # loaded late: likewise
        from git_envhist.doing.values import decode  # loaded late: likewise

        self.forget_world()
        # What somebody holds was read when it was taken: what was said since stands in the notes.
        words = revision if isinstance(revision, str) else revision.id or "@"
        snapshot = self.resolve(words)
        there = self.attachments(snapshot)
        last = {re.sub(NUMBERED, "", name): data for name, data in there}
        lists = [decode(last[name]) if name in last else None for name in (CONVERSATION, TOOL_OUTPUTS)]
        return SnapshotAttachments(
            snapshot, lists[0], lists[1], there, *snapshot_lists(self.repository.git, snapshot)
        )


def attachment_files(
    conversation: Sequence[Value] | None, tool_outputs: Sequence[Value] | None
) -> list[tuple[str, bytes]]:
    """(name, bytes) of a conversation and of outputs of tools, where there are any."""
    from git_envhist.doing.values import encode  # loaded late: likewise

    lists = {CONVERSATION: conversation, TOOL_OUTPUTS: tool_outputs}
    return [(name, encode(values)) for name, values in lists.items() if values is not None]


def _joined(before: tuple[Attachment, ...], new: list[Attachment]) -> tuple[Attachment, ...]:
    return tuple({one.name: one for one in (*before, *new)}.values())
