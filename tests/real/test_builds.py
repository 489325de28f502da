"""Build results stay up to date: `make` and other tools find nothing to do after a restore, because times are
restored."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.real.tools import Project, find, make_project

# Every test here installs packages from a registry.
pytestmark = pytest.mark.full

PROGRAM = '#include <stdio.h>\n#include "words.h"\nint main(void) { puts(WORDS); return 0; }\n'
WORDS = '#define WORDS "{}"\n'
MAKEFILE = """\
program: main.o more.o
\tcc -o $@ main.o more.o
main.o more.o: words.h
%.o: %.c
\tcc -c -o $@ $<
"""
CMAKE = "cmake_minimum_required(VERSION 3.13)\nproject(p C)\nadd_executable(program main.c more.c)\n"
CARGO = '[package]\nname = "program"\nversion = "0.1.0"\nedition = "2021"\n'
RUST = 'mod words;\nfn main() { println!("{}", words::WORDS); }\n'
RUST_WORDS = 'pub const WORDS: &str = "{}";\n'


@pytest.fixture
def built(tmp_path: Path, variables: dict[str, str]) -> Project:
    """Return a project of C sources, not built yet."""
    find("cc")

    def build(project: Project) -> None:
        project.repo.write("main.c", PROGRAM)
        project.repo.write("more.c", "int more(void) { return 1; }\n")
        project.repo.write("words.h", WORDS.format("as it was"))
        project.repo.write("Makefile", MAKEFILE)
        project.repo.write("CMakeLists.txt", CMAKE)
        project.repo.write(".gitignore", "*.o\nprogram\nbuild/\ntarget/\n")
        project.repo.commit("sources")

    return make_project(tmp_path, variables, build)


def keep_built(project: Project, *words: str | Path, **more: str) -> None:
    """Build the project and capture the result."""
    project.call(*words, **more)
    shutil.rmtree(project.model)
    project.keep()


def ruin(project: Project, source: str, text: str, *build: str | Path, gone: Sequence[str]) -> None:
    """Change a source, build again, and remove some of the results."""
    project.repo.write(source, text)
    project.call(*build)
    for path in gone:
        os.unlink(project.path / path)


def says(project: Project, program: str) -> str:
    return project.call(project.path / program).out


def test_make_has_nothing_to_do_after_restore(built: Project) -> None:
    make = find("make")
    keep_built(built, make)
    ruin(built, "words.h", WORDS.format("changed"), make, gone=["main.o"])
    assert built.call(make, "-q", check=False).status == 1
    built.repo.run("envrestore", "working", check=True)
    assert built.call(make, "-q").status == 0
    assert "up to date" in built.call(make).out
    assert says(built, "program") == "as it was\n"
    assert built.differences() == ()
    # After undo, make rebuilds only what is missing, and the program is the changed one.
    built.repo.run("envrestore", "--undo", check=True)
    assert says(built, "program") == "changed\n"
    assert built.call(make, "-n").out.splitlines() == [
        "cc -c -o main.o main.c",
        "cc -o program main.o more.o",
    ]


def test_make_does_the_same_in_a_fork_as_in_the_original(built: Project) -> None:
    make = find("make")
    keep_built(built, make)
    built.repo.run("envlog", "fork", "../attempt", check=True)
    fork = Project(
        built.repo.__class__(built.path.parent / "attempt", built.repo.env), built.model, built.variables
    )
    assert fork.differences() == ()
    assert fork.call(make, "-q").status == 0
    fork.repo.write("words.h", WORDS.format("tried"))
    fork.call(make)
    assert (says(fork, "program"), says(built, "program")) == ("tried\n", "as it was\n")


def test_ninja_has_nothing_to_do_after_restore(built: Project) -> None:
    cmake, ninja = find("cmake"), find("ninja")
    built.call(cmake, "-G", "Ninja", "-S", ".", "-B", "build")
    keep_built(built, ninja, "-C", "build")
    ruin(built, "words.h", WORDS.format("changed"), ninja, "-C", "build", gone=["build/.ninja_deps"])
    built.repo.run("envrestore", "working", check=True)
    assert built.differences() == ()
    # Use a dry run: a real one writes a log.
    assert "no work to do" in built.call(ninja, "-C", "build", "-n").out
    assert says(built, "build/program") == "as it was\n"


def test_cargo_has_nothing_to_do_after_restore(built: Project) -> None:
    cargo = find("cargo")
    built.repo.write("Cargo.toml", CARGO)
    built.repo.write("src/main.rs", RUST)
    built.repo.write("src/words.rs", RUST_WORDS.format("as it was"))
    if subprocess.run([cargo, "--version"], env=built.variables, capture_output=True).returncode != 0:
        pytest.skip("cargo does not run here")
    keep_built(built, cargo, "build", "--offline", "-q")
    ruin(built, "src/words.rs", RUST_WORDS.format("changed"), cargo, "build", "--offline", "-q", gone=[])
    assert says(built, "target/debug/program") == "changed\n"
    built.repo.run("envrestore", "working", check=True)
    assert built.differences() == ()
    output = built.call(cargo, "build", "--offline", "-v").err
    assert ("Fresh program" in output, "Compiling" in output) == (True, False)
    assert says(built, "target/debug/program") == "as it was\n"
