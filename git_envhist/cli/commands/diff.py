"""`git envdiff`: show what differs between two snapshots, or between a snapshot and the working tree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from git_envhist.cli.command import Session, command
from git_envhist.cli.errors import warn_if_half_way
from git_envhist.cli.parser import argument, diff_formats, option
from git_envhist.cli.views.details import anchored_paths, fetch_sides, fetch_snapshots, make_diff_style
from git_envhist.cli.views.diff_source import DiffSource
from git_envhist.diff.compare_snapshots import compare
from git_envhist.errors import UsageError
from git_envhist.git.cat_file import empty_tree
from git_envhist.git.process import run_during_next_start
from git_envhist.history.revisions import WorkingTree
from git_envhist.lazy import dataclass, replace
from git_envhist.model import Change, FactChange, Snapshot
from git_envhist.snapshots.fetched_store import is_fetched, split_name

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory
    from git_envhist.git.process import Git
    from git_envhist.history.resolve import End


NOW = "now"
CLASSES = ("packages", "services", "databases", "env", "tools", "files")
ALL = frozenset(CLASSES)
DIFFER = 1

Endpoint = Snapshot | str
"""A snapshot, or `now`."""


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """The options of `git envdiff` besides the two snapshots."""

    form: str
    classes: frozenset[str]
    renames: int | None
    ended_by_nul: bool
    reveal: bool
    full_index: bool
    status: bool
    """Exit with status 1 if anything differs."""
    silent: bool
    whole: bool
    """Also list differences that are normal between two machines."""


@command("envdiff", "git envdiff [<options>] [<a>[..<b>] | <a> <b>] [-- <pathspec>...]", bare=True)
@argument("revisions", many=True)
@diff_formats
@option("--raw", is_flag=True, help="print git's raw format: modes, ids, status, paths")
@option("-z", "ended_by_nul", is_flag=True, help="end paths with NUL, do not quote paths")
@option(
    "-M", "--find-renames", "renames", metavar="[=<n>]", help="detect moved files, at least <n> similar (50%)"
)
@option("--exit-code", "exit_code", is_flag=True, help="exit with status 1 if anything differs")
@option("-q", "--quiet", is_flag=True, help="print nothing; implies --exit-code")
@option(
    "--only",
    metavar="<class>,...",
    multiple=True,
    help="packages, services, databases, env, tools or files",
)
@option(
    "--no-fold",
    "whole",
    is_flag=True,
    help="also list what always differs between two machines",
)
@option("--reveal", is_flag=True, help="show values of sealed files, if you have the key")
def envdiff(session: Session, revisions: tuple[str, ...], **options: Any) -> int:
    """Show what changed between two snapshots. One alone (default: the newest) is compared with the files now."""
    wanted = _read_options(options)
    run_during_next_start(_load_readers)
    before, after = read_endpoints(session.history, revisions)
    if NOW in (before, after):
        warn_if_half_way(session.history)
    with _compare(session, before, after, wanted) as source:
        if session.json:
            session.print_json(_as_json(source, before, after, wanted))
        elif not wanted.silent:
            _show(session, source, wanted)
        return DIFFER if wanted.status and _differs(source) else 0


def _differs(source: DiffSource) -> bool:
    from git_envhist.diff.facts import SECRET  # loaded late: only --exit-code needs it

    # Variables are compared inside their file, which is listed itself; sealed with two keys, equal values look
    # different.
    return bool(source.changes) or any(fact.probe not in SECRET for fact in source.facts)


def _load_readers() -> None:
    # These modules are needed in any case; git resolves the two snapshots meanwhile.
    import_module("git_envhist.diff.manifest_diff")


def read_endpoints(history: EnvHistory, revisions: Sequence[str]) -> tuple[Endpoint, Endpoint]:
    """Return the two ends that the words name; the defaults are the newest snapshot and the working tree."""
    from git_envhist.history.resolve import (  # loaded late: only words that are no name need it
        resolve_end,
        resolve_range,
    )

    world, now = history.catalog, history.now
    if len(revisions) > 2:
        raise UsageError(f"more than two snapshots are given: '{revisions[2]}'", hint="paths go after '--'")
    if len(revisions) == 2:
        first, second = (resolve_end(text, world, now) for text in revisions)
        return _endpoint(first), _endpoint(second)
    if not revisions:
        return history.resolve("@"), NOW
    span = resolve_range(revisions[0], world, now)
    if span.start is None:
        return _endpoint(span.end), NOW
    return _endpoint(span.start), _endpoint(span.end)


def read_similarity(text: str) -> int:
    """Return the similarity in percent, spelled as for git's -M: `90%`, `9`, `0.9` are the same."""
    found = re.fullmatch(r"(\d{1,3})%|(?:0?\.)?(\d{1,9})", text)
    if found is None or int(found[1] or 0) > 100:
        raise UsageError(
            f"not a percentage: '{text}'",
            hint="example: -M90% detects moved files that are at least 90 % equal",
        )
    if found[1]:
        return int(found[1])
    digits = found[2]
    return int(digits.ljust(2, "0")[:2])


