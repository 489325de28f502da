"""git's configuration as it is while a program goes on: read again once one of its files is another."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from git_envhist.api import EnvHistory
from git_envhist.settings import Settings, config_home, read_settings
from git_envhist.store.asconfigured import list_config
from git_envhist.store.fetched import seeing_fetched, without_fetched
from git_envhist.values import replace

if TYPE_CHECKING:
    from git_envhist.capturing.capture import CapturePipeline
    from git_envhist.restoring.verbs import Restorer
    from git_envhist.verifying.verbs import Checks

T = TypeVar("T")
Stamp = tuple[tuple[int, int, int] | None, ...]
MADE_OF_THEM = ("_capturing", "_seeing", "going", "checks")
"""What is made once, of the settings among others."""


class HistoryContext(EnvHistory):
    """A history whose settings are those of now: a handful of `stat` calls where a verb asks for them."""

    @property
    def settings(self) -> Settings:
        """git's configuration under `envhist.*`, as it is now."""
        if self._stamp is None or _stamp(self._files) != self._stamp:
            self._read_again()
        return self._settings

    @settings.setter
    def settings(self, read: Settings) -> None:
        self._settings = read
        self._files: tuple[str, ...] = ()
        self._stamp: Stamp | None = None

    @property
    def _capturing(self) -> CapturePipeline:
        return self._made_now("_capturing", lambda: super(HistoryContext, self)._capturing)

    @property
    def _seeing(self) -> CapturePipeline:
        return self._made_now("_seeing", lambda: super(HistoryContext, self)._seeing)

    @property
    def going(self) -> Restorer:
        """Back, forth, and what goes with it."""
        return self._made_now("going", lambda: super(HistoryContext, self).going)

    @property
    def checks(self) -> Checks:
        """Checks, and what they came to."""
        return self._made_now("checks", lambda: super(HistoryContext, self).checks)

    def _made_now(self, name: str, make: Callable[[], T]) -> T:
        read = self.settings
        made = make()
        # Another thread has read them anew meanwhile: what was made of the old ones must not stay.
        if self._settings is not read:
            self.__dict__.pop(name, None)
        return made

    def _read_again(self) -> None:
        files = self._usual_files()
        before = _stamp(files)
        config, named = list_config(self.repository.git.environment, self.repository.root)
        # What one of these becomes while git reads them is seen the next time.
        others = tuple(sorted(set(named).difference(files)))
        # Looked at again: a fetch in another thread may have brought something beside ours just now.
        own = without_fetched(replace(self.repository, config=config))
        self.repository = seeing_fetched(own)
        self._settings = read_settings(config)
        for made in MADE_OF_THEM:
            self.__dict__.pop(made, None)
        self._files, self._stamp = (*files, *others), (*before, *_stamp(others))

    def _usual_files(self) -> tuple[str, ...]:
        """Where git looks, whether there is something or not; `HEAD`, because a branch may bring files along."""
        common, own = self.repository.common_dir, self.repository.git_dir
        home = self._environ.get("HOME") or os.path.expanduser("~")
        places = [os.path.join(common, "config"), os.path.join(own, "config.worktree"), f"{own}/HEAD"]
        places += [f"{home}/.gitconfig", f"{config_home(self._environ)}/git/config", "/etc/gitconfig"]
        return tuple(sorted({*places, *_named(self._environ)}))


def _named(environ: Mapping[str, str]) -> list[str]:
    return [environ[name] for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM") if environ.get(name)]


def _stamp(files: Iterable[str]) -> Stamp:
    return tuple(map(_seen, files))


def _seen(file: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
