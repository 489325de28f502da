"""Widgets of the browser: the list of snapshots, the panel with details, and dialogs.

The list draws only the visible rows.
"""

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
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from git_envhist.printable_text import escape
from git_envhist.tui.own_programs import Json, JsonResult, SnapshotRow, WhySubject
from git_envhist.tui.styled_text import Text

# Dialogs over the list: a plan to confirm, a result, the keys.

KEYS = (
    ("j k ↓ ↑", "older, newer snapshot"),
    ("g G Home End", "newest, oldest snapshot"),
    ("Tab", "move to the details to scroll them, and back"),
    ("/", "search intents, names, summaries; Esc shows all again"),
    ("d", "mark this snapshot; on another one: compare the two"),
    ("r", "show the plan for restoring this snapshot; restore it after confirmation"),
    ("v", "show the plan for taking out this step and keeping later ones; revert it after confirmation"),
    ("m", "choose another timeline and show the plan for merging it; merge it after confirmation"),
    ("w", "choose something that this snapshot changed: who changed it, when and why"),
    ("u", "show the plan for undoing the last restore; undo it after confirmation"),
    ("U", "the same for redoing the last undo"),
    ("F5", "reload"),
    ("q", "quit"),
)

WIDTH_PERCENT, MAX_WIDTH = 92, 110
"""Width of a dialog in percent of the terminal, and its maximum in columns."""
FRAME_COLUMNS, FRAME_LINES = 7, 9
"""Columns of the frame, and lines of frame, heading and footer."""


class TextDialog(ModalScreen[bool]):
    """A text with a heading and a footer; returns True if the user confirms."""

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
        with Vertical(id="dialog-box"):
            yield Static(Text(self._heading, style="bold"), id="dialog-title")
            with VerticalScroll(id="dialog-text", can_focus=False):
                yield Static(self._text)
            yield Static(Text(self._foot, style="dim"), id="dialog-foot")

    def on_mount(self) -> None:
        self._fit()

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        # Keep the heading and footer visible for a text of any length.
        self.query_one("#dialog-text").styles.max_height = max(3, self.app.size.height - FRAME_LINES)

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)

    def action_roll(self, lines: int) -> None:
        self.query_one("#dialog-text", VerticalScroll).scroll_relative(y=lines, animate=False)


class SubjectDialog(ModalScreen[WhySubject | None]):
    """A list of what a snapshot changed; returns the chosen one."""

    BINDINGS = [  # noqa: RUF012 - as textual has it
        Binding("escape,q", "leave", show=False),
        Binding("j", "move(1)", show=False),
        Binding("k", "move(-1)", show=False),
    ]

    def __init__(self, title: str, subjects: Sequence[WhySubject]) -> None:
        super().__init__()
        self._title = title
        self._subjects = subjects

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog-box"):
            yield Static(
                Text(self._title, style="bold", no_wrap=True, overflow="ellipsis"), id="dialog-title"
            )
            yield OptionList(*(Option(Text(escape(one.shown))) for one in self._subjects), id="dialog-text")
            yield Static(Text("Enter shows why · Esc closes · j k move", style="dim"), id="dialog-foot")

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()
        self._fit()

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        self.query_one("#dialog-text").styles.max_height = max(3, self.app.size.height - FRAME_LINES)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._subjects[event.option_index])

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_move(self, step: int) -> None:
        options = self.query_one(OptionList)
        (options.action_cursor_down if step > 0 else options.action_cursor_up)()


