"""`git envlog purge`: erase paths from every snapshot, and report where the same content remains."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import warn
from git_envhist.cli.formats import count
from git_envhist.cli.json_values import SCHEMA, Json, path_fields
from git_envhist.cli.parser import argument, dry_run, ignore_hidden_processes, option
from git_envhist.errors import UsageError
from git_envhist.model import EnvPath
from git_envhist.printable_text import escape, escape_invalid

if TYPE_CHECKING:
    from git_envhist.model.retention import PurgeResult, RemainingObject


MAX_LISTED = 5
WHERE = {
    "history": "are also stored under another path",
    "git": "are also stored by git: in a commit, the index, a stash or a reflog",
    "unreached": "are also unused objects of git; delete them: git gc --prune=now",
}


@command("purge", "git envlog purge [<options>] [--] <path>...", writes=True)
@argument("words", many=True)
@dry_run()
@option("--variable-names", is_flag=True, help="erase names of variables that are stored unencrypted")
@ignore_hidden_processes()
def purge(session: Session, words: tuple[str, ...], dry_run: bool, variable_names: bool, force: bool) -> None:
    """Erase files or directories from all snapshots and the trash, permanently. Your working tree is not changed."""
    paths = (*words, *(session.paths or ()))
    if not paths and not variable_names:
        raise UsageError("no path given", hint="git envlog purge <path>...")
    done = session.history.purge(*paths, variable_names=variable_names, dry_run=dry_run, force=force)
    if not dry_run:
        session.done("the paths are erased")
    for warning in done.warnings:
        warn(warning)
    if session.json:
        session.print_json(_as_json(done))
        return
    for line in _lines(done):
        session.line(line)
    for line in _caveats(done):
        warn(line)


def _lines(done: PurgeResult) -> Iterator[str]:
    word = "would erase" if done.dry_run else "erased"
    places = count(done.snapshots, "snapshot")
    trash = f" and {count(done.in_trash, 'dropped snapshot')}" if done.in_trash else ""
    what = " and ".join(filter(None, (_named(done.paths), "names of variables" * done.variable_names)))
    yield f"{word} {what} from {places}{trash}"
    if done.fetched:
        gone = "would remove" if done.dry_run else "removed"
        yield (
            f"{gone}: fetched or imported timelines that contained it; "
            "a fetch gets it again if the remote still has it"
        )
        for timeline in done.imported:
            yield f"{gone} for good: '{escape(timeline)}', an imported timeline that no remote has"


def _caveats(done: PurgeResult) -> Iterator[str]:
    for sent in done.sent:
        target = sent.remote or sent.shown
        to = f"'{escape(sent.remote)}' ({escape(sent.shown)})" if sent.remote else f"'{escape(sent.shown)}'"
        if not target:
            yield f"an unnamed remote still contains the path in {escape(sent.timeline)}; push there again to erase it"
            continue
        again = f"git envlog push {shlex.quote(escape(target))} {shlex.quote(escape(sent.timeline))}"
        yield (
            f"{to} still contains the path in {escape(sent.timeline)}; {again} erases it there, "
            "but not in copies that others fetched"
        )
    yield from _left_lines(done.left)
    if done.attached:
        yield f"attachments and kept output of {count(done.attached, 'snapshot')} are sealed and were not searched"
    if done.mentioned:
        yield f"the intents or notes of {count(done.mentioned, 'snapshot')} may mention it; they are not changed"
    if done.here:
        yield (
            f"your working tree still contains {_named(done.here)}: the next snapshot would contain it again "
            "(to prevent that, name it in .envhistignore), and a restore of one of these snapshots would delete it"
        )


def _left_lines(left: Sequence[RemainingObject]) -> Iterator[str]:
    for where, text in WHERE.items():
        some = [one for one in left if one.where == where]
        for one in some[:MAX_LISTED]:
            at = f" ('{escape(one.path.decode('utf-8', 'surrogateescape'))}')" if one.path else ""
            yield f"the same bytes {text}{at}: {one.oid[:12]}"
        if len(some) > MAX_LISTED:
            yield f"and {len(some) - MAX_LISTED:,} more objects; --json lists them all"


def _named(paths: Sequence[EnvPath]) -> str:
    text = ", ".join(f"'{escape(path.decode('utf-8', 'surrogateescape'))}'" for path in paths[:MAX_LISTED])
    return text + (f" and {len(paths) - MAX_LISTED:,} more" if len(paths) > MAX_LISTED else "")


def _as_json(done: PurgeResult) -> Json:
    return {
        "schema": SCHEMA,
        "dry_run": done.dry_run,
        "paths": [path_fields(path) for path in done.paths],
        "variable_names": done.variable_names,
        "snapshots": done.snapshots,
        "in_trash": done.in_trash,
        "fetched": done.fetched,
        "imported": [escape_invalid(one) for one in done.imported],
        "pushed": [
            {
                "remote": escape_invalid(one.remote) or None,
                "url": escape_invalid(one.shown) or None,
                "timeline": one.timeline,
            }
            for one in done.sent
        ],
        "left": [{"oid": one.oid, "where": one.where, **path_fields(EnvPath(one.path))} for one in done.left],
        "here": [path_fields(path) for path in done.here],
        "attached": done.attached,
        "mentioned": done.mentioned,
        "warnings": [escape_invalid(warning) for warning in done.warnings],
    }
