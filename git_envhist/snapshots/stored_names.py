r"""Convert between true names and the names stored in a snapshot's tree (pure).

git refuses names that could become its own directory on some file system, and it obeys a few names wherever it finds
them: a `.gitattributes` in a tree runs filters and changes line endings when that tree is checked out. So the names
below are never stored literally, on any file system:

- `.git`, `.gitattributes`, `.gitmodules`, for links also `.gitignore` and `.mailmap`, and `.envhist` at the top,
- in any letter case; followed by dots and spaces or a stream (`:...`), which NTFS drops; with characters in between
  that HFS+ ignores; and followed by malformed UTF-8, because git's HFS+ reader ends a name there;
- their NTFS short names (`git~1`, `gitatt~2`, `gi7d29~1`, `gi7~1234`);
- after a backslash, the separator on Windows: each part of `x\\.git` is checked.

An escaped name has its first byte and each backslash as `%xx`. In every name, escaped or not, a `%` followed by two
hex digits is written `%25`. So the mapping is injective: no two names are stored as one.
"""

from __future__ import annotations

import re
from functools import cache

from git_envhist.errors import Damaged
from git_envhist.lazy import pattern
from git_envhist.model import EnvPath
from git_envhist.printable_text import display_bytes

RESERVED = b".envhist"
"""The one entry at the top of every tree that does not belong to the user."""


def stored_name(name: bytes, *, top: bool = False, link: bool = False) -> bytes:
    """Return the name under which a tree stores an entry; `top`: it is at the top; `link`: it is a symbolic link."""
    if name and b"\0" not in name and not may_need_escape(name):
        return name
    if not is_name(name):
        raise ValueError(f"not a name: {name!r}")
    if must_escape(name, top=top, link=link):
        return _escaped(name)
    return _plain(name)


def true_name(stored: bytes) -> bytes:
    """Return the true name of a stored one. Raise `Damaged` if no name is ever stored like this."""
    name = _ESCAPE.sub(_decode, stored) if b"%" in stored else stored
    if not is_name(name):
        raise Damaged(f"a tree contains an impossible name: '{display_bytes(stored)}'")
    # Accept one spelling only: a hostile tree must not contain one name twice.
    if stored == _plain(name) and not must_escape(name):
        return name
    if stored == _escaped(name) and must_escape(name, top=True, link=True):
        return name
    raise Damaged(
        f"a tree contains a name that is not spelled as names are stored: '{display_bytes(stored)}'"
    )


def stored_path(path: EnvPath, *, link: bool = False) -> bytes:
    """Return a whole path as the tree stores it; `link`: the last component is a symbolic link."""
    if not may_need_escape(path.replace(b"/", b"\0")):
        return path
    *above, last = path.split(b"/")
    names = [stored_name(name, top=number == 0) for number, name in enumerate(above)]
    return b"/".join([*names, stored_name(last, top=not above, link=link)])


def true_path(stored: bytes) -> EnvPath:
    """Return the environment path of a stored path. Raise `Damaged` for the reserved entry."""
    if not stored:
        return EnvPath(b"")
    names = stored.split(b"/")
    if must_escape(names[0], top=True):
        raise Damaged(f"not a path of the environment: '{display_bytes(stored)}'")
    return EnvPath(b"/".join([true_name(name) for name in names]))


def may_need_escape(names_joined: bytes) -> bool:
    """Check many names at once, joined by NUL. False means that each is stored literally, at any depth."""
    enclosed = b"\0%b\0" % names_joined
    lowered = enclosed.lower()
    if b"\0.git" in lowered:
        for name in _FAMOUS:
            if b"\0%b\0" % name in lowered:
                return True
        for name in _HARMLESS:
            lowered = lowered.replace(b"\0%b\0" % name, b"\0\0")
    return _has_sign(lowered) and _suspicious().search(enclosed, 0, len(enclosed) - 1) is not None


def _has_sign(lowered: bytes) -> bool:
    # An explicit loop: a generator takes twice as long, and this runs for every name.
    for sign in _SIGNS:  # noqa: SIM110
        if sign in lowered:
            return True
    return False


def is_name(name: bytes) -> bool:
    """Return whether a directory can contain an entry of this name."""
    return name not in (b"", b".", b"..") and b"/" not in name and b"\0" not in name


def must_escape(name: bytes, *, top: bool = False, link: bool = False) -> bool:
    """Return whether git would refuse or obey this name, or it is the reserved one."""
    lowered = name.lower()
    if lowered in _FAMOUS:
        return link or not _FAMOUS[lowered]
    if not _has_sign(b"\0%b\0" % lowered):
        return False
    return (
        _refused().search(name) is not None
        or (link and _refused_link().search(name) is not None)
        or (top and _reserved().search(name) is not None)
    )


