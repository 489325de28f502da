"""Isolate every test from the machine: its own home, git configuration and time zone."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.support import summary
from tests.support.programs import QuickPrograms, make_programs, quick
from tests.support.repository import Repo, make_repo
from tests.support.users import is_search, runs_as_both_users

# A machine shared by several test runs is slow at times, so a deadline would fail tests for other load.
settings.register_profile(
    "default",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    print_blob=True,
)
# Shrinking an example may take minutes: CI prints the seed, and the example is shrunk locally.
settings.register_profile(
    "ci", settings.get_profile("default"), phases=set(Phase) - {Phase.shrink, Phase.explain}
)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# If the shell disables writing bytecode, every program would compile its modules again, and pytest every test file.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A background shell may ignore SIGINT, and `nohup` SIGHUP; every program started here would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

GIT_CONFIG = """\
[user]
	name = Test User
	email = test@example.com
[init]
	defaultBranch = main
[gc]
	auto = 0
[maintenance]
	auto = false
[envhist]
	agentIdle = 0
"""

# Variables that a terminal, an agent or a user's shell may have set and that git-envhist's programs read.
FOREIGN_PREFIXES = (
    "GIT_",
    "XDG_",
    "LC_",
    "CLAUDE",
    "CODEX_",
    "GEMINI_",
    "CURSOR_",
    "COPILOT_",
    "OPENCODE",
    "ENVHIST_",
    "LESS",
)
# The variable with which the test run itself disables features of the system.
KEPT_NAME = "GIT_ENVHIST_WITHOUT"
FOREIGN_NAMES = (
    "AI_AGENT",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "EDITOR",
    "EMAIL",
    "FORCE_COLOR",
    "LANG",
    "LANGUAGE",
    "LINES",
    "LV",
    "NO_COLOR",
    "PAGER",
    # Another project's pytest, run by a test with a clock in the future, deletes the directories of live sessions.
    "PYTEST_DEBUG_TEMPROOT",
    "SSH_ASKPASS",
    "VISUAL",
)

SHARED_FIXTURES = (
    "tests/real/",
    "tests/html/",
    "tests/rules/",
    "tests/compat/upstream/",
    "tests/crash/test_errors.py",
    "tests/fork/test_installed_programs.py",
    "tests/secrets/test_canaries.py",
    "tests/secrets/test_corpus.py",
)
"""Directories and files whose tests share slow fixtures: one worker runs all tests of each."""
MEMORY = "/dev/shm"
MEMORY_NEEDED = 3 << 30
"""Bytes that must be free in memory before the tests keep their directories there."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full",
        action="store_true",
        help="also run the tests that need servers, other versions of git, browsers, compilers or minutes",
    )
    parser.addoption(
        "--list-slow",
        action="store_true",
        help="write the functions that took more than half a second to tests/slow_tests.txt",
    )


SLOW_TESTS = Path(__file__).parent / "slow_tests.txt"
"""Functions that took more than half a second when the list was made: `--full` runs them, like those marked
`full`."""


def pytest_configure(config: pytest.Config) -> None:
    """Pass `--full` on to the modules that choose how much they try when they are imported."""
    if config.getoption("--full"):
        os.environ["ENVHIST_TEST_FULL"] = "1"


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Keep the tests' directories in memory if there is space, because a sync costs nothing there."""
    if "PYTEST_DEBUG_TEMPROOT" in os.environ or config.getoption("basetemp"):
        return
    with suppress(OSError):
        if shutil.disk_usage(MEMORY).free >= MEMORY_NEEDED and os.access(MEMORY, os.W_OK | os.X_OK):
            os.environ["PYTEST_DEBUG_TEMPROOT"] = MEMORY


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Start no workers for one or two files, because starting takes longer than the tests."""
    names_files = all(".py" in argument for argument in config.args)
    return 0 if names_files and len(config.args) <= 2 else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the slow tests, and leave the marked ones to `--full`, unless the command line names their file."""
    slow = set(SLOW_TESTS.read_text(encoding="utf-8").split("\n"))
    skipped = summary.skipped_before()
    for item in items:
        if item.nodeid.partition("[")[0] in slow:
            item.add_marker("full")
        if runs_as_both_users(item.path) or item.nodeid in skipped:
            item.add_marker("both_users")
        if is_search(item.path):
            item.add_marker("search")
    if config.getoption("--full"):
        return
    named = {
        str(Path(argument.partition("::")[0]).resolve()) for argument in config.args if ".py" in argument
    }
    left = {item for item in items if item.get_closest_marker("full") and str(item.path) not in named}
    config.hook.pytest_deselected(items=list(left))
    items[:] = [item for item in items if item not in left]


def pytest_collection_finish() -> None:
    """Exclude everything loaded so far from garbage collection, which would make a forked worker copy every page."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the missing programs and, with `--durations`, the seconds per directory."""
    summary.print_missing_programs(terminalreporter)
    summary.write_skipped(terminalreporter)
    if config.getoption("--list-slow"):
        summary.write_slow_tests(terminalreporter, SLOW_TESTS)
    if config.getoption("durations"):
        summary.print_seconds_by_directory(terminalreporter)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute the tests among the workers one by one, except those that share slow fixtures."""
    from xdist.scheduler import LoadScopeScheduling  # exists only with pytest-xdist

    class ByTest(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((place for place in SHARED_FIXTURES if nodeid.startswith(place)), nodeid)

    return ByTest(config, log)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a directory with `git-envlog` and the other programs, run by this interpreter."""
    return make_programs(tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="session", autouse=True)
def sealed_session(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> Iterator[None]:
    """Provide a clean environment for fixtures that a whole module shares."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if (name.startswith(FOREIGN_PREFIXES) or name in FOREIGN_NAMES) and name != KEPT_NAME:
                patch.delenv(name)
        patch.setenv(
            "PATH", os.pathsep.join((str(programs), os.path.dirname(sys.executable), os.environ["PATH"]))
        )
        home = tmp_path_factory.mktemp("home")
        for name, value in sealed_environment(home).items():
            patch.setenv(name, value)
        before = os.umask(0o022)
        runner = QuickPrograms(programs, os.environ)
        quick.append(runner)
        yield
        quick.remove(runner)
        runner.close()
        os.umask(before)


@pytest.fixture(autouse=True)
def hermetic(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a new home, git configuration and clean environment; return the home."""
    home = tmp_path_factory.mktemp("home")
    for name, value in sealed_environment(home).items():
        monkeypatch.setenv(name, value)
    # A test may have changed it.
    os.umask(0o022)
    return home


def sealed_environment(home: Path) -> dict[str, str]:
    """Return the variables of every test, and write the git configuration that they name."""
    (home / "gitconfig").write_text(GIT_CONFIG)
    # Git before 2.32 reads only this file.
    (home / ".gitconfig").symlink_to("gitconfig")
    return {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_STATE_HOME": str(home / "state"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(home / "gitconfig"),
        # Packages of this machine may change at any time.
        "GIT_ENVHIST_MACHINE_ROOT": str(home / "machine"),
        # A repository above the temporary directory must not be found.
        "GIT_CEILING_DIRECTORIES": str(home.parent),
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
    }


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """Return a new repository with one commit: `app.py`, tracked and clean."""
    return make_repo(tmp_path / "repo")
