"""Yarn's own list of what it installed where there is no `node_modules`: `.pnp.cjs`, a program that holds it.

The list names each package with its references (`npm:4.17.21`) and what it depends on; what a workspace depends on
somebody asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

TEXT = re.compile(
    r"(?:RAW_RUNTIME_STATE\s*=\s*|hydrateRuntimeState\(JSON\.parse\()'((?:[^'\\]+|\\.)*+)'", re.DOTALL
)
CALL = re.compile(r"hydrateRuntimeState\(\s*(?=\{)")
"""As yarn 2 wrote it: no text, the thing itself, with a comma behind the last of many."""
LAST_COMMA = re.compile(r",(?=\s*[}\]])")
ESCAPED = re.compile(r"\\(.)", re.DOTALL)
VERSION = re.compile(r"(?:^|#)npm:([0-9][0-9A-Za-z.+-]{0,100})(?:::|\Z)")

Package = tuple[str, str, bool]
"""Name, version, whether it came along with another one."""


def read_list(data: bytes) -> Iterator[Package]:
    """The packages of a list; nothing where it is none."""
    registry = read_object(_json_of(data.decode("utf-8", "replace"))).get("packageRegistryData")
    packages = list(_packages(registry))
    asked = {pair for _, reference, about in packages if _is_own(reference) for pair in _dependencies(about)}
    for name, reference, _ in packages:
        found = VERSION.search(reference)
        if found is not None and not _is_own(reference):
            yield name, found[1], (name, reference) not in asked


def read_object(data: bytes | str) -> dict[str, Any]:
    """A JSON object; an empty one where it is none."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        # In an older list a program goes on behind it.
        told = json.JSONDecoder().raw_decode(text.lstrip())[0]
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _json_of(text: str) -> str:
    found = TEXT.search(text)
    if found is not None:
        # A backslash at the end of a line goes on with the next; before anything else it means just that.
        return ESCAPED.sub(lambda escaped: "" if escaped[1] == "\n" else escaped[1], found[1])
    called = CALL.search(text)
    return LAST_COMMA.sub("", text[called.end() :]) if called is not None else text


def _packages(registry: object) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, found in _pairs(registry):
        for reference, about in _pairs(found):
            if isinstance(about, dict):
                yield name or "", reference or "", about


def _dependencies(about: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, reference in _pairs(about.get("packageDependencies")):
        # Under another name than its own: the pair says what it is.
        pair = [name, reference] if isinstance(reference, str) else reference
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(word, str) for word in pair):
            yield pair[0], pair[1]


def _pairs(told: object) -> Iterator[tuple[str | None, Any]]:
    for pair in told if isinstance(told, list) else ():
        if isinstance(pair, list) and len(pair) == 2 and (pair[0] is None or isinstance(pair[0], str)):
            yield pair[0], pair[1]


def _is_own(reference: str) -> bool:
    """Whether it is a package of the project itself."""
    return not reference or reference.startswith("workspace:")
