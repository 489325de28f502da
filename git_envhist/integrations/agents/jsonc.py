"""JSON with comments as text: where its values stand, what is put in and taken out, and every other byte as it was.

Settings belong to whoever wrote them: comments, order, indentation and trailing commas stay. What is taken out leaves
what stood there before it was put in, whether or not the file was edited elsewhere meanwhile.
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
    """A value: where it stands, and what is in it."""

    start: int
    end: int
    kind: str
    """`object`, `array` or `scalar`."""
    items: tuple[JsonItem, ...] = ()


@dataclass(frozen=True, slots=True)
class JsonItem:
    """A member of an object (an element of an array has no key): where it begins, and its value."""

    start: int
    key: str | None
    value: Node


def parse(text: str) -> Node:
    """The value that a text holds; `NotJson` where it holds none, or more."""
    start = _skip(text, 0)
    node = _value(text, start, 0)
    if _skip(text, node.end) != len(text):
        raise NotJson
    return node


def load(text: str, node: Node) -> object:
    """The value of a node, as Python has it."""
    if node.kind == "object":
        return {item.key: load(text, item.value) for item in node.items}
    if node.kind == "array":
        return [load(text, item.value) for item in node.items]
    try:
        return json.loads(text[node.start : node.end])
    except ValueError as error:
        raise NotJson from error


def find(node: Node, key: str) -> JsonItem | None:
    """The member of that name; the last one where there are several, as parsers have it."""
    return next((item for item in reversed(node.items) if item.key == key), None)


def put_in(text: str, node: Node, key: str | None, value: object) -> str:
    """The text with one more item at the end of an object or array."""
    newline = "\r\n" if "\r\n" in text else "\n"
    unit = _unit(text)
    outer = _indent_of_line(text, node.start)
    body = json.dumps(value, indent=unit, ensure_ascii=False)
    named = body if key is None else f"{json.dumps(key, ensure_ascii=False)}: {body}"
    new = newline + outer + unit + named.replace("\n", newline + outer + unit)
    return _append(text, node, new, newline + outer)


def take_out(text: str, node: Node, item: JsonItem) -> str:
    """The text without an item, and without what was put in with it."""
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


def without(text: str, ours: Callable[[object], bool]) -> str:
    """The text without every element of an array that is ours, and without what is empty for that."""
    while True:
        root = parse(text)
        found = next(_owned(text, root, ours), None)
        if found is None:
            return text
        text = _take_out_upwards(text, found)


def _take_out_upwards(text: str, way: list[tuple[Node, JsonItem]]) -> str:
    """Take an item out, and each container of it that holds nothing else."""
    node, item = way[-1]
    for outer, holder in reversed(way[:-1]):
        around = text[node.start + 1 : item.start] + text[item.value.end : node.end - 1]
        if len(node.items) > 1 or COMMENT.search(around):
            break
        node, item = outer, holder
    return take_out(text, node, item)


def _owned(text: str, node: Node, ours: Callable[[object], bool]) -> Iterator[list[tuple[Node, JsonItem]]]:
    for item in node.items:
        if node.kind == "array" and ours(load(text, item.value)):
            yield [(node, item)]
        else:
            for way in _owned(text, item.value, ours):
                yield [(node, item), *way]


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
    """Two texts, one behind the other; what follows a comment that ends with its line stays outside of it."""
    found = COMMENT.findall(gap)
    blank = tail[: len(tail) - len(tail.lstrip(" \t\r\n"))]
    return head + ("\n" if found and found[-1].startswith("//") and "\n" not in blank else "") + tail


def _begin_of_gap(text: str, node: Node, at: int) -> int:
    """Where the gap before an item begins: behind the bracket, or behind the comma."""
    return node.start + 1 if at == 0 else _skip(text, node.items[at - 1].value.end) + 1


def _end_of_comments(text: str, start: int, end: int) -> int:
    """Behind the last comment of a gap, or where the gap begins."""
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
