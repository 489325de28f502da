"""The browser: keys become questions to our own programs, asked beside what is shown, and their answers are shown."""

from __future__ import annotations

import asyncio
import os
import signal
import time

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Footer, Input, Static
from textual.worker import get_current_worker

from git_envhist.browse import dialogs
from git_envhist.browse.asking import Answer, Row, ask, fits, plan_of, rows
from git_envhist.browse.moments import Moments
from git_envhist.browse.texts import hanging, headline

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
    #right { width: 1fr; padding: 0 1; scrollbar-size: 1 1; }
    #right:focus { background: $boost; }
    #search { dock: bottom; display: none; height: 1; border: none; padding: 0 1; }
    #search.-shown { display: block; }
    Told { align: center middle; }
    #told-box { width: 92%; max-width: 110; height: auto; max-height: 92%; }
    #told-box { border: round $primary; padding: 0 1; background: $surface; }
    #told-text { height: auto; margin: 1 0; scrollbar-size: 1 1; }
    #told-title, #told-foot { height: 1; }
    """
    BINDINGS = [  # noqa: RUF012 - as textual has it
        Binding("slash", "search", "search"),
        Binding("u", "undo", "undo"),
        Binding("question_mark", "keys", "keys"),
        Binding("q", "quit", "quit"),
        Binding("f5", "look_again", show=False),
        Binding("escape", "clear", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._all: list[Row] = []
        self._shown_for: str | None = None
        self._busy = False

    def compose(self) -> ComposeResult:
        yield Static("looking…", id="top")
        with Horizontal(id="middle"):
            yield Moments(id="moments")
            with VerticalScroll(id="right"):
                yield Static(id="told")
        yield Input(placeholder="words that the moment is told with", id="search")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, lambda: self.exit(return_code=128 + signal.SIGTERM))
        # The terminal is gone, and with it all there was to tidy up; a restore under way is a process of its own.
        loop.add_signal_handler(signal.SIGHUP, os._exit, 128 + signal.SIGHUP)
        self.query_one(Moments).focus()
        self._look()

    # --- what is shown

    @work(thread=True, exclusive=True, group="list")
    def _look(self) -> None:
        found, answer = rows(time.strftime("%Y"))
        self.call_from_thread(self._have, found, answer)

    def _have(self, found: list[Row], answer: Answer) -> None:
        self._all = found
        self._narrow()
        if answer.status or not found:
            words = answer.err.strip() or "nothing was captured here yet: git envlog capture"
            self._tell(Text.from_ansi(words))

    def _narrow(self) -> None:
        words = self._words()
        shown = [row for row in self._all if fits(row, words)] if words else self._all
        self.query_one(Moments).put(shown)
        self._head()
        if not shown and self._all:
            self._tell(Text("no moment is told with these words"))

    def _head(self) -> None:
        moments = self.query_one(Moments)
        number = f"{len(self._all):,}"
        if self._words():
            number = f"{moments.count:,} of {number}"
        head = f"{os.path.basename(os.getcwd()) or '/'} · {number} {'moment' if len(self._all) == 1 else 'moments'}"
        if moments.marked:
            head += f" · marked {moments.marked[:7]}: d at another one shows what differs"
        self.query_one("#top", Static).update(Text(head, no_wrap=True, overflow="ellipsis"))

    def _words(self) -> list[str]:
        return self.query_one("#search", Input).value.split()

    def on_moments_chosen(self, event: Moments.Chosen) -> None:
        if self._shown_for != event.row.id:
            self._shown_for = event.row.id
            self._card(event.row)

    @work(thread=True, exclusive=True, group="card")
    def _card(self, row: Row) -> None:
        worker = get_current_worker()
        time.sleep(PATIENCE)
        columns = self._columns()
        told = headline(row)
        # What a moment changed is what it is looked at for; its card stands below.
        for words in (("envdiff", f"{row.id}~1..{row.id}"), ("envlog", "show", row.id)):
            if worker.is_cancelled:
                return
            answer = ask(words[0], *words[1:-1], "--color=always", words[-1], columns=columns)
            if answer.status == 0 and answer.out.strip():
                told = Text("\n\n").join([told, hanging(answer.out, columns)])
            self._show(worker.is_cancelled, told)

    @work(thread=True, exclusive=True, group="card")
    def _difference(self, old: str, new: str) -> None:
        columns = self._columns()
        answer = ask("envdiff", "--color=always", f"{old}..{new}", columns=columns)
        head = Text(f"from {old[:7]} to {new[:7]}\n\n", style="bold")
        told = head + hanging(answer.text or "nothing differs", columns)
        self._show(get_current_worker().is_cancelled, told)

    def _show(self, too_late: bool, text: Text) -> None:
        if not too_late:
            self.call_from_thread(self._tell, text)

    def _tell(self, text: Text) -> None:
        self.query_one("#told", Static).update(text)
        self.query_one("#right", VerticalScroll).scroll_home(animate=False)

    def _columns(self) -> int:
        return max(30, self.query_one("#right", VerticalScroll).size.width - 3)

    def on_resize(self) -> None:
        moments = self.query_one(Moments)
        moments.styles.width = "45%" if self.size.width < NARROW else "40%"

    def _hung(self, printed: str) -> Text:
        return hanging(printed, dialogs.columns_in(self.size.width))

    # --- keys

    def action_search(self) -> None:
        field = self.query_one("#search", Input)
        field.add_class("-shown")
        field.focus()

    def on_input_changed(self) -> None:
        self._narrow()

    def on_input_submitted(self) -> None:
        self.query_one(Moments).focus()

    def action_clear(self) -> None:
        field, moments = self.query_one("#search", Input), self.query_one(Moments)
        field.value = ""
        field.remove_class("-shown")
        moments.marked = None
        moments.focus()
        self._shown_for = None
        self._narrow()

    def on_moments_wanted(self, event: Moments.Wanted) -> None:
        if event.what == "mark":
            self._mark(event.row)
        else:
            self._go(f"restore {event.row.short} “{event.row.intent}”", event.row.id)

    def _mark(self, row: Row) -> None:
        moments = self.query_one(Moments)
        first, moments.marked = moments.marked, row.id if moments.marked is None else None
        if first is not None and first != row.id:
            order = [one.id for one in self._all]
            old, new = sorted((first, row.id), key=order.index, reverse=True)
            # Where the cursor came to a moment ago is not asked about any more.
            self._shown_for = row.id
            self._difference(old, new)
        self._head()

    def action_keys(self) -> None:
        self.push_screen(dialogs.keys())

    def action_look_again(self) -> None:
        self._shown_for = None
        self._look()

    def action_undo(self) -> None:
        self._go("take back", "--undo")

    # --- going back

    def _go(self, title: str, *words: str) -> None:
        """Show what it would do; do it where somebody agrees; say what came of it."""
        if self._busy:
            return
        self._busy = True
        self._plan(title, words)

    @work(thread=True, group="restore")
    def _plan(self, title: str, words: tuple[str, ...]) -> None:
        shown, plan = plan_of(*words)
        self.call_from_thread(self._ask_whether, title, words, shown, plan)

    def _ask_whether(self, title: str, words: tuple[str, ...], shown: Answer, plan: str | None) -> None:
        if plan is None:
            self._said(title, shown)
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self._carry_out(title, (*words, "--plan", plan))
            else:
                self._busy = False

        self.push_screen(dialogs.plan(title, self._hung(shown.text)), answered)

    @work(thread=True, group="restore")
    def _carry_out(self, title: str, words: tuple[str, ...]) -> None:
        answer = ask("envrestore", "--color=always", *words)
        self.call_from_thread(self._said, title, answer)

    def _said(self, title: str, answer: Answer) -> None:
        def gone_on(_: bool | None) -> None:
            self._busy = False
            self.action_look_again()

        how = title if answer.status in (0, 5) else f"{title}: not done"
        self.push_screen(dialogs.message(how, self._hung(answer.text or "nothing to do")), gone_on)


def browse() -> int:
    """Show the history of this directory until somebody leaves; the status to end with."""
    app = Browser()
    app.run()
    return app.return_code or 0
