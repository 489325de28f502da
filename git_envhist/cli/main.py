"""The four programs: what happens before a command runs, and how every one of them ends.

Nothing is imported here before it is needed: `git envlog` stands or falls with how soon it answers. Of its 60 ms, two
went into collecting garbage while modules load, and five into taking the interpreter apart at the end.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, cast

from git_envhist import trace
from git_envhist.cli import hear_interrupts, is_echo
from git_envhist.cli.errors import SignalReceived, as_defect, report_error
from git_envhist.cli.output import Output, OutputClosed
from git_envhist.cli.parser import first_operand, split_words, wants_json, with_dashes
from git_envhist.cli.subcommands import PROGRAMS, SUBCOMMANDS, SYNONYMS, did_you_mean, load
from git_envhist.errors import EnvhistError, UsageError

if TYPE_CHECKING:
    from git_envhist.cli.command import Command


# As a shell tells of a program that a signal ended.
INTERRUPTED = 128 + signal.SIGINT
BROKEN_PIPE = 128 + signal.SIGPIPE

gc.set_threshold(50_000, 20, 20)


def envlog() -> NoReturn:
    """`git envlog`: read and keep the history."""
    keep_standard_streams()
    leave(run_program("git-envlog", sys.argv[1:]))


def envdiff() -> NoReturn:
    """`git envdiff`: what changed."""
    keep_standard_streams()
    leave(run_program("git-envdiff", sys.argv[1:]))


def envrestore() -> NoReturn:
    """`git envrestore`: go back, losing nothing."""
    keep_standard_streams()
    leave(run_program("git-envrestore", sys.argv[1:]))


def envhist() -> NoReturn:
    """`git envhist`: what hooks call; every subcommand of `git envlog`."""
    keep_standard_streams()
    if sys.argv[1:2] == ["hook"]:
        from git_envhist.handlers.git_hook import (
            handle_git_hook as answer,  # loaded late: only a hook of git needs it
        )

        leave(answer(sys.argv[2:], os.environ))
    if sys.argv[1:2] == ["agent-hook"]:
        from git_envhist.handlers.agent_hook import (
            handle_agent_hook,  # loaded late: only a hook of an agent needs it
        )

        leave(handle_agent_hook(sys.argv[2:], os.environ))
    if sys.argv[1:2] == ["agent-worktree"]:
        from git_envhist.handlers.agent_worktree import (
            handle_agent_worktree,  # loaded late: once per worktree
        )

        leave(handle_agent_worktree(sys.argv[2:], os.environ))
    if sys.argv[1:2] == ["complete"]:
        from git_envhist.cli.commands.complete import complete  # loaded late: only a TAB needs it

        leave(complete(sys.argv[2:]))
    if sys.argv[1:2] == ["workbench"]:
        from git_envhist.compat.workbench import main  # loaded late: only who speaks so needs it

        leave(main(sys.argv[2:]))
    leave(run_program("git-envhist", sys.argv[1:]))


def upkeep() -> NoReturn:
    """Run the daily upkeep of a repository of ours; started by a capture, in the background."""
    keep_standard_streams()
    from git_envhist.handlers.upkeep import run_upkeep  # loaded late: once per day

    leave(run_upkeep(sys.argv[1:]))


def keep_standard_streams() -> None:
    """Where one is closed, nothing that is opened later may take its number: an answer would be written there."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free is this one; as git does it, what is said there is lost.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def leave(status: int) -> NoReturn:
    """End the process: everything is written and closed by now, and the kernel frees memory faster than Python."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def run_program(program: str, words: list[str]) -> int:
    """Run a program to its end and return its exit status; whatever fails is told in one line and a hint."""
    output = Output()
    began = trace.now()
    try:
        hear_interrupts()
        _stop_at_signals()
        status = _run(program, words, output)
        output.close()
        return status
    except EnvhistError as error:
        return _tell(error, output, words)
    except OutputClosed:
        return BROKEN_PIPE
    except SignalReceived as stopped:
        return 128 + stopped.number
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as failure:
        if isinstance(failure.__cause__, KeyboardInterrupt):
            # Python before 3.12 wraps what a signal's handler raises while a class is made.
            return 128 + getattr(failure.__cause__, "number", signal.SIGINT)
        if trace.ON:
            import traceback  # loaded late: only a defect needs it

            traceback.print_exception(failure)
        return _tell(as_defect(failure, program), output, words)
    finally:
        _leave_pager(output)
        trace.trace(f"{program} ends", began)


def _run(program: str, words: list[str], output: Output) -> int:
    _follow_prefix()
    _ask_ahead(program, words)
    command, words = choose_command(program, words)
    if command.ends_in_command:
        words = with_dashes(words, command.valued)
    options, paths = split_words(words, command.valued, counts=command.counts)
    return command.invoke(options, program, paths, output)


def _ask_ahead(program: str, words: list[str]) -> None:
    """Have git list the configuration while the modules of a quick command are still being loaded."""
    if program not in PROGRAMS or (words[:1] != ["capture"] and words[:1] and words[0] in SUBCOMMANDS):
        return
    # Help needs no repository, and `-C` may mean another one.
    if any(word in ("--help", "--version") or word[:2] in ("-h", "-C") for word in words):
        return
    from git_envhist.git.repository import begin_listing  # loaded late: whoever leaves earlier needs no git

    with suppress(OSError):
        begin_listing()


def choose_command(program: str, words: list[str]) -> tuple[Command, list[str]]:
    """The command that the words ask for, and the words that are left for it."""
    if program == "git-envhist":
        return _subcommand_of_envhist(words)
    if program != "git-envlog":
        return _load(PROGRAMS[program]), words
    if words and words[0] in SUBCOMMANDS:
        return _load(SUBCOMMANDS[words[0]].place), words[1:]
    listing = _load(PROGRAMS[program])
    at = first_operand(words, listing.valued)
    if at is None or words[at] not in SUBCOMMANDS:
        return listing, words
    return _load(SUBCOMMANDS[words[at]].place), words[:at] + words[at + 1 :]


def _subcommand_of_envhist(words: list[str]) -> tuple[Command, list[str]]:
    at = first_operand(words, ("-C",))
    if at is None:
        # Without a subcommand there is only help to give.
        told: list[str] = [word for word in ("--help", "--version") if word in words]
        return _load(SUBCOMMANDS["help"].place), told[:1] or ["envhist"]
    word = words[at]
    if word not in SUBCOMMANDS:
        raise unknown_subcommand(word)
    return _load(SUBCOMMANDS[word].place), words[:at] + words[at + 1 :]


def unknown_subcommand(word: str) -> UsageError:
    """The complaint about a word that is no subcommand, with the one that was probably meant."""
    meant = did_you_mean(word)
    hint = f"did you mean '{meant}'?" if meant else "'git envlog -h' lists the subcommands"
    return UsageError(f"no such subcommand: '{word}'", hint=hint)


def is_slip(word: str) -> bool:
    """Whether a word that names no snapshot was probably meant to be a subcommand."""
    return word in SYNONYMS or did_you_mean(word) is not None


def _tell(error: EnvhistError, output: Output, words: list[str]) -> int:
    try:
        status = report_error(error, output, as_json=wants_json(words))
        output.close()
        return status
    except OutputClosed:
        return BROKEN_PIPE
    except EnvhistError:
        # Not even the error can be written to where the answer should go.
        return report_error(error, output, as_json=False)


def _leave_pager(output: Output) -> None:
    with suppress(OutputClosed, EnvhistError):
        output.close()


def _load(place: str) -> Command:
    return cast("Command", load(place))


def _follow_prefix() -> None:
    """Go to where an alias `!git-envlog` was called: git runs it at the top and tells the place."""
    prefix = os.environ.get("GIT_PREFIX", "")
    if not prefix or not os.path.isdir(prefix) or not (os.path.lexists(".git") or "GIT_DIR" in os.environ):
        return
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR"):
        if name in os.environ:
            os.environ[name] = os.path.abspath(os.environ[name])
    os.chdir(prefix)
    del os.environ["GIT_PREFIX"]


def _stop_at_signals() -> None:
    # What a caller ignores (nohup) stays ignored.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)


def _stop(number: int, frame: object) -> None:
    if not is_echo(number):
        raise SignalReceived(number)
