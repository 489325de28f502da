"""What the rooms of keeping need of a history."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from git_envhist.history.timeline import Catalog
    from git_envhist.model import Snapshot
    from git_envhist.settings import Settings
    from git_envhist.store.keys import KeyRing
    from git_envhist.store.repository import Repository


class HistoryContext(Protocol):
    """A history that snapshots go from."""

    @property
    def repository(self) -> Repository: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def environ(self) -> Mapping[str, str]: ...
    @property
    def directory(self) -> str: ...
    @property
    def keys(self) -> KeyRing: ...
    @property
    def timeline(self) -> str | None: ...
    @property
    def world(self) -> Catalog: ...
    @property
    def now(self) -> datetime: ...
    def timelines(self) -> tuple[str, ...]: ...
    def log(self, limit: int | None = None, timeline: str | None = None) -> list[Snapshot]: ...
    def resolve(self, text: str) -> Snapshot: ...
    def judge(self, snapshot: Snapshot) -> Snapshot: ...
    def forget_world(self) -> None: ...


Waiting = Callable[[], None]
