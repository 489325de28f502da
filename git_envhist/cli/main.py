"""The four programs: choose the command, run it, and end the process.

`run_program` handles every error: it prints one error line with a hint and returns the exit status. Modules are
imported as late as possible, because `git envlog` takes only 60 ms: the garbage collector is tuned for the many
imports (2 ms), and the process ends without finalizing the interpreter (5 ms).
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, cast

from git_envhist import trace
from git_envhist.cli import enable_interrupts, is_repeated_signal
from git_envhist.cli.errors import SignalReceived, as_defect, report_error
from git_envhist.cli.output import Output, OutputClosed
from git_envhist.cli.parser import first_operand, split_words, wants_json, with_dashes
from git_envhist.cli.subcommands import PROGRAMS, SUBCOMMANDS, SYNONYMS, did_you_mean, load
from git_envhist.errors import EnvhistError, UsageError

if TYPE_CHECKING:
    from git_envhist.cli.command import Command


# The exit statuses that a shell reports for a program ended by a signal.
INTERRUPTED = 128 + signal.SIGINT
BROKEN_PIPE = 128 + signal.SIGPIPE

gc.set_threshold(50_000, 20, 20)


def envlog() -> NoReturn:
    """Run `git envlog`: read and keep the history."""
    keep_standard_streams()
    end_process(run_program("git-envlog", sys.argv[1:]))


def envdiff() -> NoReturn:
    """Run `git envdiff`: show what changed."""
    keep_standard_streams()
    end_process(run_program("git-envdiff", sys.argv[1:]))


def envrestore() -> NoReturn:
    """Run `git envrestore`: restore a snapshot."""
    keep_standard_streams()
    end_process(run_program("git-envrestore", sys.argv[1:]))


def envhist() -> NoReturn:
    """Run `git envhist`: hooks, shell completion, and every subcommand of `git envlog`."""
    keep_standard_streams()
    if sys.argv[1:2] == ["hook"]:
        from git_envhist.handlers.git_hook import (
            handle_git_hook as answer,  # loaded late: only a hook of git needs it
        )

        end_process(answer(sys.argv[2:], os.environ))
    if sys.argv[1:2] == ["agent-hook"]:
        from git_envhist.handlers.agent_hook import (
            handle_agent_hook,  # loaded late: only a hook of an agent needs it
        )

        end_process(handle_agent_hook(sys.argv[2:], os.environ))
    if sys.argv[1:2] == ["agent-shim"]:
        from git_envhist.handlers.write_agent_script import handle_agent_shim  # loaded late: once per plugin

        end_process(handle_agent_shim(sys.argv[2:], os.environ))
    if sys.argv[1:2] == ["agent-worktree"]:
        from git_envhist.handlers.agent_worktree import (
            handle_agent_worktree,  # loaded late: once per worktree
        )

        end_process(handle_agent_worktree(sys.argv[2:], os.environ))
    if sys.argv[1:2] == ["watcher-process"]:
        from git_envhist.handlers.watcher_process import run_watcher_process  # loaded late: once per watcher

        end_process(run_watcher_process(sys.argv[2:], os.environ))
    if sys.argv[1:2] == ["complete"]:
        from git_envhist.cli.commands.complete import complete  # loaded late: only a TAB needs it

        end_process(complete(sys.argv[2:]))
    if sys.argv[1:2] == ["workbench"]:
        from git_envhist.compat.workbench import main  # loaded late: only the workbench interface needs it

        end_process(main(sys.argv[2:]))
    end_process(run_program("git-envhist", sys.argv[1:]))


def upkeep() -> NoReturn:
    """Run the daily upkeep; a capture starts it in the background."""
    keep_standard_streams()
    from git_envhist.handlers.daily_upkeep import run_upkeep  # loaded late: once per day

    end_process(run_upkeep(sys.argv[1:]))


def keep_standard_streams() -> None:
    """Open /dev/null for closed standard streams, so that no file opened later gets their number and the output."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one; as in git, what is written to it is lost.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def end_process(status: int) -> NoReturn:
    """Flush and end the process without finalizing the interpreter; all files are closed already."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def run_program(program: str, words: list[str]) -> int:
    """Run a program and return its exit status; every failure becomes one error line and a hint."""
    output = Output()
    began = trace.now()
    try:
        enable_interrupts()
        _stop_at_signals()
        status = _run(program, words, output)
        output.close()
        return status
    except EnvhistError as error:
        return _report(error, output, words)
    except OutputClosed:
        return BROKEN_PIPE
    except SignalReceived as stopped:
        return 128 + stopped.number
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as failure:
        if isinstance(failure.__cause__, KeyboardInterrupt):
            # Python before 3.12 wraps an exception of a signal handler that is raised while a class is created.
            return 128 + getattr(failure.__cause__, "number", signal.SIGINT)
        if trace.ON:
            import traceback  # loaded late: only a defect needs it

            traceback.print_exception(failure)
        return _report(as_defect(failure, program), output, words)
    finally:
        _leave_pager(output)
        trace.trace(f"{program} ends", began)


def _run(program: str, words: list[str], output: Output) -> int:
    _follow_prefix()
    _start_config_listing(program, words)
    command, words = choose_command(program, words)
    if command.ends_in_command:
        words = with_dashes(words, command.valued)
    options, paths = split_words(words, command.valued, counts=command.counts)
    return command.invoke(options, program, paths, output)


def _start_config_listing(program: str, words: list[str]) -> None:
    """Start git's listing of the configuration while the modules of a fast command are loaded."""
    if program not in PROGRAMS or (words[:1] != ["capture"] and words[:1] and words[0] in SUBCOMMANDS):
        return
    # Help needs no repository, and `-C` may name another one.
    if any(word in ("--help", "--version") or word[:2] in ("-h", "-C") for word in words):
        return
    from git_envhist.git.repository import (
        start_config_listing,  # loaded late: only these commands need git at once
    )

    with suppress(OSError):
        start_config_listing()


