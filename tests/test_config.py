"""git's configuration is read as git reads it, and an invalid value causes only a warning."""

from __future__ import annotations

import pytest

from git_envhist.config import Settings, config_home, parse_size, read_settings


def test_missing_configuration_gives_defaults() -> None:
    assert read_settings([]) == Settings()
    assert (Settings().enabled, Settings().budget, Settings().max_size) == (True, 4 << 30, 40 << 30)


@pytest.mark.parametrize(
    ("pairs", "wanted"),
    [
        ([("envhist.enabled", "false")], Settings(enabled=False)),
        ([("envhist.enabled", None)], Settings()),
        ([("envhist.enabled", "false"), ("envhist.enabled", "yes")], Settings()),
        ([("envhist.timeline", "a/b")], Settings(timeline="a/b")),
        ([("remote.origin.url", "x")], Settings(has_remote=True)),
        ([("envhist.remote", "x")], Settings(remote="x", has_remote=True)),
        ([("remote.origin.fetch", "x"), ("remote.pushdefault", "x")], Settings()),
        ([("envhist.exclude", "*.o"), ("envhist.exclude", "x")], Settings(exclude=("*.o", "x"))),
        ([("envhist.fingerprint", "*.iso")], Settings(fingerprint=("*.iso",))),
        ([("envhist.secret", "vault")], Settings(secret=("vault",))),
        ([("envhist.root.nginx", "/etc/nginx")], Settings(roots=(("nginx", "/etc/nginx"),))),
        ([("envhist.budget", "1m"), ("envhist.budget", "2g")], Settings(budget=2 << 30)),
        ([("envhist.maxsize", "7k")], Settings(max_size=7 << 10)),
        ([("envhist.bigfile", "16m")], Settings(big_file=16 << 20)),
        ([("envhist.mergelimit", "1m")], Settings(merge_limit=1 << 20)),
        ([("envhist.crossmounts", "true")], Settings(cross_mounts=True)),
        ([("envhist.workers", "3")], Settings(workers=3)),
        ([("filter.crypt.clean", "x"), ("filter.lfs.process", "y")], Settings(filters=("crypt", "lfs"))),
    ],
)
def test_each_key_is_read_and_the_last_value_wins(
    pairs: list[tuple[str, str | None]], wanted: Settings
) -> None:
    assert read_settings(pairs) == wanted


@pytest.mark.parametrize(
    "pair", [("envhist.budget", "much"), ("envhist.enabled", "perhaps"), ("envhist.maxsize", "-1")]
)
def test_invalid_value_gives_a_warning_and_the_default(pair: tuple[str, str]) -> None:
    settings = read_settings([pair])
    assert len(settings.warnings) == 1
    assert pair[0] in settings.warnings[0]
    assert (settings.budget, settings.enabled, settings.max_size) == (4 << 30, True, 40 << 30)


def test_sizes_have_gits_suffixes() -> None:
    assert [parse_size(text) for text in ("0", "12", "3k", "3K", "2M", "1g")] == [
        0,
        12,
        3072,
        3072,
        2 << 20,
        1 << 30,
    ]
    assert [parse_size(text) for text in ("", "k", "1kk", "1x", "1.5g", "-1")] == [None] * 6


def test_configuration_home_follows_xdg() -> None:
    assert config_home({"HOME": "/h"}) == "/h/.config"
    assert config_home({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}) == "/x"
    assert config_home({"HOME": "/h", "XDG_CONFIG_HOME": "relative"}) == "/h/.config"
