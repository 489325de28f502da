"""Package changes as users see them: real installations between two snapshots in log, diff and JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from git_envhist import probes
from git_envhist.api import EnvHistory
from git_envhist.capture import probe_worker
from git_envhist.diff.facts import command_for
from git_envhist.model import FactChange
from git_envhist.probes.base import CaptureProbe, DumpProbe, EnvironmentProbe, FileProbe, MachineProbe
from git_envhist.snapshots.sealed_facts import open_facts
from tests.support.needs import needs, require
from tests.support.repository import Repo

# The machine's settings determine the package sources; the environment is from before the tests were
# isolated.
MACHINE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
MANY = 20_000


def capture(repo: Repo, intent: str, *words: str) -> str:
    return repo.run("envlog", "capture", "--porcelain", *words, intent, check=True).out.strip()


def metadata(name: str, version: str) -> str:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


def put(repo: Repo, name: str, version: str) -> None:
    place = f".venv/lib/python3.11/site-packages/{name}-{version}.dist-info"
    repo.write(f"{place}/METADATA", metadata(name, version))


def stories(repo: Repo) -> list[str]:
    return repo.run("envlog", "--format=%(story)", check=True).out.splitlines()


@pytest.mark.full
def test_packages_are_shown_by_place_with_versions(repo: Repo) -> None:
    python = [sys.executable, "-m", "venv", "--without-pip", ".venv"]
    subprocess.run(python, cwd=repo.path, check=True)
    repo.write(".gitignore", ".venv/\n")
    before = capture(repo, "before")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        ".venv/bin/python",
        "install",
        "--no-input",
        "-q",
        "flask",
    ]
    done = subprocess.run(
        pip, cwd=repo.path, env={**MACHINE, "PIP_CACHE_DIR": str(repo.path / "../cache")}, capture_output=True
    )
    if done.returncode != 0:
        pytest.skip(f"pip cannot install it here: {done.stderr.decode()[-300:]}")
    after = capture(repo, "after")
    words = ["pip", "--python", ".venv/bin/python", "list", "--format=json"]
    listed = json.loads(
        subprocess.run([sys.executable, "-m", *words], cwd=repo.path, capture_output=True, check=True).stdout
    )
    installed = {one["name"].lower(): one["version"] for one in listed}
    shown = repo.run("envdiff", before, after, "--only=packages", check=True).out
    assert shown.startswith(f"pip       .venv          + flask {installed['flask']}   + ")
    assert shown.count("+ ") == len(installed)
    assert stories(repo)[0].startswith(f"pip: +flask {installed['flask']}, +{len(installed) - 1} more · ")
    told = json.loads(repo.run("envlog", "show", "--json", check=True).out)["story"]
    assert {one["key"]: one["after"] for one in told} == {
        f".venv/{name}": version for name, version in installed.items()
    }
    back = repo.run("envdiff", after, before, "--only=packages", check=True).out
    assert back.startswith(f"pip       .venv          - flask {installed['flask']}   - ")
    assert repo.git("status", "--porcelain") == "?? .gitignore"


def test_packages_from_before_the_first_snapshot_are_not_new(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(repo, "flask", "3.0.1")
    repo.run("envlog", "capture", env={"GIT_ENVHIST_WITHOUT": "facts"}, check=True)
    repo.write("other", "x")
    capture(repo, "with facts")
    assert stories(repo)[0] == "+1 file"
    assert repo.run("envdiff", "@~1", "@", check=True).out == "files     + other\n"
    assert "flask" in repo.git("show", "refs/envhist/heads/" + timeline(repo) + ":.envhist/facts/pip")


def timeline(repo: Repo) -> str:
    return repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads").removeprefix(
        "refs/envhist/heads/"
    )


def text_of(repo: Repo, probe: str) -> str:
    return repo.git("show", f"refs/envhist/heads/{timeline(repo)}:.envhist/facts/{probe}")


def test_facts_after_changes_equal_facts_of_a_full_read(repo: Repo) -> None:
    put(repo, "flask", "3.0.1")
    put(repo, "click", "8.1.7")
    repo.write("vendor/x-1.dist-info/METADATA", metadata("x", "1"))
    history = EnvHistory.open(str(repo.path), workers="fork", one_command=True)
    history.capture("first")
    steps = (
        lambda: put(repo, "jinja2", "3.1.6"),
        lambda: repo.write("vendor/x-1.dist-info/METADATA", metadata("x", "2")),
        lambda: repo.write("vendor/x-1.dist-info/REQUESTED", ""),
        lambda: os.rename(repo.path / "vendor", repo.path / "moved"),
        lambda: subprocess.run(["rm", "-r", ".venv"], cwd=repo.path, check=True),
    )
    for step in steps:
        step()
        history.capture("a step")
        told = text_of(repo, "pip")
        subprocess.run(["rm", "-r", ".git/envhist/cache"], cwd=repo.path, check=True)
        history.capture("without a cache")
        assert text_of(repo, "pip") == told
    assert told == "envhist-facts 1 pip 2\nmoved/x 2 at=moved/x-1.dist-info"


def test_only_touched_directories_are_read_again(repo: Repo) -> None:
    put(repo, "flask", "3.0.1")
    put(repo, "click", "8.1.7")
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    history.capture("first")
    shown: list[bytes] = []
    leaf = probes.file_module(probes.file_probes()["pip"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaf, "wants", lambda directory: not shown.append(directory))
        put(repo, "jinja2", "3.1.6")
        repo.write("src/x.py", "x")
        history.capture("second")
        history.capture("nothing new")
    assert shown == [b".venv/lib/python3.11/site-packages/jinja2-3.1.6.dist-info"]


@pytest.fixture
def machine(repo: Repo, tmp_path: Path) -> Path:
    root = tmp_path / "machine"
    (root / "var/lib/dpkg").mkdir(parents=True)
    repo.env["GIT_ENVHIST_MACHINE_ROOT"] = str(root)
    return root


def install(root: Path, *packages: str) -> None:
    told = [package.split() for package in packages]
    stanzas = [
        f"Package: {name}\nStatus: install ok installed\nArchitecture: all\nVersion: {version}\n"
        for name, version in told
    ]
    (root / "new").write_text("\n".join(stanzas))
    os.rename(root / "new", root / "var/lib/dpkg/status")


def test_machine_package_is_a_change_without_changed_files(repo: Repo, machine: Path) -> None:
    install(machine, "base 1.0-1")
    first = capture(repo, "first")
    assert capture(repo, "nothing", "--if-changed") == first
    install(machine, "base 1.0-1", "postgresql-15 15.18-0+deb12u1")
    assert repo.run("envdiff", "@").out == "system                   + postgresql-15 15.18\n"
    second = capture(repo, "installed", "--if-changed")
    assert second != first
    assert stories(repo)[0] == "system: +postgresql-15 15.18"
    assert repo.run("envdiff", first, second, "--", "app.py").out == ""
    told = json.loads(repo.run("envdiff", "--json", second, first, check=True).out)["facts"]
    assert told == [
        {
            "probe": "system",
            "key": "postgresql-15",
            "before": "15.18-0+deb12u1",
            "after": None,
            "role": "direct",
        }
    ]
    assert "+postgresql-15 15.18-0+deb12u1 by=dpkg" in repo.git("diff", first, second, "--", ".envhist/facts")


def dpkg(root: Path, *words: str) -> None:
    """Run dpkg on a separate root."""
    done = subprocess.run(
        ["dpkg", "--force-not-root", "--force-bad-path", f"--root={root}", f"--log={root}/log", *words],
        capture_output=True,
        env={**MACHINE, "LC_ALL": "C"},
    )
    assert done.returncode == 0, done.stderr.decode()


def build_package(place: Path, version: str) -> str:
    """Build a package like a distribution."""
    (place / "DEBIAN").mkdir(parents=True)
    (place / "DEBIAN/control").write_text(
        f"Package: small-server\nVersion: {version}\nArchitecture: all\nMaintainer: A. User <user@example.com>\n"
        "Description: a server\n Version: 9 is no field here\n"
    )
    (place / "usr/share/small").mkdir(parents=True)
    (place / "usr/share/small/file").write_text(version)
    subprocess.run(["dpkg-deb", "--build", place, f"{place}.deb"], check=True, capture_output=True)
    return f"{place}.deb"


@needs("dpkg-deb")
def test_packages_that_dpkg_changes_are_shown(repo: Repo, machine: Path, tmp_path: Path) -> None:
    for name in ("updates", "info", "triggers"):
        (machine / "var/lib/dpkg" / name).mkdir()
    (machine / "var/lib/dpkg/status").write_text("")
    capture(repo, "before")
    dpkg(machine, "-i", build_package(tmp_path / "old", "2:1.5-1"))
    capture(repo, "installed")
    dpkg(machine, "-i", build_package(tmp_path / "new", "2:1.6-1"))
    capture(repo, "upgraded")
    dpkg(machine, "-r", "small-server")
    capture(repo, "removed")
    assert stories(repo) == [
        "system: -small-server 1.6",
        "system: small-server 1.5 → 1.6",
        "system: +small-server 1.5",
        "1 file in all",
    ]
    assert (
        repo.run("envdiff", "@~2", "now", check=True).out == "system                   - small-server 1.5\n"
    )
    done = repo.run("envrestore", "@~2", check=True)
    assert "not restored: 1 package of this machine that your project does not name\n" in done.out + done.err


def test_log_finds_the_snapshot_that_added_a_package(repo: Repo, machine: Path) -> None:
    install(machine, "base 1.0-1")
    capture(repo, "first")
    install(machine, "base 1.0-1", "libpq5 15.18-1", "postgresql-15 15.18-1")
    capture(repo, "the server")
    repo.write("other", "x")
    capture(repo, "a file")
    install(machine, "base 1.0-1")
    capture(repo, "gone again")

    def found(text: str) -> list[str]:
        return repo.run("envlog", "--find", text, "--format=%s", check=True).out.splitlines()

    assert found("postgresql") == ["gone again", "the server"]
    assert found("libpq5 15.18") == ["gone again", "the server"]
    assert found("+1 file") == ["a file"]
    assert found("nowhere") == []


def test_details_and_diff_with_now_show_rows(repo: Repo, machine: Path) -> None:
    install(machine, "base 1.0-1")
    capture(repo, "first")
    install(machine, "base 2.0-1")
    now = repo.run("envlog", "show", "now", check=True).out
    assert "Summary:   system: base 1.0 → 2.0\n           system                   ~ base 1.0 → 2.0\n" in now
    capture(repo, "second")
    assert (
        "           system                   ~ base 1.0 → 2.0\n" in repo.run("envlog", "show", check=True).out
    )


@pytest.mark.full
def test_npm_packages_are_shown_by_place_with_versions(repo: Repo) -> None:
    npm = require("npm", MACHINE.get("PATH"))
    repo.write("package.json", '{"name": "work", "version": "1.0.0", "private": true}\n')
    capture(repo, "before")
    words = [npm, "install", "--no-audit", "--no-fund", "semver", "@types/node"]
    cache = {"npm_config_cache": str(repo.path / "../cache")}
    done = subprocess.run(words, cwd=repo.path, env={**MACHINE, **cache}, capture_output=True)
    if done.returncode != 0:
        pytest.skip(f"npm cannot install it here: {done.stderr.decode()[-300:]}")
    capture(repo, "after")
    packages = json.loads(repo.read("node_modules/.package-lock.json"))["packages"]
    installed = {path: told["version"] for path, told in packages.items()}
    told = json.loads(repo.run("envlog", "show", "--json", check=True).out)["story"]
    assert {one["key"]: one["after"] for one in told if one["probe"] == "npm"} == installed
    shown = repo.run("envdiff", "@~1", "@", "--only=packages", check=True).out
    assert shown.startswith("npm       node_modules   + @types/node ")
    assert f"+ semver {installed['node_modules/semver']}" in shown
    assert stories(repo)[0].startswith("npm: +@types/node ")


def test_changed_variables_are_shown_without_values(repo: Repo) -> None:
    repo.write(".env.local", "API_URL=http://a\nOLD=1\n", mode=0o600)
    first = capture(repo, "before")
    repo.write(".env.local", "API_URL=http://b\nOLD=1\nDEBUG=1\n", mode=0o600)
    second = capture(repo, "after")
    assert stories(repo)[0] == "~1 file · .env.local: +1 ~1 variables"
    told = json.loads(repo.run("envlog", "show", "--json", check=True).out)["story"]
    assert [(one["key"], one["before"], one["after"]) for one in told] == [
        (".env.local/API_URL", "***", "***"),
        (".env.local/DEBUG", None, "***"),
    ]
    assert "API_URL" not in repo.git("diff", "--text", first, second, "--", ".envhist/facts")
    before, after = (values_at(repo, commit) for commit in (first, second))
    assert before["OLD"] == after["OLD"]
    assert before["API_URL"] != after["API_URL"]
    assert "http" not in "".join((*before.values(), *after.values()))


def values_at(repo: Repo, commit: str) -> dict[str, str]:
    """Return the fingerprints in the sealed facts of a snapshot by variable."""
    blob = repo.run_git("cat-file", "blob", f"{commit}:.envhist/facts/env.sealed").stdout
    text = open_facts(
        EnvHistory.open(str(repo.path), environ=repo.env, one_command=True).keys.get, "env", blob
    )
    assert text is not None
    rows = (line.decode().split() for line in text.lines)
    return {key.removeprefix(".env.local/"): value for key, value, *_ in rows}


def test_restore_prints_commands_for_machine_packages(repo: Repo, machine: Path) -> None:
    install(machine, "base 1.0-1", "gone 2.0-1")
    repo.write("Aptfile", "base\ngone\npostgresql-15\n")
    capture(repo, "before", "--name=before")
    install(machine, "base 1.1-1", "postgresql-15 15.18-0+deb12u1", "xterm 379-1")
    repo.write("app.py", "changed\n")
    told = (
        "not restored: system base (sudo apt-get install base=1.0-1); system gone (sudo apt-get install gone=2.0-1); "
        "system postgresql-15 (sudo apt-get remove postgresql-15); "
        "1 package of this machine that your project does not name\n"
    )
    planned = json.loads(repo.run("envrestore", "-n", "--json", "before", check=True).out)
    assert [one["command"] for one in planned["outside"]][-1] == "sudo apt-get remove xterm"
    assert [one["role"] for one in planned["outside"]] == [*["direct"] * 3, "transitive"]
    done = repo.run("envrestore", "before", check=True)
    assert sorted(told[14:-1].split("; ")) == sorted(
        line_of(done.out + done.err, "not restored: ").split("; ")
    )
    again = repo.run("envrestore", "before", check=True)
    assert "not restored: system " in again.out + again.err
    part = repo.run("envrestore", "before", "--", "app.py", check=True)
    assert "not restored" not in part.out + part.err


def line_of(text: str, start: str) -> str:
    return next(line.removeprefix(start) for line in text.splitlines() if line.startswith(start))


def test_untrusted_fact_is_not_printed_as_a_command() -> None:
    strange = FactChange("system", "x; rm -rf ~", "1", None, by="dpkg")
    assert command_for(strange) == ""
    assert command_for(FactChange("system", "x", None, "$(reboot)", by="dpkg")) == ""
    assert (
        command_for(FactChange("system", "x", None, "1:2.0~rc1-1+b1", by="dpkg"))
        == "sudo apt-get install x=1:2.0~rc1-1+b1"
    )


def _hang(root: str) -> list[object]:
    while True:
        time.sleep(60)


def _fail(*words: object) -> list[object]:
    raise ValueError("a leaf that fails")


@pytest.mark.parametrize("how", ["fork", "here"])
def test_failing_probe_gives_a_warning(repo: Repo, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    put(repo, "flask", "3.0.1")
    for probe in probes.PROBES.values():
        if isinstance(probe, DumpProbe):
            continue
        leaf = probes.file_module(probe) if isinstance(probe, FileProbe) else probes.machine_module(probe)
        monkeypatch.setattr(leaf, "facts_of", _fail)
    captured = EnvHistory.open(str(repo.path), workers=how, one_command=True).capture("all the same")
    assert captured.snapshot is not None
    assert any("no facts of 'system' in this snapshot" in warning for warning in captured.warnings)
    assert any("flask-3.0.1.dist-info' (pip)" in warning for warning in captured.warnings)
    assert (
        "system"
        not in repo.git("ls-tree", "--name-only", f"{captured.snapshot.commit}:.envhist/facts").split()
    )


def test_hanging_probe_is_stopped_and_the_snapshot_is_taken(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(repo, "flask", "3.0.1")
    monkeypatch.setattr(probe_worker, "SECONDS", 0.3)
    monkeypatch.setattr(probe_worker.ProbeProcess.answer, "__defaults__", (0.3,))
    monkeypatch.setattr(probes.machine_module(probes.machine_probes()["system"]), "facts_of", _hang)
    captured = EnvHistory.open(str(repo.path), workers="fork", one_command=True).capture("all the same")
    assert captured.snapshot is not None
    assert captured.warnings == ("no facts of 'system' in this snapshot: the probe exceeded its timeout",)
    assert "flask 3.0.1" in text_of(repo, "pip")


def test_spawned_probe_process_has_the_same_facts(repo: Repo, machine: Path) -> None:
    install(machine, "base 1.0-1")
    put(repo, "flask", "3.0.1")
    environ = {**os.environ, "GIT_ENVHIST_MACHINE_ROOT": str(machine)}
    texts = []
    for how in ("spawn", "fork"):
        history = EnvHistory.open(str(repo.path), environ=environ, workers=how, one_command=True)
        assert history.capture("taken").warnings == ()
        texts.append((text_of(repo, "pip"), text_of(repo, "system")))
        subprocess.run(["rm", "-r", ".git/envhist/cache"], cwd=repo.path, check=True)
    assert texts[0] == texts[1]
    assert "base 1.0-1 by=dpkg" in texts[0][1]


def test_kinds_lists_the_class_of_every_probe() -> None:
    kinds = FileProbe | MachineProbe | EnvironmentProbe | CaptureProbe | DumpProbe
    assert all(isinstance(probe, kinds) for probe in probes.PROBES.values())


def test_directory_with_a_failed_probe_makes_no_claims(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    put(repo, "flask", "3.0.1")
    put(repo, "six", "1.17.0")
    before = capture(repo, "before")
    place = ".venv/lib/python3.11/site-packages/flask-3.0.1.dist-info"
    leaf = probes.file_module(probes.file_probes()["pip"])
    with monkeypatch.context() as patch:
        patch.setattr(leaf, "facts_of", _fail)
        repo.write(f"{place}/INSTALLER", "pip\n")
        failed = (
            EnvHistory.open(str(repo.path), workers="fork", one_command=True)
            .capture("the probe failed")
            .snapshot
        )
        assert failed is not None
    put(repo, "six", "1.18.0")
    after = capture(repo, "another package")
    repo.write(f"{place}/INSTALLER", "uv\n")
    mended = capture(repo, "it can be read again")

    def told(*ends: str) -> str:
        return repo.run("envdiff", "--only=packages", *ends, check=True).out

    row = "pip       .venv/lib/python3.11/site-packages/flask-3.0.1.dist-info "
    assert told(before, failed.id) == f"{row}+ not read: the probe failed\n"
    assert told(failed.id, mended).endswith(f"{row}- not read: the probe failed\n")
    assert "a leaf that fails" not in repo.git("show", f"{failed.id}:.envhist/facts/pip")
    assert "flask" not in told(failed.id, after)
    assert "six 1.18.0" in told(failed.id, after)
    assert "flask" not in told(before, mended)
