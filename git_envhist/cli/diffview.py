"""The views of a diff that `git envdiff` and `git envlog` share, by the names of their options."""

from __future__ import annotations

from collections.abc import Iterator

from git_envhist.cli.diffsource import Manner, Opener, Source
from git_envhist.cli.diffstat import stat_texts
from git_envhist.cli.patchview import patch_texts
from git_envhist.cli.rawview import name_only, name_status, raw
from git_envhist.cli.storyview import story_texts

__all__ = ["FORMS", "Manner", "Opener", "Source", "diff_texts"]

FORMS = ("story", "stat", "name_status", "name_only", "raw", "patch")


def diff_texts(form: str, source: Source, manner: Manner) -> Iterator[bytes]:
    """What differs in one of `FORMS`, ready to be written piece by piece."""
    match form:
        case "name_only":
            return name_only(source.changes, manner)
        case "name_status":
            return name_status(source.changes, manner)
        case "raw":
            return raw(source.changes, manner)
        case "stat":
            return stat_texts(source, manner)
        case "patch":
            return patch_texts(source, manner)
    return story_texts(source, manner)
