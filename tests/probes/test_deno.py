"""Deno's packages are read from its lock file; and an ecosystem is named in its module and its registration only."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import git_envhist
from git_envhist.api import EnvHistory
from git_envhist.probes import PACKAGES, deno, file_probes, manifests, package_directories, runtimes
from git_envhist.probes.base import ProbedFile
from tests.support.repository import Repo

SOURCES = Path(git_envhist.__file__).parent
NAMED_ELSEWHERE = {
    # These lists determine which packages are direct.
    "diff/required_packages.py": {"pip", "npm"},
    # Installers of this program, a token of the npm registry.
    "cli/install_extras.py": {"pip"},
    "secrets/token_prefilter.py": {"npm"},
    "secrets/tokens.py": {"npm"},
    # A file ending.
    "secrets/rules.py": {"go"},
    # An example in a hint.
    "api.py": {"npm"},
    # Versions of these have a revision, which is left out.
    "diff/facts.py": {"conda"},
}

LOCK: dict[str, Any] = {
    "version": "5",
    "specifiers": {
        "jsr:@std/assert@1": "1.0.13",
        "jsr:@std/internal@^1.0.6": "1.0.8",
        "npm:chalk@5": "5.4.1",
        "npm:preact-iso@2": "2.9.0_preact@10.26.9",
    },
    "jsr": {
        "@std/assert@1.0.13": {"integrity": "x", "dependencies": ["jsr:@std/internal"]},
        "@std/internal@1.0.8": {"integrity": "x"},
    },
    "npm": {"chalk@5.4.1": {}, "preact-iso@2.9.0_preact@10.26.9": {}, "preact@10.26.9": {}},
    "remote": {
        "https://deno.land/std@0.224.0/assert/mod.ts": "x",
        "https://deno.land/std@0.224.0/fs/mod.ts": "x",
        "https://deno.land/x/oak@v12.6.1/mod.ts": "x",
        "https://example.com/no-version.ts": "x",
    },
    "workspace": {
        "dependencies": ["jsr:@std/assert@1", "npm:chalk@5"],
        "members": {"web": {"packageJson": {"dependencies": ["npm:preact-iso@2"]}}},
    },
}
LOCK_OF_VERSION_3 = {
    "version": "3",
    "packages": {
        "specifiers": {"jsr:@std/path@1": "jsr:@std/path@1.0.2", "npm:nanoid@3": "npm:nanoid@3.3.7"},
        "jsr": {"@std/path@1.0.2": {}},
        "npm": {"nanoid@3.3.7": {}, "other@1.0.0": {}},
    },
    "workspace": {"dependencies": ["jsr:@std/path@1"]},
}


def packages_in(lock: object) -> set[tuple[str, str, bool]]:
    return set(deno.read_lock(json.dumps(lock).encode()))


def test_lock_file_lists_packages_of_registries_and_urls() -> None:
    assert packages_in(LOCK) == {
        ("@std/assert", "1.0.13", False),
        ("@std/internal", "1.0.8", True),
        ("chalk", "5.4.1", False),
        ("preact-iso", "2.9.0", False),
        ("preact", "10.26.9", True),
        ("deno.land/std", "0.224.0", False),
        ("deno.land/x/oak", "v12.6.1", False),
    }


def test_lock_file_of_version_3_is_read() -> None:
    assert packages_in(LOCK_OF_VERSION_3) == {
        ("@std/path", "1.0.2", False),
        ("nanoid", "3.3.7", True),
        ("other", "1.0.0", True),
    }


def test_no_package_is_a_dependency_without_a_workspace() -> None:
    lock = {name: value for name, value in LOCK.items() if name != "workspace"}
    assert {auto for _, _, auto in packages_in(lock)} == {False}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"jsr": []}',
        b'{"npm": {"": 1, "x": 2}}',
        b'{"workspace": {"dependencies": [[]]}}',
    ],
)
def test_malformed_lock_file_lists_nothing(data: bytes) -> None:
    assert list(deno.read_lock(data)) == []


def test_lock_file_of_an_installed_package_is_ignored() -> None:
    assert deno.wants(b"web")
    assert not deno.wants(b"node_modules/some-package")


def test_sealed_lock_file_is_not_read() -> None:
    file = ProbedFile(json.dumps(LOCK).encode(), 1, True, b"x" * 20)
    assert list(deno.facts_of(b"", {deno.LOCK: file}, lambda context, secret: None)) == []


def test_changed_package_is_shown_by_diff(repo: Repo) -> None:
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    repo.write("web/deno.lock", json.dumps(LOCK))
    history.capture("before")
    repo.write("web/deno.lock", json.dumps(LOCK).replace("5.4.1", "5.4.2").replace("10.26.9", "10.27.0"))
    history.capture("after")
    shown = repo.run("envdiff", "@~1", "@", "--only=packages", check=True).out
    assert shown == "deno      web/deno.lock  ~ chalk 5.4.1 → 5.4.2   ~ preact 10.26.9 → 10.27.0\n"


def test_registration_is_the_only_table_of_ecosystems() -> None:
    names = [name for name, probe in file_probes().items() if probe.kind == PACKAGES and name != "declared"]
    quoted = re.compile(rf"[\"']({'|'.join(names)})[\"']")
    found = {
        str(path.relative_to(SOURCES)): set(quoted.findall(path.read_text()))
        for path in SOURCES.rglob("*.py")
        if path.relative_to(SOURCES).parts[0] != "probes"
    }
    assert {path: named for path, named in found.items() if named} == NAMED_ELSEWHERE


def test_tables_of_directories_manifests_and_runtimes_come_from_the_registration() -> None:
    assert {b"node_modules", b".venv", b"conda-meta", b"gems"} <= package_directories()
    assert {b"deno.json", b"package.json", b"Cargo.toml", b"go.mod"} <= set(manifests())
    assert runtimes()["deno"] == "deno"
    assert "conda" not in runtimes()
