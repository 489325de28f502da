"""Run the corpus through every output and count sealed, masked, refused, reported and unsealed secrets by class."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.end_to_end.captures import capture
from tests.mcp.test_server import answer, talk
from tests.secrets.corpus import Canary, Word, words, write
from tests.secrets.test_canaries import everything_in, files_below, unpacked
from tests.support.repository import Repo, make_repo
from tests.support.snapshot import read_back

DOCUMENT = Path(__file__).parents[2] / "docs" / "internals" / "security.md"
MASKED_CLASS = "intents, notes and values"
COLUMNS = ("sealed", "refused", "reported", "in the clear")
LEAST = 150

Outcomes = dict[Canary, str]


class Taken:
    """A repository with the corpus, and the result for each canary."""

    def __init__(self, repo: Repo) -> None:
        self.repo = repo
        self.canaries = write(repo)
        self.words = words()
        for word in self.words:
            self.commit = capture(repo, word.text, "--meta", f"k={word.text}")
            repo.run("envlog", "note", "-m", word.text, check=True)
            repo.write("counter", word.secret[:3])
        self.commit = capture(repo, "last")
        self.planned = json.loads(repo.run("envlog", "push", "--dry-run", "--json", "origin", check=True).out)
        self.outcomes = self._outcomes()

    def _outcomes(self) -> Outcomes:
        stored = {os.fsdecode(path): how for path, how in read_back(self.repo, self.commit).stored.items()}
        refused = {token["path"] for token in self.planned["tokens"]}
        reported = {one["path"] for what in ("databases", "dumps", "names") for one in self.planned[what]}
        found: Outcomes = {}
        for one in self.canaries:
            if stored.get(one.path) == "sealed":
                found[one] = "sealed"
            elif one.path in refused:
                found[one] = "refused"
            else:
                found[one] = "reported" if one.path in reported else "in the clear"
        return found

    @property
    def hidden(self) -> list[bytes]:
        """Return every secret that must not be readable anywhere."""
        sealed = [one.secret for one, outcome in self.outcomes.items() if outcome == "sealed"]
        return sealed + [word.secret.encode() for word in self.words]


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory, sealed_session: None) -> Taken:
    place = tmp_path_factory.mktemp("corpus")
    repo = make_repo(place / "repo")
    bare = make_repo(place / "remote.git", bare=True)
    repo.git("remote", "add", "origin", str(bare.path))
    return Taken(repo)


def table(taken: Taken) -> str:
    """Return the table of `docs/internals/security.md`."""
    rows: dict[str, Counter[str]] = {}
    for one, outcome in taken.outcomes.items():
        rows.setdefault(one.kind, Counter())[outcome] += 1
    rows[MASKED_CLASS] = Counter({"sealed": len(taken.words)})
    total = sum(rows.values(), Counter())
    lines = ["| class | canaries | sealed or masked | refused | reported | in the clear |",
             "| --- | ---: | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for kind, counts in [*sorted(rows.items()), ("all", total)]:
        cells = " | ".join(str(counts[column]) for column in COLUMNS)
        lines.append(f"| {kind} | {sum(counts.values())} | {cells} |")
    return "\n".join(lines) + "\n"


def leaked(taken: Taken, carried: bytes) -> list[bytes]:
    return [secret for secret in taken.hidden if secret in carried]


def test_corpus_is_large_and_its_canaries_are_unique(taken: Taken) -> None:
    assert len(taken.canaries) + len(taken.words) >= LEAST
    assert len({one.path for one in taken.canaries}) == len(taken.canaries)
    assert len(set(taken.hidden)) == len(taken.hidden)


def test_document_shows_exactly_the_table_of_the_corpus(taken: Taken) -> None:
    wanted = table(taken)
    print(wanted)
    print([one.path for one, outcome in taken.outcomes.items() if outcome == "in the clear"])
    assert wanted in DOCUMENT.read_text(encoding="utf-8")


def test_only_secrets_without_a_form_are_stored_unsealed(taken: Taken) -> None:
    clear = {one.kind for one, outcome in taken.outcomes.items() if outcome == "in the clear"}
    assert clear == {"secrets without a form"}


def test_no_secret_is_in_the_objects_of_the_repository(taken: Taken) -> None:
    assert leaked(taken, everything_in(taken.repo.path / ".git", taken.repo)) == []


def test_no_secret_is_in_our_own_files_and_reports(taken: Taken) -> None:
    found = []
    for path in sorted((taken.repo.path / ".git/envhist").rglob("*")):
        if path.is_file() and path.parent.name != "keys":
            data = path.read_bytes()
            found += [bytes(path), data, unpacked(data)]
    carried = b"".join([*found, *files_below(Path(taken.repo.env["XDG_STATE_HOME"]))])
    assert leaked(taken, carried) == []


def test_push_refuses_until_all_findings_are_allowed_and_sends_no_secret(
    taken: Taken, tmp_path: Path
) -> None:
    remote = make_repo(tmp_path / "remote.git", bare=True)
    done = taken.repo.run("envlog", "push", "--yes", str(remote.path))
    assert done.status == 3
    assert leaked(taken, done.stdout + done.stderr) == []
    assert remote.git("for-each-ref") == ""
    allowed = [word for token in taken.planned["tokens"] for word in ("--allow", token["path"])]
    taken.repo.run("envlog", "push", "--yes", *allowed, str(remote.path), check=True)
    assert leaked(taken, everything_in(remote.path, taken.repo)) == []


def test_mirror_bundle_and_export_contain_no_secret(taken: Taken, tmp_path: Path) -> None:
    repo = taken.repo
    mirror = make_repo(tmp_path / "mirror.git", bare=True)
    repo.git("push", "-q", "--mirror", str(mirror.path))
    carried = everything_in(mirror.path, repo)
    repo.git("bundle", "create", "-q", str(tmp_path / "all"), "--all")
    repo.git("clone", "-q", "--mirror", str(tmp_path / "all"), str(tmp_path / "of.git"))
    carried += everything_in(tmp_path / "of.git", repo)
    assert repo.run("envlog", "export", str(tmp_path / "refused")).status == 3
    allowed = [word for token in taken.planned["tokens"] for word in ("--allow", token["path"])]
    repo.run("envlog", "export", *allowed, str(tmp_path / "file"), check=True)
    carried += unpacked((tmp_path / "file").read_bytes())
    assert leaked(taken, carried) == []


def test_pages_lists_and_json_show_no_secret(taken: Taken, tmp_path: Path) -> None:
    repo = taken.repo
    repo.run("envlog", "--html", str(tmp_path / "page.html"), check=True)
    shown = (tmp_path / "page.html").read_bytes()
    for verb in (
        ("envlog", "--json"), ("envlog", "--full"), ("envlog", "-p"), ("envlog", "show"), ("envlog", "show", "--json"),
        ("envdiff", "-p", "@~9..@"), ("envdiff", "--json", "@~9..@"), ("envlog", "capture", "-n"), ("envlog", "status"),
    ):  # fmt: skip
        done = repo.run(*verb, check=True)
        shown += done.stdout + done.stderr
    assert leaked(taken, shown) == []


def test_answers_over_mcp_show_no_secret(taken: Taken) -> None:
    told: list[str] = []

    async def use(session: object) -> None:
        for tool, given in (("log", {"limit": 50}), ("show", {}), ("diff", {"before": "@~9", "after": "@"})):
            told.append(json.dumps(await answer(session, tool, **given)))  # type: ignore[arg-type]

    talk(taken.repo, use)
    assert len(told) == 3
    assert leaked(taken, "".join(told).encode()) == []


def test_secrets_in_text_are_masked_and_the_rest_is_kept(taken: Taken) -> None:
    listed = taken.repo.run("envlog", "--full", "--no-fold", check=True).out
    assert listed.count("***") >= len(taken.words)
    assert all(isinstance(word, Word) and word.secret not in listed for word in taken.words)
