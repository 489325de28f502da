"""What a command, and a run of tests, came to; as `chimera.types` has them."""

from __future__ import annotations

import re
from dataclasses import dataclass


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
    numbers = [_number(rf"(\d+) {word}", output) for word in ("passed", "failed", "error")]
    return TestResult(numbers[0], numbers[1], numbers[2], output)


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found.group(1)) if found else 0
