"""All output of --json matches docs/schema/."""

from __future__ import annotations

import json
import os
from base64 import b64decode
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.support.repository import Repo

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "docs" / "schema" / "answers.json").read_text())
HOSTILE = b"caf\xe9 \x1b]0;x\x07 \xe2\x80\xae\nbody"


def validate(definition: str, value: object) -> None:
    Draft202012Validator({"$ref": f"#/$defs/{definition}", "$defs": SCHEMA["$defs"]}).validate(value)


def answer(repo: Repo, definition: str, *words: str | bytes) -> object:
    done = repo.run("envlog", *words)
    assert done.err == ""
    assert done.out.replace("\n", "").isprintable()
    value = json.loads(done.out)
    validate(definition, value)
    return value


def test_schema_is_valid() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_capture_as_json_has_snapshot_and_counts(repo: Repo) -> None:
    repo.write(b"caf\xe9.txt", b"x")
    repo.write("app.py", "print('bye')\n")
    told = answer(
        repo, "captured", "capture", "--json", "-m", HOSTILE, "--meta", "k=v", "--external-id", "e1"
    )
    assert isinstance(told, dict)
    snapshot = told["snapshot"]
    assert told["id"] == snapshot["id"]
    assert told["first"] is True
    assert b64decode(snapshot["intent_b64"]) == HOSTILE
    assert (snapshot["meta"], snapshot["external_id"]) == ({"k": "v"}, "e1")
    (odd,) = [path for path in snapshot["env_changed"]["paths"] if "path_b64" in path]
    assert (odd["status"], odd["path"], b64decode(odd["path_b64"])) == ("A", "caf\\xe9.txt", b"caf\xe9.txt")
    assert snapshot["git_changed"] == [{"status": "M", "path": "app.py"}]


def test_unchanged_capture_as_json_has_no_snapshot(repo: Repo) -> None:
    repo.run("envlog", "capture", "x", check=True)
    for words in (("--if-changed",), ("--dry-run",)):
        told = answer(repo, "captured", "capture", "--json", *words)
        assert isinstance(told, dict)
        assert (told["id"], told["snapshot"]) == (None, None)


def test_file_as_json_has_its_text_and_masks_a_sealed_one(repo: Repo) -> None:
    repo.write("app.py", "print('hé')\n", mode=0o755)
    repo.write("logo.png", b"\x89PNG\0")
    repo.write(".env", "# ours\nTOKEN='Tr0ub4dor3\nx'\nexport PORT=3000\n")
    repo.write("secrets.yml", "shop: Tr0ub4dor3\n")
    token = "ghp_" + "Zk3vQ8sT1mY6wB4nC9xR2pL7" + "dF5hJ0gA2eU3"
    repo.write("src/app.py", f'TOKEN = "{token}"\nLIMIT = 1\n')
    (repo.path / "link").symlink_to("app.py")
    repo.run("envlog", "capture", "x", check=True)

    def file(path: str) -> dict[str, object]:
        told = answer(repo, "file", "show", "--json", "@", "--", path)
        assert isinstance(told, dict)
        return told

    app = file("app.py")
    assert (app["text"], app["mode"], app["size"], app["sealed"]) == ("print('hé')\n", "0755", 13, False)
    assert (file("link")["kind"], file("link")["text"]) == ("link", "app.py")
    assert (file("logo.png")["text"], file("logo.png")["omitted"]) == (None, "binary")
    assert (file(".env")["sealed"], file(".env")["text"]) == (True, "TOKEN=***\nPORT=***\n")
    assert (file("secrets.yml")["text"], file("secrets.yml")["omitted"]) == (None, "sealed")
    program = file("src/app.py")
    assert (program["sealed"], program["text"]) == (True, 'TOKEN = "ghp_***"\nLIMIT = 1\n')
    missing = repo.run("envlog", "show", "--json", "@", "--", "nonesuch")
    assert (missing.status, json.loads(missing.out)["error"]["code"]) == (4, "no-such-path")
    present = repo.run("envlog", "show", "--json", "now", "--", "app.py")
    assert (present.status, json.loads(present.out)["error"]["code"]) == (129, "usage")


