"""Conversations and outputs of tools as bytes, and back: JSON, with a place for bytes, and nothing is lost on the way.

`{"$bytes": "<base64>"}` stands for bytes, `{"$dict": [[key, value], …]}` for a dictionary whose own key looks so.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence

from git_envhist.errors import UsageError

BYTES, DICT = "$bytes", "$dict"
DEEPEST = 100
WHAT_SERVES = "text, bytes, numbers, true and false, None, lists and dictionaries with text as keys serve"

Value = object
"""Text, bytes, a number, a truth value, None, a list or a dictionary of such."""


def encode(values: Sequence[Value]) -> bytes:
    """A list of values as JSON; `UsageError` names what cannot be kept as it is."""
    if isinstance(values, str | bytes | Mapping):
        raise UsageError("a list is expected: one message, or one output, after another", hint=WHAT_SERVES)
    told = [_told(value, 0) for value in values]
    return json.dumps(told, separators=(",", ":")).encode("ascii")


def decode(data: bytes) -> list[Value] | None:
    """The list again; None where the bytes are not such a list."""
    try:
        told = json.loads(data)
        return [_meant(value) for value in told] if isinstance(told, list) else None
    except (ValueError, RecursionError):
        return None


def _told(value: Value, depth: int) -> Value:
    if depth > DEEPEST:
        raise UsageError("cannot be kept: lists in lists without end", hint=WHAT_SERVES)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return {BYTES: base64.b64encode(value).decode("ascii")}
    if isinstance(value, list | tuple):
        return [_told(one, depth + 1) for one in value]
    if isinstance(value, Mapping):
        return _told_mapping(value, depth)
    raise UsageError(f"cannot be kept as it is: a value of type '{type(value).__name__}'", hint=WHAT_SERVES)


def _told_mapping(value: Mapping[object, Value], depth: int) -> Value:
    wrong = next((key for key in value if not isinstance(key, str)), None)
    if wrong is not None or None in value:
        raise UsageError(f"cannot be kept as it is: the key '{wrong!r}' is no text", hint=WHAT_SERVES)
    told = {str(key): _told(one, depth + 1) for key, one in value.items()}
    if len(told) == 1 and not {BYTES, DICT}.isdisjoint(told):
        return {DICT: [[key, one] for key, one in told.items()]}
    return told


def _meant(value: Value) -> Value:
    if isinstance(value, list):
        return [_meant(one) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, inner),) = value.items()
        if key == BYTES and isinstance(inner, str):
            return base64.b64decode(inner, validate=True)
        if key == DICT and isinstance(inner, list):
            return {name: _meant(one) for name, one in inner}
    return {key: _meant(one) for key, one in value.items()}
