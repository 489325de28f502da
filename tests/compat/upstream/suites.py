"""chimera's own tests, run with its classes and with ours: `python -m tests.compat.upstream.suites`.

The tests are in its source distribution. All tests of checkpoints, environments and file stacks must pass with our
classes, except those that look for plain copies below `.chimera/checkpoints`, which only chimera writes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.compat.upstream.conftest import PACKAGES, PROGRAMS
from tests.rules.source import CHECKOUT

SOURCE = "chimera-run==0.9.2.3"
FILES = (
    *("core/test_checkpoints.py", "core/test_transactions.py", "core/test_loop_config_hooks.py"),
    *("env/test_checkpoint_hardening.py", "env/test_glob_match.py", "config/test_ignore.py"),
    *("config/test_paths.py", "integration/test_env_git.py", "integration/test_env_local.py"),
    "integration/test_git_workflow.py",
    *("integration/test_env_local_containment.py", "integration/test_env_session_integration.py"),
    *("integration/test_integration_wiring.py", "integration/test_phase38.py", "otter/test_file_undo.py"),
    *("otter/test_multi_step_undo.py", "otter/test_slash_undo_redo.py", "tools/test_rollback.py"),
    "sessions/test_compact_undo_round_trip.py",
)
HARDENING = "env/test_checkpoint_hardening.py::test_"
PLAIN_COPIES = {
    HARDENING + name
    for name in (
        *(
            "canary_a_checkpoint_never_contains_a_venv_or_node_modules",
            "checkpoints_land_in_the_registry_store",
        ),
        *("setup_creates_no_directory_until_something_checkpoints", "project_state_survives_a_restore"),
        *("nothing_is_ever_deleted_without_configured_retention", "a_large_checkpoint_warns"),
        *("retain_keeps_the_newest_n_when_configured", "the_checkpoint_just_written_is_never_pruned"),
    )
}
"""Tests that look for a directory per checkpoint in the workspace."""


def main() -> int:
    with tempfile.TemporaryDirectory() as place:
        libraries, tests = _fetch(Path(place))
        theirs, failed = _run(libraries, tests, "theirs")
        print(f"chimera's classes: {theirs}")
        if failed:
            print("failures with chimera's classes:", *sorted(failed), sep="\n  ")
        ours, failed = _run(libraries, tests, "ours")
        print(f"our classes:       {ours}")
        print("unexpected failures:", *(sorted(failed - PLAIN_COPIES) or ["nothing"]), sep="\n  ")
        if not all(" passed" in ran for ran in (theirs, ours)):
            print("a suite ran no test")
            return 1
        return 1 if failed - PLAIN_COPIES else 0


def _fetch(place: Path) -> tuple[Path, Path]:
    """Download chimera; return the directories of the installed library and of its source."""
    libraries = place / "libraries"
    pip = (sys.executable, "-m", "pip")
    others = ("pytest-asyncio", "pytest-timeout")
    words = [*pip, "install", "-q", "--no-deps", "--target", str(libraries), *PACKAGES, *others]
    subprocess.run(words, check=True)
    words = [*pip, "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", str(place), SOURCE]
    subprocess.run(words, check=True)
    (archive,) = place.glob("chimera_run-*.tar.gz")
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(place)], check=True)
    return libraries, place / archive.name.removesuffix(".tar.gz")


def _run(libraries: Path, source: Path, whose: str) -> tuple[str, set[str]]:
    """Run the tests; return pytest's last line and the failed tests."""
    paths = os.pathsep.join(map(str, (PROGRAMS, libraries, CHECKOUT)))
    options = ("-q", "-p", "swapped", "-p", "no:cacheprovider", "--timeout", "300")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *(f"tests/{file}" for file in FILES)],
        cwd=source,
        env={**os.environ, "PYTHONPATH": paths, "WHOSE": whose},
        capture_output=True,
        text=True,
        check=False,
    )
    failed = set(re.findall(r"^(?:FAILED|ERROR) tests/(\S+)", done.stdout, re.MULTILINE))
    return done.stdout.splitlines()[-1] if done.stdout else done.stderr, failed


if __name__ == "__main__":
    sys.exit(main())
