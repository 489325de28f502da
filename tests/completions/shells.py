"""Real shells on a real terminal: type a line, press TAB, and read the result."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.rules.source import CHECKOUT

END = "<<end>>"
TELL = b"\x18d"
TIMES, PATIENCE = 10, 5.0
LINE = re.compile(r"<<line>>(.*?)<<end>>", re.DOTALL)
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x1b\][^\x07]*\x07|\r|\x07|.\x08")

BASH = """\
PS1='$ ' PROMPT_COMMAND=
. /usr/share/bash-completion/bash_completion
bind 'set bell-style none'
bind 'set page-completions off'
bind 'set completion-query-items 0'
bind 'set enable-bracketed-paste off'
__told () { printf '<<line>>%s<<end>>\\n' "$READLINE_LINE"; }
bind -x '"\\C-xd": __told'
"""
ZSH = """\
PS1='$ ' LISTMAX=10000
fpath=({functions} $fpath)
autoload -Uz compinit && compinit -u -D
unsetopt beep; unset zle_bracketed_paste
told() {{ zle -I; print -r -- "<<line>>$BUFFER<<end>>" }}
zle -N told
bindkey '^Xd' told
"""


def share(directory: Path) -> Path:
    """Make a `share` directory with the completions where shells look for them."""
    for shell, place in (
        ("bash", "bash-completion/completions"),
        ("zsh", "zsh/site-functions"),
        ("fish", "fish/vendor_completions.d"),
        ("fish-conf", "fish/vendor_conf.d"),
    ):
        (directory / place).parent.mkdir(parents=True, exist_ok=True)
        (directory / place).symlink_to(CHECKOUT / "completions" / shell)
    return directory


def press_tab(
    shell: str, typed: str, where: Path, env: Mapping[str, str], shared: Path, tabs: int = 1
) -> tuple[str, str]:
    """Return the line after TAB, and all output."""
    environment = {**env, "TERM": "xterm", "XDG_DATA_DIRS": f"{shared}:/usr/share", "HISTFILE": os.devnull}
    start = shared.parent / f"{shell}rc"
    if shell == "bash":
        start.write_text(BASH)
        words = ["bash", "--noprofile", "--rcfile", str(start), "-i"]
    else:
        (shared.parent / ".zshrc").write_text(ZSH.format(functions=shared / "zsh/site-functions"))
        environment["ZDOTDIR"] = str(shared.parent)
        words = ["zsh", "-d", "-i"]
    shown = _talk(words, (typed + "\t" * tabs).encode(), where, environment)
    line = LINE.search(shown)
    assert line is not None, shown
    return line[1], shown[: line.start()]


def _talk(words: list[str], keys: bytes, where: Path, env: Mapping[str, str]) -> str:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    with subprocess.Popen(
        words, cwd=where, env=dict(env), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as child:
        os.close(theirs)
        # The prompt shows that the shell is ready.
        shown = _read_until(ours, b"", "$ ")
        _write(ours, keys)
        for _ in range(TIMES):
            # zsh sometimes reads the two keys as one when it had to wait for a processor between them.
            _write(ours, TELL)
            shown = _read_until(ours, shown, END, PATIENCE)
            if END.encode() in shown:
                break
        # Stop here: further input would depend on timing.
        child.kill()
        child.wait()
    os.close(ours)
    return CONTROL.sub("", shown.decode("utf-8", "replace"))


def _read_until(terminal: int, shown: bytes, mark: str, patience: float | None = None) -> bytes:
    """Read until a mark, a timeout or the end of the shell."""
    while mark.encode() not in shown:
        if not select.select([terminal], [], [], patience)[0]:
            break
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    return shown


def _write(terminal: int, keys: bytes) -> None:
    with suppress(OSError):  # the output shows that the shell has ended
        os.write(terminal, keys)


def ask_fish(typed: str, where: Path, env: Mapping[str, str], shared: Path) -> list[str]:
    """Return the candidates of fish, one per line with a description."""
    environment = {**env, "XDG_DATA_DIRS": f"{shared}:/usr/share"}
    done = subprocess.run(
        ["fish", "-c", "complete -C$argv[1]", typed],
        cwd=where,
        env=environment,
        capture_output=True,
        check=True,
    )
    assert done.stderr == b""
    return done.stdout.decode().splitlines()
