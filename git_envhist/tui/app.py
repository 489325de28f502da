"""The browser application: handle keys, ask our own programs in worker threads, and show their answers."""

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
from textual.worker import Worker, get_current_worker

from git_envhist.printable_text import escape
from git_envhist.tui import styled_text as plans
from git_envhist.tui import widgets
from git_envhist.tui.own_programs import (
    JsonResult,
    OtherTimelines,
    OwnProgramResult,
    SnapshotRow,
    WhySubject,
    ask_json,
    contains_words,
    count_snapshots,
    list_snapshots,
    other_timelines,
    resolve_options,
    why_subjects,
)
from git_envhist.tui.styled_text import Text, diff_text, headline, snapshot_text, why_text
from git_envhist.tui.widgets import Panel, SnapshotList, Write, indent_text

REST_SECONDS = 0.08
"""Seconds that the cursor must rest on a snapshot before its details are loaded, so that scrolling starts no
programs.
"""
NARROW = 180
"""With fewer columns the details are below the list, because narrow rows cut the versions of packages."""


class Browser(App[None]):
    """Browse the timeline of the current directory."""

    TITLE = "git envlog browse"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; }
    #top { height: 1; padding: 0 1; background: $primary-background; color: $text; }
    #middle { height: 1fr; }
    SnapshotList { width: 55%; border-right: solid $primary-background; scrollbar-size: 1 1; }
    #middle.stacked { layout: vertical; }
    .stacked SnapshotList { width: 100%; height: 45%; border-right: none; border-bottom: solid $primary-background; }
    #right { width: 1fr; padding: 0 1; scrollbar-size: 1 1; }
    #right:focus { background: $boost; }
    #search { dock: bottom; display: none; height: 1; border: none; padding: 0 1; }
    TextDialog, SubjectDialog { align: center middle; }
    #dialog-box { width: 92%; max-width: 110; height: auto; max-height: 92%; }
    #dialog-box { border: round $primary; padding: 0 1; background: $surface; }
    #dialog-text { height: auto; margin: 1 0; scrollbar-size: 1 1; }
    #dialog-title, #dialog-foot { height: 1; }
    """
    BINDINGS = [  # noqa: RUF012 - as textual has it
        # With priority, so that text typed right after it goes to the search and not to the list.
        Binding("slash", "search", "search", priority=True),
        Binding("m", "merge", show=False),
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
        self._total = 0
        """The number of snapshots, including folded ones; 0 before they are counted."""
        self._shown_for: str | None = None
        self._operation = ""
        """The running operation; no other one is started meanwhile."""
        self._sides: dict[str, str] = {}
        """The sides of the conflicts of the planned operation, by path."""

    def compose(self) -> ComposeResult:
        yield Static("loading…", id="top")
        with Horizontal(id="middle"):
            yield SnapshotList(id="moments")
            yield Panel(id="right")
        yield Input(placeholder="search intents, names and summaries", id="search")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, lambda: self.exit(return_code=128 + signal.SIGTERM))
        # The terminal was closed and there is nothing to clean up; a running restore is a separate process.
        loop.add_signal_handler(signal.SIGHUP, os._exit, 128 + signal.SIGHUP)
        self.query_one(SnapshotList).focus()
        self._load()

    # --- the list and the details

    @work(thread=True, exclusive=True, group="list")
    def _load(self) -> None:
        found, answer = list_snapshots(time.strftime("%Y"))
        self.call_from_thread(self._set_rows, found, answer)
        # Counting takes a second program: the list does not wait for it.
        total = count_snapshots()
        if not get_current_worker().is_cancelled:
            self.call_from_thread(self._set_total, total)

    def _set_rows(self, found: list[SnapshotRow], answer: OwnProgramResult) -> None:
        self._all, self._total = found, 0
        self._filter()
        if answer.status or not found:
            words = answer.err.strip() or "no snapshots yet: git envlog capture"
            self.query_one(Panel).show_text(Text(escape(words, lines=True)))

    def _set_total(self, total: int) -> None:
        self._total = total
        self._head()

    def _filter(self) -> None:
        words = self._search_words()
        shown = [row for row in self._all if contains_words(row, words)] if words else self._all
        self.query_one(SnapshotList).put(shown)
        self._head()
        if not shown and self._all:
            # The details of the row before may still be loading.
            self.workers.cancel_group(self, "card")
            self._shown_for = None
            self.query_one(Panel).show_text(Text("no snapshot matches these words"))

    def _head(self) -> None:
        snapshots = self.query_one(SnapshotList)
        total = max(self._total, len(self._all))
        number = f"{total:,} {'snapshot' if total == 1 else 'snapshots'}"
        if self._search_words():
            number = f"{snapshots.count:,} of {number}"
        if total > len(self._all):
            number += f" ({total - len(self._all):,} folded)"
        head = f"{escape(os.path.basename(os.getcwd()) or '/')} · {number}"
        if self._operation:
            head += f" · {self._operation}…"
        elif snapshots.marked:
            head += f" · marked {snapshots.marked[:7]}: press d on another snapshot to compare"
        self.query_one("#top", Static).update(Text(head, no_wrap=True, overflow="ellipsis"))

    def _search_words(self) -> list[str]:
        return self.query_one("#search", Input).value.split()

    def on_snapshot_list_chosen(self, event: SnapshotList.Chosen) -> None:
        if self._shown_for != event.row.id:
            self._shown_for = event.row.id
            self._load_details(event.row)

    @work(thread=True, exclusive=True, group="card")
    def _load_details(self, row: SnapshotRow) -> None:
        worker = get_current_worker()
        time.sleep(REST_SECONDS)
        if worker.is_cancelled:
            return
        result = ask_json("envlog", "show", row.id)
        self._show(worker, headline(row), result, snapshot_text)

    @work(thread=True, exclusive=True, group="card")
    def _load_subjects(self, row: SnapshotRow) -> None:
        """Ask which change of a snapshot to explain, then show its origin."""
        worker, result = get_current_worker(), ask_json("envlog", "show", row.id)
        subjects = [] if result.value is None else why_subjects(result.value)

        def answered(chosen: WhySubject | None) -> None:
            if chosen is not None:
                self._load_why(row, chosen)

        def choose() -> None:
            if worker.is_cancelled:
                return
            if subjects:
                title = f"why, at {row.short} “{row.intent}”"
                self.push_screen(widgets.SubjectDialog(title, subjects), answered)
            else:
                words = result.error_text or "the snapshot changed nothing that can be asked about"
                self.query_one(Panel).show_text(Text(words))

        if not worker.is_cancelled:
            self.call_from_thread(choose)

    @work(thread=True, exclusive=True, group="card")
    def _load_why(self, row: SnapshotRow, subject: WhySubject) -> None:
        # The options come before the path, which may begin with a dash.
        result = ask_json("envlog", "why", "--json", f"--at={row.id}", *subject.words)
        self._show(get_current_worker(), Text(f"why {subject.shown}", style="bold"), result, why_text)

    @work(thread=True, exclusive=True, group="card")
    def _load_diff(self, old: str, new: str) -> None:
        result = ask_json("envdiff", f"{old}..{new}")
        head = Text(f"from {old[:7]} to {new[:7]}", style="bold")
        self._show(get_current_worker(), head, result, diff_text)

    def _show(self, worker: Worker[None], head: Text, result: JsonResult, write: Write) -> None:
        def draw() -> None:
            # Asked here, in the thread that cancels.
            if not worker.is_cancelled:
                self.query_one(Panel).draw(head, result, write)

        if not worker.is_cancelled:
            self.call_from_thread(draw)

    def on_resize(self) -> None:
        # In a narrow terminal there is no space for summaries next to the details.
        self.query_one("#middle").set_class(self.size.width < NARROW, "stacked")

    # --- keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # In the input field and in dialogs, "/" is a letter.
        if action == "search":
            return not (isinstance(self.focused, Input) or isinstance(self.screen, ModalScreen))
        return True

    def action_search(self) -> None:
        field = self.query_one("#search", Input)
        field.display = True
        # Set the focus immediately: `focus()` would send the next letters to the list.
        self.screen.set_focus(field)

    def on_input_changed(self) -> None:
        self._filter()

    def on_input_submitted(self) -> None:
        self.query_one(SnapshotList).focus()

    def action_clear(self) -> None:
        field, snapshots = self.query_one("#search", Input), self.query_one(SnapshotList)
        field.value = ""
        field.display = False
        snapshots.marked = None
        snapshots.focus()
        self._shown_for = None
        self._filter()

    def on_snapshot_list_wanted(self, event: SnapshotList.Wanted) -> None:
        if event.what == "mark":
            self._mark(event.row)
        elif event.what == "revert":
            # A row of an agent shows the whole turn.
            turn = ("--turn",) if event.row.trigger == "agent" else ()
            title = f"revert {event.row.short} “{event.row.intent}”"
            self._start(title, "envlog", "revert", *turn, event.row.id)
        elif event.what == "why":
            self._load_subjects(event.row)
        else:
            self._start(f"restore {event.row.short} “{event.row.intent}”", "envrestore", event.row.id)

    def _mark(self, row: SnapshotRow) -> None:
        snapshots = self.query_one(SnapshotList)
        first, snapshots.marked = snapshots.marked, row.id if snapshots.marked is None else None
        if first is not None and first != row.id:
            order = [one.id for one in self._all]
            old, new = sorted((first, row.id), key=order.index, reverse=True)
            # The details of the snapshot under the cursor are no longer needed.
            self._shown_for = row.id
            self._load_diff(old, new)
        self._head()

    def action_keys(self) -> None:
        self.push_screen(widgets.keys())

    def action_look_again(self) -> None:
        self._shown_for = None
        self._load()

    def action_undo(self) -> None:
        self._start("undo the last restore", "envrestore", "--undo")

    def action_redo(self) -> None:
        self._start("redo the last undo", "envrestore", "--redo")

    def action_merge(self) -> None:
        if not self._operation:
            self._set_operation("listing the timelines")
            self._list_timelines()

    @work(thread=True, group="restore")
    def _list_timelines(self) -> None:
        self.call_from_thread(self._choose_timeline, other_timelines())

    def _choose_timeline(self, found: OtherTimelines) -> None:
        names = found.names
        if found.error_text:
            self._show_result("merge", JsonResult(None, found.error_text), plans.plan_text)
            return
        self._set_operation("")
        if not names:
            text = Text("no other timeline; to work in a second directory: git envlog fork <directory>")
            self.push_screen(widgets.message("nothing to merge", text))
            return

        def chosen(place: int | None) -> None:
            if place is not None:
                self._start(f"merge {names[place]}", "envlog", "merge", names[place])

        self.push_screen(widgets.timelines(names), chosen)

    # --- restore

    def _start(self, title: str, *words: str) -> None:
        """Show the plan of a program, carry it out if the user confirms, and show the result."""
        if not self._operation:
            self._sides = {}
            self._set_operation("computing the plan")
            self._plan(title, words)

    def _set_operation(self, what: str) -> None:
        self._operation = what
        self._head()

    @work(thread=True, group="restore")
    def _plan(self, title: str, words: tuple[str, ...]) -> None:
        result = ask_json(*words, *resolve_options(self._sides), "--dry-run")
        self.call_from_thread(self._confirm_plan, title, words, result)

    def _confirm_plan(self, title: str, words: tuple[str, ...], result: JsonResult) -> None:
        conflicts = plans.conflicts_of(result.value) if result.value is not None else ()
        if conflicts:
            self._decide_conflicts(title, words, plans.conflict_rows(conflicts))
            return
        if result.value is None or plans.is_idle(result.value):
            self._show_result(title, result, plans.plan_text)
            return
        self._set_operation("")
        # Pass the plan id, so that exactly the displayed plan is carried out, or nothing.
        confirmed = (*words, *resolve_options(self._sides), "--plan", result.value["plan_id"])

        def answered(yes: bool | None) -> None:
            if yes:
                self._set_operation(f"{title}: running")
                self._carry_out(title, confirmed)

        self.push_screen(widgets.plan(title, plans.plan_text(result.value, self._dialog_columns())), answered)

    def _decide_conflicts(self, title: str, words: tuple[str, ...], rows: list[tuple[str, str]]) -> None:
        """Ask for the side of each conflict, then plan again; a conflict that its side cannot decide is asked again."""
        self._set_operation("")
        number = f"{len(rows):,} conflict{'' if len(rows) == 1 else 's'}"
        tried = [self._sides.get(path, "") for path, _ in rows]
        dialog = widgets.ConflictDialog(
            f"{number}, nothing is changed: {title}", [text for _, text in rows], tried
        )

        def decided(done: int | None) -> None:
            if done is not None:
                self._sides |= {path: side for (path, _), side in zip(rows, dialog.sides, strict=True)}
                self._set_operation("computing the plan")
                self._plan(title, words)

        self.push_screen(dialog, decided)

    @work(thread=True, group="restore")
    def _carry_out(self, title: str, words: tuple[str, ...]) -> None:
        result = ask_json(*words)
        self.call_from_thread(self._show_result, title, result, plans.result_text)

    def _show_result(self, title: str, result: JsonResult, write: Write) -> None:
        self._set_operation("")
        shown_title = title if result.value is not None else f"{title}: not done"
        text = indent_text(result, write, self._dialog_columns())
        self.push_screen(widgets.message(shown_title, text), lambda _: self.action_look_again())

    def _dialog_columns(self) -> int:
        return widgets.columns_in(self.size.width)


def browse() -> int:
    """Browse the history of this directory until the user quits; return the exit status."""
    app = Browser()
    app.run()
    return app.return_code or 0
