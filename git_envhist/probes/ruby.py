"""List Ruby gems from the file names of the specifications that RubyGems and Bundler write.

`vendor/bundle/ruby/3.1.0/specifications/rake-13.0.6.gemspec` has the place `vendor/bundle`. Gems from git are
in a directory that ends with the commit. Default gems of Ruby are in `specifications/default`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from git_envhist.model import EnvPath, Fact
from git_envhist.probes.base import Files, Keyed
from git_envhist.probes.fact_keys import key_of

PROBE = "gem"
# The directory of Ruby's ABI version (vendor/bundle/ruby/3.1.0) is not part of the place.
SPECIFICATIONS = re.compile(rb"(?:^|/)(?:(?:lib/)?ruby/(?:gems/)?\d[^/]*/)?specifications(/default)?\Z")
FROM_GIT = re.compile(rb"(?:^|/)(?:(?:lib/)?ruby/(?:gems/)?\d[^/]*/)?bundler/gems/[^/]+-([0-9a-f]{7,40})\Z")
# A platform starts with a letter: `a-2-1.0` is the gem `a-2`, `a-2-java` is not.
GEMSPEC = re.compile(
    r"([A-Za-z0-9_.][A-Za-z0-9_.-]{0,100}?)-(\d+(?:\.[0-9A-Za-z]+){0,20})(?:-[A-Za-z][A-Za-z0-9_.-]{0,60})?\.gemspec\Z"
)
NAME = re.compile(r"([A-Za-z0-9_.][A-Za-z0-9_.-]{0,100})\.gemspec\Z")


def wants(directory: bytes) -> bool:
    return SPECIFICATIONS.search(directory) is not None or FROM_GIT.search(directory) is not None


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield the gems with specifications in one directory."""
    names = [name.decode("utf-8", "replace") for name in files]
    found = SPECIFICATIONS.search(directory)
    if found is not None:
        place, matches = directory[: found.start()], map(GEMSPEC.match, names)
        for gem in filter(None, matches):
            yield Fact(PROBE, key_of(place, gem[1]), gem[2], EnvPath(directory), auto=found[1] is not None)
        return
    found = FROM_GIT.search(directory)
    if found is not None:
        for gem in filter(None, map(NAME.match, names)):
            commit = found[1].decode("ascii")
            yield Fact(PROBE, key_of(directory[: found.start()], gem[1]), commit, EnvPath(directory))