class ListDialog(ModalScreen[int | None]):
    """Rows with a cursor; returns the chosen row, or None."""

    BINDINGS = [  # noqa: RUF012 - as textual has it
        Binding("escape,n,q", "leave", show=False),
        Binding("enter,y", "choose", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("pagedown,space", "move(10)", show=False),
        Binding("pageup,b", "move(-10)", show=False),
    ]

    def __init__(self, title: str, rows: Sequence[str], foot: str) -> None:
        super().__init__()
        self._heading = title
        self._rows = rows
        self._foot = foot
        self._place = 0

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog-box"):
            yield Static(Text(self._heading, style="bold"), id="dialog-title")
            with VerticalScroll(id="dialog-text", can_focus=False):
                yield Static(id="dialog-rows")
            yield Static(Text(self._foot, style="dim"), id="dialog-foot")

    def on_mount(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        scroll = self.query_one("#dialog-text", VerticalScroll)
        height = max(3, self.app.size.height - FRAME_LINES)
        scroll.styles.max_height = height
        columns = columns_in(self.app.size.width)
        lines = [self._line(place, columns) for place in range(len(self._rows))]
        self.query_one("#dialog-rows", Static).update(Text("\n").join(lines))
        scroll.scroll_to(y=max(0, self._place - height // 2), animate=False)

    def _line(self, place: int, columns: int) -> Text:
        is_current = place == self._place
        text = f"{'›' if is_current else ' '} {self._row_text(place)}"
        if cell_len(text) > columns:
            text = set_cell_size(text, columns - 1) + "…"
        return Text(text, style="bold" if is_current else "")

    def _row_text(self, place: int) -> str:
        return escape(self._rows[place])

    def action_move(self, step: int) -> None:
        self._place = max(0, min(self._place + step, len(self._rows) - 1))
        self._draw()

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_choose(self) -> None:
        self.dismiss(self._place)


SIDES = {"o": "ours", "t": "theirs", "b": "both", "s": "skip"}
"""The side of a conflict by its key; the capital letter is for all conflicts."""
UNDECIDED = "?"


class ConflictDialog(ListDialog):
    """The conflicts of a revert or a merge; returns 0 if each row of `sides` is decided, or None."""

    BINDINGS = [  # noqa: RUF012 - as textual has it
        *(Binding(key, f"decide('{side}')", show=False) for key, side in SIDES.items()),
        *(Binding(key.upper(), f"decide_all('{side}')", show=False) for key, side in SIDES.items()),
        # The base class has other meanings of two keys.
        Binding("pageup", "move(-10)", show=False),
    ]

    def __init__(self, title: str, rows: Sequence[str], tried: Sequence[str]) -> None:
        """`tried`: the side of each row that did not decide it, e.g. `theirs` for a package; empty if none."""
        super().__init__(title, rows, "o ours · t theirs · b both · s skip · capital: all · Enter plans")
        self._tried = tried
        self.sides = [""] * len(rows)
        """The side of each row; empty: undecided."""

    def _row_text(self, place: int) -> str:
        side = self.sides[place] or self._tried[place] + UNDECIDED
        return f"{side:<7}  {super()._row_text(place)}"

    def action_decide(self, side: str) -> None:
        self.sides[self._place] = side
        self.action_move(1)

    def action_decide_all(self, side: str) -> None:
        self.sides = [side] * len(self.sides)
        self._draw()

    def action_choose(self) -> None:
        if "" in self.sides:
            # The first conflict without a side is next.
            self._place = self.sides.index("")
            self._draw()
        else:
            self.dismiss(0)


def columns_in(width: int) -> int:
    """Return the width of a dialog's text in a terminal of this width."""
    return max(20, min(MAX_WIDTH, width * WIDTH_PERCENT // 100) - FRAME_COLUMNS)


def plan(title: str, text: Text) -> TextDialog:
    """Return a dialog that asks for confirmation of a plan."""
    return TextDialog(title, text, "Enter confirms · Esc cancels · j k scroll")


def message(title: str, text: Text) -> TextDialog:
    """Return a dialog that shows a result."""
    return TextDialog(title, text, "Enter or Esc closes · j k scroll")


def timelines(names: Sequence[str]) -> ListDialog:
    """Return a dialog that asks for a timeline to merge."""
    return ListDialog(
        "Merge what changed in another timeline", names, "Enter shows the plan · Esc cancels · j k move"
    )


def keys() -> TextDialog:
    """Return a dialog that lists the keys."""
    width = max(len(names) for names, _ in KEYS)
    lines = [Text.assemble((names.ljust(width + 2), "bold"), meaning) for names, meaning in KEYS]
    return TextDialog("Keys", Text("\n").join(lines), "Enter or Esc closes")


MARKS = {"verify passing": ("✓", "green"), "verify failing": ("✗", "red")}
COLUMNS_FOR_IDS = 72
"""The least width of a list in which rows show ids."""
SIGNS, GAP = 4, 2
"""Columns before the intent besides the time, and columns before the summary."""
UNCHECKED = ("·", "")
OTHER = ("!", "yellow")


def verdict_mark(verdict: str) -> tuple[str, str]:
    """Return the sign of a check result, and its colour."""
    if not verdict:
        return UNCHECKED
    return next((mark for words, mark in MARKS.items() if verdict.startswith(words)), OTHER)


def _shortened(row: SnapshotRow, space: int) -> str:
    """Return the intent, shortened so that the summary fits on the same line."""
    story = cell_len(row.story) + GAP if row.story else 0
    most = max(space // 2, space - story - cell_len(row.name))
    if cell_len(row.intent) <= most or most < 2:
        return row.intent
    return set_cell_size(row.intent, most - 1).rstrip() + "…"


class SnapshotList(ScrollView, can_focus=True):
    """The list of snapshots with a cursor; one snapshot may be marked."""

    BINDINGS = [  # noqa: RUF012 - as textual has it
        Binding("down,j", "move(1)", "older", show=False),
        Binding("up,k", "move(-1)", "newer", show=False),
        Binding("pagedown,space", "page(1)", "a screen on", show=False),
        Binding("pageup,b", "page(-1)", "a screen back", show=False),
        Binding("home,g", "leap(0)", "the newest", show=False),
        Binding("end,G", "leap(-1)", "the oldest", show=False),
        # Bound here and not in the application, so that they apply to the row of the latest cursor movement.
        Binding("d", "ask_for('mark')", "diff"),
        Binding("r", "ask_for('restore')", "restore"),
        Binding("v", "ask_for('revert')", "revert", show=False),
        Binding("w", "ask_for('why')", "why"),
    ]
    cursor: reactive[int] = reactive(0)
    marked: reactive[str | None] = reactive(None)

    class Chosen(Message):
        """The cursor moved to a snapshot."""

        def __init__(self, row: SnapshotRow) -> None:
            super().__init__()
            self.row = row

    class Wanted(Message):
        """A key asked for an action on the snapshot under the cursor."""

        def __init__(self, what: str, row: SnapshotRow) -> None:
            super().__init__()
            self.what = what
            self.row = row

    def __init__(self, **words: str) -> None:
        super().__init__(**words)  # type: ignore[arg-type]
        self._rows: Sequence[SnapshotRow] = ()

    @property
    def row(self) -> SnapshotRow | None:
        """The row under the cursor."""
        return self._rows[self.cursor] if self._rows else None

    @property
    def count(self) -> int:
        return len(self._rows)

    def put(self, rows: Sequence[SnapshotRow]) -> None:
        """Show other rows; the cursor stays on its snapshot if that is still in the list."""
        previous = self.row.id if self.row else None
        self._rows = rows
        place = next((number for number, row in enumerate(rows) if row.id == previous), 0)
        self.virtual_size = Size(self._columns, len(rows))
        self.set_reactive(SnapshotList.cursor, place)
        self._move_to(place)

    def _move_to(self, place: int) -> None:
        self.scroll_to_region(Region(0, place, 1, 1), animate=False, force=True)
        self.refresh()
        if self.row is not None:
            self.post_message(self.Chosen(self.row))

    def watch_cursor(self, place: int) -> None:
        self._move_to(place)

    def watch_marked(self) -> None:
        self.refresh()

    def validate_cursor(self, place: int) -> int:
        return max(0, min(place, len(self._rows) - 1))

    def action_move(self, step: int) -> None:
        self.cursor += step

    def action_page(self, step: int) -> None:
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
        self.virtual_size = Size(self._columns, len(self._rows))

    @property
    def _columns(self) -> int:
        """The width of a row: without the scroll bar, which would hide the end of a row."""
        return self.scrollable_content_region.width

    def render_line(self, y: int) -> Strip:
        place = y + int(self.scroll_y)
        width = self._columns
        if place >= len(self._rows):
            return Strip.blank(width, self.rich_style)
        return self._strip(self._rows[place], place == self.cursor).adjust_cell_length(width)

    def _strip(self, row: SnapshotRow, is_current: bool) -> Strip:
        ground = self.rich_style + Style(reverse=is_current and self.has_focus, bold=is_current)
        soft = ground + Style(dim=not is_current)
        sign, colour = verdict_mark(row.verdict)
        # Titles of restores name other snapshots by their ids.
        head = f"{row.time} {row.short}" if self._columns >= COLUMNS_FOR_IDS else row.time
        flag = "◆" if row.id == self.marked else "›" if is_current else " "
        parts = [
            Segment(flag, ground),
            Segment(f"{sign} ", ground + Style(color=colour or None)),
            Segment(f"{head} ", soft),
            Segment(_shortened(row, self._columns - len(head) - SIGNS), ground),
            *([Segment(f" ({row.name})", ground + Style(color="cyan"))] if row.name else []),
        ]
        width = self._columns
        used = sum(part.cell_length for part in parts)
        # The summary is shown if there is space; the details have all of it.
        if width - used > 12:
            parts.append(Segment(f"  {row.story}", soft + Style(dim=True)))
        line = Strip(parts)
        if line.cell_length > width > 1:
            line = Strip([*line.crop(0, width - 1), Segment("…", ground)])
        return Strip([*line, Segment(" " * max(0, width - line.cell_length), ground)])


# The panel: text that is wrapped again whenever its width changes.

Write = Callable[[Json, int], Text]
"""Formats a value for a number of columns."""
MIN_COLUMNS = 30
PANEL_WIDTH_SHARE = 3
"""Columns next to the text: a space on either side, and the scroll bar."""


def indent_text(result: JsonResult, write: Write, columns: int) -> Text:
    """Return a value as text, or the error in its place."""
    return (
        Text(escape(result.error_text, lines=True)) if result.value is None else write(result.value, columns)
    )


class Panel(VerticalScroll):
    """A scrollable text."""

    def __init__(self, **words: str) -> None:
        super().__init__(**words)  # type: ignore[arg-type]
        self._drawn: tuple[Text, JsonResult, Write] | None = None

    def compose(self) -> ComposeResult:
        yield Static()

    def show_text(self, text: Text) -> None:
        """Show a text."""
        self._drawn = None
        self._put(text)
        self.scroll_home(animate=False)

    def draw(self, head: Text, result: JsonResult, write: Write) -> None:
        """Show a value below a heading."""
        self._drawn = (head, result, write)
        self._update()
        self.scroll_home(animate=False)

    def on_resize(self) -> None:
        self._update()

    def _update(self) -> None:
        if self._drawn is not None:
            head, result, write = self._drawn
            text = indent_text(result, write, max(MIN_COLUMNS, self.size.width - PANEL_WIDTH_SHARE))
            self._put(Text("\n\n").join([head, text]))

    def _put(self, text: Text) -> None:
        self.query_one(Static).update(text)
