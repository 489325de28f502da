"""`-q` prints only warnings and errors."""

from __future__ import annotations

import json

from tests.support.repository import Repo, Result


def test_quiet_prints_only_warnings_and_errors(repo: Repo) -> None:
    repo.write(".env", "A=1\n")
    assert repo.run("envlog", "capture", "-q", "one", check=True) == Result(0, b"", b"")
    repo.write("app.py", "2\n")
    done = repo.run("envlog", "capture", "--quiet", "--verify", "false")
    assert (done.out, done.err) == ("", "warning: the check failed: false: exit 1\n")
    for words in (
        ("envrestore", "-q", "@~1"),
        ("envlog", "undo", "-q"),
        ("envlog", "run", "-q", "--", "true"),
    ):
        assert repo.run(*words, check=True) == Result(0, b"", b""), words
    assert repo.run("envlog", "verify", "-q", "--", "false") == Result(1, b"", b"")
    assert json.loads(repo.run("envlog", "name", "-q", "--json", "a", check=True).out)["name"] == "a"
    refused = repo.run("envrestore", "-q", "nowhere")
    assert (refused.status, refused.out, len(refused.err.splitlines())) == (4, "", 2)
    assert repo.run("envlog", "-q").status == 129
