"""The checkpoints of one working directory, by numbers or by the ids of moments, with what was said of each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from git_envhist.api import EnvHistory
from git_envhist.compat.chimera.info import CheckpointInfo
from git_envhist.compat.chimera.keeping import ENVIRONMENT, USER_EMAIL, USER_NAME, keeping, of_meta
from git_envhist.compat.keeping import LibraryRules
from git_envhist.compat.onebyone import ThreadLock
from git_envhist.keeping.marking import drop_soon, is_marked
from git_envhist.model import CaptureResult, NoteRecord, Snapshot
from git_envhist.store.locks import locked

NUMBER, NUMBERS = "checkpoint", "numbers.lock"
LABEL = "label"


class EnvironmentCheckpoints:
    """What `checkpoint` and `restore` of an environment are made of."""

    def __init__(self, root: str, exclude: Sequence[str]) -> None:
        self.root = root
        self._rules = LibraryRules(tuple(exclude), USER_NAME, USER_EMAIL)
        self._lock = ThreadLock()

    def take(self, least: int = 0) -> tuple[Snapshot, int]:
        """A moment of now, with the next number, and how many bytes are new; no number below `least` is given."""
        with self._lock, self._numbering() as history:
            number = max((_number(one) + 1 for one in history.log()), default=0)
            captured = _capture(history, str(max(number, least)))
            assert captured.snapshot is not None
            return captured.snapshot, captured.new_bytes

    def take_up(self, copied: str, number: str) -> Snapshot:
        """The moment that a copy of the directory is, which somebody else made under a number."""
        with self._lock:
            taken = _capture(keeping(ENVIRONMENT).open(self.root, self._rules, looking_at=copied), number)
            assert taken.snapshot is not None
            return taken.snapshot

    def find(self, checkpoint_id: str) -> Snapshot | None:
        """The moment of a number, or of an id."""
        every = self.all()
        by_number = [one for one in every if of_meta(one, NUMBER) == checkpoint_id]
        return next(iter(by_number or [one for one in every if one.id == checkpoint_id]), None)

    def all(self) -> list[Snapshot]:
        """Every checkpoint that was not let go, newest first."""
        with self._lock:
            return [one for one in self._open().log() if _number(one) >= 0 and not is_marked(one)]

    def restore(self, snapshot: Snapshot) -> None:
        """Bring the working directory back; what is here is saved first."""
        with self._lock:
            self._open().restore(snapshot)

    def keep_newest(self, count: int) -> None:
        """Let all go but the newest."""
        with self._lock:
            drop_soon(self._open(), self.all()[count:])

    def label(self, snapshot: Snapshot, info: CheckpointInfo) -> None:
        """Note what somebody calls a checkpoint."""
        fields = {"name": info.name, "description": info.description, "timestamp": info.timestamp}
        with self._lock:
            history = self._open()
            history.tell(snapshot, NoteRecord(LABEL, history.now, {"id": info.id, **fields}))

    def labels(self) -> list[CheckpointInfo]:
        """What was noted of each, oldest first."""
        found = [_label(one) for one in reversed(self.all())]
        return [info for info in found if info is not None]

    def remove_labels(self) -> None:
        """Nobody calls any of them anything any more; they themselves stay."""
        with self._lock:
            history = self._open()
            for one in self.all():
                if _label(one) is not None:
                    history.tell(one, NoteRecord(LABEL, history.now, {}))

    @contextmanager
    def _numbering(self) -> Iterator[EnvHistory]:
        # Two processes, too, never give one number twice.
        history = self._open()
        with locked(os.path.join(history.repository.git_dir, NUMBERS)):
            yield history

    def _open(self) -> EnvHistory:
        return keeping(ENVIRONMENT).open(self.root, self._rules)


def _capture(history: EnvHistory, number: str) -> CaptureResult:
    return history.capture(f"checkpoint {number}", meta=[(NUMBER, number)])


def _number(snapshot: Snapshot) -> int:
    number = of_meta(snapshot, NUMBER) or ""
    return int(number) if number.isdecimal() else -1


def _label(snapshot: Snapshot) -> CheckpointInfo | None:
    said = [record for record in snapshot.records if record.kind == LABEL]
    fields = said[-1].fields if said else {}
    name, at = fields.get("name"), fields.get("timestamp")
    if not isinstance(name, str) or not isinstance(at, int | float):
        return None
    return CheckpointInfo(str(fields.get("id")), name, float(at), str(fields.get("description") or ""))
