"""Edit members of objects in a JSON text and keep everything else of the text (pure).

Comments and commas at the end, as some programs allow them in their settings, are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from git_envhist.lazy import dataclass, field
from git_envhist.restore.merge_keys import ABSENT, KeyPath, TheirKeys, place_in_order, rank_of, same_value

BLANK = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
SCALAR = re.compile(r"-?[0-9][0-9.eE+-]*|true|false|null")
DECODER = json.JSONDecoder()
MAX_DEPTH = 100


@dataclass(slots=True)
class JsonNode:
    """A value and its place in the text."""

    value: Any
    start: int
    end: int
    members: list[Member] | None = None
    """The members of an object."""
    has_last_comma: bool = False


@dataclass(slots=True)
class Member:
    """A member of an object and its place in the text."""

    key: str
    start: int
    node: JsonNode
    comma: int
    """The position after its value and the comments behind that: of the comma or of the closing brace."""


def read_json(text: str) -> dict[str, Any] | None:
    """Return the object in a text, which may have comments; None if there is none, or a key occurs twice."""
    node = _parse(text)
    return None if node is None or not isinstance(node.value, dict) else node.value


def edit_json(ours: str, theirs: str, changes: Mapping[KeyPath, object]) -> str | None:
    """Return the text of ours with changed members, written as in theirs; None if a text is no object."""
    old, new = _parse(ours), _parse(theirs)
    if old is None or new is None or old.members is None:
        return None
    return _Editor(ours, theirs, old, new, changes).run()


def _parse(text: str) -> JsonNode | None:
    try:
        node = _value(text, _blank(text, 0), 0)
        return node if _blank(text, node.end) == len(text) else None
    except (ValueError, IndexError):
        return None


def _blank(text: str, at: int) -> int:
    found = BLANK.match(text, at)
    return at if found is None else found.end()


def _value(text: str, at: int, depth: int) -> JsonNode:
    if depth > MAX_DEPTH:
        raise ValueError("too deep")
    first = text[at]
    if first == "{":
        return _object(text, at, depth)
    if first == "[":
        return _array(text, at, depth)
    if first == '"':
        value, end = DECODER.raw_decode(text, at)
        return JsonNode(value, at, end)
    found = SCALAR.match(text, at)
    if found is None:
        raise ValueError("no value")
    return JsonNode(json.loads(found[0]), at, found.end())


def _array(text: str, start: int, depth: int) -> JsonNode:
    values: list[Any] = []
    at = _blank(text, start + 1)
    while text[at] != "]":
        node = _value(text, at, depth + 1)
        values.append(node.value)
        at = _blank(text, node.end)
        if text[at] == ",":
            at = _blank(text, at + 1)
        elif text[at] != "]":
            raise ValueError("no comma")
    return JsonNode(values, start, at + 1)


def _object(text: str, start: int, depth: int) -> JsonNode:
    members: list[Member] = []
    values: dict[str, Any] = {}
    is_after_comma = False
    at = _blank(text, start + 1)
    while text[at] != "}":
        if text[at] != '"':
            raise ValueError("no key")
        key, end = DECODER.raw_decode(text, at)
        colon = _blank(text, end)
        if key in values or text[colon] != ":":
            raise ValueError("no member")
        node = _value(text, _blank(text, colon + 1), depth + 1)
        comma = _blank(text, node.end)
        values[key] = node.value
        members.append(Member(key, at, node, comma))
        is_after_comma = text[comma] == ","
        at = _blank(text, comma + 1) if is_after_comma else comma
        if not is_after_comma and text[at] != "}":
            raise ValueError("no comma")
    return JsonNode(values, start, at + 1, members, is_after_comma)


@dataclass(slots=True)
class MemberText:
    """The text of a member, with the blanks and comments around it."""

    lead: str
    body: str
    trail: str = ""
    """The text before the comma."""
    rest: str = ""
    """The comment after the comma in the same line."""


@dataclass(slots=True)
class _Changes:
    """The changes at and below a path."""

    value: object = None
    is_set: bool = False
    below: dict[str, _Changes] = field(default_factory=dict)


class _Editor:
    def __init__(
        self, ours: str, theirs: str, old: JsonNode, new: JsonNode, changes: Mapping[KeyPath, object]
    ) -> None:
        self._ours, self._theirs = ours, theirs
        self._old, self._new = old, new
        self._changes = _Changes()
        for path, value in changes.items():
            at = self._changes
            for key in path:
                at = at.below.setdefault(key, _Changes())
            at.value, at.is_set = value, True
        self._unit = _indent_of(self._ours, old)

    def run(self) -> str:
        """Return the edited text."""
        edited = self._object(self._old, self._new, self._changes, 0)
        return self._ours[: self._old.start] + edited + self._ours[self._old.end :]

    def _object(self, node: JsonNode, new: JsonNode | None, changes: _Changes, depth: int) -> str:
        assert node.members is not None
        segments, closing = self._segments(node)
        order = [member.key for member in node.members]
        their_members = {} if new is None else {one.key: one for one in new.members or ()}
        by_key = dict(zip(order, segments, strict=True))
        members = {one.key: one for one in node.members}
        added: list[str] = []
        for key, change in changes.below.items():
            theirs = their_members.get(key)
            if not change.is_set and key in by_key:
                member = members[key]
                inner = self._object(member.node, None if theirs is None else theirs.node, change, depth + 1)
                by_key[key].body = self._ours[member.start : member.node.start] + inner
            elif change.value is ABSENT:
                place = order.index(key)
                comment = by_key.pop(key).lead.rstrip()
                del order[place]
                if comment and place < len(order):
                    by_key[order[place]].lead = comment + by_key[order[place]].lead
                else:
                    closing = comment + closing
            elif key in by_key:
                member = members[key]
                raw = self._raw(theirs, change.value, _line_indent(by_key[key].lead), depth)
                by_key[key].body = self._ours[member.start : member.node.start] + raw
            else:
                added.append(key)
        their_keys = TheirKeys.of(list(their_members) if added else ())
        rank = rank_of(order, their_keys.order) if added else None
        for key in added:
            change, theirs = changes.below[key], their_members.get(key)
            value = _nested(change) if not change.is_set else change.value
            place = place_in_order(key, order, by_key, their_keys, rank)
            lead, closing = self._lead(by_key, order, place, closing, depth)
            head = json.dumps(key, ensure_ascii=False) + (": " if self._unit or ": " in self._ours else ":")
            by_key[key] = MemberText(lead, head + self._raw(theirs, value, _line_indent(lead), depth))
            order.insert(place, key)
        return _joined([by_key[key] for key in order], closing, node.has_last_comma)

    def _segments(self, node: JsonNode) -> tuple[list[MemberText], str]:
        """Return the segments of an object, and the text before its closing brace."""
        assert node.members is not None
        text = self._ours
        found: list[MemberText] = []
        at = node.start + 1
        for number, member in enumerate(node.members):
            lead = text[at : member.start]
            if number:
                first, line, other = lead.partition("\n")
                if line and first.strip():
                    found[-1].rest, lead = first, line + other
            trail = text[member.node.end : member.comma]
            found.append(MemberText(lead, text[member.start : member.node.end], trail))
            at = member.comma + (text[member.comma] == ",")
        closing = text[at : node.end - 1]
        if found and not node.has_last_comma:
            first, line, other = found[-1].trail.partition("\n")
            found[-1].trail, closing = (first.rstrip() if line else ""), line + other if line else first
        return found, closing

    def _lead(
        self, by_key: dict[str, MemberText], order: list[str], place: int, closing: str, depth: int
    ) -> tuple[str, str]:
        """Return the blanks before a new member, and those before the closing brace."""
        if not order:
            if not self._unit:
                return "", ""
            return "\n" + self._unit * (depth + 1), "\n" + self._unit * depth
        first = by_key[order[0]]
        between = by_key[order[1]].lead if len(order) > 1 else first.lead
        between = _blanks(between) if "\n" in between or len(order) > 1 else " "
        if place:
            return between, closing
        lead, first.lead = _blanks(first.lead), first.lead if "\n" in first.lead else between
        return lead, closing

    def _raw(self, theirs: Member | None, value: object, indent: str | None, depth: int) -> str:
        """Return the text of a value, copied from the other side if it has this value, with the present indentation."""
        if theirs is not None and same_value(theirs.node.value, value):
            raw = self._theirs[theirs.node.start : theirs.node.end]
            line = self._theirs[: theirs.start].rpartition("\n")[2]
            old = line if not line.strip() else None
            if "\n" not in raw or (old is not None and old == indent):
                return raw
        if indent is None:
            return json.dumps(value, ensure_ascii=False)
        dumped = json.dumps(value, ensure_ascii=False, indent=self._unit or None)
        return dumped.replace("\n", "\n" + indent)


def _nested(change: _Changes) -> object:
    if change.is_set:
        return change.value
    return {key: _nested(one) for key, one in change.below.items() if _nested(one) is not ABSENT}


def _joined(segments: list[MemberText], closing: str, has_last_comma: bool) -> str:
    if not segments:
        return "{}"
    parts = ["{"]
    for number, one in enumerate(segments):
        is_last = number == len(segments) - 1
        parts += [one.lead, one.body, one.trail, "," if not is_last or has_last_comma else "", one.rest]
    return "".join([*parts, closing, "}"])


def _blanks(lead: str) -> str:
    """Return the blanks of a lead without its comments."""
    head, line, indent = lead.rpartition("\n")
    if not line:
        return lead if not lead.strip() else " "
    return ("\r\n" if head.endswith("\r") else "\n") + (indent if not indent.strip() else "")


def _line_indent(lead: str) -> str | None:
    return lead.rpartition("\n")[2] if "\n" in lead else None


def _indent_of(text: str, node: JsonNode) -> str:
    """Return the indentation of one level; empty if the object is in one line."""
    if not node.members:
        return ""
    return _line_indent(_blanks(text[node.start + 1 : node.members[0].start])) or ""
