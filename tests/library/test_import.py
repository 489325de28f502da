"""Importing the package is cheap: few modules, no process, no third-party library."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = {
    *("asyncio", "click", "rich", "dulwich", "cryptography", "pathspec", "zstandard", "isal", "pyfastcdc"),
    *("subprocess", "multiprocessing", "threading", "json", "dataclasses", "inspect", "logging", "tempfile"),
    *("argparse", "sqlite3", "socket", "ssl", "urllib", "email", "pathlib", "shutil", "random"),
}
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn")
PACKAGE_ALONE, WITH_THE_CLASS = 3, 71
"""The maximum number of git-envhist's modules."""
SCRIPT = """
import sys
started = []
sys.addaudithook(lambda event, _: started.append(event) if event in STARTS else None)
before = set(sys.modules)
WHAT
print([started, sorted(set(sys.modules) - before)])
"""


def imported(what: str) -> tuple[list[str], list[str]]:
    script = SCRIPT.replace("STARTS", repr(STARTS)).replace("WHAT", what)
    # -S: modules that an editable installation imports at every start do not count.
    words = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{script}"]
    started, modules = json.loads(
        subprocess.run(words, capture_output=True, check=True).stdout.replace(b"'", b'"')
    )
    return started, modules


def test_import_of_the_package_loads_few_modules() -> None:
    started, modules = imported("import git_envhist")
    assert not started
    assert len([name for name in modules if name.startswith("git_envhist")]) <= PACKAGE_ALONE
    assert not HEAVY.intersection(modules)


def test_import_of_the_class_loads_no_library_and_starts_no_process() -> None:
    started, modules = imported("from git_envhist import EnvHistory")
    assert not started
    assert not HEAVY.intersection(modules)
    ours = [name for name in modules if name.startswith("git_envhist")]
    assert len(ours) <= WITH_THE_CLASS, ours
