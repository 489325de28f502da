"""A session in which a client repairs a broken environment with the tools alone, as an agent would.

Each decision is made from the answer before it: which snapshot worked, what differs, what to restore.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from git_envhist.consent import trusted_list
from tests.support.repository import Repo

pytest.importorskip("mcp")

from mcp import Client

from tests.mcp.test_server import MODES, Person, answer, talk

CHECK = 'grep -q \'"version": "18\' node_modules/react/package.json && grep -q ^API_URL= .env'
CLASS_OF = {"npm": "packages", "env": "env"}


def react(version: str) -> str:
    return json.dumps({"name": "react", "version": version}, indent=1)


def work_and_break(repo: Repo) -> None:
    """Write a project that works, then upgrade a package, lose a variable, and go on with the code."""
    repo.write(".gitignore", "node_modules/\n.env\n")
    repo.write("app.js", "start\n")
    repo.commit("start")
    repo.write("node_modules/react/package.json", react("18.2.0"))
    repo.write("node_modules/left-pad/package.json", json.dumps({"name": "left-pad", "version": "1.3.0"}))
    repo.write(".env", "API_URL=https://api.example\nPORT=3000\n")
    repo.run("envlog", "capture", "it works", "--verify", CHECK, check=True)
    repo.write("app.js", "a feature\n")
    repo.run("envlog", "capture", "a feature", check=True)
    repo.write("node_modules/react/package.json", react("19.1.0"))
    repo.write("node_modules/react/new.js", "new\n")
    repo.write(".env", "PORT=3000\n")
    repo.run("envlog", "capture", "upgrade react", check=True)
    repo.write("app.js", "the feature is finished\n")
    trusted_list(repo.env).add_command(str(repo.path / ".git"), CHECK)


@pytest.mark.parametrize("mode", MODES)
def test_client_with_the_tools_alone_repairs_the_environment(repo: Repo, mode: str) -> None:
    work_and_break(repo)
    person = Person("accept", {"confirm": True})
    told: list[Any] = []

    async def ask(client: Client, tool: str, **arguments: Any) -> Any:
        told.append(await answer(client, tool, **arguments))
        return told[-1]

    async def repair(client: Client) -> None:
        assert (await ask(client, "verify"))["verify"]["status"] == "fail"

        # Which snapshot worked, and since which one does it not?
        passed = (await ask(client, "log", verdict="pass", limit=1))["snapshots"][0]
        assert passed["title"] == "it works"
        broke = (await ask(client, "bisect", good=passed["id"]))["bad"]
        culprit = await ask(client, "show", revision=broke)
        assert culprit["title"] == "upgrade react"

        # What broke? A package and a variable.
        differs = await ask(client, "diff", before=passed["id"])
        facts = {one["key"]: (one.get("before"), one.get("after")) for one in differs["facts"]}
        assert facts["node_modules/react"] == ("18.2.0", "19.1.0")
        assert facts[".env/API_URL"] == ("***", None)
        assert "M app.js" in differs["files"]
        before = await ask(client, "read_file", path=".env", revision=passed["id"], sealed=True)
        assert before["text"] == "API_URL=***\nPORT=***\n"

        # Restore these two, and not the code.
        only = sorted({CLASS_OF[one["probe"]] for one in differs["facts"]})
        plan = await ask(client, "plan_restore", revision=passed["id"], only=only)
        assert sorted(plan["steps"]) == [
            "remove node_modules/react/new.js",
            "replace .env",
            "replace node_modules/react/package.json",
        ]
        done = await ask(client, "restore", plan_id=plan["plan_id"])
        assert done["changed"]
        assert (await ask(client, "verify"))["verify"]["status"] == "pass"
        await ask(client, "note", revision=broke, text="react 19 and a lost API_URL broke the check")
        assert (await ask(client, "diff", before=passed["id"]))["files"] == ["M app.js"]

    talk(repo, repair, mode=mode, person=person)
    assert repo.read("app.js") == b"the feature is finished\n"
    assert repo.read(".env") == b"API_URL=https://api.example\nPORT=3000\n"
    assert json.loads(repo.read("node_modules/react/package.json"))["version"] == "18.2.0"
    assert not (repo.path / "node_modules/react/new.js").exists()
    (question,) = person.asked
    assert '"it works"' in question
    # No value of a secret file came into the conversation, and all of it was short.
    assert "api.example" not in json.dumps(told)
    assert max(len(json.dumps(one)) for one in told) < 3_000
