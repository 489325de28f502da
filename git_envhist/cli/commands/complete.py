"""`git envhist complete revisions|names|timelines`: words for shell completion, one per line with a description.

The completion files of the shells contain everything static. Errors are ignored: then nothing is offered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from git_envhist.cli.formats import FormatContext, verdict_symbol
from git_envhist.cli.output import Output, OutputClosed
from git_envhist.cli.terminal import shorten
from git_envhist.cli.views.log import id_length
from git_envhist.errors import EnvhistError
from git_envhist.history.timeline import subject
from git_envhist.printable_text import escape

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory
    from git_envhist.model import Snapshot


MAX_COUNT = 200
WIDEST = 60

Offer = tuple[str, str]


def complete(words: Sequence[str]) -> int:
    """Print the possible words of one kind; nothing after an error."""
    output = Output()
    with suppress(EnvhistError, OSError, OutputClosed):
        prefix = os.environ.get("GIT_PREFIX")
        if prefix:
            os.chdir(prefix)
        offered = OFFERED.get(words[0] if words else "")
        for word, description in offered() if offered else ():
            output.line(f"{word}\t{description}" if description else word)
        output.close()
    return 0


def _history() -> EnvHistory:
    from git_envhist.api import EnvHistory  # loaded late: only a completion needs it

    return EnvHistory.open(".", workers="fork", one_command=True)


def _revisions() -> Iterator[Offer]:
    history = _history()
    yield from _named(history)
    shown = history.log(limit=MAX_COUNT)
    context = FormatContext(history.now, id_length=id_length([one.id for one in shown]))
    for snapshot in shown:
        yield context.short_id(snapshot), _description(snapshot, context)


def _names() -> Iterator[Offer]:
    return _named(_history())


def _named(history: EnvHistory) -> Iterator[Offer]:
    context = FormatContext(history.now)
    for snapshot in history.log():
        for name in snapshot.names:
            if name == escape(name):
                yield name, _description(snapshot, context)


def _timelines() -> Iterator[Offer]:
    for name in _history().timelines():
        yield escape(name), ""


def _description(snapshot: Snapshot, context: FormatContext) -> str:
    title = shorten(escape(subject(snapshot.intent)), WIDEST)
    return f"{context.time(snapshot)} {verdict_symbol(snapshot.verdict)} {title}"


OFFERED: dict[str, Callable[[], Iterator[Offer]]] = {
    "revisions": _revisions,
    "names": _names,
    "timelines": _timelines,
}
