"""A server and clients in two languages, installed but never committed: `git diff` compared with git-envhist.

All three are installed by their own tools: PostgreSQL by apt in a root mounted over this machine's if permitted, else
by dpkg in a separate root; `pg` by npm; `psycopg2-binary` by pip.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.mounts import Room, private_mounts
from tests.support.needs import require
from tests.support.repository import Repo

# The machine's settings determine the package sources; the environment is from before the tests were
# isolated.
MACHINE = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
MACHINE.pop("PYTHONPATH", None)
SERVER = ("postgresql", "postgresql-contrib", "postgresql-15", "postgresql-client-15")
OVERLAY = """
set -e
mount -t tmpfs none {place}
cd {place}; mkdir upper work here
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work here
mount --bind /dev here/dev
mount -t proc proc here/proc
printf '#!/bin/sh\\nexit 101\\n' > here/usr/sbin/policy-rc.d
chmod 755 here/usr/sbin/policy-rc.d
mkdir -p here/etc/postgresql-common/createcluster.d
echo 'create_main_cluster = false' > here/etc/postgresql-common/createcluster.d/none.conf
rm -f here/var/lib/man-db/auto-update
chroot here dpkg --purge --force-depends {packages} 2>&1
touch here/var/lib/dpkg/status
# Somebody may be installing on the machine below.
test -z "$(ls here/var/lib/dpkg/updates)"
"""


class Machine(NamedTuple):
    """A machine without PostgreSQL, and the command that installs it there."""

    root: Path
    install: list[str]


def run(*words: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Return the output of a tool; skip the test if it has no package source."""
    done = subprocess.run(words, cwd=cwd, env={**MACHINE, **(env or {})}, capture_output=True, timeout=300)
    if done.returncode != 0:
        pytest.skip(f"cannot be installed here: {words[0]}: {done.stderr.decode()[-300:]}")
    return done.stdout.decode()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    if shutil.which("apt-get") is None:
        pytest.skip("no apt here")
    if os.geteuid() != 0:
        yield _of_its_own(tmp_path / "machine")
        return
    with private_mounts() as room:
        yield _laid_over_this_one(room, tmp_path / "over") or _of_its_own(tmp_path / "machine")


def _laid_over_this_one(room: Room, place: Path) -> Machine | None:
    """Yield this machine without its PostgreSQL; installations disappear with the namespace."""
    place.mkdir()
    script = OVERLAY.format(place=place, packages=" ".join(SERVER))
    inside = [*room.inside(Path("/")), "env", *(f"{name}={value}" for name, value in MACHINE.items())]
    if subprocess.run([*inside, "sh", "-c", script], capture_output=True, timeout=300).returncode != 0:
        return None
    apt = ["chroot", f"{place}/here", "apt-get", "-q", "-y", "-o", "DPkg::Options::=--force-unsafe-io"]
    return Machine(
        room.seen(place / "upper"),
        [*inside, *apt, "install", "--no-install-recommends", "postgresql"],
    )


def _of_its_own(root: Path) -> Machine:
    for name in ("updates", "info", "triggers"):
        (root / "var/lib/dpkg" / name).mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text("")

    run("apt-get", "download", "postgresql", cwd=root)
    (package,) = root.glob("postgresql_*.deb")
    forced = ("--force-not-root", "--force-bad-path", "--force-depends")
    return Machine(root, ["dpkg", *forced, f"--root={root}", f"--log={root}/log", "-i", str(package)])


def installed_server(machine: Machine) -> str:
    """Return the version of the server as printed by dpkg."""
    query = ["dpkg-query", f"--admindir={machine.root}/var/lib/dpkg", "-W", "-f", "${Version}", "postgresql"]
    return subprocess.run(query, capture_output=True, check=True).stdout.decode()


def install_clients(repo: Repo, cache: Path) -> tuple[str, str]:
    """Install both clients with their own tools; return the versions these print."""
    npm = require("npm", MACHINE.get("PATH"))
    where = {"npm_config_cache": str(cache / "npm"), "PIP_CACHE_DIR": str(cache / "pip")}
    run(npm, "install", "--no-save", "--no-audit", "--no-fund", "pg", cwd=repo.path, env=where)
    pip = (sys.executable, "-m", "pip", "--python", ".venv/bin/python")
    run(*pip, "install", "--no-input", "-q", "psycopg2-binary", cwd=repo.path, env=where)
    listed = json.loads(run(*pip, "list", "--format=json", cwd=repo.path))
    python = {one["name"]: one["version"] for one in listed}
    return json.loads(repo.read("node_modules/pg/package.json"))["version"], python["psycopg2-binary"]


@pytest.mark.full
def test_installed_database_and_clients_are_listed_when_git_sees_no_change(
    repo: Repo, machine: Machine, tmp_path: Path
) -> None:
    repo.env["GIT_ENVHIST_MACHINE_ROOT"] = str(machine.root)
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", ".venv"], cwd=repo.path, check=True, env=MACHINE
    )
    repo.write("package.json", '{"name": "shop", "version": "1.0.0", "private": true}\n')
    repo.write(".gitignore", ".venv/\nnode_modules/\n")
    commit = repo.commit("the shop")
    before = repo.run("envlog", "capture", "--porcelain", "clean clone", check=True).out.strip()

    run(*machine.install)
    pg, psycopg = install_clients(repo, tmp_path)
    server = installed_server(machine)
    after = repo.run("envlog", "capture", "--porcelain", "before the import", check=True).out.strip()

    assert repo.git("status", "--porcelain") == ""
    assert repo.git("log", "--format=%H", f"{commit}..") == ""

    line = repo.run("envlog", "-1", check=True).out
    told = repo.run("envlog", "-1", "--format=%(story)", check=True).out
    for words in (f"pip: +psycopg2-binary {psycopg}", f"npm: +pg {pg}", f"+postgresql {server}"):
        assert words in told
        assert words in line

    rows = repo.run("envdiff", before, after, "--only=packages", check=True).out
    assert f"pip       .venv          + psycopg2-binary {psycopg}\n" in rows
    assert f"npm       node_modules   + pg {pg}   + " in rows
    assert f"+ postgresql {server}" in rows
    assert f"mismatch  node_modules   + pg {pg}, in no list\n" in rows
    back = repo.run("envdiff", after, before, "--only=packages", check=True).out
    assert f"pip       .venv          - psycopg2-binary {psycopg}\n" in back
    assert f"npm       node_modules   - pg {pg}   - " in back
    assert f"   - postgresql {server}" in back[back.index("\nsystem ") :]

    card = json.loads(repo.run("envlog", "show", "--json", check=True).out)
    wanted = {
        ("pip", ".venv/psycopg2-binary", None, psycopg),
        ("npm", "node_modules/pg", None, pg),
        ("system", "postgresql", None, server),
    }
    assert wanted <= facts(card["story"])
    assert card["git_changed"] == []
    assert card["head"] == commit
    reverse = json.loads(repo.run("envdiff", "--json", after, before, check=True).out)
    assert {(probe, key, new, old) for probe, key, old, new in wanted} <= facts(reverse["facts"])


def facts(told: list[dict[str, str | None]]) -> set[tuple[str | None, ...]]:
    return {(one["probe"], one["key"], one["before"], one["after"]) for one in told}
