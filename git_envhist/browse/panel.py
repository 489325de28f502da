"""The right side: what is told of a moment, set anew whenever there is another width for it."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from git_envhist.browse.asking import JsonResult
from git_envhist.browse.plaintext import Text
from git_envhist.browse.values import Json
from git_envhist.spelling import escape

Write = Callable[[Json, int], Text]
"""What makes a text of so many columns out of a value."""
LEAST = 30
BESIDE = 3
"""What stands beside the text: a space to either side, and the bar that scrolls it."""


def indent_text(told: JsonResult, write: Write, columns: int) -> Text:
    """What a program told as a text, or in its place why it told nothing."""
    return Text(escape(told.trouble, lines=True)) if told.value is None else write(told.value, columns)


class Panel(VerticalScroll):
    """A text that is scrolled."""

    def __init__(self, **words: str) -> None:
        super().__init__(**words)  # type: ignore[arg-type]
        self._drawn: tuple[Text, JsonResult, Write] | None = None

    def compose(self) -> ComposeResult:
        yield Static()

    def tell(self, text: Text) -> None:
        """Show a text as it is."""
        self._drawn = None
        self._put(text)
        self.scroll_home(animate=False)

    def draw(self, head: Text, told: JsonResult, write: Write) -> None:
        """Show a value below a heading."""
        self._drawn = (head, told, write)
        self._set()
        self.scroll_home(animate=False)

    def on_resize(self) -> None:
        self._set()

    def _set(self) -> None:
        if self._drawn is not None:
            head, told, write = self._drawn
            text = indent_text(told, write, max(LEAST, self.size.width - BESIDE))
            self._put(Text("\n\n").join([head, text]))

    def _put(self, text: Text) -> None:
        self.query_one(Static).update(text)
