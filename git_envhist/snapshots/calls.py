"""Write and read the calls of agents' tools in a snapshot's message (pure).

`Env-Calls-Since: <id> <start> <end>` is the time for which the message lists all calls, each as `Env-Call: <words>`.
A word is `<key>=<value>`, quoted as in `Env-Actor`. Words of later versions are skipped; a malformed window counts as
none, so that nothing is claimed of it.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from git_envhist.model import CallWindow, ToolCall
from git_envhist.snapshots.message import HASH, quote, unquote

SPECIAL = " ;="
MILLISECOND = Decimal("0.001")
RESULTS = {True: "failed", False: "done"}
MAX_WORDS = 2_000


def write_window(window: CallWindow) -> str:
    """Return the value of `Env-Calls-Since`."""
    return f"{window.after} {window.start:.3f} {window.end:.3f}"


def read_window(value: str) -> CallWindow | None:
    """Return the window that `write_window` wrote; None for any other value."""
    after, _, rest = value.partition(" ")
    start, end = (_seconds(word) for word in rest.partition(" ")[::2])
    if HASH.fullmatch(after) is None or start is None or end is None or end < start:
        return None
    return CallWindow(after, start, end)


def write_call(call: ToolCall) -> str:
    """Return the value of `Env-Call`."""
    words = [
        ("tool", call.tool),
        ("agent", call.agent),
        ("session", call.session or None),
        ("call", call.id),
        ("subagent", call.subagent),
        ("type", call.subagent_type),
        ("intent", call.intent or None),
        ("trace", call.trace),
        # Rounded towards each other: an edit just before or after the call is not within it.
        ("began", _text(call.began, ROUND_CEILING)),
        ("ended", _text(call.ended, ROUND_FLOOR)),
        ("only-paths", "yes" if call.changes_only_paths else None),
        ("may-continue", "yes" if call.may_continue else None),
        ("result", None if call.failed is None else RESULTS[call.failed]),
        *(("path", path) for path in call.paths),
        *(("wrote", path) for path in call.wrote),
        ("command", call.command),
    ]
    return " ".join(f"{key}={quote(value, SPECIAL)}" for key, value in words if value is not None)


def read_call(value: str) -> ToolCall:
    """Return the call that `write_call` wrote; words of an unknown or malformed kind are skipped."""
    found: dict[str, list[str]] = {}
    for word in value.split(" ", MAX_WORDS)[:MAX_WORDS]:
        key, _, text = word.partition("=")
        found.setdefault(key, []).append(unquote(text))

    def one(key: str) -> str | None:
        return found[key][0] if key in found else None

    return ToolCall(
        tool=one("tool") or "",
        agent=one("agent") or "",
        session=one("session") or "",
        id=one("call"),
        subagent=one("subagent"),
        subagent_type=one("type"),
        intent=one("intent") or "",
        command=one("command"),
        paths=tuple(found.get("path", ())),
        changes_only_paths="only-paths" in found,
        wrote=tuple(found.get("wrote", ())),
        trace=one("trace"),
        began=_seconds(one("began") or ""),
        ended=_seconds(one("ended") or ""),
        may_continue="may-continue" in found,
        failed={word: failed for failed, word in RESULTS.items()}.get(one("result") or ""),
    )


def _text(seconds: float | None, rounding: str) -> str | None:
    return None if seconds is None else str(Decimal(repr(seconds)).quantize(MILLISECOND, rounding))


def _seconds(text: str) -> float | None:
    if len(text) > 20 or not text.isascii():
        return None
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and 0 <= seconds < 1e11 else None