def test_list_as_json_is_an_array_or_lines(repo: Repo) -> None:
    assert answer(repo, "list", "--json") == []
    for number in range(3):
        repo.write("file", str(number))
        repo.run("envlog", "capture", f"step {number}", check=True)
    listed = answer(repo, "list", "--json", "-2")
    assert isinstance(listed, list)
    assert [one["intent"] for one in listed] == ["step 2", "step 1"]
    assert listed[0]["env_changed"]["paths"] == [{"status": "M", "path": "file"}]
    lines = repo.run("envlog", "--json=lines", "-2").out.splitlines()
    assert [json.loads(line) for line in lines] == listed


def test_list_limits_the_paths_and_show_does_not(repo: Repo) -> None:
    for number in range(250):
        repo.write(f"many/{number}")
    repo.run("envlog", "capture", "x", check=True)
    listed = answer(repo, "list", "--json")
    assert isinstance(listed, list)
    shown = answer(repo, "snapshot", "show", "--json")
    assert isinstance(shown, dict)
    assert len(listed[0]["env_changed"]["paths"]) == 200
    assert len(shown["env_changed"]["paths"]) == shown["env_changed"]["added"] == 251


@pytest.mark.skipif(os.geteuid() == 0, reason="no permission binds root")
def test_missing_paths_are_listed_as_json(repo: Repo) -> None:
    repo.write("locked", mode=0)
    repo.run("envlog", "capture", "x")
    shown = answer(repo, "snapshot", "show", "--json")
    assert isinstance(shown, dict)
    assert shown["complete"] is False
    assert [(one["path"], one["why"]) for one in shown["missing"]] == [("locked", "unreadable")]


def test_working_tree_is_described_as_json(repo: Repo) -> None:
    repo.run("envlog", "capture", "x", check=True)
    repo.write("new")
    told = answer(repo, "present", "show", "now", "--json")
    assert isinstance(told, dict)
    assert told["env_changed"] == {
        "added": 1,
        "modified": 0,
        "removed": 0,
        "paths": [{"status": "A", "path": "new"}],
    }


def test_names_and_notes_are_listed_as_json(repo: Repo) -> None:
    repo.run("envlog", "capture", "x", check=True)
    assert answer(repo, "named", "name", "--json", "v1")
    assert answer(repo, "noted", "note", "--json", "-m", "said \x1b later")
    shown = answer(repo, "snapshot", "show", "--json")
    assert isinstance(shown, dict)
    assert shown["names"] == ["v1"]
    assert [note["text"] for note in shown["notes"]] == ["said \x1b later"]
    assert answer(repo, "named", "name", "--json", "-d", "v1")


def test_init_of_a_plain_directory_prints_json(tmp_path: Path) -> None:
    plain = Repo(tmp_path, dict(os.environ))
    told = answer(plain, "begun", "init", "--json")
    assert isinstance(told, dict)
    assert (told["root"], told["plain"], told["timeline"], told["snapshots"]) == (
        str(tmp_path),
        True,
        None,
        0,
    )


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (("show", "nowhere"), 4, "no-such-snapshot"),
        (("name", "good"), 3, "refused"),
        (("--bogus",), 129, "usage"),
        (("-C", "nowhere"), 128, "no-such-directory"),
    ],
)
def test_error_is_an_object_with_json(repo: Repo, words: tuple[str, ...], status: int, code: str) -> None:
    repo.run("envlog", "capture", "x", check=True)
    done = repo.run("envlog", *words, "--json")
    output = json.loads(done.out)
    validate("failure", output)
    assert (done.status, done.err) == (status, "")
    assert (output["error"]["status"], output["error"]["code"]) == (status, code)


def test_ambiguous_word_lists_its_candidates_as_json(repo: Repo) -> None:
    for number in range(2):
        repo.write("file", str(number))
        repo.run("envlog", "capture", "twice", check=True)
    output = json.loads(repo.run("envlog", "show", ":/twice", "--json").out)
    validate("failure", output)
    assert len(output["error"]["candidates"]) == 2
