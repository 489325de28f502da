"""The page for a browser, as a program of others gets it: our own program draws it, and says what went wrong."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from git_envhist.api import EnvHistory
from git_envhist.errors import EnvhistError
from git_envhist.lookup import as_sequence
from git_envhist.ourselves import own_command

if TYPE_CHECKING:
    from collections.abc import Sequence

TO_OUTPUT = "-"


class PageFailed(EnvhistError):
    """The program that draws said no; `code` and `exit_code` are those of its own error."""

    def __init__(self, message: str, code: str, status: int, hint: str | None) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.exit_code = status


class Showing(EnvHistory):
    """A history to look at."""

    def page(
        self,
        file: str | os.PathLike[str] | None = None,
        span: str | None = None,
        *,
        paths: Sequence[str | bytes] = (),
        every: bool = False,
    ) -> str:
        """One self-contained page of moments for a browser, as text; with a file it is written there, too.

        `span`: a range, as in `git envlog a..b`; `paths`: the moments that changed what these mean, as from the top;
        `every`: those of all timelines.

        >>> _ = history.capture("to look at")
        >>> history.page()[:15], "to look at" in history.page("history.html")
        ('<!DOCTYPE html>', True)
        """
        target = TO_OUTPUT if file is None else os.path.abspath(os.fspath(file))
        words: list[str | bytes] = ["-C", self.repository.root, "--json", "--html", target]
        words += ["--all"] * every
        words += ([] if span is None else [span]) + (["--", *as_sequence(paths)] if paths else [])
        drawn = _run([*own_command("envlog"), *words], self._environ)
        if file is not None:
            with open(target, "rb") as written:
                drawn = written.read()
        return drawn.decode("utf-8")


def _run(words: Sequence[str | bytes], environ: dict[str, str]) -> bytes:
    import json  # loaded late: hardly any host draws
    import subprocess  # loaded late: likewise

    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, env=environ, check=False)
    if done.returncode == 0:
        return done.stdout
    try:
        said = json.loads(done.stdout)["error"]
        raise PageFailed(said["message"], said["code"], said["status"], said["hint"])
    except (ValueError, KeyError, TypeError):
        told = done.stderr.decode("utf-8", "replace").strip() or f"status {done.returncode}"
        raise PageFailed(f"no page was drawn: {told}", "failed", done.returncode, None) from None
