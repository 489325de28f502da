"""Files of configuration, told by the keys that differ: JSON, TOML, YAML and INI (pure).

Values are never told: nobody knows which of them are secret. What cannot be read for sure is not told at all; the file
is among those that changed in any case. A key that came with all that stands below it is one key.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from git_envhist.history.classes import INSTALLED
from git_envhist.history.yamlkeys import read_yaml

LARGEST = 256 << 10
"""Whatever is larger is data."""
DEEPEST = 12
MOST_KEYS = 1000
"""So many keys that differ are no setting that somebody changed."""
LOCKS = frozenset((b"package-lock.json", b"npm-shrinkwrap.json", b"pnpm-lock.yaml", b".package-lock.json"))
MADE = frozenset(
    (
        *(
            b"dist",
            b"build",
            b"out",
            b"target",
            b"coverage",
            b".next",
            b".nuxt",
            b".svelte-kit",
            b".turbo",
            b".cache",
        ),
        *(
            b"__pycache__",
            b".mypy_cache",
            b".ruff_cache",
            b".pytest_cache",
            b".git",
            b".gradle",
            b".parcel-cache",
        ),
    )
)
"""Directories whose contents a program makes."""
SECTION = re.compile(r"[ \t]*\[(.+)\][ \t]*(?:[#;].*)?\Z")
SETTING = re.compile(r"([^=:#;\[\s][^=:]*?)[ \t]*[=:][ \t]*(.*)\Z")

Tree = Mapping[str, Any]


def compare_settings(path: bytes, before: bytes, after: bytes) -> tuple[tuple[str, str], ...]:
    """(mark, key) of what differs: `("~", "server.port")`; nothing where either side cannot be read."""
    read = reader_of(path)
    if read is None or max(len(before), len(after)) > LARGEST:
        return ()
    old, new = _read(read, before), _read(read, after)
    if old is None or new is None:
        return ()
    try:
        found = tuple(_differing(old, new, (), 0))
    except RecursionError:
        return ()
    return found if len(found) <= MOST_KEYS else ()


def reader_of(path: bytes) -> Callable[[str], Tree | None] | None:
    """What reads a file of this name; None where it is no configuration that somebody wrote."""
    *directories, name = path.split(b"/")
    if name in LOCKS or not (INSTALLED | MADE).isdisjoint(directories):
        return None
    return READERS.get(name) or READERS.get(name[name.rfind(b".") :] if b"." in name else b"")


def _read(read: Callable[[str], Tree | None], data: bytes) -> Tree | None:
    try:
        return read(data.decode("utf-8-sig").replace("\r\n", "\n"))
    except (ValueError, RecursionError):
        return None


def _differing(old: Tree, new: Tree, above: tuple[str, ...], depth: int) -> Iterator[tuple[str, str]]:
    for key in [*new, *(key for key in old if key not in new)]:
        here = (*above, key)
        if key not in old or key not in new:
            yield "+" if key in new else "−", ".".join(here)
            continue
        one, other = old[key], new[key]
        if isinstance(one, dict) and isinstance(other, dict) and depth < DEEPEST:
            yield from _differing(one, other, here, depth + 1)
        elif not _same(one, other):
            yield "~", ".".join(here)


def _same(one: object, other: object) -> bool:
    # True is 1 to Python, and another setting.
    return repr(one) == repr(other)


def _read_json(text: str) -> Tree | None:
    told = json.loads(text)
    return told if isinstance(told, dict) else None


def _read_ini(text: str) -> Tree | None:
    """Sections of `key = value`; what stands before the first section has none."""
    found: dict[str, Any] = {}
    section, key = found, ""
    for line in text.split("\n"):
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        head, setting = SECTION.match(line), SETTING.match(line)
        if line[0] in " \t" and key:
            section[key] += "\n" + stripped
        elif head is not None:
            section, key = found.setdefault(f"[{head[1]}]", {}), ""
        elif setting is not None:
            key = setting[1]
            section[key] = setting[2].strip()
        else:
            return None
    return found


READERS: dict[bytes, Callable[[str], Tree | None]] = {
    **dict.fromkeys((b".json", b".webmanifest"), _read_json),
    **dict.fromkeys((b".toml", b"Pipfile"), tomllib.loads),
    **dict.fromkeys((b".yaml", b".yml"), read_yaml),
    **dict.fromkeys(
        (b".ini", b".cfg", b"pip.conf", b".npmrc", b".editorconfig", b".flake8", b".gitconfig"), _read_ini
    ),
}
"""By the end of a name, or by a whole one."""
