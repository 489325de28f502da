"""Recent changes without a snapshot: by real change times, and by logs as their programs write them."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from git_envhist.model import FactChange, Role
from git_envhist.model import LogEvent as Done
from git_envhist.recent_changes import birth_time_ns, npm_time, read_apt, read_dpkg, read_npm, read_reflog
from tests.support.oracle import listing
from tests.support.repository import Repo

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "docs/schema/answers.json").read_text())
T0 = datetime(2026, 11, 18, 22, 0, tzinfo=UTC)

# apt-get install --no-install-recommends postgresql, in /var/log/dpkg.log (without the lines of states)
DPKG_LOG = """\
2026-11-18 21:26:22 install ancient:amd64 <none> 1.0
2026-11-18 22:26:22 startup archives unpack
2026-11-18 22:26:22 upgrade libpq5:amd64 15.18-0+deb12u1 15.20-0+deb12u1
2026-11-18 22:26:22 status half-installed libpq5:amd64 15.18-0+deb12u1
2026-11-18 22:26:23 install postgresql-15:amd64 <none> 15.20-0+deb12u1
2026-11-18 22:26:24 install postgresql:amd64 <none> 15+248+deb12u2
2026-11-18 22:26:25 configure postgresql:amd64 15+248+deb12u2 <none>
2026-11-18 22:26:40 remove cargo:amd64 0.66.0+ds1-1 <none>
2026-11-18 22:26:41 install brief:all <none> 1.0
2026-11-18 22:26:42 purge brief:all 1.0 <none>
"""
# The same, in /var/log/apt/history.log
APT_LOG = """\

Start-Date: 2026-11-18  20:26:22
Commandline: apt-get install ancient
Install: ancient:amd64 (1.0)
End-Date: 2026-11-18  20:26:40

