"""The columns of a table, from the statement that made it (pure). It is read as words, and never run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import NamedTuple

LARGEST = 1 << 16
LONGEST_LIST = 6_000
LONGEST_NAME, LONGEST_TYPE = 80, 40
WORD = re.compile(
    r"""--[^\n]*|/\*.*?(?:\*/|\Z)|\s+"""
    r"""|(?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]{0,300}\]|'(?:[^']|'')*')"""
    r"""|(?P<word>[^\s"`'\[\](),;]+)|(?P<sign>.)""",
    re.DOTALL,
)
OF_A_TABLE = frozenset(("CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN"))
"""Words that begin what is no column."""
OF_A_COLUMN = frozenset(
    (*OF_A_TABLE, "NOT", "NULL", "DEFAULT", "COLLATE", "REFERENCES", "GENERATED", "AS", "AUTOINCREMENT", "ON")
)
"""Words that end a column's type."""
UNFIT = re.compile(r"[\s,()]+")


class SqlToken(NamedTuple):
    text: str
    is_quoted: bool


class Column(NamedTuple):
    name: str
    type: str


def columns_of(statement: str) -> list[Column]:
    """The columns that `CREATE TABLE` names; none where it cannot be told."""
    found = (_column(part) for part in _parts(_tokens(statement[:LARGEST])))
    return [column for column in found if column is not None]


def columns_text(columns: list[Column]) -> str:
    """`id INTEGER, name TEXT`; of a list beyond any measure, how long it is and what tells it from others."""
    told = ", ".join(
        f"{UNFIT.sub('_', one.name)[:LONGEST_NAME]} {one.type[:LONGEST_TYPE]}".rstrip() for one in columns
    )
    if len(told) <= LONGEST_LIST:
        return told
    digest = hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{len(columns)} columns #{digest[:12]}"


def _tokens(statement: str) -> Iterator[SqlToken]:
    for found in WORD.finditer(statement):
        quoted = found["quoted"]
        if quoted is not None:
            inner = quoted[1:-1]
            yield SqlToken(inner if quoted[0] == "[" else inner.replace(quoted[-1] * 2, quoted[-1]), True)
        elif found["word"] is not None or found["sign"] is not None:
            yield SqlToken(found[0], False)


def _parts(tokens: Iterator[SqlToken]) -> Iterator[list[SqlToken]]:
    """What stands between the commas of the outermost brackets."""
    depth = 0
    part: list[SqlToken] = []
    for token in tokens:
        sign = "" if token.is_quoted else token.text
        depth += (sign == "(") - (sign == ")")
        if (sign == "," and depth == 1) or (sign == ")" and depth == 0):
            yield part
            part = []
            if not depth:
                return
        elif depth > 1 or (depth == 1 and (part or sign != "(")):
            part.append(token)


def _column(part: list[SqlToken]) -> Column | None:
    if not part or (not part[0].is_quoted and part[0].text.upper() in OF_A_TABLE):
        return None
    words: list[str] = []
    for token in part[1:]:
        if not token.is_quoted and token.text.upper() in OF_A_COLUMN:
            break
        words.append(token.text)
    return Column(part[0].text, _type(words))


def _type(words: list[str]) -> str:
    """`VARCHAR(30)`, `UNSIGNED BIG INT`: as it is written, the brackets close to it."""
    told = " ".join(words).replace(" (", "(").replace("( ", "(").replace(" )", ")").replace(" ,", ",")
    return re.sub(r",\s+", ",", told)
