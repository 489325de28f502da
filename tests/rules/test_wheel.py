"""The contents of an installation: programs, manual, completions, hooks."""

from __future__ import annotations

import configparser
import importlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from git_envhist._version import __version__
from tests.rules.source import CHECKOUT

PROGRAMS = ("git-envlog", "git-envdiff", "git-envrestore", "git-envhist")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    directory = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    done = subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = directory.glob("*.whl")
    assert built.name.startswith(f"git_envhist-{__version__}-py3-none-any")
    return zipfile.ZipFile(built)


def test_wheel_contains_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    package = CHECKOUT / "git_envhist"
    files = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert not [path for path in files if path.relative_to(CHECKOUT).as_posix() not in names]
    assert {"git_envhist/py.typed", "git_envhist/_hooks/README.md"} <= names


def test_wheel_has_manual_and_completions_where_shells_look(wheel: zipfile.ZipFile) -> None:
    shared = f"git_envhist-{__version__}.data/data/share"
    names = set(wheel.namelist())
    for program in PROGRAMS:
        assert f"{shared}/man/man1/{program}.1" in names
    folders = ("bash-completion/completions", "zsh/site-functions", "fish/vendor_completions.d")
    for folder in folders:
        assert [name for name in names if name.startswith(f"{shared}/{folder}/")], folder


def test_manual_directory_contains_manual_pages_only(wheel: zipfile.ZipFile) -> None:
    pages = [Path(name).suffix for name in wheel.namelist() if "/share/man/" in name]
    assert set(pages) <= {".1", ".5", ".7"}


def test_the_four_programs_are_console_scripts_that_exist(wheel: zipfile.ZipFile) -> None:
    text = wheel.read(f"git_envhist-{__version__}.dist-info/entry_points.txt").decode()
    parser = configparser.ConfigParser()
    parser.read_string(text)
    scripts = dict(parser["console_scripts"])
    assert set(scripts) == set(PROGRAMS)
    for target in scripts.values():
        module, _, function = target.partition(":")
        assert callable(getattr(importlib.import_module(module), function))
