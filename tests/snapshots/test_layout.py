"""The mapping of environment paths to tree paths is injective in both directions."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from git_envhist.errors import Damaged
from git_envhist.model import EnvPath
from git_envhist.snapshots.layout import dotgit_directory, root_directory, split_root, stored_below
from git_envhist.snapshots.manifest import join_device, split_device
from git_envhist.snapshots.stored_names import RESERVED, must_escape

parts = st.binary(min_size=1, max_size=6).filter(
    lambda name: name not in (b".", b"..") and b"/" not in name and b"\0" not in name
)
paths = st.lists(parts, min_size=1, max_size=4).map(lambda names: EnvPath(b"/".join(names)))


def test_dotgit_and_root_directories_are_flat_names() -> None:
    assert dotgit_directory(EnvPath(b"a/b")) == b".envhist/dotgit/a%2fb"
    assert dotgit_directory(EnvPath(b"a%2fb")) == b".envhist/dotgit/a%252fb"
    assert dotgit_directory(EnvPath(b"x\\.git")) == b".envhist/dotgit/x%5c.git"
    assert dotgit_directory(EnvPath(b".gitmodules")) == b".envhist/dotgit/%2egitmodules"
    assert root_directory(b"nginx") == b".envhist/roots/nginx"
    assert root_directory(b"..") == b".envhist/roots/%2e."


def test_long_path_is_stored_by_its_digest_without_collisions() -> None:
    long = EnvPath(b"/".join([b"directory"] * 40))
    name = dotgit_directory(long).split(b"/")[2]
    assert len(name) == 40
    assert dotgit_directory(EnvPath(name)) == b".envhist/dotgit/%%%02x" % name[0] + name[1:]
    assert len(dotgit_directory(EnvPath(b"a" * 200)).split(b"/")[2]) == 200
    assert len(dotgit_directory(EnvPath(b"/".join([b"a" * 100, b"b" * 98]))).split(b"/")[2]) == 40


@given(paths, paths)
@example(EnvPath(b"." + b"git"), EnvPath(b"%2egit"))
@example(EnvPath(b"a/b"), EnvPath(b"a%2fb"))
@example(EnvPath(b"a\\b"), EnvPath(b"a%5cb"))
def test_two_nested_repositories_never_share_a_directory(one: EnvPath, other: EnvPath) -> None:
    assert (dotgit_directory(one) == dotgit_directory(other)) == (one == other)
    name = dotgit_directory(one).split(b"/", 2)[2]
    assert b"/" not in name
    assert not must_escape(name, link=True)


@given(paths, st.sampled_from((b"", dotgit_directory(EnvPath(b"a/.git")), root_directory(b"/etc"))))
def test_stored_directory_is_split_into_root_and_path(path: EnvPath, root: bytes) -> None:
    assert split_root(stored_below(root, path)) == (root, path)
    assert split_root(root) == (root, b"")
    assert stored_below(root, EnvPath(b"")) == root


@pytest.mark.parametrize(
    "stored",
    [
        *(RESERVED, b".envhist/manifest", b".envhist/pieces/aa/bb", b".envhist/dotgit", b".envhist/roots/"),
        *(
            b".envhist/roots/.",
            b".envhist/roots/../x",
            b".envhist/roots/x/",
            b".envhist/roots/x/.git",
            b".envhist//x",
        ),
        *(b".ENVHIST/roots/x", b"a/%2f", b"%61", b"a/.git", b"%2egitignore", b".envhist/roots/a\\b"),
    ],
)
def test_reserved_directory_without_entries_is_damage(stored: bytes) -> None:
    with pytest.raises(Damaged):
        split_root(stored)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_device_numbers_survive_a_round_trip(major: int, minor: int) -> None:
    assert split_device(join_device(major, minor)) == (major, minor)


@pytest.mark.skipif(
    not hasattr(os, "makedev") or os.uname().sysname != "Linux", reason="Linux packs them this way"
)
@given(st.integers(0, 2**12 - 1), st.integers(0, 2**20 - 1))
def test_device_numbers_are_encoded_as_on_linux(major: int, minor: int) -> None:
    device = os.makedev(major, minor)
    assert join_device(major, minor) == device
    assert split_device(device) == (os.major(device), os.minor(device))
