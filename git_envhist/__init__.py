"""git-envhist: the history of an environment, kept in git.

`EnvHistory` has the verbs (`AsyncEnvHistory` the same as coroutines), the types of `model` are what it returns, the
classes of `errors` what it raises. All of them are imported when they are first asked for: every program of ours
passes through here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from git_envhist._version import __version__

if TYPE_CHECKING:
    from git_envhist.aio import AsyncEnvHistory
    from git_envhist.api import EnvHistory


__all__ = ["AsyncEnvHistory", "EnvHistory", "__version__", "errors", "model"]


def __getattr__(name: str) -> object:
    from importlib import (
        import_module,
    )  # loaded late: a program that asks for a submodule needs nothing of this

    if name == "EnvHistory":
        return import_module("git_envhist.api").EnvHistory
    if name == "AsyncEnvHistory":
        return import_module("git_envhist.aio").AsyncEnvHistory
    if name.startswith("_"):
        raise AttributeError(f"module 'git_envhist' has no attribute '{name}'")
    for module in (import_module("git_envhist.model"), import_module("git_envhist.errors")):
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module 'git_envhist' has no attribute '{name}'")
