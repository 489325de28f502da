"""The conversation that belongs to a workspace: noted with each checkpoint, cut back to the same point by a restore."""

from __future__ import annotations

import json
from collections.abc import MutableSequence, Sequence
from typing import Any, Protocol, runtime_checkable

ATTACHED = "conversation.json"
COUNT = "message_count"


@runtime_checkable
class SessionStore(Protocol):
    """A store of sessions, as the library has several: it can go back to a message."""

    def revert_to_message(self, session_id: str, message_index: int) -> bool: ...

    def get_chat_history(self, session_id: str) -> Sequence[Any]: ...


class Conversation:
    """The messages of one conversation, wherever they are."""

    def __init__(self, held: object, session_id: str | None = None) -> None:
        """A list of messages, an agent with a `chat_history`, or a store and the id of a session in it."""
        self._held = held
        self._session_id = session_id

    def metadata(self) -> dict[str, int]:
        """What a checkpoint notes of it."""
        return {COUNT: len(self._messages())}

    def attached(self) -> list[tuple[str, bytes]]:
        """The messages themselves, to be kept sealed with a checkpoint."""
        text = json.dumps(list(self._messages()), default=str, ensure_ascii=False)
        return [(ATTACHED, text.encode("utf-8", "surrogateescape"))]

    def go_back(self, count: int, kept: Sequence[Any] | None) -> None:
        """Cut it back to so many messages; where it is shorter, `kept` has those that were there then."""
        store, session = self._held, self._session_id
        if session is not None and isinstance(store, SessionStore):
            # The index is of the last message that stays.
            store.revert_to_message(session, count - 1)
            return
        messages = self._messages()
        if not isinstance(messages, MutableSequence):
            return
        if len(messages) >= count:
            del messages[count:]
        elif kept is not None:
            messages[:] = kept

    def _messages(self) -> Sequence[Any]:
        if self._session_id is not None and isinstance(self._held, SessionStore):
            return self._held.get_chat_history(self._session_id)
        held = getattr(self._held, "chat_history", self._held)
        return held if isinstance(held, Sequence) else ()
