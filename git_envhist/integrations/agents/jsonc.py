"""Edit JSON with comments as text: insert and remove values, and keep every other byte.

Comments, order, indentation and trailing commas are kept. Removing an inserted item restores the text from before it
was inserted, whether or not other parts were edited meanwhile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from git_envhist.lazy import dataclass

TRIVIA = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
COMMENT = re.compile(r"//[^\n\r]*|/\*.*?\*/", re.DOTALL)
STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
SCALAR = re.compile(r"-?[0-9][0-9.eE+-]*|true|false|null")
INDENT = re.compile(r"\n([ \t]+)[^ \t\r\n]")
MAX_DEPTH = 64


class NotJson(ValueError):
    """The text is not JSON with comments."""


@dataclass(frozen=True, slots=True)
class Node:
    """A value: its position in the text, and its items."""

    start: int
    end: int
    kind: str
    """`object`, `array` or `scalar`."""
    items: tuple[JsonItem, ...] = ()


@dataclass(frozen=True, slots=True)
class JsonItem:
    """A member of an object, or an element of an array (without a key): its position and value."""

    start: int
    key: str | None
    value: Node


def parse(text: str) -> Node:
    """Return the value in a text; raises `NotJson` if there is none, or more than one."""
    start = _skip(text, 0)
    node = _value(text, start, 0)
    if _skip(text, node.end) != len(text):
        raise NotJson
    return node


def load(text: str, node: Node) -> object:
    """Return the value of a node as a Python object."""
    if node.kind == "object":
        return {item.key: load(text, item.value) for item in node.items}
    if node.kind == "array":
        return [load(text, item.value) for item in node.items]
    try:
        return json.loads(text[node.start : node.end])
    except ValueError as error:
        raise NotJson from error


def find(node: Node, key: str) -> JsonItem | None:
    """Return the member with this key; the last one if there are several, as parsers do."""
    return next((item for item in reversed(node.items) if item.key == key), None)


def insert_item(text: str, node: Node, key: str | None, value: object) -> str:
    """Return the text with one more item at the end of an object or array."""
    newline = "\r\n" if "\r\n" in text else "\n"
    unit = _unit(text)
    outer = _indent_of_line(text, node.start)
    body = json.dumps(value, indent=unit, ensure_ascii=False)
    named = body if key is None else f"{json.dumps(key, ensure_ascii=False)}: {body}"
    new = newline + outer + unit + named.replace("\n", newline + outer + unit)
    return _append(text, node, new, newline + outer)


def remove_item(text: str, node: Node, item: JsonItem) -> str:
    """Return the text without an item, and without the separators that were inserted with it."""
    at = node.items.index(item)
    end = _skip(text, item.value.end)
    if at + 1 < len(node.items):
        return text[: item.start] + text[node.items[at + 1].start :]
    begin = _begin_of_gap(text, node, at)
    before = _end_of_comments(text, begin, item.start)
    gap = text[begin:before]
    if text[end] == ",":
        return _join(text[:before], text[end + 1 :], gap)
    if at == 0:
        rest = text[item.value.end : node.end - 1]
        return _join(text[:before], (rest if rest.strip() else "") + text[node.end - 1 :], gap)
    comma = _skip(text, node.items[at - 1].value.end)
    return _join(text[:comma] + text[comma + 1 : before], text[item.value.end :], gap)


def remove_elements(text: str, ours: Callable[[object], bool]) -> str:
    """Return the text without every array element that `ours` accepts, and without containers that this empties."""
    while True:
        root = parse(text)
        found = next(_owned(text, root, ours), None)
        if found is None:
            return text
        text = _remove_upwards(text, found)


def _remove_upwards(text: str, path: list[tuple[Node, JsonItem]]) -> str:
    """Remove an item, and each of its containers that contains nothing else."""
    node, item = path[-1]
    for outer, holder in reversed(path[:-1]):
        around = text[node.start + 1 : item.start] + text[item.value.end : node.end - 1]
        if len(node.items) > 1 or COMMENT.search(around):
            break
        node, item = outer, holder
    return remove_item(text, node, item)


def _owned(text: str, node: Node, ours: Callable[[object], bool]) -> Iterator[list[tuple[Node, JsonItem]]]:
    for item in node.items:
        if node.kind == "array" and ours(load(text, item.value)):
            yield [(node, item)]
        else:
            for path in _owned(text, item.value, ours):
                yield [(node, item), *path]


def _append(text: str, node: Node, new: str, close: str) -> str:
    if not node.items:
        at = _end_of_comments(text, node.start + 1, node.end - 1)
        rest = text[at : node.end - 1]
        return text[:at] + new + (rest if "\n" in rest else close) + text[node.end - 1 :]
    last = node.items[-1].value.end
    comma = _skip(text, last)
    if text[comma] == ",":
        at = _end_of_comments(text, comma + 1, node.end - 1)
        return text[:at] + new + "," + text[at:]
    at = _end_of_comments(text, last, node.end - 1)
    tail = text[at:] if "\n" in text[node.start : node.end] else close + text[node.end - 1 :]
    return text[:last] + "," + text[last:at] + new + tail


def _join(head: str, tail: str, gap: str) -> str:
    """Join two texts; insert a newline if the gap between them ends in a line comment."""
    found = COMMENT.findall(gap)
    blank = tail[: len(tail) - len(tail.lstrip(" \t\r\n"))]
    return head + ("\n" if found and found[-1].startswith("//") and "\n" not in blank else "") + tail


def _begin_of_gap(text: str, node: Node, at: int) -> int:
    """Return the start of the gap before an item: after the bracket, or after the comma."""
    return node.start + 1 if at == 0 else _skip(text, node.items[at - 1].value.end) + 1


def _end_of_comments(text: str, start: int, end: int) -> int:
    """Return the end of the last comment in a gap, or the start of the gap."""
    found = [match.end() for match in COMMENT.finditer(text, start, end)]
    return found[-1] if found else start


def _unit(text: str) -> str:
    found = INDENT.search(text)
    return found[1] if found else "  "


def _indent_of_line(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _skip(text: str, at: int) -> int:
    found = TRIVIA.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int, depth: int) -> Node:
    if depth > MAX_DEPTH:
        raise NotJson
    if text.startswith("{", at):
        return _container(text, at, "object", "}", depth)
    if text.startswith("[", at):
        return _container(text, at, "array", "]", depth)
    found = STRING.match(text, at) or SCALAR.match(text, at)
    if found is None:
        raise NotJson
    return Node(at, found.end(), "scalar")


def _container(text: str, start: int, kind: str, close: str, depth: int) -> Node:
    items: list[JsonItem] = []
    at = _skip(text, start + 1)
    while not text.startswith(close, at):
        item = _item(text, at, kind, depth)
        items.append(item)
        at = _skip(text, item.value.end)
        if text.startswith(",", at):
            at = _skip(text, at + 1)
        elif not text.startswith(close, at):
            raise NotJson
    return Node(start, at + 1, kind, tuple(items))


def _item(text: str, at: int, kind: str, depth: int) -> JsonItem:
    if kind == "array":
        return JsonItem(at, None, _value(text, at, depth + 1))
    found = STRING.match(text, at)
    colon = _skip(text, found.end()) if found else at
    if found is None or not text.startswith(":", colon):
        raise NotJson
    try:
        key = json.loads(found[0])
    except ValueError as error:
        raise NotJson from error
    return JsonItem(at, key, _value(text, _skip(text, colon + 1), depth + 1))
