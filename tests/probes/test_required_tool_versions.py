"""Required tools and git hooks of an environment, in text and JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from git_envhist.api import EnvHistory
from git_envhist.diff import path_classes
from git_envhist.probes import git_hooks, required_tool_versions
from git_envhist.probes.base import ProbedFile, ProbeTarget
from tests.support.repository import Repo


def capture(repo: Repo, intent: str) -> str:
    captured = EnvHistory.open(str(repo.path), workers="fork", one_command=True).capture(intent).snapshot
    assert captured is not None
    return captured.id


def only_tools(repo: Repo, *moments: str) -> str:
    return repo.run("envdiff", *moments, "--only=tools", check=True).out


def no_key(context: bytes, secret: bytes) -> str | None:
    return None


def test_changed_required_versions_are_shown(repo: Repo) -> None:
    repo.write(".python-version", "3.11.2\n")
    repo.write("web/package.json", '{"name": "web", "engines": {"node": ">=18"}}\n')
    capture(repo, "before")
    repo.write(".python-version", "3.12.1\n")
    repo.write(
        "web/package.json", '{"name": "web", "engines": {"node": ">=20"}, "packageManager": "pnpm@9.1.0"}\n'
    )
    capture(repo, "after")
    assert only_tools(repo, "@~1", "@") == (
        "tools                    ~ python 3.11.2 → 3.12.1\n"
        "tools     web            ~ node >=18 → >=20   + pnpm 9.1.0\n"
    )
    story = json.loads(repo.run("envlog", "show", "--json", check=True).out)["story"]
    assert [(one["key"], one["before"], one["after"]) for one in story if one["probe"] == "tools"] == [
        ("web/node", ">=18", ">=20"),
        ("python", "3.11.2", "3.12.1"),
        ("web/pnpm", None, "9.1.0"),
    ]
    assert repo.run("envlog", "--format=%(story)", check=True).out.splitlines()[0] == (
        "tools: node >=18 → >=20, python 3.11.2 → 3.12.1, +1 more · 2 files"
    )


def test_base_python_of_a_virtual_environment_is_listed(repo: Repo) -> None:
    capture(repo, "before")
    words = [sys.executable, "-m", "venv", "--without-pip", ".venv"]
    subprocess.run(words, cwd=repo.path, check=True)
    capture(repo, "after")
    base = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    told = json.loads(repo.run("envdiff", "--json", "@~1", "@", check=True).out)["facts"]
    tools = {one["key"]: one["after"] for one in told if one["probe"] == "tools"}
    assert os.path.dirname(base) in (
        tools[".venv/base-python"],
        os.path.dirname(tools[".venv/base-python"]),
    )


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (".nvmrc", "v20.11.0\n", {"node": "20.11.0"}),
        (".nvmrc", "lts/iron", {"node": "lts/iron"}),
        (
            ".tool-versions",
            "# ours\nnodejs 20.1.0\npython 3.12.0 3.11.0\n\nrust\n",
            {"node": "20.1.0", "python": "3.12.0"},
        ),
        ("rust-toolchain", "1.78.0\n", {"rust": "1.78.0"}),
        (
            "rust-toolchain.toml",
            '[toolchain]\nchannel = "nightly-2024-05-01"\n',
            {"rust": "nightly-2024-05-01"},
        ),
        (
            "go.mod",
            "module x\n\ngo 1.22.1\n\ntoolchain go1.22.3\n",
            {"go": "1.22.1", "go-toolchain": "1.22.3"},
        ),
        (
            "package.json",
            '{"packageManager": "yarn@4.1.0+sha224.abc", "volta": {"node": "20.1.0"}}',
            {"yarn": "4.1.0", "node": "20.1.0"},
        ),
        ("package.json", '{"engines": ["node"], "packageManager": 3}', {}),
        ("package.json", "[" * 100_000, {}),
        (".python-version", "3.11\x1b[2J\n", {}),
    ],
)
def test_each_version_file_format_is_read(name: str, text: str, told: dict[str, str]) -> None:
    data = text.encode()
    found = required_tool_versions.facts_of(
        b"", {name.encode(): ProbedFile(data, len(data), False, b"x" * 20)}, no_key
    )
    assert {fact.key: fact.value for fact in found} == told


def test_version_files_inside_packages_are_ignored() -> None:
    assert required_tool_versions.wants(b"web")
    assert not required_tool_versions.wants(b"web/node_modules/x")


def put_hook(repo: Repo, name: str, text: str, mode: int = 0o755) -> None:
    place = repo.path / ".git/hooks" / name
    place.parent.mkdir(exist_ok=True)
    place.write_text(text)
    place.chmod(mode)


def test_added_changed_and_removed_hooks_are_shown(repo: Repo) -> None:
    capture(repo, "before")
    put_hook(repo, "pre-commit", "#!/bin/sh\n# written by https://pre-commit.com\nexit 0 # geheim\n")
    put_hook(repo, "pre-push", "#!/bin/sh\n", mode=0o644)
    put_hook(repo, "helper", "#!/bin/sh\n")
    came = capture(repo, "came")
    put_hook(repo, "pre-commit", "#!/bin/sh\n# written by https://pre-commit.com\nexit 1 # geheim\n")
    put_hook(repo, "pre-push", "#!/bin/sh\n")
    capture(repo, "changed")
    (repo.path / ".git/hooks/pre-commit").unlink()
    capture(repo, "gone")
    assert only_tools(repo, "@~3", "@~2") == "hook                     + pre-commit (pre-commit)\n"
    assert (
        only_tools(repo, "@~2", "@~1") == "hook                     ~ pre-commit (pre-commit)   + pre-push\n"
    )
    assert only_tools(repo, "@~1", "@") == "hook                     - pre-commit (pre-commit)\n"
    assert repo.run("envlog", "--format=%(story)", check=True).out.splitlines()[:3] == [
        "hook: -pre-commit",
        "hook: ~pre-commit, +pre-push",
        "hook: +pre-commit",
    ]
    assert "geheim" not in repo.git("show", f"{came}:.envhist/facts/hook")


def test_hooks_are_read_from_core_hookspath(repo: Repo) -> None:
    put_hook(repo, "pre-push", "#!/bin/sh\n")
    capture(repo, "before")
    repo.write(".husky/_/pre-commit", "#!/bin/sh\n. husky.sh\n", mode=0o755)
    repo.git("config", "core.hooksPath", ".husky/_")
    capture(repo, "after")
    assert only_tools(repo, "@~1", "@") == "hook                     + pre-commit (husky)   - pre-push\n"


def test_hook_that_is_a_pipe_does_not_block(repo: Repo) -> None:
    hooks = repo.path / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    os.mkfifo(hooks / "pre-commit", 0o755)
    place = ProbeTarget("/", str(repo.path), str(hooks))
    assert [fact.key for fact in git_hooks.facts_of(place, no_key)] == ["pre-commit"]


def test_added_program_is_shown(repo: Repo) -> None:
    repo.write("bin/old", "#!/bin/sh\n", mode=0o755)
    repo.write("bin/becomes", "#!/bin/sh\n", mode=0o644)
    capture(repo, "before")
    repo.write("bin/deploy", "#!/bin/sh\n", mode=0o755)
    repo.write("bin/README", "words\n")
    repo.write("other/run", "#!/bin/sh\n", mode=0o755)
    repo.write("other/fast.so", "", mode=0o755)
    os.symlink("run", repo.path / "other/link")
    repo.write("dist/built", "#!/bin/sh\n", mode=0o755)
    repo.write(".venv/bin/flask", "#!/bin/sh\n", mode=0o755)
    (repo.path / "bin/becomes").chmod(0o755)
    (repo.path / "bin/old").unlink()
    os.symlink("deploy", repo.path / "bin/link")
    capture(repo, "after")
    told = "program   bin            + becomes   + deploy   + link   - old\nprogram   other          + run\n"
    assert only_tools(repo, "@~1", "@") == only_tools(repo, "@~1") == told
    card = repo.run("envlog", "show", check=True).out
    assert all(row in card for row in told.splitlines())
    found = json.loads(repo.run("envdiff", "--json", "@~1", "@", check=True).out)["facts"]
    assert {one["key"]: (one["before"], one["after"]) for one in found} == {
        "bin/becomes": (None, "0755"),
        "bin/deploy": (None, "0755"),
        "bin/link": (None, "link"),
        "bin/old": ("0755", None),
        "other/run": (None, "0755"),
    }


def test_no_program_is_shown_when_every_file_is_executable(repo: Repo) -> None:
    capture(repo, "before")
    for number in range(path_classes.MAX_ELSEWHERE + 1):
        repo.write(f"src/{number}.py", "x", mode=0o755)
    repo.write("bin/deploy", "x", mode=0o755)
    capture(repo, "after")
    assert only_tools(repo, "@~1", "@").split() == ["program", "bin", "+", "deploy"]


def test_caches_and_builds_are_shown_as_such(repo: Repo) -> None:
    capture(repo, "before")
    for number in range(20):
        repo.write(f"target/debug/{number}", "x")
        repo.write(f"src/{number}/__pycache__/x.pyc", "x")
    capture(repo, "after")
    shown = repo.run("envdiff", "@~1", "@", check=True).out
    assert shown == "files     __pycache__/ in 20 places +20 (cache)  target/ +20 (built)\n"


def test_paths_select_version_files(repo: Repo) -> None:
    capture(repo, "before")
    repo.write(".python-version", "3.12\n")
    repo.write("web/.nvmrc", "22\n")
    capture(repo, "after")
    assert "python 3.12" in only_tools(repo, "@~1", "@", "--", ".python-version")
    assert "python 3.12" not in only_tools(repo, "@~1", "@", "--", "web")
    assert "node 22" in only_tools(repo, "@~1", "@", "--", "web/.nvmrc")
