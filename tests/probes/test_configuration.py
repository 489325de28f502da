"""Configuration that changed, in the words a user sees: keys, and never a value."""

from __future__ import annotations

import json

from tests.probes.test_package_changes import capture
from tests.support.repository import Repo


def test_changed_keys_of_tracked_and_ignored_configuration_are_shown(repo: Repo) -> None:
    repo.write(".gitignore", "local.yaml\n")
    repo.write("config/app.toml", "debug = false\n[server]\nport = 8000\n")
    repo.write("local.yaml", "cache:\n  ttl: 10\n")
    repo.write("package-lock.json", '{"a": 1}\n')
    repo.commit("configured")
    first = capture(repo, "before")
    repo.write("config/app.toml", 'debug = false\nname = "hidden"\n[server]\nport = 9123\n')
    repo.write("local.yaml", "cache:\n  size: 1\n")
    repo.write("package-lock.json", '{"a": 2}\n')
    repo.write("new.json", '{"a": 1}\n')
    second = capture(repo, "after")
    rows = "config    config/app.toml ~ server.port   + name\nconfig    local.yaml     + cache.size   - cache.ttl\n"
    shown = repo.run("envdiff", first, second, check=True).out
    assert rows in shown
    assert shown.count("config    ") == 2
    assert (
        "config    local.yaml     + cache.size   - cache.ttl\n"
        in repo.run("envdiff", first, "now", check=True).out
    )
    assert "config    local.yaml     + cache.ttl   - cache.size\n" in repo.run("envdiff", second, first).out
    card = repo.run("envlog", "show", check=True).out
    assert "           config    local.yaml     + cache.size   - cache.ttl\n" in card
    assert "config " not in repo.run("envdiff", first, second, "--only=packages,env", check=True).out
    assert "app.toml" not in repo.run("envdiff", first, second, "--", "local.yaml", check=True).out
    output = [
        json.loads(repo.run(*words, "--json", check=True).out)[key]
        for words, key in ((("envdiff", first, second), "facts"), (("envlog", "show"), "story"))
    ]
    wanted = [
        ("config/app.toml/name", None, "***"),
        ("config/app.toml/server.port", "***", "***"),
        ("local.yaml/cache.size", None, "***"),
        ("local.yaml/cache.ttl", "***", None),
    ]
    for facts in output:
        found = [(one["key"], one["before"], one["after"]) for one in facts if one["probe"] == "config"]
        assert sorted(found, key=str) == sorted(wanted, key=str)
    assert "9123" not in shown + card + str(output)
    assert "hidden" not in shown + card + str(output)
