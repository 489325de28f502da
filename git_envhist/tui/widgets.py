"""The list of moments: as many rows as fit are drawn, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Static

from git_envhist.text import escape
from git_envhist.tui.programs import Json, JsonResult, SnapshotRow
from git_envhist.tui.text import Text

# What stands over the list for a moment: a plan to be agreed to, what came of something, the keys.

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


MARKS = {"verify passing": ("✓", "green"), "verify failing": ("✗", "red")}
SIGNS, GAP = 4, 2
"""Columns before the intent besides the time, and before the summary."""
UNJUDGED = ("·", "")
OTHERWISE = ("!", "yellow")


def verdict_mark(verdict: str) -> tuple[str, str]:
    """The sign of a verdict, and its colour."""
    if not verdict:
        return UNJUDGED
    return next((mark for words, mark in MARKS.items() if verdict.startswith(words)), OTHERWISE)


def _shortened(row: SnapshotRow, room: int) -> str:
    """Return the intent, shortened so that the summary fits on the same line."""
    story = cell_len(row.story) + GAP if row.story else 0
    most = max(room // 2, room - story - cell_len(row.name))
    if cell_len(row.intent) <= most or most < 2:
        return row.intent
    return set_cell_size(row.intent, most - 1).rstrip() + "…"


class SnapshotList(ScrollView, can_focus=True):
    """Rows, one of which the cursor is on, and one of which may be marked."""

    BINDINGS = [  # noqa: RUF012 - as textual has it
        Binding("down,j", "move(1)", "older", show=False),
        Binding("up,k", "move(-1)", "newer", show=False),
        Binding("pagedown,space", "leaf(1)", "a screen on", show=False),
        Binding("pageup,b", "leaf(-1)", "a screen back", show=False),
        Binding("home,g", "leap(0)", "the newest", show=False),
        Binding("end,G", "leap(-1)", "the oldest", show=False),
        # Here and not with the others: a key that comes right behind a step means the moment after that step.
        Binding("d", "ask_for('mark')", "mark, diff"),
        Binding("r", "ask_for('restore')", "restore"),
    ]
    cursor: reactive[int] = reactive(0)
    marked: reactive[str | None] = reactive(None)

    class Chosen(Message):
        """The cursor came to a moment."""

        def __init__(self, row: SnapshotRow) -> None:
            super().__init__()
            self.row = row

    class Wanted(Message):
        """Something is to be done with the moment under the cursor."""

        def __init__(self, what: str, row: SnapshotRow) -> None:
            super().__init__()
            self.what = what
            self.row = row

    def __init__(self, **words: str) -> None:
        super().__init__(**words)  # type: ignore[arg-type]
        self._rows: Sequence[SnapshotRow] = ()

    @property
    def row(self) -> SnapshotRow | None:
        """The one under the cursor."""
        return self._rows[self.cursor] if self._rows else None

    @property
    def count(self) -> int:
        return len(self._rows)

    def put(self, rows: Sequence[SnapshotRow]) -> None:
        """Show others; the cursor stays on the moment it was on, where that is still here."""
        kept = self.row.id if self.row else None
        self._rows = rows
        place = next((number for number, row in enumerate(rows) if row.id == kept), 0)
        self.virtual_size = Size(self.size.width, len(rows))
        self.set_reactive(SnapshotList.cursor, place)
        self._come_to(place)

    def _come_to(self, place: int) -> None:
        self.scroll_to_region(Region(0, place, 1, 1), animate=False, force=True)
        self.refresh()
        if self.row is not None:
            self.post_message(self.Chosen(self.row))

    def watch_cursor(self, place: int) -> None:
        self._come_to(place)

    def watch_marked(self) -> None:
        self.refresh()

    def validate_cursor(self, place: int) -> int:
        return max(0, min(place, len(self._rows) - 1))

    def action_move(self, step: int) -> None:
        self.cursor += step

    def action_leaf(self, step: int) -> None:
        self.cursor += step * max(1, self.size.height - 1)

    def action_leap(self, place: int) -> None:
        self.cursor = place if place >= 0 else len(self._rows) - 1

    def action_ask_for(self, what: str) -> None:
        if self.row is not None:
            self.post_message(self.Wanted(what, self.row))

    def on_click(self, event: Click) -> None:
        place = event.y + int(self.scroll_y)
        if place < len(self._rows):
            self.cursor = place

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, len(self._rows))

    def render_line(self, y: int) -> Strip:
        place = y + int(self.scroll_y)
        width = self.size.width
        if place >= len(self._rows):
            return Strip.blank(width, self.rich_style)
        return self._strip(self._rows[place], place == self.cursor).adjust_cell_length(width)

    def _strip(self, row: SnapshotRow, is_here: bool) -> Strip:
        ground = self.rich_style + Style(reverse=is_here and self.has_focus, bold=is_here)
        soft = ground + Style(dim=not is_here)
        sign, colour = verdict_mark(row.verdict)
        flag = "◆" if row.id == self.marked else "›" if is_here else " "
        parts = [
            Segment(flag, ground),
            Segment(f"{sign} ", ground + Style(color=colour or None)),
            Segment(f"{row.time} ", soft),
            Segment(_shortened(row, self.size.width - len(row.time) - SIGNS), ground),
            *([Segment(f" ({row.name})", ground + Style(color="cyan"))] if row.name else []),
        ]
        width = self.size.width
        used = sum(part.cell_length for part in parts)
        # What changed stands behind where there is room: it is told in full on the right.
        if width - used > 12:
            parts.append(Segment(f"  {row.story}", soft + Style(dim=True)))
        line = Strip(parts)
        if line.cell_length > width > 1:
            line = Strip([*line.crop(0, width - 1), Segment("…", ground)])
        return Strip([*line, Segment(" " * max(0, width - line.cell_length), ground)])


# The right side: what is told of a moment, set anew whenever there is another width for it.

Write = Callable[[Json, int], Text]
"""What makes a text of so many columns out of a value."""
LEAST = 30
PANEL_WIDTH_SHARE = 3
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
            text = indent_text(told, write, max(LEAST, self.size.width - PANEL_WIDTH_SHARE))
            self._put(Text("\n\n").join([head, text]))

    def _put(self, text: Text) -> None:
        self.query_one(Static).update(text)