def _plain(name: bytes) -> bytes:
    return _LIKE_ESCAPE.sub(b"%25", name)


def _escaped(name: bytes) -> bytes:
    return b"%%%02x" % name[0] + _plain(name[1:]).replace(b"\\", b"%5c")


def _decode(escape: re.Match[bytes]) -> bytes:
    return bytes((int(escape[1], 16),))


_ESCAPE = pattern(rb"%([0-9a-fA-F]{2})")
_LIKE_ESCAPE = pattern(rb"%(?=[0-9a-fA-F]{2})")

# The 16 code points that HFS+ ignores in comparisons (git: utf8.c, next_hfs_char).
_IGNORED = rb"(?:\xe2\x80[\x8c-\x8f\xaa-\xae]|\xe2\x81[\xaa-\xaf]|\xef\xbb\xbf)*"
# One non-ASCII character as git parses it (utf8.c, pick_one_utf8_char): no surrogate, no U+FFFE, no U+FFFF.
_CHARACTER = (
    rb"(?:[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|\xef(?!\xbf[\xbe\xbf])[\x80-\xbf]{2}|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}"
    rb"|\xf4[\x80-\x8f][\x80-\xbf]{2})"
)
_END = rb"[ .]*(?:\Z|[\0:\\]|(?=[\x80-\xff])(?!" + _CHARACTER + rb"))"


def _disguises(name: bytes) -> bytes:
    letters = [re.escape(name[at : at + 1]) for at in range(len(name))]
    return _IGNORED + _IGNORED.join(letters) + _IGNORED


def _short_names(name: bytes, digest: bytes) -> bytes:
    # NTFS: six letters and ~1 to ~4; when these are taken, a digest, truncated as the number grows
    # (git: path.c, is_ntfs_dot_generic).
    shortened = [digest[:length] + rb"~[1-9][0-9]{%d}" % (6 - length) for length in range(7)]
    return b"|".join([name[:6] + rb"~[1-4]", *shortened])


def _forbidden() -> bytes:
    return b"|".join(
        (
            _disguises(b".git"),
            _disguises(b".gitmodules"),
            _disguises(b".gitattributes"),
            rb"git~1",
            _short_names(b"gitmodules", b"gi7eba"),
            _short_names(b"gitattributes", b"gi7d29"),
        )
    )


def _forbidden_link() -> bytes:
    return b"|".join(
        (
            _disguises(b".gitignore"),
            _disguises(b".mailmap"),
            _short_names(b"gitignore", b"gi250a"),
            _short_names(b"mailmap", b"maba30"),
        )
    )


# Compiling these patterns takes 6 ms, and few directories have a name that must be matched.
@cache
def _refused() -> re.Pattern[bytes]:
    return _anchored(_forbidden())


@cache
def _refused_link() -> re.Pattern[bytes]:
    return _anchored(_forbidden_link())


@cache
def _reserved() -> re.Pattern[bytes]:
    return _anchored(_disguises(RESERVED))


def _anchored(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"(?:\A|\\)(?:" + pattern + rb")" + _END, re.IGNORECASE)


@cache
def _suspicious() -> re.Pattern[bytes]:
    # Tuned for all names of a directory at once: it starts with a set of bytes, so that the engine skips to the next
    # separator, and requires a first letter before it tries the long list (117 ns per name instead of 500).
    return re.compile(
        rb"[\0\\%/](?:(?<=/)|(?<=%)[0-9a-fA-F]{2}|(?<=[\0\\])(?=[.gGmM~\xe2\xef])(?i:(?:"
        + b"|".join((_forbidden(), _forbidden_link(), _disguises(RESERVED)))
        + rb")"
        + _END
        + rb"|\.\.?(?:\0|\Z)))"
    )


# Whatever the pattern matches contains one of these in lower case: its separators, a short name's tilde, the first
# bytes of the code points HFS+ ignores, or one of the names.
_SIGNS = (
    *(b"\0.git", b"\0.mailmap", b"\0.envhist", b"\0.\0", b"\0..\0"),
    *(b"\\", b"%", b"/", b"~", b"\xe2", b"\xef"),
)
# Names found in nearly every repository skip the pattern. The value: git obeys the name only if it is a link.
_FAMOUS = {b".git": False, b".gitmodules": False, b".gitattributes": False, b".gitignore": True}
_HARMLESS = (b".github", b".gitkeep", b".gitlab-ci.yml")
