"""`git envlog install --shell`: man and the shells of this user find what the installation has for them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from git_envhist.cli.command import Session
from git_envhist.cli.failure import print_error_line
from git_envhist.cli.terminal import escape, escape_invalid
from git_envhist.triggers.shellfiles import ShellLink, links, make, missing, take_away

ZSH = "zsh/site-functions"


def install_shell(session: Session, *, dry_run: bool) -> None:
    """Make the links that are missing, and say what cannot be done by a link."""
    wanted = links(os.environ)
    made = missing(wanted)
    if not dry_run:
        make(made)
    _tell(session, made, dry_run, "linked")
    if session.json:
        return
    if not made:
        session.line("manual and completions: nothing to do, all of it is in place")
    for link in wanted:
        if link.is_anothers:
            print_error_line(f"note: left alone, it is not ours: {escape(link.place)}")
    place = next(os.path.dirname(link.place) for link in wanted if ZSH in link.place)
    print_error_line(
        f"note: zsh looks there if its .zshrc says, before compinit: fpath=({escape(place)} $fpath)"
    )


def uninstall_shell(session: Session, *, dry_run: bool) -> None:
    """Take the links away that lead to us."""
    ours = [link for link in links(os.environ) if os.path.islink(link.place) and link.is_there]
    _tell(session, ours if dry_run else take_away(ours), dry_run, "removed")
    if not ours and not session.json:
        session.line("no manual and no completion of ours is linked")


def _tell(session: Session, told: Sequence[ShellLink], dry_run: bool, word: str) -> None:
    if session.json:
        shown = [
            {"path": escape_invalid(link.place), "change": word, "target": escape_invalid(link.target)}
            for link in told
        ]
        session.print_json({"schema": 1, "dry_run": dry_run, "links": shown})
        return
    for link in told:
        would = "would be " if dry_run else ""
        session.line(f"  {would}{word} {escape(link.place)} > {escape(link.target)}")
