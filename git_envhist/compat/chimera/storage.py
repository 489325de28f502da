"""Store the checkpoints of one working directory, by number or by snapshot id, with their names."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from git_envhist.api import EnvHistory
from git_envhist.compat.storage import LibraryRules, LibraryStorage, ThreadLock
from git_envhist.discovery import COMPAT, own_data
from git_envhist.errors import EnvhistError
from git_envhist.locks import locked
from git_envhist.model import CaptureResult, NoteRecord, Snapshot
from git_envhist.rewrite.mark_for_drop import drop_soon, is_marked

# The description of one checkpoint.


@dataclass
class CheckpointInfo:
    """A checkpoint: its id in the environment, and its name."""

    id: str
    name: str
    timestamp: float
    description: str = ""

    @property
    def time_str(self) -> str:
        """The time of the checkpoint in local time."""
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.timestamp))


# Location of the histories of environments, and metadata of their snapshots.

ENVIRONMENT, UNDO = "environment.git", "undo.git"
USER_NAME, USER_EMAIL = "Chimera", "chimera@local"


class PathEscapes(PermissionError, ValueError):
    """A path leads outside of the working directory."""

    def __init__(self, path: str) -> None:
        super().__init__(f"Path escapes workdir: {path}")


def library_storage(inner: str) -> LibraryStorage:
    """Return the storage of this library's histories of one kind."""
    return LibraryStorage(os.path.join(own_data(os.environ), COMPAT, "chimera"), inner)


def meta_value(snapshot: Snapshot, key: str) -> str | None:
    """Return a metadata value of a snapshot."""
    return dict(snapshot.meta).get(key)


def as_os_error(error: EnvhistError) -> OSError:
    """Return an error that callers of the original library can be expected to catch."""
    return OSError(f"{error}" + (f" ({error.hint})" if error.hint else ""))


@contextmanager
def errors_as_os_errors() -> Iterator[None]:
    """Raise our errors as OSError, which callers of the original library know."""
    try:
        yield
    except EnvhistError as error:
        raise as_os_error(error) from error


NUMBER, NUMBERS = "checkpoint", "numbers.lock"
LABEL = "label"


class EnvironmentCheckpoints:
    """The implementation of `checkpoint` and `restore` of an environment."""

    def __init__(self, root: str, exclude: Sequence[str]) -> None:
        self.root = root
        self._rules = LibraryRules(tuple(exclude), USER_NAME, USER_EMAIL)
        self._lock = ThreadLock()

    def take(self, minimum: int = 0) -> tuple[Snapshot, int]:
        """Take a snapshot with the next number, at least `least`; return it, and the number of new bytes."""
        with self._lock, self._numbering() as history:
            number = max((_number(one) + 1 for one in history.log()), default=0)
            captured = _capture(history, str(max(number, minimum)))
            assert captured.snapshot is not None
            return captured.snapshot, captured.new_bytes

    def take_from_copy(self, copied: str, number: str) -> Snapshot:
        """Capture a copy of the directory that the original library made under a number."""
        with self._lock:
            taken = _capture(
                library_storage(ENVIRONMENT).open(self.root, self._rules, looking_at=copied), number
            )
            assert taken.snapshot is not None
            return taken.snapshot

    def find(self, checkpoint_id: str) -> Snapshot | None:
        """Return the snapshot of a number or id."""
        every = self.all()
        by_number = [one for one in every if meta_value(one, NUMBER) == checkpoint_id]
        return next(iter(by_number or [one for one in every if one.id == checkpoint_id]), None)

    def all(self) -> list[Snapshot]:
        """Return every checkpoint that was not dropped, newest first."""
        with self._lock:
            return [one for one in self._open().log() if _number(one) >= 0 and not is_marked(one)]

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the working directory; its current state is captured first."""
        with self._lock:
            self._open().restore(snapshot)

    def keep_newest(self, count: int) -> None:
        """Drop all checkpoints except the newest ones."""
        with self._lock:
            drop_soon(self._open(), self.all()[count:])

    def label(self, snapshot: Snapshot, info: CheckpointInfo) -> None:
        """Store the name of a checkpoint."""
        fields = {"name": info.name, "description": info.description, "timestamp": info.timestamp}
        with self._lock:
            history = self._open()
            history.add_records(snapshot, NoteRecord(LABEL, history.now, {"id": info.id, **fields}))

    def labels(self) -> list[CheckpointInfo]:
        """Return the named checkpoints, oldest first."""
        found = [_label(one) for one in reversed(self.all())]
        return [info for info in found if info is not None]

    def remove_labels(self) -> None:
        """Delete all names; the checkpoints are kept."""
        with self._lock:
            history = self._open()
            for one in self.all():
                if _label(one) is not None:
                    history.add_records(one, NoteRecord(LABEL, history.now, {}))

    @contextmanager
    def _numbering(self) -> Iterator[EnvHistory]:
        # Under a lock, because two processes must not use the same number.
        history = self._open()
        with locked(os.path.join(history.repository.git_dir, NUMBERS)):
            yield history

    def _open(self) -> EnvHistory:
        return library_storage(ENVIRONMENT).open(self.root, self._rules)


def _capture(history: EnvHistory, number: str) -> CaptureResult:
    return history.capture(f"checkpoint {number}", meta=[(NUMBER, number)])


def _number(snapshot: Snapshot) -> int:
    number = meta_value(snapshot, NUMBER) or ""
    return int(number) if number.isdecimal() else -1


def _label(snapshot: Snapshot) -> CheckpointInfo | None:
    labels = [record for record in snapshot.records if record.kind == LABEL]
    fields = labels[-1].fields if labels else {}
    name, at = fields.get("name"), fields.get("timestamp")
    if not isinstance(name, str) or not isinstance(at, int | float):
        return None
    return CheckpointInfo(str(fields.get("id")), name, float(at), str(fields.get("description") or ""))


# Results of commands and test runs, as `chimera.types` defines them.


@dataclass
class CommandResult:
    """The output and status of a command."""

    stdout: str
    stderr: str
    exit_code: int

    @property
    def success(self) -> bool:
        return self.exit_code == 0


@dataclass
class TestResult:
    """The numbers of passed and failed tests."""

    __test__ = False  # keep pytest from collecting this class

    passed: int
    failed: int
    errors: int
    output: str

    @property
    def total(self) -> int:
        return self.passed + self.failed + self.errors

    @property
    def pass_rate(self) -> float:
        return self.passed / self.total if self.total else 0.0

    @property
    def all_passed(self) -> bool:
        return not self.failed and not self.errors


def read_test_output(result: CommandResult) -> TestResult:
    """Read the numbers from the last line of pytest."""
    output = result.stdout + result.stderr
    numbers = [_first_number(rf"(\d+) {word}", output) for word in ("passed", "failed", "error")]
    return TestResult(numbers[0], numbers[1], numbers[2], output)


def _first_number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found.group(1)) if found else 0
