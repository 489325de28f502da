"""Names as a snapshot's tree holds them: a name that git would refuse or obey stands in an escape (pure).

git keeps no entry that could become its own directory on some file system, and it obeys a few names wherever it
finds them: a `.gitattributes` in a tree runs filters and changes line ends when that tree is checked out. So the
names below are never stored as they are, whatever file system this is:

- `.git`, `.gitattributes`, `.gitmodules`, for links also `.gitignore` and `.mailmap`, and `.envhist` at the top,
- in any letter case; with dots and spaces or a stream (`:…`) behind, as NTFS drops them; with characters in between
  that HFS+ ignores; and, since git's HFS+ reader ends a name where UTF-8 does, with malformed UTF-8 behind;
- their NTFS short names (`git~1`, `gitatt~2`, `gi7d29~1`, `gi7~1234`);
- where a backslash separates, as on Windows: each piece of `x\\.git` is looked at.

An escaped name has its first byte and each backslash as `%xx`. In every name, escaped or not, a `%` that two hex digits
follow is written `%25`, which makes the whole injective: no two names are stored as one.
"""

from __future__ import annotations

import re
from functools import cache

from git_envhist.errors import Damaged
from git_envhist.lazy import pattern
from git_envhist.model import EnvPath
from git_envhist.text import show

RESERVED = b".envhist"
"""The one entry at the top of every tree that is not the user's."""


def stored_name(name: bytes, *, top: bool = False, link: bool = False) -> bytes:
    """The name under which a tree holds an entry; `top`: it stands at the top; `link`: it is a symbolic link."""
    if name and b"\0" not in name and not suspicious(name):
        return name
    if not is_name(name):
        raise ValueError(f"not a name: {name!r}")
    if must_escape(name, top=top, link=link):
        return _escaped(name)
    return _plain(name)


def true_name(stored: bytes) -> bytes:
    """The name that a stored one stands for; `Damaged` where nothing is ever stored under that name."""
    name = _ESCAPE.sub(_decode, stored) if b"%" in stored else stored
    if not is_name(name):
        raise Damaged(f"a tree holds an impossible name: '{show(stored)}'")
    # No other spelling of a name: a hostile tree must not hold one name twice.
    if stored == _plain(name) and not must_escape(name):
        return name
    if stored == _escaped(name) and must_escape(name, top=True, link=True):
        return name
    raise Damaged(f"a tree holds a name that is not spelled as names are stored: '{show(stored)}'")


def stored_path(path: EnvPath, *, link: bool = False) -> bytes:
    """A whole path as the tree holds it; `link`: what stands there is a symbolic link."""
    if not suspicious(path.replace(b"/", b"\0")):
        return path
    *above, last = path.split(b"/")
    names = [stored_name(name, top=number == 0) for number, name in enumerate(above)]
    return b"/".join([*names, stored_name(last, top=not above, link=link)])


def true_path(stored: bytes) -> EnvPath:
    """The path of the environment that a path of the tree stands for; the reserved entry stands for none."""
    if not stored:
        return EnvPath(b"")
    names = stored.split(b"/")
    if must_escape(names[0], top=True):
        raise Damaged(f"not a path of the environment: '{show(stored)}'")
    return EnvPath(b"/".join([true_name(name) for name in names]))


def suspicious(names_joined: bytes) -> bool:
    """Look at many names at once, joined by NUL: False means that each is stored as it is, wherever it stands."""
    enclosed = b"\0%b\0" % names_joined
    lowered = enclosed.lower()
    if b"\0.git" in lowered:
        for name in _FAMOUS:
            if b"\0%b\0" % name in lowered:
                return True
        for name in _HARMLESS:
            lowered = lowered.replace(b"\0%b\0" % name, b"\0\0")
    return _shows_a_sign(lowered) and _suspicious().search(enclosed, 0, len(enclosed) - 1) is not None


def _shows_a_sign(lowered: bytes) -> bool:
    # Spelled out: a generator takes twice as long, and this is asked of every name.
    for sign in _SIGNS:  # noqa: SIM110
        if sign in lowered:
            return True
    return False


def is_name(name: bytes) -> bool:
    """Whether a directory can hold an entry of this name."""
    return name not in (b"", b".", b"..") and b"/" not in name and b"\0" not in name


def must_escape(name: bytes, *, top: bool = False, link: bool = False) -> bool:
    """Whether git would refuse or obey this name, or it is ours."""
    lowered = name.lower()
    if lowered in _FAMOUS:
        return link or not _FAMOUS[lowered]
    if not _shows_a_sign(b"\0%b\0" % lowered):
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

# The 16 code points that HFS+ leaves out of a comparison (git: utf8.c, next_hfs_char).
_IGNORED = rb"(?:\xe2\x80[\x8c-\x8f\xaa-\xae]|\xe2\x81[\xaa-\xaf]|\xef\xbb\xbf)*"
# One character beyond ASCII as git reads it (utf8.c, pick_one_utf8_char): no surrogate, no U+FFFE, no U+FFFF.
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
    # NTFS: six letters and ~1 to ~4; when these are taken, a digest, cut ever shorter to make room for the number
    # (git: path.c, is_ntfs_dot_generic).
    shortened = [digest[:kept] + rb"~[1-9][0-9]{%d}" % (6 - kept) for kept in range(7)]
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


# The patterns take 6 ms to compile, and hardly a directory holds a name that has to be tried against one.
@cache
def _refused() -> re.Pattern[bytes]:
    return _pieces(_forbidden())


@cache
def _refused_link() -> re.Pattern[bytes]:
    return _pieces(_forbidden_link())


@cache
def _reserved() -> re.Pattern[bytes]:
    return _pieces(_disguises(RESERVED))


def _pieces(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"(?:\A|\\)(?:" + pattern + rb")" + _END, re.IGNORECASE)


@cache
def _suspicious() -> re.Pattern[bytes]:
    # Tuned for the names of a whole directory at once: it begins with a set of bytes, so that the engine skips to the
    # next separator, and asks for a first letter before it tries the long list (117 ns a name instead of 500).
    return re.compile(
        rb"[\0\\%/](?:(?<=/)|(?<=%)[0-9a-fA-F]{2}|(?<=[\0\\])(?=[.gGmM~\xe2\xef])(?i:(?:"
        + b"|".join((_forbidden(), _forbidden_link(), _disguises(RESERVED)))
        + rb")"
        + _END
        + rb"|\.\.?(?:\0|\Z)))"
    )


# One of these stands, in lower case, in whatever the pattern finds: its separators, a short name's tilde, the first
# bytes of what HFS+ ignores, and else the names themselves, spelled out.
_SIGNS = (
    *(b"\0.git", b"\0.mailmap", b"\0.envhist", b"\0.\0", b"\0..\0"),
    *(b"\\", b"%", b"/", b"~", b"\xe2", b"\xef"),
)
# What stands in nearly every repository is told by heart; the value: only a link of that name is obeyed.
_FAMOUS = {b".git": False, b".gitmodules": False, b".gitattributes": False, b".gitignore": True}
_HARMLESS = (b".github", b".gitkeep", b".gitlab-ci.yml")
