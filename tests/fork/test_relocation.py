"""Replacing one path by another in the contents of files."""

from __future__ import annotations

import pytest

from git_envhist.restore.relocate import MAX_FIRST_LINE, Relocation, is_shell_safe, replace_paths

MOVED = Relocation.between(["/srv/app", "/srv/app/inner"], "/new/place")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'VIRTUAL_ENV="/srv/app/.venv"\n', b'VIRTUAL_ENV="/new/place/.venv"\n'),
        (b"path=/usr/bin:/srv/app:/bin", b"path=/usr/bin:/new/place:/bin"),
        (b'{"url": "file:///srv/app/lib"}', b'{"url": "file:///new/place/lib"}'),
        (b"#!/srv/app/.venv/bin/python\nx", b"#!/new/place/.venv/bin/python\nx"),
        (b"/srv/app/inner/x /srv/app", b"/new/place/x /new/place"),
        (
            b"/srv/app-2 /old/srv/app/x /srv/apps /srv/app.bak",
            b"/srv/app-2 /old/srv/app/x /srv/apps /srv/app.bak",
        ),
        (b"\0 binary /srv/app", b"\0 binary /srv/app"),
        (b"#!/srv/app/bin/python\nPK\3\4\0/srv/app", b"#!/new/place/bin/python\nPK\3\4\0/srv/app"),
    ],
)
def test_path_is_not_found_inside_a_longer_one(before: bytes, after: bytes) -> None:
    assert replace_paths(before, MOVED) == after


def test_path_is_found_in_file_urls() -> None:
    moved = Relocation.between(["/srv/my app"], "/new")
    assert (
        replace_paths(b'"file:///srv/my%20app/lib" /srv/my app/lib', moved) == b'"file:///new/lib" /new/lib'
    )


def test_first_line_that_becomes_too_long_is_run_by_a_shell() -> None:
    long = "/" + "d" * MAX_FIRST_LINE
    moved = Relocation.between(["/srv/app"], long)
    assert replace_paths(b"#!/srv/app/bin/python3.11 -sE\nimport sys\n", moved) == (
        b"#!/bin/sh\n'''exec' " + long.encode() + b"/bin/python3.11 -sE \"$0\" \"$@\"\n' '''\nimport sys\n"
    )
    # Only Python reads the second line as a string.
    assert replace_paths(b"#!/srv/app/bin/ruby\n", moved) is None


@pytest.mark.parametrize(
    ("place", "can"),
    [
        ("/home/me/attempt-2", True),
        ("/home/my work/x", False),
        ("/home/$HOME", False),
        ("/home/caf\xe9", False),
    ],
)
def test_path_that_scripts_must_quote_is_recognized(place: str, can: bool) -> None:
    assert is_shell_safe(place) is can
