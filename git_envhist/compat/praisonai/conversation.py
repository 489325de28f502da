"""The conversation that belongs to a workspace: noted with each checkpoint, brought back to it by a restore."""

from __future__ import annotations

import json
from collections.abc import Callable, MutableSequence, Sequence
from typing import Any

ATTACHED = "conversation.json"
COUNT = "message_count"


class Conversation:
    """The messages of one conversation, wherever they are."""

    def __init__(self, held: Any, session_id: str | None = None) -> None:
        """A list of messages, an agent with a `chat_history`, or a store and the id of a session in it."""
        self._held = held
        self._session_id = session_id
        reads = callable(getattr(held, "get_chat_history", None)) and session_id is not None
        if not reads and not isinstance(self._list(), MutableSequence):
            raise TypeError(
                "a list of messages, an agent with a chat_history, or a store of sessions and an id is wanted"
            )
        self._is_store = reads

    def metadata(self) -> dict[str, int]:
        """What a checkpoint notes of it."""
        return {COUNT: len(self._messages())}

    def attached(self) -> list[tuple[str, bytes]]:
        """The messages themselves, to be kept sealed with a checkpoint."""
        return [(ATTACHED, _as_json(self._messages()).encode("utf-8", "surrogateescape"))]

    def plain(self) -> list[Any]:
        """The messages as they are given back."""
        return _as_kept(self._messages())

    def go_back(self, count: int, kept: Sequence[Any] | None) -> None:
        """Make it what it was at `count` messages; `kept` has those that were there then, where they are known."""
        here = list(self._messages())
        same = count if kept is None else _same(_as_kept(here), kept)
        then = [*here[:same], *(kept or ())[same:]]
        if len(then) == same < len(here):
            self._cut(same)
        elif len(then) > same:
            self._put(then)

    def _cut(self, count: int) -> None:
        revert: Callable[[str | None, int], object] | None = getattr(self._held, "revert_to_message", None)
        if self._is_store and revert is not None and count > 0:
            # The index is of the last message that stays.
            revert(self._session_id, count - 1)
        else:
            self._put(list(self._messages())[:count])

    def _put(self, messages: list[Any]) -> None:
        if not self._is_store:
            self._list()[:] = messages
        elif hasattr(self._held, "set_chat_history"):
            self._held.set_chat_history(self._session_id, messages)

    def _messages(self) -> Sequence[Any]:
        held: Sequence[Any] = (
            self._held.get_chat_history(self._session_id) if self._is_store else self._list()
        )
        return held

    def _list(self) -> Any:
        return getattr(self._held, "chat_history", self._held)


def _same(here: Sequence[Any], kept: Sequence[Any]) -> int:
    """So many messages at the beginning are the same; a conversation may have been rewritten since."""
    pairs = zip(here, kept, strict=False)
    return next(
        (number for number, (one, other) in enumerate(pairs) if one != other), min(len(here), len(kept))
    )


def _as_json(messages: Sequence[Any]) -> str:
    return json.dumps(list(messages), default=str, ensure_ascii=False)


def _as_kept(messages: Sequence[Any]) -> list[Any]:
    kept: list[Any] = json.loads(_as_json(messages))
    return kept
