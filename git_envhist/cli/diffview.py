"""The views of a diff that `git envdiff` and `git envlog` share, by the names of their options."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from git_envhist.cli.diffsource import DiffSource, DiffStyle, Opener
from git_envhist.cli.output import Output
from git_envhist.model import Change

__all__ = ["FORMS", "DiffSource", "DiffStyle", "Opener", "diff_texts", "print_diff"]

FOR_PEOPLE = ("story", "stat")
"""The forms that no program reads."""
FORMS = ("story", "stat", "name_status", "name_only", "raw", "patch")


def print_diff(output: Output, form: str, source: DiffSource, manner: DiffStyle) -> None:
    """Print what differs in one of `FORMS`."""
    write: Callable[[bytes], None] = output.write
    if manner.ended_by_nul:
        write = output.exact
    elif form not in FOR_PEOPLE:
        write = output.content
    for text in diff_texts(form, source, manner):
        write(text)


def diff_texts(form: str, source: DiffSource, manner: DiffStyle) -> Iterator[bytes]:
    """What differs in one of `FORMS`, ready to be written piece by piece."""
    if form == "stat":
        from git_envhist.cli.diffstat import stat_texts  # loaded late: each form brings its own modules

        return stat_texts(source, manner)
    if form == "patch":
        from git_envhist.cli.patchview import patch_texts  # loaded late: likewise

        return patch_texts(source, manner)
    if form == "story":
        from git_envhist.cli.storyview import story_texts  # loaded late: likewise

        return story_texts(source, manner)
    from git_envhist.cli import rawview  # loaded late: likewise

    texts: Callable[[tuple[Change, ...], DiffStyle], Iterator[bytes]] = getattr(rawview, form)
    return texts(source.changes, manner)
