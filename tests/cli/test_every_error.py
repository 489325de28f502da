"""Every kind of error, caused through the programs: status, one error line, a hint, no traceback."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.test_errors import CASES as MET
from tests.rules.source import CHECKOUT
from tests.rules.test_errors import KINDS
from tests.support.repository import Repo, make_repo


class Case(NamedTuple):
    """The expected status, the preparation, and the command that fails."""

    status: int
    before: str
    last: str


MODULE = "mkdir -p m; echo 'raise ModuleNotFoundError(name=\"{0}\")' > m/{0}.py"
TOKEN = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
PLAIN = "mkdir ../plain; cd ../plain; echo 1 > file; git-envlog init; git-envlog capture first"
NEW = "echo 1 > new; git-envlog capture x"
CASES = {
    "another-directory": Case(
        128, f"{PLAIN}; cd ..; mv plain moved; rm -r moved; mkdir plain; cd plain; echo 2 > f", "git-envlog",
    ),
    "bad-pattern": Case(128, "git config envhist.secret '!'", "git-envlog capture x"),
    "cannot-tell": Case(125, NEW, "git-envlog bisect --good early -- 'exit 125'"),
    "damaged": Case(128, "echo 1 > out", "git-envlog import out"),
    "defect": Case(
        128, "mkdir m; echo 'raise ValueError(1)' > m/click.py", "PYTHONPATH=m git-envlog -h",
    ),
    "definition-differs": Case(
        3,
        "echo 1 > p; git-envlog task add x; git-envlog task start 1 --definition p; echo 2 > p",
        "git-envlog resume --definition p",
    ),
    "diverged": Case(
        3,
        "git-envlog push --yes; cp -r . ../second; git-envlog capture x; git-envlog push;"
        "cd ../second; git-envlog capture y",
        "git-envlog push",
    ),
    "failed": Case(128, "ulimit -n 12", "git-envlog capture x"),
    "file-exists": Case(3, "echo 1 > out", "git-envlog export out early"),
    "first-push": Case(3, ":", "git-envlog push"),
    "not-agreed": Case(
        3,
        "git-envlog push --yes; printf 'SQLite format 3' > a.db; head -c 4080 /dev/zero >> a.db; git-envlog capture x",
        "git-envlog push",
    ),
    "git-failed": Case(128, "echo '[core' > .git/config", "git-envlog"),
    "history-away": Case(128, f'{PLAIN}; rm -r "$XDG_DATA_HOME"/git-envhist/histories/*', "git-envlog"),
    "holds-tokens": Case(
        3,
        f"head -c 40000 /dev/zero > a.log; echo ' {TOKEN} ' >> a.log; head -c 40000 /dev/zero >> a.log;"
        "git-envlog capture x",
        "git-envlog push --yes",
    ),
    "inside-check": Case(3, "export GIT_ENVHIST_CHECK=$PWD", "git-envlog verify -- true"),
    "name-taken": Case(3, "git-envlog export out early", "git-envlog import out --as origin"),
    "no-failure": Case(4, ":", "git-envlog why --failed"),
    "no-such-subject": Case(4, ":", "git-envlog why --package nothing-of-this-name"),
    "no-lines": Case(128, "echo A=1 > .env; git-envlog capture x", "git-envlog blame .env"),
    "no-locks": Case(
        128,
        "export XDG_RUNTIME_DIR=/proc",
        "strace -f -qq -o /dev/null -e trace=flock -e inject=flock:error=ENOLCK git-envlog capture x",
    ),
    "no-mcp": Case(128, MODULE.format("mcp"), "PYTHONPATH=m git-envlog mcp"),
    "no-space": Case(
        128, "head -c 3000000 /dev/urandom > big; ulimit -f 1000", "git-envlog capture x",
    ),
    "no-shell-files": Case(
        128,
        f"mkdir x; cp -r {CHECKOUT}/git_envhist x",
        f"PYTHONPATH=x {sys.executable} -S -c \"import sys; sys.path += {sys.path!r}; sys.prefix = '/nowhere';"
        " sys.argv[1:] = ['install', '--shell'];"
        " from git_envhist.cli.main import envlog; envlog()\"",
    ),
    "no-tui": Case(
        128, MODULE.format("textual"), "PYTHONPATH=m script -qec 'git-envlog browse 2>&3' /dev/null 3>&2",
    ),
    "not-approved": Case(
        3, "git config envhist.verify 'echo hello'", "GIT_ENVHIST_UNATTENDED=1 git-envlog verify"
    ),
    "place-refused": Case(3, ":", "GIT_ENVHIST_UNATTENDED=1 git-envlog fork ../.hidden early"),
    "not-in-trash": Case(4, ":", "git-envlog undrop nowhere"),
    "nothing-to-find": Case(1, NEW, "git-envlog bisect --good early -- true"),
    "nothing-to-show": Case(4, ":", "git-envlog --html page.html --grep nowhere"),
    "output": Case(128, ":", "git-envlog > /dev/full"),
    "platform-failed": Case(128, "git config envhist.platformList 'exit 3'", "git-envlog observe"),
    "remote-failed": Case(128, "git remote set-url origin ../nowhere", "git-envlog push --yes"),
    "conflicts": Case(3, "echo other > gone", "git-envlog revert late"),
    "stale-plan": Case(3, ":", "git-envrestore --plan 0123456789abcdef early"),
    "too-large": Case(
        3,
        "git config envhist.largestObject 1k; head -c 300000 /dev/urandom > big; git-envlog capture x",
        "git-envlog push --yes",
    ),
}  # fmt: skip
TESTS = CHECKOUT / "tests"
ELSEWHERE = {
    "altered": ("remote/test_heads.py", "def without_the_fail"),
    "ambiguous": ("history/test_resolve.py", "AmbiguousRevision"),
    "cannot-sign": ("remote/test_heads.py", "is not signed: user.signingKey is not set"),
    "rolled-back": ("remote/test_heads.py", "was seen before"),
    "slow-patterns": ("worktree/test_path_patterns.py", "TooSlow"),
    "cannot-listen": ("mcp/test_transports.py", "cannot listen"),
    "busy": ("maintenance/test_collect.py", "RepositoryBusy"),
    "no-recipient": ("secrets/test_recipients.py", '("remove", "nobody")'),
    "place-obeyed": ("restore/test_obeyed_places.py", "PlaceObeyed"),
    "interrupted": ("services/test_services.py", "stopped: "),
    "locked": ("retention/test_locked.py", "StillLocked"),
    "not-yours": ("hygiene/test_directories_of_others.py", "root does not write through"),
    "newer-format": ("tracking/test_resuming.py", "NewerRecord"),
    "read-only": ("hygiene/test_read_only_git_directory.py", "cannot write below"),
    "ref-locked": ("hygiene/test_locked_refs.py", "a ref is locked by"),
    "too-much": ("remote/test_bombs.py", "bounds"),
    "two-directories": ("cli/test_init.py", "there is one history for both"),
    "watcher-unavailable": ("watcher/test_install.py", "one root of the environment contains another"),
    "worker-failed": ("crash/test_stopped.py", "a worker process ended unexpectedly"),
}
"""Errors that need a race, a signal or a special file system: the test that causes each, and a text that the test
contains."""
NEVER = {
    "refs-moved": "whoever moves a ref begins again where another was quicker: nobody is told",
    "not-named": "hooks of agents print nothing, and write nothing to a repository that no person named",
}


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the repository that all cases begin with, which has an empty remote."""
    place = tmp_path_factory.mktemp("shelf")
    repo = make_repo(place / "repo")
    repo.git("init", "-q", "--bare", "--template=", "../remote.git")
    repo.git("remote", "add", "origin", "../remote.git")
    repo.write("gone", "1\n")
    repo.run("envlog", "capture", "--name", "early", check=True)
    (repo.path / "gone").unlink()
    repo.run("envlog", "capture", "--name", "late", check=True)
    return place


