"""A failure in CI is captured and pushed there, then fetched and compared on a developer's machine."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.remote.conftest import make_remote, timeline
from tests.support.repository import Repo, make_repo

ANOTHER = "nobody"


def reach_python() -> bool:
    """Return whether another user can run this Python and git-envhist."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return False
    # Start it through a shell: the first program still has root's capabilities.
    words = [*as_another(), "sh", "-c", f"exec {sys.executable} -c 'import git_envhist'"]
    return subprocess.run(words, capture_output=True, check=False, cwd="/").returncode == 0


def as_another() -> list[str]:
    user = pwd.getpwnam(ANOTHER)
    return [
        "setpriv",
        f"--reuid={user.pw_uid}",
        f"--regid={user.pw_gid}",
        "--clear-groups",
        "--bounding-set=-all",
    ]


class Machine(Repo):
    """A working tree on another machine, optionally of another user."""

    user: str | None = None

    def execute(self, *words, **more):  # type: ignore[no-untyped-def]
        return super().execute(*(as_another() if self.user else []), *words, **more)

    def give_away(self, *places: Path) -> None:
        if self.user is not None:
            for place in (self.path, *places):
                subprocess.run(["chown", "-R", self.user, str(place)], check=True)


def install(machine: Repo, name: str, version: str) -> None:
    place = f".venv/lib/python3.11/site-packages/{name}-{version}.dist-info"
    machine.write(f"{place}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    machine.write(f"{place}/RECORD", os.urandom(20).hex())
    machine.write(f".venv/lib/python3.11/site-packages/{name}/core.py", f"VERSION = '{version}'\n")
    machine.write(
        f".venv/lib/python3.11/site-packages/{name}/__pycache__/core.cpython-311.pyc", os.urandom(30)
    )


@pytest.fixture(params=["another home", "another user"])
def ci(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    """Return the working tree of a CI job whose tests fail."""
    made = make_repo(tmp_path / "ci" / "job")
    home = tmp_path / "ci-home"
    home.mkdir()
    machine = Machine(made.path, {**made.env, "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")})
    if request.param == "another user":
        if not reach_python():
            pytest.skip("no other user can run this Python here")
        for place in (tmp_path, *tmp_path.parents):
            if place.stat().st_uid == os.geteuid() and not place.stat().st_mode & 0o001:
                place.chmod(place.stat().st_mode | 0o711)
        machine.user = ANOTHER
        machine.env["XDG_STATE_HOME"] = machine.env["XDG_DATA_HOME"] = str(home)
    machine.write("app.py", "import click\n")
    machine.write(".env.local", "API_URL=https://ci\n")
    machine.write("server.log", "started 1\n")
    install(machine, "click", "8.1.8")
    return machine


def test_failure_on_another_machine_is_inspected_after_a_fetch(ci: Machine, tmp_path: Path) -> None:
    history = make_remote(tmp_path / "srv" / "history.git")
    ci.give_away(tmp_path / "ci-home", history.path)
    url = f"file://{history.path}"
    ci.git("config", "envhist.remote", url)
    # The command of the recipe, literally.
    ci.execute(
        "sh", "-c", "false || { git envlog capture 'npm test fails'; git envlog push --yes; }", check=True
    )

    here = make_repo(tmp_path / "here")
    here.git("config", "--global", "--add", "safe.directory", "*")
    here.git("config", "envhist.remote", url)
    here.write("app.py", "import click\n")
    here.write(".env.local", "API_URL=https://x\nDEBUG=1\n")
    here.write("server.log", "started 2\n")
    install(here, "click", "8.1.7")
    install(here, "flask", "3.0.1")
    name = json.loads(here.run("envlog", "fetch", "--json", check=True).out)["timelines"][0]["timeline"]
    assert "npm test fails" in here.run("envlog", "--all", check=True).out
    output = here.run("envdiff", f"{name}..now", check=True).out.splitlines()
    assert output[0].split() == ["pip", ".venv", "~", "click", "8.1.8", "→", "8.1.7", "+", "flask", "3.0.1"]
    assert output[1].startswith("env       .env.local     ~ ")
    assert "is missing" in output[1], "a sealed file without its key is named"
    assert "DEBUG" not in "".join(output), "names of sealed variables are not printed"
    assert output[-1].startswith("by nature")
    assert "server.log" not in "".join(output)
    assert ".venv/ " in output[-1]
    assert not [line for line in output if line.startswith("files") and ".venv" in line]
    whole = here.run("envdiff", "--no-fold", f"{name}..now", check=True).out
    assert "server.log" in whole
    assert "by nature" not in whole
    facts = json.loads(here.run("envdiff", "--json", f"{name}..now", check=True).out)["facts"]
    assert "env" not in {fact["probe"] for fact in facts}
    here.run("envrestore", "--to", str(tmp_path / "failing"), name)
    assert (tmp_path / "failing/app.py").read_bytes() == ci.read("app.py")
    assert not (tmp_path / "failing/.env.local").exists(), "sealed with a key that is missing here"


def test_fetched_machine_is_shown_completely(repo: Repo, bare: Repo) -> None:
    repo.write("server.log", "1")
    repo.run("envlog", "capture", check=True)
    # A fetch skips timelines that are complete here, so remove the newest snapshot locally.
    repo.run("envlog", "capture", "more", check=True)
    repo.run("envlog", "push", "--yes", check=True)
    ref = f"refs/envhist/heads/{timeline(repo)}"
    repo.git("update-ref", ref, f"{ref}~1")
    repo.run("envlog", "fetch", check=True)
    repo.write("server.log", "2")
    assert "server.log" in repo.run("envdiff", f"origin/{timeline(repo)}..now", check=True).out
