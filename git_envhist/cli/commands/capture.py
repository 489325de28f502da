"""`git envlog capture`: take a snapshot and print the result.

The result is printed as soon as the snapshot is stored, and the result of its check afterwards (`_CaptureReporter`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import print_error_line, warn
from git_envhist.cli.formats import count, size
from git_envhist.cli.parser import argument, dry_run, force, message, option
from git_envhist.cli.refused_arguments import refuse_name
from git_envhist.cli.views.log import title_of
from git_envhist.errors import UsageError
from git_envhist.lazy import replace
from git_envhist.model import CaptureResult, EnvPath, MissingPath, MissingReason, Trigger
from git_envhist.model.checks import UNWATCHED, CheckListener
from git_envhist.printable_text import escape, format_duration
from git_envhist.snapshots.list_texts import ROOT_MARK

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory


MAX_LINES = 20
"""The longest list of paths of one kind; `git envlog show` prints all."""
MAX_SIZE = 5
MAX_DIRECTORIES = 12


@command("capture", "git envlog capture [<options>] [<intent> | -m <intent>]", writes=True)
@argument("intent")
@message("why you take this snapshot; repeatable")
@option("--name", metavar="<name>", help="give the snapshot a name")
@option("--verify", metavar="<command>", help="then run this shell command as the check")
@option(
    "--attach",
    "attach",
    metavar="<file>",
    multiple=True,
    help="store a file with it, sealed; repeatable",
)
@option(
    "--meta",
    "meta",
    metavar="<key>=<value>",
    multiple=True,
    help="store a value with it; repeatable",
)
@option("--external-id", metavar="<id>", help="store the id that another program uses for it")
@option("--if-changed", is_flag=True, help="take no snapshot if nothing changed")
@option("--strict", is_flag=True, help="refuse if a path cannot be captured")
@force("capture even if this is your home directory or /")
@dry_run("list what would be read, by directory; store nothing")
@option("--porcelain", is_flag=True, help="print only the full snapshot id")
@option("--exit-code", is_flag=True, help="exit with the status of the check")
def capture(session: Session, intent: str | None, messages: tuple[str, ...], **options: Any) -> int:
    """Take a snapshot of the environment: all files, tracked or not, except those that .envhistignore names."""
    session.no_paths()
    if options["name"] is not None:
        refuse_name(options["name"])
    reporter = _CaptureReporter(session, options)
    captured = _capture(session, _intent(intent, messages), options, reporter)
    if captured.snapshot is not None:
        from git_envhist.consent import approve_repository  # loaded late: an unchanged capture needs none

        approve_repository(session.history.environ, session.history.repository.common_dir)
    reporter.print_check(captured)
    if not (options["dry_run"] or options["porcelain"]):
        print_next_step(session, captured)
    return reporter.status(captured)


def print_next_step(session: Session, captured: CaptureResult) -> None:
    """Print a hint about the next step."""
    from git_envhist.cli import errors  # loaded late: a script gets no hint

    if captured.verdict is not None:
        errors.after_verdict(session, captured.verdict)
    elif sys.stderr.isatty():
        errors.after_capture(session, captured)


class _CaptureReporter:
    """Prints the result of a capture as soon as the snapshot is stored, and that of its check at the end."""

    def __init__(self, session: Session, options: dict[str, Any]) -> None:
        self._session = session
        self._options = options
        self._warned = 0
        self._stored_result: CaptureResult | None = None

    def print_capture(self, captured: CaptureResult) -> None:
        session, options = self._session, self._options
        self._warn((*session.history.warnings, *captured.warnings))
        self._warned, self._stored_result = len(captured.warnings), captured
        if captured.snapshot is not None and not options["dry_run"]:
            session.done(f"{captured.snapshot.id[:7]} is captured")
        warn_of_missing(captured.missing)
        if session.json:
            return
        if options["dry_run"]:
            _print_all(session, dry_run_lines(captured))
        elif options["porcelain"]:
            # Nothing changed, so that no snapshot was taken: the newest one has this state.
            session.line(captured.snapshot.id if captured.snapshot else _newest_id(session))
        else:
            _print_all(session, captured_lines(captured, session.history))

    def print_stored(self) -> None:
        """Print the stored snapshot after its check was interrupted."""
        if self._stored_result is not None and self._session.json:
            _print_json(self._session, self._stored_result)
        self._session.output.flush()

    def print_check(self, captured: CaptureResult) -> None:
        self._warn(captured.warnings[self._warned :])
        if self._session.json:
            _print_json(self._session, captured)
        if captured.verdict is None:
            return
        from git_envhist.cli.views.details import (  # loaded late: most captures check nothing
            verdict_line,
            warn_of_verdict,
        )

        warn_of_verdict(captured.verdict)
        if not self._session.json and not self._options["porcelain"]:
            self._session.line(f" {verdict_line(captured.verdict)}")

    def status(self, captured: CaptureResult) -> int:
        if not self._options["exit_code"]:
            return 0
        if captured.verdict is None:
            raise UsageError(
                "--exit-code needs a check", hint="git envlog capture --exit-code --verify <command>"
            )
        from git_envhist.checks.verdicts import exit_status  # loaded late: most captures check nothing

        return exit_status(captured.verdict)

    def _warn(self, warnings: Sequence[str]) -> None:
        for warning in dict.fromkeys(warnings):
            warn(warning)


def _intent(positional: str | None, messages: tuple[str, ...]) -> bytes | None:
    if positional is not None and messages:
        raise UsageError("two intents are given", hint="give it as an argument or with -m")
    words = messages if positional is None else (positional,)
    # Each -m is a paragraph, as in git commit.
    return os.fsencode("\n\n".join(words)) if words else None


def _capture(
    session: Session, intent: bytes | None, options: dict[str, Any], reporter: _CaptureReporter
) -> CaptureResult:
    from git_envhist.cli.progress import shown_progress  # loaded late: keeps capture fast

    with ExitStack() as shown:
        progress = shown.enter_context(shown_progress())

        def print_captured(captured: CaptureResult) -> None:
            # The output of a check is not mixed with a progress bar.
            shown.close()
            reporter.print_capture(captured)

        try:
            return session.history.capture(
                intent,
                verify=options["verify"],
                watching=_watching(session, options),
                captured=print_captured,
                name=options["name"],
                if_changed=options["if_changed"],
                strict=options["strict"],
                meta=tuple(map(_pair, options["meta"])),
                external_id=options["external_id"],
                attach=options["attach"],
                dry_run=options["dry_run"],
                force=options["force"],
                trigger=Trigger.MANUAL,
                progress=progress,
                waiting=lambda: report_lock_holder(session),
            )
        except KeyboardInterrupt:
            reporter.print_stored()
            raise


def _watching(session: Session, options: dict[str, Any]) -> CheckListener:
    if options["verify"] is None and session.history.settings.verify is None:
        return UNWATCHED
    from git_envhist.cli.views.details import make_check_listener  # loaded late: most captures check nothing

    return make_check_listener(session)


def report_lock_holder(session: Session) -> None:
    """Print which operation holds the lock of the working tree."""
    from git_envhist.worktree.unfinished_restore import restore_directory  # loaded late: captures rarely wait

    place = restore_directory(session.history.repository.state)
    what = "a restore" if os.path.isdir(place) and os.listdir(place) else "another capture"
    print_error_line(f"waiting for {what} of this working tree to finish")


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise UsageError(f"not <key>=<value>: '{text}'", hint="git envlog capture --meta <key>=<value>")
    return key, value


def _newest_id(session: Session) -> str:
    return session.history.resolve("@").id


def captured_lines(captured: CaptureResult, history: EnvHistory) -> Iterator[str]:
    """Yield the result lines of a capture."""
    snapshot = captured.snapshot
    if snapshot is None:
        yield f"nothing changed since the newest snapshot ({format_duration(captured.seconds)})"
        if any(service.dump for service in history.settings.services):
            yield " services were not compared; to store their state too: git envlog capture without --if-changed"
        return
    yield f"[{escape(snapshot.timeline)} {snapshot.id[:7]}] {escape(title_of(snapshot))}"
    partial = f", partial: {count(len(captured.missing), 'path')} missing" if captured.missing else ""
    yield f" {counts_line(captured)}{partial}"
    for kept in captured.services:
        summary = f", {kept.summary}" if kept.summary else ""
        yield f" state of {escape(kept.name)}: {size(kept.bytes)}{summary}"
    if captured.first:
        yield from _first_lines(captured, history)
    if captured.sealed_first:
        yield " secret files are sealed (encrypted) with a new key; back it up: git envlog key export -o <file>"
        if history.settings.key_in != "home":
            yield (
                " a copy of this directory includes the key; "
                "to store it only in your home: git config envhist.keyIn home"
            )


def counts_line(captured: CaptureResult) -> str:
    """Return `4,213 files, 12 new (3.1 MiB, 812.0 KiB stored), 0.31 s`."""
    new = f"{captured.new_files:,} new"
    if captured.new_bytes:
        new += f" ({size(captured.new_bytes)}, {size(captured.stored_bytes)} stored)"
    return f"{count(captured.files, 'file')}, {new}, {format_duration(captured.seconds)}"


def _first_lines(captured: CaptureResult, history: EnvHistory) -> Iterator[str]:
    heading = " this first snapshot contains the whole environment"
    largest = tuple(one for one in captured.directories if one[0] and one[1])[:MAX_SIZE]
    yield heading + ("; the largest directories:" if largest else "")
    yield from directory_lines(largest)
    from git_envhist.probes import package_directories  # loaded late: only a first capture needs it

    inside = [path for path, _, _ in largest if not path.endswith(ROOT_MARK)]
    below = [path for path in inside if path.isascii() and os.fsdecode(path).isprintable()]
    # Installed packages are what a restore is needed for most often, so they are no example.
    below = [path for path in below if path not in package_directories()]
    example = next((path for path in below if not _is_tracked(history, path)), None)
    if example is not None:
        import shlex  # loaded late: only a first capture needs it

        pattern = shlex.quote(f"/{os.fsdecode(example)}/")
        yield f" to exclude one: echo {pattern} >> .envhistignore"


def _is_tracked(history: EnvHistory, directory: EnvPath) -> bool:
    """Return whether git tracks files in a directory.

    The hint about excluding a directory does not name one with sources.
    """
    pathspec = ":(top,literal)" + os.fsdecode(directory)
    listed = history.repository.git.try_run("ls-files", "-z", "--", pathspec)
    return bool(listed.out)


def directory_lines(directories: tuple[tuple[EnvPath, int, int], ...]) -> Iterator[str]:
    """Yield one line per directory: bytes, files, path."""
    for path, files, number in directories:
        yield f"  {size(number):>10}  {count(files, 'file'):>14}  {escape(_shown_directory(path))}"


def _shown_directory(path: EnvPath) -> str:
    return os.fsdecode(path if path.endswith(ROOT_MARK) else path + b"/") if path else "./"


def _by_top(directories: Iterable[tuple[EnvPath, int, int]]) -> list[tuple[EnvPath, int, int]]:
    """Return the top directories, each with the sums of everything below it, the largest first."""
    sums: dict[bytes, list[int]] = {}
    for path, files, number in directories:
        # The name of an additional root contains slashes.
        top = path if bytes(path).count(ROOT_MARK) else path.partition(b"/")[0]
        row = sums.setdefault(top, [0, 0])
        row[0] += files
        row[1] += number
    rows = [(EnvPath(top), files, number) for top, (files, number) in sums.items()]
    return sorted(rows, key=lambda row: (-row[2], row[0]))


def dry_run_lines(captured: CaptureResult) -> Iterator[str]:
    """Yield what a capture would read, by directory."""
    amount = f"{count(captured.new_files, 'file')} ({size(captured.new_bytes)})"
    yield f"would read {amount} and store what is new, {format_duration(captured.seconds)}"
    largest = _by_top(captured.directories)
    yield from directory_lines(tuple(largest[:MAX_DIRECTORIES]))
    rest = largest[MAX_DIRECTORIES:]
    if rest:
        more = count(len(rest), "more directory", "more directories")
        yield f"  {size(sum(one[2] for one in rest)):>10}  {count(sum(one[1] for one in rest), 'file'):>14}  in {more}"


def warn_of_missing(missing: tuple[MissingPath, ...]) -> None:
    """Warn about each path that is not in the snapshot, with the reason."""
    for one in missing[:MAX_LINES]:
        warn(f"not captured ({why_missing(one)}): '{os.fsdecode(one.path)}'")
    if len(missing) > MAX_LINES:
        warn(
            f"not captured: {count(len(missing) - MAX_LINES, 'more path')}; 'git envlog show' lists them all"
        )

    if any(one.why is MissingReason.BUDGET for one in missing):
        print_error_line("hint: raise the limit, e.g. to 8 GiB: git config envhist.budget 8g")


def why_missing(missing: MissingPath) -> str:
    """Return the reason with its detail; a number of bytes as a size."""
    number, _, unit = missing.detail.partition(" ")
    detail = size(int(number)) if unit == "bytes" and number.isdecimal() else missing.detail
    return f"{missing.why.value}: {detail}" if detail else missing.why.value


def _print_json(session: Session, captured: CaptureResult) -> None:
    from git_envhist.cli.json_values import (  # loaded late: only --json needs it
        PATHS_IN_LISTS,
        captured_json,
        snapshot_json,
    )
    from git_envhist.cli.views.details import read_details  # loaded late: only --json needs it

    snapshot = captured.snapshot
    value = None
    if snapshot is not None and captured.verdict is not None:
        snapshot = replace(snapshot, verdicts=(captured.verdict,))
    if snapshot is not None:
        details = read_details(session.history, snapshot)
        value = snapshot_json(session.history.judge(snapshot), details, most_paths=PATHS_IN_LISTS)
    session.print_json(captured_json(captured, value))


def _print_all(session: Session, lines: Iterator[str]) -> None:
    for line in lines:
        session.line(line)
