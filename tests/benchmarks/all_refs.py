"""Show how 1,000 snapshots look under `--all`, and how they slow git down.

`python -m tests.benchmarks.all_refs --out docs/pictures`

Makes a repository by real commits and real captures, takes the pictures of docs/internals/all-refs.md (Xvfb, xterm,
tmux, ImageMagick, gitk, tig, lazygit; missing ones are skipped and named), and prints the table of that page.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.many_snapshots import git, make_repository, sealed
from tests.benchmarks.runs import Cost, Job, middle, seconds
from tests.benchmarks.screens import Screen, screen, show_terminal, show_window

WITHOUT = "--exclude='refs/envhist/*' --exclude='refs/notes/envhist/*' --all"
GRAPH = "git log --graph --oneline --decorate"
BRANCHES = "--argscmd=git for-each-ref --format='%(refname)' refs/heads refs/remotes refs/tags"
# The checked-out code commit in the middle of the page, with the newer ones above.
TO_THE_CODE = ["/", "HEAD", "Enter"]
LAZYGIT_CONFIG = f"""\
git:
  allBranchesLogCmds:
    - git log --graph --oneline --color=always {WITHOUT}
  allBranchesLogCmd: ''
"""
TIG_CONFIG = f"set main-options = {WITHOUT.replace(chr(39), '')}\n"
LISTED = (
    ("log", "--format=%h"),
    ("log", "--format=%h", "--all"),
    ("log", "--format=%h", *WITHOUT.replace("'", "").split()),
)
ROUNDS = 15


def take_pictures(on: Screen, top: Path, out: Path, config: Path) -> None:
    """Take every picture of the page."""
    terminal: Callable[..., None] = lambda *words: show_terminal(on, top, *words)  # noqa: E731
    terminal(f"{GRAPH} --all", out / "log-all.png")
    terminal(f"LESS=FRXj16 {GRAPH} --all", out / "log-all-code.png", TO_THE_CODE)
    terminal(f"{GRAPH} {WITHOUT}", out / "log-without.png")
    if _has("gitk"):
        _take_gitk(on, top, out, config)
    if _has("tig"):
        terminal("tig --all", out / "tig-all.png")
        (config / "tigrc").write_text(TIG_CONFIG)
        terminal(f"TIGRC_USER='{config}/tigrc' tig", out / "tig-without.png")
    if _has("lazygit"):
        _take_lazygit(terminal, out, config)


def _has(program: str) -> bool:
    if shutil.which(program) is None:
        print(f"{program}: not installed, its pictures are left as they are")
        return False
    return True


def _take_gitk(on: Screen, top: Path, out: Path, config: Path) -> None:
    # gitk reads its layout from this file: more room for the list than for the patch.
    (config / "git").mkdir(parents=True, exist_ok=True)
    sizes = "main 956x556+0+0 topwidth 956 topheight 330 pwsash0 {560 2} pwsash1 {770 2} botwidth 560 botheight 120"
    (config / "git" / "gitk").write_text(f"array set geometry {{{sizes}}}\n")
    for name, option in (("gitk-all", "--all"), ("gitk-without", BRANCHES)):
        environment = {"XDG_CONFIG_HOME": str(config)}
        show_window(on, top, ["gitk", option], out / f"{name}.png", wait=8, environment=environment)


def _take_lazygit(terminal: Callable[..., None], out: Path, config: Path) -> None:
    terminal("lazygit", out / "lazygit-default.png", ["Escape", "4", "+"])
    terminal("lazygit", out / "lazygit-all.png", ["Escape", "4", "+", "C-l", "Enter"])
    (config / "lazygit.yml").write_text(LAZYGIT_CONFIG)
    terminal(
        f"lazygit --use-config-file='{config}/lazygit.yml'", out / "lazygit-without.png", ["Escape", "1", "a"]
    )


def without_snapshots(top: Path, place: Path) -> Path:
    """Return the same repository without any snapshot."""
    shutil.copytree(top, place, symlinks=True)
    refs = git(place, "for-each-ref", "--format=delete %(refname)", "refs/envhist", "refs/notes/envhist")
    subprocess.run(["git", "update-ref", "--stdin"], cwd=place, input=refs + "\n", text=True, check=True)
    for kept in (place / ".git" / "objects" / "pack").glob("*.keep"):
        for suffix in (".pack", ".idx", ".keep"):
            kept.with_suffix(suffix).unlink()
    return place


def measure(places: list[tuple[Path, Path]]) -> dict[str, list[float]]:
    """Time everyday commands in repositories that take turns: medians of several runs; `git gc` once, at the end."""
    for top, upstream in places:
        git(top, "remote", "add", "upstream", str(upstream))
        git(top, "fetch", "-q", "upstream")
    looking = ("git status", "git log", "git log --all", f"git log {WITHOUT}", "git fetch --quiet upstream")
    figures = {command: _in_turns(places, command, lambda _: None, ROUNDS) for command in looking}
    figures["git fetch, of one commit"] = _in_turns(places, looking[-1], _one_more, ROUNDS)
    figures["git gc"] = _in_turns(places, "git gc --quiet", lambda _: None, 1)
    return figures


def _in_turns(
    places: list[tuple[Path, Path]], command: str, prepare: Callable[[Path], None], rounds: int
) -> list[float]:
    costs: list[list[Cost]] = [[] for _ in places]
    for _ in range(rounds):
        for number, (top, upstream) in enumerate(places):
            prepare(upstream)
            job = Job(("sh", "-c", f"{command} >/dev/null"), top, os.environ)
            costs[number].append(seconds([job]))
    return [middle(each) for each in costs]


def _one_more(upstream: Path) -> None:
    tip = git(upstream, "commit-tree", "-m", "one more", "-p", "main", "main^{tree}")
    git(upstream, "update-ref", "refs/heads/main", tip)


def print_table(top: Path, work: Path) -> None:
    """Print each command's time with no snapshot, with all, and with all below one multi-pack index."""
    listed = [len(git(top, *words).splitlines()) for words in LISTED]
    print("git log lists {}, --all {}, without snapshots {}".format(*listed))
    indexed = work / "indexed"
    shutil.copytree(top, indexed, symlinks=True)
    git(indexed, "multi-pack-index", "write")
    places = []
    for place in (without_snapshots(top, work / "without"), top, indexed):
        git(place, "status")  # updates git's index, because copying changed the files' times
        upstream = work / f"upstream-of-{place.name}"
        git(work, "clone", "-q", "--bare", str(place), str(upstream))
        places.append((place, upstream))
    packs = len(list((top / ".git" / "objects" / "pack").glob("*.keep")))
    print(f"{os.cpu_count()} cores, {git(top, '--version')}, {packs} packs of captures; of the processors")
    print("(and on the wall)\n\n| command | without | with | with one index |\n| --- | ---: | ---: | ---: |")
    for command, figures in measure(places).items():
        cells = " | ".join(
            f"{getattr(cost, 'processor', 0.0) * 1000:.1f} ms ({cost * 1000:.0f})" for cost in figures
        )
        print(f"| `{command}` | {cells} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, help="the directory for the pictures (default: print only the table)"
    )
    parser.add_argument("--snapshots", type=int, default=1000)
    parser.add_argument(
        "--repository", type=Path, help="use this repository of an earlier run instead of a new one"
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, sealed(Path(directory) / "home"):
        work = Path(directory)
        top = work / "shop"
        if chosen.repository is None:
            make_repository(top, snapshots=chosen.snapshots)
        else:
            shutil.copytree(chosen.repository, top, symlinks=True)
        git(top, "status")  # updates git's index, because copying changed the files' times
        if chosen.out is not None:
            with screen() as on:
                take_pictures(on, top, chosen.out.resolve(), work / "home" / "config")
        print_table(top, work)


if __name__ == "__main__":
    main()
