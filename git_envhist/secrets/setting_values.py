"""Find secret values of settings: by the name of the setting, and by the randomness of its value.

`db_password: Xk29!fqL` in a configuration file is secret; `password: changeme`, `password: ${DB_PASSWORD}` and
`password_file: /run/x` are not. In programs and documents settings are ordinary text: only a long random text in
quotes counts there. A Kubernetes manifest of the kind Secret is secret as a whole.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache

WORDS = (
    "password", "passwd", "passphrase", "passcode", "pass", "pwd", "secret", "token", "credential", "credentials",
    "salt", "pepper", "dsn", "auth", "key_base", "key",
)  # fmt: skip
"""The last words of the names of secret settings. `key` counts only after one of the words in KEYS."""
KEYS = (
    rb"(?:api|app|access|secret|private|auth|encryption|signing|master|service|account|license|webhook|session|cookie"
    rb"|consumer|client|shared|storage|deploy|admin|hmac|aes|jwt|encrypt|crypto)[_.-]?key\Z"
)
STEMS = (b"pass", b"key", b"token", b"secret", b"auth", b"credential", b"salt", b"pwd", b"pepper", b"dsn")
"""Every such name contains one of these."""
BEFORE = 16
"""The number of letters before `key` that are checked."""

MIN_RANDOM = 12
MAX_NAME = 60
ENTROPY, ENTROPY_IN_PROGRAM = 3.0, 3.4
"""Bits per letter: words have less than 3; half of all texts of 12 random letters and digits have more than 3.4."""

# Placeholders, common values, and values that only refer to another place.
USUAL = (
    rb"(?i)(?:[$%{<(*\[@!&]|\\\$|[./~]|https?:|file:|env[:(.]|vault:|arn:|projects/|op://|secretsmanager|ref\+|enc\[|process\.|os\."
    rb"|(?:[\w.-]*[_.-])?(?:change[_-]?(?:me|it|this)|example|sample|dummy|placeholder|redacted|insert|replace|your|todo|fixme"
    rb"|optional|required|none|null|undefined|string|test|password|passwd|secret|token|default|disabled|enabled|xxx)"
    rb"|0x[0-9a-f]+\Z|[0-9]{1,9}\Z|[0-9.]+(?:s|m|h|d|ms|kb|mb|gb)?\Z|\d{4}-\d\d-\d\d|[\^~><=]{0,2}v?\d+\.\d+)"
)
# `config.db.password`, `get_password`, `DB_PASSWORD`: names, not values.
IDENTIFIER = rb"[A-Za-z_][A-Za-z_]*(?:[.:/>-]+[A-Za-z_]+)*"
_CHOSEN = frozenset((b"password", b"passwd", b"passphrase", b"passcode", b"pass", b"pwd"))
"""Chosen by people: a digit or a sign among letters is enough."""
KUBERNETES = (
    rb"(?m)^[ \t-]{0,8}[\"']?kind[\"']?[ \t]{0,4}:[ \t]{0,4}[\"']?Secret[\"']?[ \t]{0,4},?[ \t]{0,4}\r?$"
)
KUBERNETES_DATA = rb"(?m)^[ \t]{0,8}[\"']?(?:data|stringData)[\"']?[ \t]{0,4}:[ \t]{0,4}[{]?[ \t]{0,4}\r?$"


def holds_secret_setting(data: bytes, *, program: bool) -> bool:
    """Return whether a text sets a secret. In a program or document only long, random, quoted values count."""
    if program:
        literals = [match for match in _long_quotes(data) if _is_random(match[1], ENTROPY_IN_PROGRAM)]
        lower = data.lower() if literals else b""
        return any(_is_secret_literal(lower, match) for match in literals)
    lower = data.lower()
    stems = [stem for stem in STEMS if stem in lower]
    present = [word for stem in stems for word in _words_of(stem) if word == stem or word in lower]
    if any(_is_secret(data, lower, word) for word in present):
        return True
    return b"secret" in present and b"kind" in lower and _is_kubernetes_secret(data)


def mask_secret_literals(data: bytes, mask: bytes) -> bytes:
    """Return a program with a mask for each random text that a secret setting is set to."""
    lower = data.lower()
    spans = [match.span(1) for match in _long_quotes(data) if _is_secret_literal(lower, match)]
    parts, at = [], 0
    for start, end in sorted(spans):
        parts += [data[at:start], mask]
        at = end
    return b"".join([*parts, data[at:]])


def _is_secret(data: bytes, lower: bytes, word: bytes) -> bool:
    """Return whether a setting with a name that ends in a word has a secret value anywhere in a text."""
    value = _value().match
    at = lower.find(word)
    while at >= 0:
        end = at + len(word)
        found = value(data, end)
        if found is not None and (word != b"key" or _is_key(lower, end)):
            text = found[1]
            if not _is_usual(text) and (
                _classes(text) >= 2
                if word in _CHOSEN
                else len(text) >= MIN_RANDOM and _is_random(text, ENTROPY)
            ):
                return True
        at = lower.find(word, end)
    return False


def _is_secret_literal(lower: bytes, match: re.Match[bytes]) -> bool:
    """Return whether a quoted text is the random value of a secret setting named right before it."""
    text, start = match[1], match.start()
    if _is_usual(text) or not _is_random(text, ENTROPY_IN_PROGRAM):
        return False
    named = _name_before().search(lower, max(0, start - MAX_NAME), start)
    return named is not None and (named[1] != b"key" or _is_key(lower, named.end(1)))


def _is_key(lower: bytes, end: int) -> bool:
    return re.search(KEYS, lower[max(0, end - BEFORE) : end]) is not None


def _is_usual(text: bytes) -> bool:
    return re.match(USUAL, text) is not None or re.fullmatch(IDENTIFIER, text) is not None


def _is_random(value: bytes, least: float) -> bool:
    return _digit()(value) is not None and _classes(value) >= 2 and entropy(value) >= least


def entropy(value: bytes) -> float:
    """Return the entropy of a text in bits per letter, by the frequencies of its letters."""
    size = len(value)
    return -sum(count / size * math.log2(count / size) for count in Counter(value).values())


def _classes(value: bytes) -> int:
    """Count the kinds of characters: lower case, upper case, digits, others except name separators."""
    kinds = (rb"[a-z]", rb"[A-Z]", rb"[0-9]", rb"[^\w.:/ -]")
    return sum(re.search(kind, value) is not None for kind in kinds)


def _is_kubernetes_secret(data: bytes) -> bool:
    return re.search(KUBERNETES, data) is not None and re.search(KUBERNETES_DATA, data) is not None


def _long_quotes(data: bytes) -> Iterator[re.Match[bytes]]:
    """Yield the long quoted texts. One expression per quote, which the engine finds with memchr."""
    for quote in _quotes():
        yield from quote(data)


@cache
def _words_of(stem: bytes) -> tuple[bytes, ...]:
    return tuple(word.encode() for word in WORDS if stem in word.encode())


@cache
def _digit() -> Callable[[bytes], re.Match[bytes] | None]:
    return re.compile(rb"[0-9]").search


# Compiled on demand: most captures read no file.
@cache
def _value() -> re.Pattern[bytes]:
    # name: value, name = value, "name": "value", name="value", <name>value</name>, <add key="name" value="value"/>
    return re.compile(
        rb"\d{0,2}[\"']?(?:[ \t]{0,8}(?:=>|:=|[=:])[ \t]{0,8}|>|\"?[ \t]{1,4}value=)[\"']?"
        rb"([^\s\"'<>,;]{6,512})(?=[\"'<,;\s]|\Z)"
    )


@cache
def _name_before() -> re.Pattern[bytes]:
    words = "|".join(sorted(WORDS, key=lambda word: -len(word))).encode()
    return re.compile(
        rb"(" + words + rb")\d{0,2}[\"'\])]{0,2}[ \t]{0,8}(?:=>|:=|[=:,])[ \t]{0,8}[rbuf]{0,2}\Z"
    )


@cache
def _quotes() -> tuple[Callable[[bytes], Iterator[re.Match[bytes]]], ...]:
    inside = rb"([\w+/=.~!@#$%^&*-]{20,512})"
    return tuple(re.compile(quote + inside + quote).finditer for quote in (b'"', b"'", b"`"))
