"""A command line as platforms have it, on git-envhist: `checkpoint create|list|info|delete`, and `restore`.

`git-envhist workbench checkpoint create --comment "clean setup"` says `v3`, and `restore v3` goes back there. Where a
platform is below us (`envhist.platformCreate`, `envhist.platformList`), its own checkpoint is made with ours, which is
known by its id, and those that it made by itself are listed as observed.
"""

from __future__ import annotations

from collections.abc import Sequence

from git_envhist.errors import EnvhistError


def main(words: Sequence[str]) -> int:
    """Do what the words say; the status to end with."""
    from git_envhist.compat.workbench.commands import run  # loaded late: the error below needs none of it

    try:
        return run(words)
    except EnvhistError as error:
        return _say(error)
    except BrokenPipeError:
        return 141
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        return _say(EnvhistError(f"the system refused '{error.filename or '.'}': {reason}"))
    except KeyboardInterrupt:
        return 130


def _say(error: EnvhistError) -> int:
    from git_envhist.compat.workbench.printing import complain  # loaded late: likewise

    complain(f"error: {error.message}")
    if error.hint:
        complain(f"hint: {error.hint}")
    return error.exit_code
