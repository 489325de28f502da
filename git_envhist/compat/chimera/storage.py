"""The checkpoints of one working directory, by numbers or by the ids of moments, with what was said of each."""

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
from git_envhist.disk import locked
from git_envhist.errors import EnvhistError
from git_envhist.model import CaptureResult, NoteRecord, Snapshot
from git_envhist.rewrite.marking import drop_soon, is_marked

# What is known of one checkpoint.


@dataclass
class CheckpointInfo:
    """A checkpoint: the environment's id of it, and what it is called."""

    id: str
    name: str
    timestamp: float
    description: str = ""

    @property
    def time_str(self) -> str:
        """When it was taken, in the time of this machine."""
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.timestamp))


# Where the histories of environments are kept, and what is kept with each moment.

ENVIRONMENT, UNDO = "environment.git", "undo.git"
USER_NAME, USER_EMAIL = "Chimera", "chimera@local"


class PathEscapes(PermissionError, ValueError):
    """A path that leads out of the working directory."""

    def __init__(self, path: str) -> None:
        super().__init__(f"Path escapes workdir: {path}")


def keeping(inner: str) -> LibraryStorage:
    """Where this library's histories of one kind are."""
    return LibraryStorage(os.path.join(own_data(os.environ), COMPAT, "chimera"), inner)


def of_meta(snapshot: Snapshot, key: str) -> str | None:
    """What a card says under a key."""
    return dict(snapshot.meta).get(key)


def as_os_error(error: EnvhistError) -> OSError:
    """What a caller who knows nothing of us can be expected to catch."""
    return OSError(f"{error}" + (f" ({error.hint})" if error.hint else ""))


@contextmanager
def told_as_os_errors() -> Iterator[None]:
    """What goes wrong in here is told in words that this library's callers know."""
    try:
        yield
    except EnvhistError as error:
        raise as_os_error(error) from error


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
            history.add_records(snapshot, NoteRecord(LABEL, history.now, {"id": info.id, **fields}))

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
                    history.add_records(one, NoteRecord(LABEL, history.now, {}))

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


# What a command, and a run of tests, came to; as `chimera.types` has them.


@dataclass
class CommandResult:
    """What a command left."""

    stdout: str
    stderr: str
    exit_code: int

    @property
    def success(self) -> bool:
        return self.exit_code == 0


@dataclass
class TestResult:
    """How many tests passed."""

    __test__ = False  # to pytest it is no test, whatever its name

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
    """The numbers in the last line of pytest."""
    output = result.stdout + result.stderr
    numbers = [_first_number(rf"(\d+) {word}", output) for word in ("passed", "failed", "error")]
    return TestResult(numbers[0], numbers[1], numbers[2], output)


def _first_number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found.group(1)) if found else 0
