"""Mutation tests: `python -m tests.restore.mutants [number…]` prints whether the tests detect each mutant.

Each mutant is a copy of the package with one changed line. A mutant that passes the tests shows a gap in them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A line of the package, its replacement, and the tests that must fail."""

    file: str
    line: str
    instead: str
    tests: str


MUTANTS = (
    Mutant("swap.py", "self._check(replaced, now, strictly)", "pass", "concurrent_changes"),
    Mutant("swap.py", "if not is_unchanged(replaced, inside):", "if False:", "concurrent_changes"),
    Mutant("swap.py", "if new is not None and not is_same_file(inside, new):", "if False:", "concurrent_changes"),
    Mutant("swap.py", "self._calls.unlink(slot, slot_name + ASIDE)", "pass", "killed"),
    Mutant("swap.py", "if is_same_file(inside, self._disk.stat(step.root, step.path)):", "if False:", "killed"),
    Mutant("swap.py", "return not list_directory(descriptor)", "return True", "concurrent_changes"),
    Mutant("disk_entry.py", "same = (known.size, known.mtime_ns, known.mode)",
           "same = (now.size, now.mtime_ns, now.mode)",
           "concurrent_changes"),
    Mutant("disk_calls.py", "NOREPLACE, EXCHANGE = 1, 2", "NOREPLACE, EXCHANGE = 0, 2", "concurrent_changes"),
    Mutant("disk_calls.py", "above, here = here, open_nofollow(name, DIRECTORY, dir_fd=here)",
           "above, here = here, os.open(name, DIRECTORY, dir_fd=here)", "concurrent_changes"),
    Mutant("apply_journal.py", "return is_unchanged(staged.new, inside)", "return True", "concurrent_changes"),
    Mutant("apply_journal.py",
           "return _has_only_staged_entries(slots, staged, started) and _remove_entries(slots, staged)",
           "return True", "concurrent_changes"),
    Mutant("apply_journal.py", "untouched = found.ctime_ns <= started or entry.link_group is not None",
           "untouched = True", "concurrent_changes"),
    Mutant("apply_journal.py", "sync_kept(disk)", "pass", "concurrent_changes"),
    Mutant("swap.py", "return same or self._check_content(self._staged.step, directory, name)", "return True",
           "concurrent_changes"),
    Mutant("apply_journal.py", "set_phase(directory, Phase.UNDONE if undone else Phase.DONE)", "pass", "killed"),
    Mutant("journal.py", "if head != HEAD + hashlib.sha256(payload).hexdigest().encode(\"ascii\"):", "if False:",
           "killed"),
    Mutant("apply_journal.py", "applier.set_attributes(lambda own: own.before)", "pass", "killed"),
    Mutant("apply_journal.py", "for done, staged in enumerate(reversed(journal.staged)):",
           "for done, staged in enumerate(journal.staged):", "killed"),
    Mutant("apply_journal.py", "self._disk.make_accessible(own.root, own.path)", "pass", "killed or round"),
    Mutant("plan_steps.py", "if key not in self._skipped_keys and key not in self._must_keep:", "if True:", "plan"),
    Mutant("plan_steps.py",
           "if before.link_group is None and key not in self._renewed and same_content(before, after):",
           "if key not in self._renewed and same_content(before, after):", "concurrent_changes or plan"),
    Mutant("plan_steps.py", "return SkipReason.NOT_SAVED", "return None", "plan"),
    Mutant("plan_steps.py", "return not others.intersection(shared)", "return True", "plan"),
    Mutant("plan_steps.py", "early.append(replace(step, action=PlanAction.REMOVE, after=None))",
           "late.append(replace(step, action=PlanAction.REMOVE, after=None))", "plan"),
    Mutant("check_replaced.py", "step.action is not PlanAction.ADJUST and not content_matches(",
           "False and not content_matches(", "kinds"),
    Mutant("stage.py", "if durable:", "if False:", "kinds"),
    Mutant("sync.py", "calls.sync_file(descriptor)", "pass", "kinds or durable"),
    Mutant("sync.py", "yield disk.reach(root, each.path)", "pass", "durable"),
    Mutant("apply_journal.py", "sync_changed(disk, journal)", "pass", "kinds"),
    Mutant("apply_journal.py", "sync_roots_with_slots(disk)", "pass", "durable"),
    Mutant("apply_journal.py", "return check_content(staged.step, *slots.at(staged.slot))", "return True",
           "concurrent_changes"),
    Mutant("verify.py", "yield \"content\"", "pass", "kinds"),
    Mutant("set_metadata.py", "self._calls.futime(descriptor, entry.mtime_ns)", "pass", "kinds or killed"),
)  # fmt: skip


def place_of(mutant: Mutant, top: Path = HERE) -> Path:
    return top / "git_envhist" / "restore" / mutant.file


def survives(mutant: Mutant) -> bool:
    """Return whether the tests pass with this mutant."""
    top = Path(tempfile.mkdtemp(prefix="mutant-"))
    try:
        for name in ("git_envhist", "tests", "hooks", "completions", "docs"):
            shutil.copytree(HERE / name, top / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(HERE / "pyproject.toml", top)
        file = place_of(mutant, top)
        file.write_text(file.read_text().replace(mutant.line, mutant.instead))
        words = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "tests/restore",
            "-k",
            mutant.tests,
        ]
        environment = {**os.environ, "PYTHONPATH": str(top)}
        done = subprocess.run(words, cwd=top, env=environment, capture_output=True, check=False)
        return done.returncode == 0
    finally:
        shutil.rmtree(top)


def main(numbers: list[int]) -> int:
    survivors = 0
    for number, mutant in enumerate(MUTANTS):
        if numbers and number not in numbers:
            continue
        lives = survives(mutant)
        survivors += lives
        print(f"{number:3} {'SURVIVES' if lives else 'seen':8} {mutant.file}: {mutant.instead}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main([int(word) for word in sys.argv[1:]]))