def choose_command(program: str, words: list[str]) -> tuple[Command, list[str]]:
    """Return the command that the words name, and the remaining words."""
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
        # Without a subcommand only help can be printed.
        requested: list[str] = [word for word in ("--help", "--version") if word in words]
        return _load(SUBCOMMANDS["help"].place), requested[:1] or ["envhist"]
    word = words[at]
    if word not in SUBCOMMANDS:
        raise unknown_subcommand(word)
    return _load(SUBCOMMANDS[word].place), words[:at] + words[at + 1 :]


def unknown_subcommand(word: str) -> UsageError:
    """Return the error for an unknown subcommand, with the probable one as hint."""
    meant = did_you_mean(word)
    hint = f"did you mean '{meant}'?" if meant else "'git envlog -h' lists the subcommands"
    return UsageError(f"no such subcommand: '{word}'", hint=hint)


def is_probable_subcommand(word: str) -> bool:
    """Return whether a word that names no snapshot was probably meant as a subcommand."""
    return word in SYNONYMS or did_you_mean(word) is not None


def _report(error: EnvhistError, output: Output, words: list[str]) -> int:
    try:
        status = report_error(error, output, as_json=wants_json(words))
        output.close()
        return status
    except OutputClosed:
        return BROKEN_PIPE
    except EnvhistError:
        # The error cannot be written as JSON either.
        return report_error(error, output, as_json=False)


def _leave_pager(output: Output) -> None:
    with suppress(OutputClosed, EnvhistError):
        output.close()


def _load(place: str) -> Command:
    return cast("Command", load(place))


def _follow_prefix() -> None:
    """Change to the directory where an alias `!git-envlog` was called: git runs it at the top and sets GIT_PREFIX."""
    prefix = os.environ.get("GIT_PREFIX", "")
    if not prefix or not os.path.isdir(prefix) or not (os.path.lexists(".git") or "GIT_DIR" in os.environ):
        return
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR"):
        if name in os.environ:
            os.environ[name] = os.path.abspath(os.environ[name])
    os.chdir(prefix)
    del os.environ["GIT_PREFIX"]


def _stop_at_signals() -> None:
    # A signal that the caller ignores (nohup) stays ignored.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)


def _stop(number: int, frame: object) -> None:
    if not is_repeated_signal(number):
        raise SignalReceived(number)
