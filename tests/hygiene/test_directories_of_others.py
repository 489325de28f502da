"""Root does not write through directories of another account, which could lead anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from git_envhist.checks import sandbox
from git_envhist.consent import trusted_list
from git_envhist.directories_of_others import (
    OthersDirectory,
    make_directories,
    others_component,
    refuse_others_directory,
)
from git_envhist.discovery import homes_of
from tests.hygiene.test_other_users import OTHER
from tests.support.repository import Repo

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root writes into the directories of others")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory of root, into which another account would like to write."""
    place = tmp_path / "victim"
    place.mkdir()
    return place


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home directory of another account."""
    place = tmp_path / "other"
    place.mkdir()
    give(place)
    return place


@pytest.fixture
def root_in_other_home(repo: Repo, home: Path) -> Repo:
    """A repository of root, used with the directories of another account, as after `sudo -E`."""
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        repo.env[name] = str(home / name.lower())
    repo.env["HOME"] = str(home)
    return repo


def give(path: Path) -> None:
    os.chown(path, OTHER, OTHER, follow_symlinks=False)


def plant(link: Path, target: Path) -> None:
    for parent in [one for one in reversed(link.parents) if not one.exists()]:
        parent.mkdir()
        give(parent)
    link.symlink_to(target)
    give(link)


def contents(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*"))


WRITERS = {
    "shell": (("envlog", "install", "--shell"), ("xdg_data_home/man", "xdg_config_home/fish")),
    "hooks": (("envlog", "install", "--global"), ("xdg_data_home/git-envhist", ".gitconfig")),
    "agent": (
        ("envlog", "install", "--agent", "claude-code"),
        ("xdg_data_home/git-envhist",),
    ),
    "agent for all": (("envlog", "install", "--global", "--agent", "claude-code"), (".claude",)),
    "plugin": (("envhist", "agent-shim", "claude-code"), ("xdg_data_home/git-envhist",)),
    "identity": (("envlog", "key", "identity"), ("xdg_config_home/git-envhist",)),
    "uninstall": (("envlog", "uninstall", "--global"), ("xdg_data_home/git-envhist",)),
}
SILENT = ("plugin",)


@pytest.mark.parametrize("writer", WRITERS)
def test_link_of_another_account_leads_root_nowhere(
    root_in_other_home: Repo, home: Path, victim: Path, writer: str
) -> None:
    command, links = WRITERS[writer]
    for link in links:
        plant(home / link, victim / ("file" if link == ".gitconfig" else "."))
    before = (
        root_in_other_home.git("config", "--list", "--local"),
        contents(root_in_other_home.path / ".git/envhist"),
    )
    done = root_in_other_home.run(*command)
    assert contents(victim) == []
    if writer not in SILENT:
        assert done.status == 3
        first, second = done.err.splitlines()
        assert first.startswith("error: root does not write through ")
        assert second.startswith("hint: run the command as that account")
    after = (
        root_in_other_home.git("config", "--list", "--local"),
        contents(root_in_other_home.path / ".git/envhist"),
    )
    assert after == before


def test_captures_of_root_write_no_key_and_no_list_there(
    root_in_other_home: Repo, home: Path, victim: Path
) -> None:
    plant(home / "xdg_config_home/git-envhist", victim)
    plant(home / "xdg_data_home/git-envhist", victim)
    root_in_other_home.write(".env", "A=secret\n")
    done = root_in_other_home.run("envlog", "capture", check=True)
    assert "another account controls this path: only one copy of it exists" in done.err
    assert contents(victim) == []
    assert len(list((root_in_other_home.path / ".git/envhist/keys").iterdir())) > 1


def test_mode_of_a_file_behind_a_link_is_unchanged(
    root_in_other_home: Repo, home: Path, victim: Path
) -> None:
    root_in_other_home.run("envlog", "capture", check=True)
    program = victim / "passwd"
    program.write_text("x\n")
    program.chmod(0o644)
    plant(home / "xdg_config_home/git-envhist/keys" / ("ab" * 16), program)
    root_in_other_home.write("f", "2")
    root_in_other_home.run("envlog", "capture", check=True)
    root_in_other_home.run("envlog", "key", "show")
    assert program.stat().st_mode & 0o777 == 0o644


def test_sandboxes_behind_a_link_are_not_removed(home: Path, victim: Path) -> None:
    (victim / "data").mkdir()
    plant(home / "git-envhist/aside", victim)
    sandbox.sweep(sandbox.unmounted_base({"XDG_CACHE_HOME": str(home)}))
    assert contents(victim) == ["data"]


def test_record_of_another_account_names_no_repository(tmp_path: Path, home: Path, repo: Repo) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    repo.run("envlog", "init", cwd=plain, check=True)
    environ = repo.env
    assert homes_of(environ).find(str(plain)) is not None
    for record in Path(homes_of(environ).directory).iterdir():
        give(record)
    assert homes_of(environ).find(str(plain)) is None


def test_list_of_repositories_is_not_written_there(home: Path) -> None:
    with pytest.raises(OthersDirectory):
        trusted_list({"XDG_DATA_HOME": str(home)}).add_repository("/repo/.git")
    assert contents(home) == []


def test_spool_is_not_written_there(home: Path) -> None:
    from git_envhist.integrations.agents.events import spool_lock

    with pytest.raises(OthersDirectory), spool_lock(str(home / "spool")):
        pass
    assert contents(home) == []


def test_each_component_of_a_path_counts(tmp_path: Path, home: Path, victim: Path) -> None:
    own = tmp_path / "own"
    own.symlink_to(victim)
    refuse_others_directory(str(own / "new/below"))
    refuse_others_directory(str(own / ".." / "victim"))
    assert others_component(f"{own}/../other/../victim") == str(home)
    (victim / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        refuse_others_directory(str(victim / "loop"))
    given = victim / "given"
    given.symlink_to(victim)
    give(given)
    assert others_component(str(given)) == str(given)
    leads = victim / "leads"
    leads.symlink_to("../other/x")
    assert others_component(str(leads)) == str(home)
    victim.chmod(0o777)
    assert others_component(str(victim / "new")) == str(victim)
    victim.chmod(0o1777)
    refuse_others_directory(str(victim / "new"))
    make_directories(str(own / "made/below"))
    assert (victim / "made/below").stat().st_mode & 0o777 == 0o700


IN_NAMESPACE = (
    "import sys; from git_envhist.directories_of_others import others_component; "
    "print(others_component(sys.argv[1]))"
)


def test_root_of_a_user_namespace_trusts_accounts_outside_of_it(home: Path) -> None:
    # The system's directories belong to an unknown account there.
    os.chown(home, 4321, 4321)
    command = (sys.executable, "-c", IN_NAMESPACE, str(home / "new"))
    done = subprocess.run(
        ("unshare", "--map-root-user", *command), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"no user namespace here: {done.stderr}")
    assert done.stdout == "None\n"
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"{home}\n"


def test_another_account_is_not_restricted(home: Path) -> None:
    os.seteuid(OTHER)
    try:
        assert others_component(str(home)) is None
    finally:
        os.seteuid(0)
