"""Options that fingers know from git or another tool, and what is typed here for that."""

from __future__ import annotations

EVERYTHING = "everything is taken, tracked or not: git envlog capture 'why'"
NO_INDEX = "moments are compared, and there is no index among them: git envdiff"
FIRST = "the moment stands first: git envrestore <rev> -- <path>"
LIKE_SHOW = "git envlog -1 {option} <rev>"
MEANT = {
    "envlog": {
        "--limit": "git envlog -n 3",
        "--count": "git envlog -n 3",
        "--author": "git envlog --full tells whose each is, --grep searches intents, -S contents",
        "--first-parent": "timelines do not branch: git envlog",
        "--verbose": "git envlog --full has all of each, --stat what it changed",
        "-v": "git envlog --full has all of each, --stat what it changed",
    },
    "show": dict.fromkeys(
        ("--stat", "-p", "-u", "--patch", "--name-only", "--name-status", "--oneline", "--format"), LIKE_SHOW
    ),
    "capture": {
        "-a": EVERYTHING,
        "-A": EVERYTHING,
        "--all": EVERYTHING,
        "--amend": "a moment stays as it is: git envlog note -m <text> adds to it, git envlog drop forgets it",
        "--tag": "git envlog capture --name <name>",
    },
    "name": dict.fromkeys(("-l", "--list"), "git envlog name: all names"),
    "export": dict.fromkeys(("-o", "--output"), "the file stands first: git envlog export <file> [<rev>…]"),
    "envdiff": {"--staged": NO_INDEX, "--cached": NO_INDEX},
    "envrestore": {
        "--hard": "git envrestore @: all of the newest moment; what is here is saved first",
        "--source": FIRST,
        "-s": FIRST,
        "--worktree": "what stands here is what comes back: git envrestore <rev> -- <path>",
        "-W": "what stands here is what comes back: git envrestore <rev> -- <path>",
        "--patch": "files come back whole: git envdiff -p <rev> -- <path> shows what would",
        "-p": "files come back whole: git envdiff -p <rev> -- <path> shows what would",
        "--staged": "git's index stays as it is: git envrestore <rev> -- <path>",
        "--list": "git envrestore alone shows the likeliest moments, git envlog all of them",
        "--yes": "nothing is asked: what is here is saved first, and --undo brings it back",
        "-y": "nothing is asked: what is here is saved first, and --undo brings it back",
    },
}


def hint_for_foreign_option(command: str, option: str) -> str | None:
    """The hint for an option that the command does not have, if it is one of these."""
    found = MEANT.get(command, {}).get(option)
    return found and found.format(option=option)