@pytest.mark.parametrize("code", CASES)
def test_every_error_is_one_line_with_a_hint(shelf: Path, tmp_path: Path, hermetic: Path, code: str) -> None:
    case = CASES[code]
    shutil.copytree(shelf, tmp_path / "here", symlinks=True)
    repo = Repo(tmp_path / "here" / "repo", dict(os.environ))
    done = repo.execute("sh", "-c", f"{{ {case.before}; }} >/dev/null 2>&1; {case.last}", check=False)
    told = [line for line in done.err.splitlines() if line.startswith("error: ")]
    hinted = [line for line in done.err.splitlines() if line.startswith("hint: ")]
    assert done.status == case.status, done.err
    assert len(told) == 1, done.err
    assert hinted, done.err
    assert "Traceback" not in done.out + done.err
    assert not told[0].endswith(".")


def test_every_error_code_has_a_case() -> None:
    codes = {kind.code for kind in KINDS} | {"no-mcp", "no-tui", "cannot-listen"}
    assert codes == {*CASES, *ELSEWHERE, *NEVER, *(case.code for case in MET.values())}


@pytest.mark.parametrize("code", ELSEWHERE)
def test_error_codes_of_other_tests_occur_there(code: str) -> None:
    place, words = ELSEWHERE[code]
    assert words in (TESTS / place).read_text()


def test_the_page_lists_every_code_with_its_status() -> None:
    page = (CHECKOUT / "docs" / "guide" / "troubleshooting.md").read_text()
    rows = re.findall(r"^\| (`[a-z`, -]+`) \| (\d+) \|", page, re.MULTILINE)
    listed = {code: {int(status)} for codes, status in rows for code in codes.replace("`", "").split(", ")}
    statuses = {"no-mcp": {128}, "no-tui": {128}, "cannot-listen": {128}}
    for kind in KINDS:
        statuses.setdefault(kind.code, set()).add(kind.exit_code)
    assert listed == statuses
