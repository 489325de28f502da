"""Parse the assignments in a file like `.env` or `.envrc` (pure).

dotenv libraries and shells read such a file differently: `A=it's` is a complete line for the former and opens a quote
for the latter. So the text is read in both ways, and only an assignment that both find counts. A part of a value is
never taken for a name: in doubt a name is left out, and nothing after an unclosed quote, heredoc or armour counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from git_envhist.lazy import pattern

NAME = pattern(
    rb"[ \t]*(?:(?:export|declare|typeset|readonly|local)[ \t]+(?:-[A-Za-z]+[ \t]+)*)?"
    rb"([A-Za-z_][A-Za-z0-9_.-]{0,200})(?:[ \t]*\+?=|(?=<<-?[A-Za-z_]))"
)
NOTABLE = pattern(rb"[\\\"'`$#<\n()]|-----BEGIN ")
IN_QUOTES = {b'"': pattern(rb"[\\\"`$]"), b"`": pattern(rb"[\\`]")}
HEREDOC = pattern(rb"<<(-?)[ \t]*(?:'([^'\n]+)'|\"([^\"\n]+)\"|\\?([A-Za-z_][\w.-]*))")
COMMENT = pattern(rb"(?:^|[ \t])#")
ARMOUR = pattern(rb"-----BEGIN [^\n]*")
ARMOUR_END = pattern(rb"-----END [^\n]*")
BASE64_LINE = pattern(rb"[A-Za-z0-9+/_-]{16,}={0,2}")
BASE64_REST = pattern(rb"[A-Za-z0-9+/_-]+={1,2}")
CONSTANT = pattern(rb"[A-Z_][A-Z0-9_]*")
RUN = pattern(rb"[A-Za-z0-9+/_-]{40,}={0,2}\Z")
LONG_NAME = 16
"""A name of this length in both cases, with digits and without a value, is the end of a base64 text."""

_EndOf = Callable[[bytes, int, bool], int | None]
"""(text, position, whether a value begins there) -> the newline after the statement; None if it is never closed."""


class Assignment(NamedTuple):
    """The place of an assignment in a text."""

    name: bytes
    start: int
    value: int
    """The start of the value."""
    end: int
    """The newline after the value, or the end of the text."""
    is_certain: bool
    """Whether dotenv libraries and shells find the same end."""


def read_assignments(data: bytes) -> dict[bytes, bytes]:
    """Return the variables and their values as written, quotes included; the last assignment of a name counts."""
    data = data.replace(b"\r\n", b"\n")
    return {one.name: data[one.value : one.end].strip() for one in find_assignments(data)}


def find_assignments(data: bytes) -> list[Assignment]:
    """Return the assignments of a text whose lines end with a line feed, in order."""
    in_shell = {start: end for start, _, _, end in _assignments(data, _shell_end)}
    found = []
    for start, name, value, closed in _assignments(data, _dotenv_end):
        end = len(data) if closed is None else closed
        if start in in_shell and not _is_encoded(data, start, end):
            found.append(
                Assignment(name, start, value, end, closed is not None and in_shell[start] == closed)
            )
    return found


def _assignments(data: bytes, end_of: _EndOf) -> Iterator[tuple[int, bytes, int, int | None]]:
    """Yield (start, name, start of the value, end) of each statement that assigns; no end if it is never closed."""
    at = 0
    while at < len(data):
        found = NAME.match(data, at)
        end = end_of(data, at if found is None else found.end(), found is not None)
        if found is not None:
            yield at, found[1], found.end(), end
        if end is None:
            return
        at = end + 1


def _dotenv_end(data: bytes, at: int, assigns: bool) -> int | None:
    """Find the end of a line as dotenv libraries do: a quote counts at the beginning of a value only."""
    while assigns and data[at : at + 1] in (b" ", b"\t"):
        at += 1
    quote = data[at : at + 1] if assigns else b""
    if quote and quote in b"\"'`":
        quote = quote * 3 if data.startswith(quote * 3, at) and data.find(quote * 3, at + 3) >= 0 else quote
        closed = _closing(data, at + len(quote), quote)
        return None if closed is None else _line_end(data, closed)
    end = _line_end(data, at)
    while at < end < len(data) and data[end - 1 : end] == b"\\":
        end = _line_end(data, end + 1)
    line = data[at:end]
    comment = COMMENT.search(line)
    line = line if comment is None else line[: comment.start()]
    armour = ARMOUR.search(line)
    if armour is not None:
        return _after_armour(data, at + armour.start())
    heredoc = HEREDOC.search(line)
    return end if heredoc is None else _after_heredoc(data, end, heredoc)


def _closing(data: bytes, at: int, quote: bytes) -> int | None:
    while True:
        at = data.find(quote, at)
        if at < 0:
            return None
        before = data[max(0, at - 64) : at]
        if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
            return at + len(quote)
        at += 1


def _shell_end(data: bytes, at: int, assigns: bool) -> int | None:
    """Find the end of a statement as shells do: quotes count anywhere, substitutions and lists are nested."""
    return _ShellStatement(data, at, assigns).end()


class _ShellStatement:
    """Parse one shell statement."""

    def __init__(self, data: bytes, at: int, assigns: bool) -> None:
        self._data = data
        self._stack = [b")"] if assigns and data.startswith(b"(", at) else []
        """The closing characters of open constructs, the innermost last."""
        self._at = at + len(self._stack)
        self._heredocs: list[re.Match[bytes]] = []

    def end(self) -> int | None:
        """Return the end of the statement; None if it is never closed."""
        data = self._data
        while self._at < len(data):
            inside = self._stack[-1] if self._stack else b""
            found = IN_QUOTES.get(inside, NOTABLE).search(data, self._at)
            if found is None:
                break
            sign, self._at = found[0], found.start()
            if sign == b"\n" and not self._stack:
                return self._after_heredocs()
            if sign.startswith(b"-") and not self._stack:
                return _after_armour(data, self._at)
            after = self._after(sign, inside)
            if after is None:
                return None
            self._at = after
        return None if self._stack or self._heredocs else len(data)

    def _after(self, sign: bytes, inside: bytes) -> int | None:
        """Return the position after a character; None if it opens something that is never closed."""
        at = self._at
        if sign == inside:
            self._stack.pop()
        elif sign in IN_QUOTES or (sign == b"(" and inside == b")"):
            self._stack.append(b")" if sign == b"(" else sign)
        elif sign == b"\\":
            return at + 2
        elif sign == b"'":
            return self._data.find(b"'", at + 1) + 1 or None
        elif sign == b"$":
            return self._after_dollar(inside)
        elif sign == b"#":
            return _line_end(self._data, at) if self._data[at - 1 : at] in b" \t\n;(" else at + 1
        elif sign == b"<":
            return self._after_redirection()
        elif sign == b"\n":
            end = self._after_heredocs()
            return None if end is None else end + 1
        elif sign.startswith(b"-"):
            return _after_armour(self._data, at)
        return at + 1

    def _after_dollar(self, inside: bytes) -> int | None:
        if self._data.startswith(b"$(", self._at):
            self._stack.append(b")")
            return self._at + 2
        if self._data.startswith(b"$'", self._at) and inside != b'"':
            return _closing(self._data, self._at + 2, b"'")
        return self._at + 1

    def _after_redirection(self) -> int:
        heredoc = HEREDOC.match(self._data, self._at)
        # `<<<` is followed by a word, not by a heredoc.
        if heredoc is None or self._data[self._at - 1 : self._at] == b"<":
            return self._at + 1
        self._heredocs.append(heredoc)
        return heredoc.end()

    def _after_heredocs(self) -> int | None:
        """Return the end of the line, or of its last heredoc."""
        end: int | None = self._at
        for heredoc in self._heredocs:
            end = None if end is None else _after_heredoc(self._data, end, heredoc)
        self._heredocs = []
        return end


def _after_armour(data: bytes, at: int) -> int | None:
    end = ARMOUR_END.search(data, at)
    return None if end is None else _line_end(data, end.end())


def _after_heredoc(data: bytes, end: int, heredoc: re.Match[bytes]) -> int | None:
    """Return the end of the line that closes a heredoc whose first line ends at `end`."""
    word = heredoc[2] or heredoc[3] or heredoc[4]
    closing = re.compile(rb"^%b%b[ \t]*$" % (rb"\t*" if heredoc[1] else b"", re.escape(word)), re.MULTILINE)
    found = closing.search(data, end + 1)
    return None if found is None else found.end()


def _line_end(data: bytes, at: int) -> int:
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end


def _is_encoded(data: bytes, start: int, end: int) -> bool:
    """Return whether a line that reads as an assignment is the end of a base64 text without quotes."""
    line = data[start:end].strip()
    if BASE64_REST.fullmatch(line) is None:
        return False
    name = line.rstrip(b"=")
    is_constant = CONSTANT.fullmatch(name) is not None
    if not is_constant and len(name) >= LONG_NAME and name.lower() != name and re.search(rb"[0-9]", name):
        return True
    before = data[data.rfind(b"\n", 0, max(0, start - 1)) + 1 : max(0, start - 1)].strip()
    follows = BASE64_LINE.fullmatch(before) is not None or RUN.search(before) is not None
    return follows and (not is_constant or len(line) % 4 == 0)
