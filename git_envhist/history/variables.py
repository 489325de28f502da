"""Files of environment variables, told by their keys (pure)."""

from __future__ import annotations

from typing import NamedTuple

from git_envhist.values import pattern

LINE = pattern(rb"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=(.*)")


class VariableChange(NamedTuple):
    """One variable that differs; None on the side where it is not set."""

    key: str
    before: bytes | None
    after: bytes | None

    @property
    def mark(self) -> str:
        if self.before is None:
            return "+"
        return "−" if self.after is None else "~"


def is_variables(path: bytes) -> bool:
    """Whether a file's name says that it holds variables: `.env`, `.env.local`, `.envrc`, `prod.env`."""
    name = path.rpartition(b"/")[2]
    return name in (b".env", b".envrc") or name.startswith((b".env.", b".envrc.")) or name.endswith(b".env")


def read_variables(text: bytes) -> dict[str, bytes]:
    """The variables that a file sets; the last line for a key wins, quotes around a value are kept."""
    found = {}
    for line in text.replace(b"\r\n", b"\n").split(b"\n"):
        setting = LINE.fullmatch(line)
        if setting is not None:
            found[setting[1].decode("ascii")] = setting[2].strip()
    return found


def compare_variables(before: bytes, after: bytes) -> tuple[VariableChange, ...]:
    """What differs, in the order of the later file; what went comes last."""
    old, new = read_variables(before), read_variables(after)
    keys = [*new, *(key for key in old if key not in new)]
    return tuple(
        VariableChange(key, old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)
    )
