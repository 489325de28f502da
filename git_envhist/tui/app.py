"""The browser: keys become questions to our own programs, asked beside what is shown, and their answers are shown."""

from __future__ import annotations

import asyncio
import os
import signal
import time

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static
from textual.worker import get_current_worker

from git_envhist.text import escape
from git_envhist.tui import text as plans
from git_envhist.tui import widgets
from git_envhist.tui.programs import JsonResult, OwnProgramResult, SnapshotRow, ask_json, fits, rows
from git_envhist.tui.text import Text, diff_text, headline, snapshot_text
from git_envhist.tui.widgets import Panel, SnapshotList, Write, indent_text

PATIENCE = 0.08
"""Seconds the cursor rests on a moment before it is asked about: whoever runs down the list starts no programs."""
NARROW = 100


class Browser(App[None]):
    """The timeline of this directory."""

    TITLE = "git envlog browse"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; }
    #top { height: 1; padding: 0 1; background: $primary-background; color: $text; }
    #middle { height: 1fr; }
    Moments { width: 40%; min-width: 30; border-right: solid $primary-background; scrollbar-size: 1 1; }
    #middle.stacked { layout: vertical; }
    .stacked Moments { width: 100%; height: 45%; border-right: none; border-bottom: solid $primary-background; }
    #right { width: 1fr; padding: 0 1; scrollbar-size: 1 1; }
    #right:focus { background: $boost; }
    #search { dock: bottom; display: none; height: 1; border: none; padding: 0 1; }
    Told { align: center middle; }
    #told-box { width: 92%; max-width: 110; height: auto; max-height: 92%; }
    #told-box { border: round $primary; padding: 0 1; background: $surface; }
    #told-text { height: auto; margin: 1 0; scrollbar-size: 1 1; }
    #told-title, #told-foot { height: 1; }
    """
    BINDINGS = [  # noqa: RUF012 - as textual has it
        # Before any widget has it: what is typed right behind it is what is searched for, and no key of the list's.
        Binding("slash", "search", "search", priority=True),
        Binding("u", "undo", "undo"),
        Binding("U", "redo", show=False),
        Binding("question_mark", "keys", "keys"),
        Binding("q", "quit", "quit"),
        Binding("f5", "look_again", show=False),
        Binding("escape", "clear", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._all: list[SnapshotRow] = []
        self._shown_for: str | None = None
        self._doing = ""
        """What is under way; nothing else is begun meanwhile."""

    def compose(self) -> ComposeResult:
        yield Static("looking…", id="top")
        with Horizontal(id="middle"):
            yield SnapshotList(id="moments")
            yield Panel(id="right")
        yield Input(placeholder="words that the moment is told with", id="search")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, lambda: self.exit(return_code=128 + signal.SIGTERM))
        # The terminal is gone, and with it all there was to tidy up; a restore under way is a process of its own.
        loop.add_signal_handler(signal.SIGHUP, os._exit, 128 + signal.SIGHUP)
        self.query_one(SnapshotList).focus()
        self._look()

    # --- what is shown

    @work(thread=True, exclusive=True, group="list")
    def _look(self) -> None:
        found, answer = rows(time.strftime("%Y"))
        self.call_from_thread(self._have, found, answer)

    def _have(self, found: list[SnapshotRow], answer: OwnProgramResult) -> None:
        self._all = found
        self._narrow()
        if answer.status or not found:
            words = answer.err.strip() or "nothing was captured here yet: git envlog capture"
            self.query_one(Panel).tell(Text(escape(words, lines=True)))

    def _narrow(self) -> None:
        words = self._words()
        shown = [row for row in self._all if fits(row, words)] if words else self._all
        self.query_one(SnapshotList).put(shown)
        self._head()
        if not shown and self._all:
            self.query_one(Panel).tell(Text("no moment is told with these words"))

    def _head(self) -> None:
        moments = self.query_one(SnapshotList)
        number = f"{len(self._all):,}"
        if self._words():
            number = f"{moments.count:,} of {number}"
        noun = "moment" if len(self._all) == 1 else "moments"
        head = f"{escape(os.path.basename(os.getcwd()) or '/')} · {number} {noun}"
        if self._doing:
            head += f" · {self._doing}…"
        elif moments.marked:
            head += f" · marked {moments.marked[:7]}: d at another one shows what differs"
        self.query_one("#top", Static).update(Text(head, no_wrap=True, overflow="ellipsis"))

    def _words(self) -> list[str]:
        return self.query_one("#search", Input).value.split()

    def on_moments_chosen(self, event: SnapshotList.Chosen) -> None:
        if self._shown_for != event.row.id:
            self._shown_for = event.row.id
            self._card(event.row)

    @work(thread=True, exclusive=True, group="card")
    def _card(self, row: SnapshotRow) -> None:
        worker = get_current_worker()
        time.sleep(PATIENCE)
        if worker.is_cancelled:
            return
        told = ask_json("envlog", "show", row.id)
        self._show(worker.is_cancelled, headline(row), told, snapshot_text)

    @work(thread=True, exclusive=True, group="card")
    def _difference(self, old: str, new: str) -> None:
        told = ask_json("envdiff", f"{old}..{new}")
        head = Text(f"from {old[:7]} to {new[:7]}", style="bold")
        self._show(get_current_worker().is_cancelled, head, told, diff_text)

    def _show(self, too_late: bool, head: Text, told: JsonResult, write: Write) -> None:
        if not too_late:
            self.call_from_thread(self.query_one(Panel).draw, head, told, write)

    def on_resize(self) -> None:
        # Side by side, the list of a narrow terminal has no room for summaries.
        self.query_one("#middle").set_class(self.size.width < NARROW, "stacked")

    # --- keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # In the field itself, and over the list, it is a letter.
        if action == "search":
            return not (isinstance(self.focused, Input) or isinstance(self.screen, ModalScreen))
        return True

    def action_search(self) -> None:
        field = self.query_one("#search", Input)
        field.display = True
        # At once: `focus()` would leave the next letters to the list.
        self.screen.set_focus(field)

    def on_input_changed(self) -> None:
        self._narrow()

    def on_input_submitted(self) -> None:
        self.query_one(SnapshotList).focus()

    def action_clear(self) -> None:
        field, moments = self.query_one("#search", Input), self.query_one(SnapshotList)
        field.value = ""
        field.display = False
        moments.marked = None
        moments.focus()
        self._shown_for = None
        self._narrow()

    def on_moments_wanted(self, event: SnapshotList.Wanted) -> None:
        if event.what == "mark":
            self._mark(event.row)
        else:
            self._go(f"restore {event.row.short} “{event.row.intent}”", event.row.id)

    def _mark(self, row: SnapshotRow) -> None:
        moments = self.query_one(SnapshotList)
        first, moments.marked = moments.marked, row.id if moments.marked is None else None
        if first is not None and first != row.id:
            order = [one.id for one in self._all]
            old, new = sorted((first, row.id), key=order.index, reverse=True)
            # Where the cursor came to a moment ago is not asked about any more.
            self._shown_for = row.id
            self._difference(old, new)
        self._head()

    def action_keys(self) -> None:
        self.push_screen(widgets.keys())

    def action_look_again(self) -> None:
        self._shown_for = None
        self._look()

    def action_undo(self) -> None:
        self._go("take back", "--undo")

    def action_redo(self) -> None:
        self._go("do again what was taken back", "--redo")

    # --- going back

    def _go(self, title: str, *words: str) -> None:
        """Show what it would do; do it where somebody agrees; say what came of it."""
        if not self._doing:
            self._do("looking what that would do")
            self._plan(title, words)

    def _do(self, what: str) -> None:
        self._doing = what
        self._head()

    @work(thread=True, group="restore")
    def _plan(self, title: str, words: tuple[str, ...]) -> None:
        told = ask_json("envrestore", "--dry-run", *words)
        self.call_from_thread(self._ask_whether, title, words, told)

    def _ask_whether(self, title: str, words: tuple[str, ...], told: JsonResult) -> None:
        if told.value is None or plans.is_idle(told.value):
            self._said(title, told, plans.plan_text)
            return
        self._do("")
        # What was shown is done, or nothing is.
        agreed = (*words, "--plan", told.value["plan_id"])

        def answered(yes: bool | None) -> None:
            if yes:
                self._do(f"{title}: under way")
                self._carry_out(title, agreed)

        self.push_screen(widgets.plan(title, plans.plan_text(told.value, self._columns_over())), answered)

    @work(thread=True, group="restore")
    def _carry_out(self, title: str, words: tuple[str, ...]) -> None:
        told = ask_json("envrestore", *words)
        self.call_from_thread(self._said, title, told, plans.result_text)

    def _said(self, title: str, told: JsonResult, write: Write) -> None:
        self._do("")
        how = title if told.value is not None else f"{title}: not done"
        text = indent_text(told, write, self._columns_over())
        self.push_screen(widgets.message(how, text), lambda _: self.action_look_again())

    def _columns_over(self) -> int:
        return widgets.columns_in(self.size.width)


def browse() -> int:
    """Show the history of this directory until somebody leaves; the status to end with."""
    app = Browser()
    app.run()
    return app.return_code or 0