def are_of_two_machines(own: str | None, *endpoints: Endpoint) -> bool:
    """Return whether one snapshot was fetched and the other is of another working tree."""
    names = {own if isinstance(endpoint, str) else endpoint.timeline for endpoint in endpoints}
    bare = {split_name(name)[1] if name is not None and is_fetched(name) else name for name in names}
    return len(bare) > 1 and any(name is not None and is_fetched(name) for name in names)


def _endpoint(end: End) -> Endpoint:
    return NOW if isinstance(end, WorkingTree) else end.snapshot


def _read_options(options: dict[str, Any]) -> DiffOptions:
    from git_envhist.cli.views.patch import FORMS  # loaded late: only -p needs it

    forms = [form for form in FORMS if options.get(form)]
    if len(forms) > 1:
        text = " and ".join("--" + form.replace("_", "-") for form in forms[:2])
        raise UsageError(f"{text} exclude each other")
    renames = options["renames"]
    return DiffOptions(
        forms[0] if forms else "story",
        _read_classes(options["only"]),
        None if renames is None else read_similarity(renames),
        options["ended_by_nul"],
        options["reveal"],
        options["full_index"],
        options["exit_code"] or options["quiet"],
        options["quiet"],
        options["whole"],
    )


def _read_classes(lists: Sequence[str]) -> frozenset[str]:
    words = [word for words in lists for word in words.split(",") if word]
    if not set(words) <= set(CLASSES):
        from git_envhist.cli.views.restore import (
            class_of_label,  # loaded late: the names of classes need no labels
        )

        words = [class_of_label(word) for word in words]
    for word in words:
        if word not in CLASSES:
            raise UsageError(f"no such class of changes: '{word}'", hint=f"there are: {', '.join(CLASSES)}")
    return frozenset(words) or ALL


@contextmanager
def _compare(
    session: Session, before: Endpoint, after: Endpoint, wanted: DiffOptions
) -> Iterator[DiffSource]:
    history, paths = session.history, anchored_paths(session)
    if wanted.renames is not None:
        fetch_snapshots(history, before, after)
    with history.sides(before, after) as (git, old, new):
        # Equal contents sealed with one key are equal.
        resealed = len(history.keys.all()) > 1
        brief = _is_brief(session, wanted) and not resealed
        changes = compare(git, old, new, pathspecs=paths, renames=wanted.renames, brief=brief)
        fetch_sides(history, before, after, changes, wanted.form)
        if resealed:
            from git_envhist.cli.views.hide_resealed import (
                without_resealed,  # loaded late: most histories have one key
            )

            changes = without_resealed(git, changes, history.open_sealed)
        chosen = _choose(changes, wanted, story=not session.json and wanted.form == "story")
        facts: tuple[FactChange, ...] = ()
        if session.json or wanted.form == "story":
            facts = (*_facts(git, (old, new), paths, wanted, history), *_programs(changes, wanted))
        before_tree = old or empty_tree(git, new)
        machines = not wanted.whole and are_of_two_machines(history.timeline, before, after)
        yield DiffSource(git, before_tree, new, chosen, history.open_sealed, wanted.renames, facts, machines)


