"""What stands over the list for a moment: a plan to be agreed to, what came of something, the keys."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from git_envhist.browse.plaintext import Text

KEYS = (
    ("j k ↓ ↑", "to an older moment, to a newer one"),
    ("g G Home End", "to the newest, to the oldest"),
    ("Tab", "into what is told on the right, to scroll it, and back"),
    ("/", "search intents, names, stories; Esc shows all again"),
    ("d", "mark this moment; at another one: what differs between the two"),
    ("r", "what going back to this moment would do, and then do it"),
    ("u", "what taking back the last restore would do, and then do it"),
    ("U", "the same for what was taken back"),
    ("F5", "look again"),
    ("q", "leave"),
)

SHARE, WIDEST = 92, 110
"""How much of the terminal it takes, in percent, and at most."""
BESIDE, ABOVE = 7, 9
"""What the frame, the heading and the foot take."""


class TextDialog(ModalScreen[bool]):
    """A text, and one key that says yes where something is to be agreed to."""

    BINDINGS = [  # noqa: RUF012 - as textual has it
        Binding("escape,n,q", "answer(False)", show=False),
        Binding("enter,y", "answer(True)", show=False),
        Binding("down,j", "roll(1)", show=False),
        Binding("up,k", "roll(-1)", show=False),
        Binding("pagedown,space", "roll(10)", show=False),
        Binding("pageup,b", "roll(-10)", show=False),
    ]

    def __init__(self, title: str, text: Text, foot: str) -> None:
        super().__init__()
        self._heading = title
        self._text = text
        self._foot = foot

    def compose(self) -> ComposeResult:
        with Vertical(id="told-box"):
            yield Static(Text(self._heading, style="bold"), id="told-title")
            with VerticalScroll(id="told-text", can_focus=False):
                yield Static(self._text)
            yield Static(Text(self._foot, style="dim"), id="told-foot")

    def on_mount(self) -> None:
        self._fit()

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        # The heading and the keys at the foot are seen, however long the text is.
        self.query_one("#told-text").styles.max_height = max(3, self.app.size.height - ABOVE)

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)

    def action_roll(self, lines: int) -> None:
        self.query_one("#told-text", VerticalScroll).scroll_relative(y=lines, animate=False)


def columns_in(width: int) -> int:
    """How many columns a text has in a terminal of that width."""
    return max(20, min(WIDEST, width * SHARE // 100) - BESIDE)


def plan(title: str, text: Text) -> TextDialog:
    """A plan that is carried out where somebody agrees."""
    return TextDialog(title, text, "Enter does it · Esc leaves everything as it is · j k scroll")


def message(title: str, text: Text) -> TextDialog:
    """What came of something."""
    return TextDialog(title, text, "Enter or Esc goes on · j k scroll")


def keys() -> TextDialog:
    """The keys there are."""
    width = max(len(names) for names, _ in KEYS)
    lines = [Text.assemble((names.ljust(width + 2), "bold"), meaning) for names, meaning in KEYS]
    return TextDialog("Keys", Text("\n").join(lines), "Enter or Esc goes on")
