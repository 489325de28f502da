"""Text from other people cannot send commands to the reader's terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.cli.terminal import pad, shorten, width
from git_envhist.printable_text import escape, escape_invalid, plain_output


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words", "plain words"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31m", "\\u009b31m"),
        ("ok\rverified", "ok\\rverified"),
        ("two\nlines\t", "two\\nlines\\t"),
        ("abc\u202etxt.exe", "abc\\u202etxt.exe"),
        ("a\u2066b", "a\\u2066b"),
        (b"caf\xe9", "caf\\xe9"),
        ("für 日本 🎉", "für 日本 🎉"),
        ("می‌خواهم", "می‌خواهم"),
        ("\u2028", "\\u2028"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_control_characters_are_escaped(text: str | bytes, shown: str) -> None:
    assert escape(text) == shown


def test_text_of_several_lines_keeps_only_its_line_breaks() -> None:
    assert escape("a\n\tb\x1b\r", lines=True) == "a\n\tb\\x1b\\r"


@given(st.binary())
def test_no_control_character_survives_in_any_bytes(data: bytes) -> None:
    shown = escape(data)
    assert not [letter for letter in shown if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp")]
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")
    shown.encode("utf-8")


@given(st.text())
def test_only_invalid_bytes_are_escaped_for_programs(text: str) -> None:
    raw = text.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
    escape_invalid(raw).encode("utf-8")
    if raw.isprintable():
        assert escape_invalid(raw) == raw


def test_wide_and_combining_letters_are_counted_in_columns() -> None:
    assert width("日本") == 4
    assert width("e\u0301") == 1
    assert pad("日本", 6) == "日本  "


def test_shortened_text_fits_its_columns() -> None:
    assert shorten("日本語です", 6) == "日本…"
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdefg", 6) == "abcde…"
    assert shorten("abc", 0) == ""


@given(st.text(alphabet="ab日é🎉"), st.integers(0, 12))
def test_shortened_text_keeps_the_columns(text: str, columns: int) -> None:
    assert width(shorten(text, columns)) <= columns


def test_output_of_a_check_is_printed_as_a_terminal_leaves_it() -> None:
    assert plain_output("\n\x1b[32mok\x1b[0m\r\n10 %\r100 %\n\n") == "ok\n100 %"
    assert plain_output("\x1b]52;c;x\x07") == "\x1b]52;c;x\x07", "printing escapes it"
