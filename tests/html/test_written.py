"""`git envlog --html`: the written file, and hostile texts and secrets that it must not contain."""

from __future__ import annotations

import fcntl
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from git_envhist.html import document
from tests.crash.faults import needs_strace, traced
from tests.support.repository import Repo
from tests.support.template import start_from

SECRET = "hunter2-and-then-some"
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\x1b]52;c;aGk=\x07",
    "\u202egnp.exe",
    "{{data}}{{script}}",
    '"; alert(1); "',
    "\u2028\u2029",
    "<!--<script>",
)


class Elements(HTMLParser):
    """The page as a parser reads it: elements with attributes, and the embedded data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.data = ""
        self._in_data = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._in_data = tag == "script" and dict(attrs).get("id") == "data"

    def handle_endtag(self, tag: str) -> None:
        self._in_data = False

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.data += data


def written(repo: Repo, *words: str) -> str:
    return repo.run("envlog", "--html", "-", *words, check=True).stdout.decode("utf-8")


@pytest.fixture
def told(repo: Repo) -> Repo:
    """Return a repository with two snapshots that both contain a secret."""
    start_from(repo, take_two_snapshots)
    return repo


def take_two_snapshots(repo: Repo) -> None:
    repo.write(".env", f"TOKEN={SECRET}\n")
    repo.run("envlog", "capture", "one", "--verify", f"echo {SECRET}", check=True)
    repo.write(".env", f"TOKEN={SECRET}2\nOTHER={SECRET}\n")
    repo.run("envlog", "capture", "two", "--name", "second", check=True)


def test_page_is_written_and_replaced(told: Repo, tmp_path: Path) -> None:
    file = tmp_path / "history.html"
    first = told.run("envlog", "--html", str(file), check=True)
    assert re.fullmatch(r"wrote '.*history\.html': 2 snapshots, [\d.]+ KiB\n", first.out)
    told.run("envlog", "capture", "three", check=True)
    told.run("envlog", "--html", str(file), check=True)
    data = json.loads(Elements(file.read_text("utf-8")).data)
    assert [one["intent"] for one in data["moments"]] == ["three", "two", "one"]
    assert [path.name for path in tmp_path.iterdir() if "history" in path.name] == ["history.html"]


def test_replaced_page_keeps_its_mode(told: Repo, tmp_path: Path) -> None:
    file = tmp_path / "history.html"
    told.run("envlog", "--html", str(file), check=True)
    file.chmod(0o600)
    told.run("envlog", "--html", str(file), check=True)
    assert file.stat().st_mode & 0o777 == 0o600


@needs_strace
def test_killed_run_keeps_the_old_page_and_the_next_cleans_up(told: Repo, tmp_path: Path) -> None:
    place = tmp_path / "pages"
    place.mkdir()
    file = place / "history.html"
    told.run("envlog", "--html", str(file), check=True)
    before = file.read_bytes()
    told.run("envlog", "capture", "three", check=True)
    killing = traced("rename", "signal=KILL", "1")
    assert told.run("envlog", "--html", str(file), prefix=killing).status != 0
    assert file.read_bytes() == before
    (left,) = set(place.iterdir()) - {file}
    assert re.fullmatch(r"history\.html\.[0-9]+\.new", left.name)
    # Kept are files with other names, the file of a living process (1), and the file of a missing process while
    # a writer locks it.
    others = [place / name for name in ("history.html.new", "other.html.1.new", "history.html.1.new")]
    for other in others:
        other.write_bytes(b"mine")
    held = place / f"history.html.{2**30}.new"
    with held.open("wb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        told.run("envlog", "--html", str(file), check=True)
        assert set(place.iterdir()) == {file, held, *others}
    told.run("envlog", "--html", str(file), check=True)
    assert set(place.iterdir()) == {file, *others}
    assert json.loads(Elements(file.read_text("utf-8")).data)["moments"][0]["intent"] == "three"


def test_page_accepts_ranges_and_filters_of_the_list(told: Repo) -> None:
    data = json.loads(Elements(written(told, "@~1..@")).data)
    assert [one["intent"] for one in data["moments"]] == ["two"]
    assert data["moments"][0]["names"] == ["second"]


def test_page_uses_the_titles_of_the_list(told: Repo) -> None:
    told.write("app.py", "changed since\n")
    told.run("envlog", "capture", check=True)
    newest, *older = json.loads(Elements(written(told)).data)["moments"]
    assert newest["title"].startswith("capture: ")
    assert told.run("envlog", "-1", "--format=%(title)", check=True).out.strip() == newest["title"]
    assert [one["title"] for one in older[-2:]] == ["two", "one"]


def test_page_loads_nothing_and_runs_only_its_own_script(told: Repo) -> None:
    page = Elements(written(told))
    for tag, attributes in page.found:
        assert not {"src", "srcset", "data", "action", "formaction", "poster", "style"} & attributes.keys(), (
            tag
        )
        assert not [name for name in attributes if name.startswith("on")]
        assert (attributes.get("href") or "#").startswith("#")
    policies = [
        one.get("content") or ""
        for tag, one in page.found
        if one.get("http-equiv") == "Content-Security-Policy"
    ]
    (policy,) = policies
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert len([tag for tag, _ in page.found if tag == "script"]) == 2


def test_page_contains_no_secret_and_no_output(told: Repo) -> None:
    # The user typed this command with the secret, and the history stores it unchanged.
    text = written(told).replace(f'"echo {SECRET}"', "")
    assert SECRET not in text
    assert "TOKEN" in text
    assert "OTHER" in text


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_adds_no_elements(repo: Repo, text: str) -> None:
    repo.write("a" + text.replace("/", "_").replace("\0", ""), "1\n")
    repo.run("envlog", "capture", "-m", text, check=True)
    page = written(repo)
    elements = Elements(page)
    told = json.loads(elements.data)["moments"][0]["intent"]
    assert len([tag for tag, _ in elements.found if tag == "script"]) == 2
    assert "img" not in {tag for tag, _ in elements.found}
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)
    assert told == text or "\\" in told


def test_other_files_are_not_replaced(told: Repo) -> None:
    before = (told.path / "app.py").read_bytes()
    refused = told.run("envlog", "--html", "app.py")
    assert refused.status == 3
    assert b"app.py" in refused.stderr
    assert (told.path / "app.py").read_bytes() == before


def test_empty_selection_writes_no_page(told: Repo, tmp_path: Path) -> None:
    refused = told.run("envlog", "--html", str(tmp_path / "none.html"), "--grep", "no such intent")
    assert refused.status == 4
    assert not (tmp_path / "none.html").exists()


def test_unwritable_page_is_an_error(told: Repo, tmp_path: Path) -> None:
    refused = told.run("envlog", "--html", str(tmp_path / "no" / "such" / "place.html"))
    assert refused.status == 128
    assert b"Traceback" not in refused.stderr
    assert refused.stderr.startswith(b"error: ")


def test_page_of_a_thousand_snapshots_is_below_five_megabytes(told: Repo) -> None:
    for number in range(3):
        for name in range(60):
            told.write(f"node_modules/package-{name}/dist/index-{number}.js", "x" * (name + 1))
            told.write(
                f"node_modules/package-{name}/package.json",
                json.dumps({"name": f"package-{name}", "version": f"1.{number}.0"}),
            )
        told.run(
            "envlog",
            "capture",
            f"a rather long intent that says why this was done, number {number}",
            check=True,
        )
    values = json.loads(told.run("envlog", "--json", "--stat", check=True).stdout)
    many = [{**values[number % len(values)], "id": f"{number:040x}"} for number in range(1000)]
    assert len(document("app", values[0]["at"], many).encode("utf-8")) < 5_000_000


def test_list_of_origins_says_that_it_may_be_incomplete(repo: Repo) -> None:
    repo.run("envlog", "capture", "-m", "first", check=True)
    assert "Of the changes listed on this page" in repo.run("envlog", "--html", "-", check=True).out
