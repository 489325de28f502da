"""The forms of tokens that nothing else looks like: found in small files, masked in what people write.

Each form is a prefix that names its kind and stays readable, and a secret part that does not. Only forms with an
unmistakable prefix, or a password where a password must stand, are in the table: a file is not to be sealed because
a long word stands in it.

Most files hold none. So a file is first searched for signs (`tokensigns`), and then only for the forms that a sign can
stand for: 64 MB/s over the sources of Python and its packages, for 158 forms (measured on files of up to 64 KiB, on
two shared cores; `python -m tests.capture.measure_secrets` measures it again).
"""

from __future__ import annotations

import re
from functools import cache

SCAN_LIMIT = 64 << 10
"""Larger files are data: nobody keeps a token in them by hand."""

MASK = b"***"
LETTERS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# What documentation writes where a token belongs.
REAL = rb"(?![xX*.]{4}|[Yy]our|YOUR)"

URL_WHAT = "passwords in URLs (`scheme://user:password@host`)"
# A password that is a variable, or that everybody uses where a password must stand.
URL_VARIABLE = rb"[$%{*<\[(]|[^{}]*[{}]"
URL_USUAL = (
    rb"(?i)(?:pass|passwd|password|pwd|pw|p|secret|token|changeme|example|user|username|postgres|mysql|root|admin"
    rb"|test|guest|xx+|\.\.+|(?:my|your|the)?[_-]?(?:password|secret|token|api[_-]?key))"
)

# `PASSWORD=hunter2`, `--token=abc`, `"api_key": "abc"`: secret in a sentence that somebody wrote; in a program they
# are ordinary code, so that no file is sealed for them.
SETTING = (
    rb"(?i)((?:password|passwd|passphrase|pwd|secret|token|(?:api|access|secret|private|auth|encryption)[_-]?key)"
    rb"(?:=[\"']?|[\"']\s{0,4}:\s{0,4}[\"'])|authorization:\s{0,4}(?:bearer|basic|token)\s{1,4})"
    rb"(?![$%{<(\[=]|\*\*\*|true\b|false\b|none\b|null\b)[^\s\"'`;&|<>]{4,}"
)


def find_tokens(data: bytes) -> tuple[str, ...]:
    """The kinds of tokens that stand in some bytes, each once, in the order of the table."""
    from git_envhist.capture.tokensigns import (
        URL_PASSWORD,
        possible_kinds,
    )  # loaded late: most captures read no file

    possible = possible_kinds(data)
    if not possible:
        return ()
    found = [kind for kind in _kinds() if kind in possible and _form(kind).search(data) is not None]
    # The signs of a URL come by chance in three gigabytes of compressed bytes; a password that is text does not.
    binary = b"\0" in data
    if URL_PASSWORD in possible and any(
        _is_real_password(match) and not (binary and _is_noise(match[0])) for match in _url().finditer(data)
    ):
        found.append(URL_PASSWORD)
    return tuple(found)


def mask_tokens(text: bytes) -> bytes:
    """The text with `***` for the secret part of every token, of a URL's password and of a named secret's value."""
    # To take out one token can bare another. Each round leaves fewer bytes that are no asterisk, so this ends.
    while (masked := _mask_once(text)) != text:
        text = masked
    return text


def has_anchor(data: bytes) -> bool:
    """Whether a token can stand in some bytes; False is certain, True is not."""
    from git_envhist.capture.tokensigns import possible_kinds  # loaded late: likewise

    return bool(possible_kinds(data))


def _mask_once(text: bytes) -> bytes:
    if _may_hold_anchor(text):
        from git_envhist.capture.tokensigns import possible_kinds  # loaded late: few intents can hold a token

        if possible := possible_kinds(text):
            for kind in _kinds():
                if kind in possible:
                    text = _form(kind).sub(_keep_prefix, text)
            text = _url().sub(_keep_user, text)
    # A setting has one of the two signs.
    return re.sub(SETTING, _keep_prefix, text) if b"=" in text or b":" in text else text


def _may_hold_anchor(text: bytes) -> bool:
    """The same question as `has_anchor`, for the few words that people write: without a pattern, and sooner yes."""
    longest = max(map(len, text.split()), default=0)
    return longest >= SHORTEST_ANCHOR or any(sign in text for sign in SHORT_SIGNS)


def _keep_prefix(match: re.Match[bytes]) -> bytes:
    return bytes(match[1]) + MASK


def _keep_user(match: re.Match[bytes]) -> bytes:
    return bytes(match[0]) if _is_variable(match[2]) else bytes(match[1]) + MASK


def _is_variable(password: bytes) -> bool:
    return re.match(URL_VARIABLE, password) is not None


def _is_real_password(match: re.Match[bytes]) -> bool:
    user = match[1].removeprefix(b"://").removesuffix(b":")
    password = match[2]
    return not (_is_variable(password) or re.fullmatch(URL_USUAL, password) or password == user)


def _is_noise(text: bytes) -> bool:
    try:
        return not text.decode("utf-8").isprintable()
    except UnicodeDecodeError:
        return True


@cache
def _kinds() -> tuple[str, ...]:
    from git_envhist.capture.tokenforms import TOKENS  # loaded late: few files may hold a token

    return tuple(TOKENS)


# Compiled when a file may hold such a token: few captures read one.
@cache
def _form(kind: str) -> re.Pattern[bytes]:
    from git_envhist.capture.tokenforms import TOKENS  # loaded late: likewise

    _, prefix, secret = TOKENS[kind]
    first = prefix[: _length_of_first(prefix)]
    others = prefix[len(first) :]
    # A prefix is one only where a word begins: `task-` is not `sk-`. The test stands behind the first letter, so
    # that the engine can look for that letter.
    if not first or others[:1] in (b"{", b"?"):
        return re.compile(b"((?<![A-Za-z0-9])" + prefix + b")" + REAL + secret)
    begins_word = re.search(first, LETTERS) is not None
    before = b"(?<![A-Za-z0-9]" + first + b")" if begins_word else b""
    return re.compile(b"(" + first + before + others + b")" + REAL + secret)


def _length_of_first(prefix: bytes) -> int:
    """How long the expression for the first letter is; 0 where the prefix begins with a group."""
    if prefix[:1] == b"(":
        return 0
    return prefix.index(b"]") + 1 if prefix[:1] == b"[" else 2 if prefix[:1] == b"\\" else 1


@cache
def _url() -> re.Pattern[bytes]:
    return re.compile(rb"(://[^\s/:@?#\"'<>`\\]{0,256}:)([^\s/?#\"'<>`\\]{1,512})(?=@)")


# What an anchor finds is one word of so many letters at least, or has one of these in it.
SHORTEST_ANCHOR = 16
SHORT_SIGNS = (
    b"envhist-key", b"eyJ", b"PRIVATE KEY", b"uthorization", b"UTHORIZATION", b"/api/webhooks/", b"://", b"AGE-", b"$",
    b"hooks.", b'"d"', b"-us",
)  # fmt: skip