Start-Date: 2026-11-18  22:26:22
Commandline: apt-get install -y -qq --no-install-recommends postgresql
Install: postgresql-15:amd64 (15.20-0+deb12u1, automatic), postgresql:amd64 (15+248+deb12u2)
Upgrade: libpq5:amd64 (15.18-0+deb12u1, 15.20-0+deb12u1)
End-Date: 2026-11-18  22:26:40
"""
# npm 11: npm install pg, in ~/.npm/_logs (without most of its lines)
NPM_LOG = """\
0 verbose cli /usr/bin/node /usr/bin/npm
1 info using npm@11.19.1
7 verbose title npm install pg
8 verbose argv "install" "--no-save" "pg"
14 http fetch GET 200 https://index.example/pg 107ms (cache miss)
15 verbose cwd {place}
19 verbose exit 0
"""


def next_second() -> int:
    """Wait for the next second, also on the coarse clock of file times, and return it."""
    now = int(time.time())
    while int(time.time() - 0.1) == now or int(time.time()) == now:
        time.sleep(0.01)
    return now + 1


def everything(place: Path) -> dict[bytes, object]:
    return dict(listing(place, top=True).items())


def package(repo: Repo, name: str, version: str) -> str:
    place = f".venv/lib/python3.11/site-packages/{name}-{version}.dist-info"
    repo.write(f"{place}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return place


def test_recent_lists_changes_and_writes_nothing(repo: Repo, tmp_path: Path) -> None:
    machine = tmp_path / "machine"
    (machine / "var/log").mkdir(parents=True)
    repo.env["GIT_ENVHIST_MACHINE_ROOT"] = str(machine)
    repo.env["npm_config_cache"] = str(tmp_path / "npm")
    repo.write(".gitignore", ".venv/\nnode_modules/\nsecret/\n")
    package(repo, "old", "1.0")
    repo.write("src/gone.py", "x")
    repo.write("src/stays.py", "x")
    repo.write("excluded/a", "x")
    repo.write(".envhistignore", "excluded/\n")
    repo.commit("before")
    since = next_second()

    clock = datetime.now(UTC)
    (machine / "var/log/dpkg.log").write_text(
        f"{clock:%Y-%m-%d %H:%M:%S} install postgresql:amd64 <none> 15+248\n"
    )
    later = clock + timedelta(seconds=1)
    (tmp_path / "npm/_logs").mkdir(parents=True)
    (tmp_path / f"npm/_logs/{later:%Y-%m-%dT%H_%M_%S}_957Z-debug-0.log").write_text(
        NPM_LOG.format(place=repo.path)
    )
    package(repo, "flask", "3.0.1")
    os.utime(repo.path / package(repo, "backdated", "2.0") / "METADATA", (0, 0))
    repo.write("node_modules/pg/package.json", '{"name": "pg", "version": "8.11.3"}')
    (repo.path / "src/gone.py").unlink()
    repo.write("app.py", "changed\n")
    repo.write("excluded/b", "x")
    (repo.path / "fresh").mkdir()
    repo.git("commit", "-q", "-am", "the next step")
    before = everything(repo.path)

    shown = repo.run("envlog", "recent", f"@{since}", check=True)
    rows = shown.out.splitlines()
    assert rows[0].startswith("changes since ")
    assert rows[1] == "pip       .venv          + backdated 2.0   + flask 3.0.1"
    assert rows[2] == "npm       node_modules   + pg 8.11.3"
    assert rows[3] == "system                   + postgresql 15+248"
    assert next(row for row in rows if row.startswith("git ")).endswith("  commit: the next step")
    assert next(row for row in rows if row.startswith("ran ")).endswith("  npm install pg")
    files = next(row for row in rows if row.startswith("files "))
    assert "~ app.py" in files
    assert "excluded" not in files
    assert "lost      files were removed from, or moved out of:  src/" in rows
    assert (
        rows[-1]
        == "cannot be found without comparing snapshots: removed files, earlier contents of files, earlier versions"
    )
    assert "git envlog capture" in shown.err

    told = json.loads(repo.run("envlog", "recent", "--json", f"@{since}", check=True).out)
    Draft202012Validator({"$ref": "#/$defs/recent", "$defs": SCHEMA["$defs"]}).validate(told)
    came = {"probe": "npm", "key": "node_modules/pg", "before": None, "after": "8.11.3"}
    assert any(came.items() <= fact.items() for fact in told["story"])
    assert {one["path"]: one["status"] for one in told["files"]}["app.py"] == "M"
    assert [one["path"] for one in told["lost_something"]] == ["src"]
    assert told["git"][0]["what"] == "commit: the next step"
    assert told["git"][0]["commit"] == repo.git("rev-parse", "HEAD")
    assert told["commands"][0]["what"] == "npm install pg"

    part = repo.run("envlog", "recent", f"@{since}", "--", "node_modules", check=True).out
    assert "npm       node_modules   + pg 8.11.3\n" in part
    assert not any(word in part for word in ("flask", "lost", "commit:", "app.py"))
    assert everything(repo.path) == before
    assert repo.git("for-each-ref", "refs/envhist") == ""


def test_recent_works_in_a_directory_without_git(repo: Repo, tmp_path: Path) -> None:
    place = tmp_path / "plain"
    (place / "sub").mkdir(parents=True)
    (place / "earlier").write_text("x")
    since = next_second()
    (place / "sub/new.txt").write_text("x")
    (place / "earlier").write_text("changed")
    before = everything(place)
    shown = repo.run("envlog", "recent", f"@{since}", cwd=place, check=True).out
    assert "files     ~ earlier  + sub/new.txt\n" in shown
    part = repo.run("envlog", "recent", f"@{since}", "--", "*.txt", cwd=place / "sub", check=True).out
    assert "sub/new.txt" in part or "new.txt" in part
    assert "~ earlier" not in part
    assert "nothing found\n" in repo.run("envlog", "recent", "now", cwd=place, check=True).out
    assert everything(place) == before
    assert "\nfiles " in repo.run("envlog", "recent", cwd=place, check=True).out
    wrong = repo.run("envlog", "recent", "soon", cwd=place)
    assert (wrong.status, "not a time: 'soon'" in wrong.err) == (129, True)


def test_recent_reads_the_logs_of_dpkg_and_apt() -> None:
    commands, automatic = read_apt([APT_LOG], T0, UTC)
    assert commands == (
        Done(T0.replace(minute=26, second=22), "apt-get install -y -qq --no-install-recommends postgresql"),
    )
    assert automatic == {"postgresql-15"}
    assert read_dpkg([DPKG_LOG], T0, UTC, automatic) == (
        FactChange("system", "cargo", "0.66.0+ds1-1", None, by="dpkg"),
        FactChange("system", "libpq5", "15.18-0+deb12u1", "15.20-0+deb12u1", by="dpkg"),
        FactChange("system", "postgresql", None, "15+248+deb12u2", by="dpkg"),
        FactChange(
            "system", "postgresql-15", None, "15.20-0+deb12u1", by="dpkg", auto=True, role=Role.TRANSITIVE
        ),
    )


def test_recent_reads_rotated_logs(repo: Repo, tmp_path: Path) -> None:
    logs = tmp_path / "machine/var/log"
    logs.mkdir(parents=True)
    repo.env["GIT_ENVHIST_MACHINE_ROOT"] = str(tmp_path / "machine")
    now = datetime.now(UTC)
    line = f"{now:%Y-%m-%d %H:%M:%S} upgrade a:amd64 {{}} {{}}\n"
    (logs / "dpkg.log").write_text(line.format("2.0", "3.0"))
    (logs / "dpkg.log.2.gz").write_bytes(gzip.compress(line.format("1.0", "2.0").encode()))
    (logs / "dpkg.log.3.gz").write_bytes(b"\x1f\x8b no more of it")
    assert "system                   ~ a 1.0 → 3.0\n" in repo.run("envlog", "recent", check=True).out


def test_recent_lists_commands_of_npm_in_this_directory_only() -> None:
    assert read_npm(NPM_LOG.format(place="/srv/shop/web"), "/srv/shop") == "npm install pg"
    assert read_npm(NPM_LOG.format(place="/srv/shop2"), "/srv/shop") is None
    assert read_npm(NPM_LOG.replace("install pg", "view pg").format(place="/srv/shop"), "/srv/shop") is None
    assert npm_time("2026-11-18T15_41_57_950Z-debug-0.log") == datetime(2026, 11, 18, 15, 41, 57, tzinfo=UTC)


def test_birth_time_is_known_when_the_file_system_has_it(tmp_path: Path) -> None:
    before = time.time_ns()
    place = tmp_path / "new"
    place.write_text("x")
    born = birth_time_ns(os.fsencode(place))
    if born is None:
        pytest.skip("this file system has no times of birth")
    assert abs(born - before) < 60 * 10**9
    os.utime(place, (0, 0))
    assert birth_time_ns(os.fsencode(place)) == born
    assert birth_time_ns(os.fsencode(tmp_path / "none")) is None
    seen = subprocess.run(["stat", "-c", "%W", place], capture_output=True, check=False).stdout.strip()
    assert sys.platform != "linux" or int(seen) in (0, born // 10**9)


LINES = st.lists(
    st.sampled_from([*DPKG_LOG.splitlines(), *APT_LOG.splitlines(), *NPM_LOG.splitlines(), "HEAD@{9}\0a\0b"])
    | st.text(max_size=60),
    max_size=12,
)


@given(LINES)
def test_parsers_of_logs_accept_any_bytes(lines: list[str]) -> None:
    text = "\n".join(lines)
    read_dpkg([text], T0, UTC, ())
    read_apt([text], T0, UTC)
    read_npm(text, "/")
    list(
        read_reflog(
            [*lines, *(f"HEAD@{{{line}}}\0x\0y" for line in lines), "HEAD@{999999999999}\0\0"], T0, UTC
        )
    )
    for line in lines:
        npm_time(line)


def test_recent_reports_a_deleted_directory(repo: Repo) -> None:
    words = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    done = repo.execute("sh", "-c", words, "sh", "git-envlog", "recent", check=False)
    assert done.status == 128
    assert done.err == "error: the current directory was removed\nhint: cd to an existing directory\n"


def test_first_line_has_the_day(repo: Repo) -> None:
    line = repo.run("envlog", "recent", "1h", check=True).out.split("\n")[0]
    assert re.match(r"changes since \d{4}-\d\d-\d\d \d\d:\d\d, found by ", line), line


def test_requested_packages_are_first(repo: Repo) -> None:
    repo.write("package.json", '{"dependencies": {"zed": "^1"}}')
    for name in ("aaa", "zed"):
        repo.write(f"node_modules/{name}/package.json", f'{{"name": "{name}", "version": "1.0.0"}}')
    assert "+ zed 1.0.0   + aaa 1.0.0" in repo.run("envlog", "recent", check=True).out


def test_hint_names_the_comparison_with_the_newest_snapshot(repo: Repo) -> None:
    assert "take a snapshot: git envlog capture" in repo.run("envlog", "recent").err
    repo.run("envlog", "capture", check=True)
    assert "newest snapshot: git envdiff" in repo.run("envlog", "recent").err