def _facts(
    git: Git,
    sides: tuple[str | None, str],
    paths: tuple[bytes, ...],
    wanted: DiffOptions,
    history: EnvHistory,
) -> tuple[FactChange, ...]:
    from git_envhist.diff.facts import changed_facts  # loaded late: a list of paths needs no facts
    from git_envhist.probes import kinds  # loaded late: a list of paths needs no facts

    found = changed_facts(git, *sides, paths, history.keys.opening)
    classes = kinds()
    # Facts of a later version belong to no class that is known here.
    return tuple(
        one for one in found if wanted.classes == ALL or classes.get(one.probe, "") in wanted.classes
    )


def _programs(changes: tuple[Change, ...], wanted: DiffOptions) -> tuple[FactChange, ...]:
    from git_envhist.diff.path_classes import changed_programs  # loaded late: a list of paths needs no facts
    from git_envhist.probes import TOOLS  # loaded late: a list of paths needs no facts

    return changed_programs(changes) if wanted.classes == ALL or TOOLS in wanted.classes else ()


def _is_brief(session: Session, wanted: DiffOptions) -> bool:
    """Return whether only the paths of modified files are printed."""
    names_only = wanted.silent or wanted.form in ("name_only", "name_status")
    return names_only and not session.json and wanted.renames is None and wanted.classes == ALL


def _choose(changes: tuple[Change, ...], wanted: DiffOptions, *, story: bool) -> tuple[Change, ...]:
    """Return the changes of the selected classes; the default output shows packages by their facts only."""
    if wanted.classes == ALL:
        return changes
    from git_envhist.cli.views.diff_rows import (
        split_by_class,  # loaded late: a list of paths needs no classes
    )
    from git_envhist.diff.path_classes import class_of  # loaded late: a list of paths needs no classes

    in_env, in_files = split_by_class(changes)
    chosen = in_env if "env" in wanted.classes else []
    if "files" in wanted.classes:
        chosen = [*chosen, *in_files]
    elif not story:
        chosen = [
            *chosen,
            *(change for change in in_files if class_of(change.path) in wanted.classes - {"env"}),
        ]
    kept = {id(change) for change in chosen}
    return tuple(change for change in changes if id(change) in kept)


def _show(session: Session, source: DiffSource, wanted: DiffOptions) -> None:
    from git_envhist.cli.views.patch import print_diff  # loaded late: only -p needs it

    diff_style = make_diff_style(session, ended_by_nul=wanted.ended_by_nul, full_index=wanted.full_index)
    diff_style = replace(diff_style, reveal=wanted.reveal)
    if source.changes:
        session.page()
    print_diff(session.output, wanted.form, source, diff_style)


def _as_json(source: DiffSource, before: Endpoint, after: Endpoint, wanted: DiffOptions) -> dict[str, object]:
    from git_envhist.cli.json_values import diff_json  # loaded late: only --json needs it
    from git_envhist.cli.views.diff_rows import (
        config_facts,  # loaded late: only --json needs it
        variable_facts,  # loaded late: only --json needs it
    )
    from git_envhist.diff.facts import SECRET  # loaded late: only --json needs it

    others = [fact for fact in source.facts if fact.probe not in SECRET]
    facts = (*others, *variable_facts(source, reveal=wanted.reveal), *config_facts(source))
    return diff_json(_name(before), _name(after), source.changes, facts)


def _name(endpoint: Endpoint) -> str:
    return endpoint if isinstance(endpoint, str) else endpoint.id
