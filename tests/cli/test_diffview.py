"""The views of a diff: compared with plain git if git has the view, else with texts written by hand."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.cli.output import DEFAULTS, Palette
from git_envhist.cli.quote_path import quoted
from git_envhist.cli.terminal import as_bytes
from git_envhist.cli.views.diff_rows import variable_facts
from git_envhist.cli.views.diff_source import DiffSource, DiffStyle
from git_envhist.cli.views.git_diff_formats import renamed
from git_envhist.cli.views.patch import diff_texts
from git_envhist.diff.compare_snapshots import compare
from git_envhist.diff.config_files import unified_hunks
from git_envhist.errors import SealingError
from git_envhist.git.process import Git
from git_envhist.git.repository import Repository
from git_envhist.model import EnvPath, FactChange, StoredAs
from tests.support.needs import require
from tests.support.repository import Repo
from tests.support.snapshots import Described, Tree, directory, fifo, file, link, write_snapshot

KEY = b"sealed by a test\0"


def open_sealed(path: EnvPath, blob: bytes) -> bytes:
    if not blob.startswith(KEY):
        raise SealingError("sealed with key 'abc123', which is not here")
    return blob.removeprefix(KEY)


def sealed(text: bytes, key: bytes = KEY) -> Described:
    return Described(content=key + text, mode=0o600, stored=StoredAs.SEALED)


@pytest.fixture
def git(repo: Repo) -> Git:
    return Repository.open(str(repo.path)).git


class Views:
    """The views of one pair of snapshots."""

    def __init__(self, repo: Repo, git: Git, before: Tree, after: Tree, **more: Mapping[str, Tree]) -> None:
        self.repo = repo
        self.before = write_snapshot(repo.path, before, **{key: value[0] for key, value in more.items()})  # type: ignore[arg-type]
        self.after = write_snapshot(repo.path, after, **{key: value[1] for key, value in more.items()})  # type: ignore[arg-type]
        self.git = git

    def show(self, form: str, manner: DiffStyle | None = None, renames: int | None = None) -> str:
        changes = compare(self.git, self.before, self.after, renames=renames)
        source = DiffSource(self.git, self.before, self.after, changes, open_sealed, renames)
        return b"".join(diff_texts(form, source, manner or DiffStyle())).decode("utf-8", "surrogateescape")

    def said_by_git(self, *options: str) -> str:
        words = ["git", "diff", "--no-renames", *options, self.before, self.after]
        done = subprocess.run(
            [*words, "--", ":(top,exclude).envhist"], cwd=self.repo.path, capture_output=True, check=True
        )
        return done.stdout.decode("utf-8", "surrogateescape")


TEXT = b"".join(b"line %d\n" % number for number in range(40))
PLAIN = (
    {b"src/app.py": file(TEXT), b"gone": file(b"x\ny"), b"data.bin": file(b"\0" * 90), b"now-link": file(b"t"),
     b"\xc3\xa4 \"q\"": file(b"1\n"), b"run.sh": file(b"#!", 0o644)},
    {b"src/app.py": file(TEXT.replace(b"line 7\n", b"").replace(b"line 30", b"LINE 30")), b"new": file(b"1\n2\n3\n"),
     b"data.bin": file(b"\0" * 12000), b"now-link": link(b"t"), b"\xc3\xa4 \"q\"": file(b"2\n"), b"empty": file(),
     b"run.sh": file(b"#!", 0o755)},
)  # fmt: skip


@pytest.fixture
def plain(repo: Repo, git: Git) -> Views:
    return Views(repo, git, *PLAIN)


def test_patch_of_plain_files_equals_gits(plain: Views) -> None:
    assert plain.show("patch") == plain.said_by_git("-p")
    whole = plain.show("patch", DiffStyle(full_index=True))
    assert whole == plain.said_by_git("-p", "--full-index") != plain.show("patch")
    plain.repo.git("config", "core.abbrev", "12")
    assert plain.show("patch") == plain.said_by_git("-p")


def test_patch_of_plain_files_can_be_applied(plain: Views) -> None:
    there = plain.repo.path / "then"
    plain.repo.git("worktree", "add", "-q", "--detach", "--no-checkout", str(there))
    texts = Views(plain.repo, plain.git, {b"a": file(TEXT)}, {b"a": file(TEXT + b"more\n", 0o755)})
    plain.repo.git("-C", str(there), "read-tree", "-u", "--reset", texts.before)
    plain.repo.git("-C", str(there), "apply", "-", input=texts.show("patch"))
    assert (there / "a").read_bytes() == TEXT + b"more\n"


@pytest.mark.parametrize("columns", [30, 50, 80, 200])
def test_stat_has_the_layout_of_git(plain: Views, columns: int) -> None:
    assert plain.show("stat", DiffStyle(columns=columns)) == plain.said_by_git(f"--stat={columns}")


@pytest.mark.parametrize("columns", [40, 80])
def test_stat_of_long_names_has_the_layout_of_git(repo: Repo, git: Git, columns: int) -> None:
    long = b"directory/" * 8
    views = Views(repo, git, {long + b"a": file(TEXT * 9)}, {long + b"a": file(b"x\n"), b"b": file(TEXT * 3)})
    assert views.show("stat", DiffStyle(columns=columns)) == views.said_by_git(f"--stat={columns}")


@pytest.mark.parametrize("form", ["--name-only", "--name-status"])
@pytest.mark.parametrize("nul", [False, True])
def test_lists_of_names_equal_gits(plain: Views, form: str, nul: bool) -> None:
    shown = plain.show(form[2:].replace("-", "_"), DiffStyle(ended_by_nul=nul))
    assert shown == plain.said_by_git(form, *(["-z"] if nul else []))


@pytest.mark.parametrize("nul", [False, True])
def test_raw_format_equals_gits(plain: Views, nul: bool) -> None:
    said = plain.said_by_git("--raw", "--no-abbrev", *(["-z"] if nul else []))
    assert plain.show("raw", DiffStyle(ended_by_nul=nul)) == said


@pytest.mark.parametrize(("added", "letter"), [(b"x\n", "R09"), (b"", "R100")])
def test_renamed_file_is_shown_as_git_does(repo: Repo, git: Git, added: bytes, letter: str) -> None:
    views = Views(repo, git, {b"src/old/app.py": file(TEXT)}, {b"src/new/app.py": file(TEXT + added)})
    found = subprocess.run(
        ["git", "diff", "-M50%", "--stat", "-p", views.before, views.after, "--", ":(exclude).envhist"],
        cwd=repo.path, capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    stat, _, patch = found.partition("\n\n")
    assert views.show("stat", renames=50) == stat + "\n"
    assert views.show("patch", renames=50) == patch
    assert views.show("name_status", renames=50).startswith(letter)
    assert views.show("story", renames=50) == "files     → src/old/app.py → src/new/app.py\n"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (b"a/b/c", b"a/x/c", b"a/{b => x}/c"),
        (b"a/c", b"a/b/c", b"a/{ => b}/c"),
        (b"one", b"two", b"one => two"),
        (b"a/one", b"b/one", b"{a => b}/one"),
        (b"a/b", b"a/c", b"a/{b => c}"),
    ],
)
def test_a_rename_is_shortened_as_git_does(old: bytes, new: bytes, told: bytes) -> None:
    assert renamed(old, new, DiffStyle()) == told


def test_escaped_names_are_decoded_in_every_format(repo: Repo, git: Git) -> None:
    views = Views(
        repo,
        git,
        {b".gitattributes": file(b"a\n")},
        {b".gitattributes": file(b"b\n"), b"x/.git": file(b"y\n")},
    )
    patch = views.show("patch")
    assert "%2e" not in patch + views.show("stat") + views.show("raw") + views.show("story")
    assert patch.startswith("diff --git a/.gitattributes b/.gitattributes\nindex ")
    assert "--- a/.gitattributes\n+++ b/.gitattributes\n@@ -1 +1 @@\n-a\n+b\n" in patch
    assert "--- /dev/null\n+++ b/x/.git\n@@ -0,0 +1 @@\n+y\n" in patch


def test_a_link_in_place_of_a_file_of_an_escaped_name_is_shown_on_both_sides(repo: Repo, git: Git) -> None:
    views = Views(repo, git, {b".gitignore": file(b"a\n")}, {b".gitignore": link(b"a")})
    patch = views.show("patch")
    assert patch.count("diff --git a/.gitignore b/.gitignore") == 2
    assert "deleted file mode 100644" in patch
    assert "new file mode 120000" in patch


def test_attributes_and_external_diff_programs_are_ignored(plain: Views) -> None:
    said = plain.show("patch")
    plain.repo.write(".gitattributes", "* binary diff=evil\n")
    for key in ("diff.evil.textconv", "diff.evil.command", "diff.external"):
        plain.repo.git("config", key, "false")
    plain.repo.git("config", "diff.noprefix", "true")
    assert plain.show("patch") == said


def test_changes_of_the_manifest_only_are_shown_as_modes(repo: Repo, git: Git) -> None:
    views = Views(
        repo, git, {b"key": file(b"k", 0o644), b"d/x": file(), b"own": file(b"o")},
        {b"key": file(b"k", 0o600), b"d/x": file(), b"d/empty": directory(0o700), b"pipe": fifo(),
         b"own": file(b"o", owner=(0, 0))},
    )  # fmt: skip
    assert views.show("patch") == (
        "diff --git a/d/empty b/d/empty\nnew file mode 040700\n"
        "diff --git a/key b/key\nold mode 100644\nnew mode 100600\n"
        "diff --git a/own b/own\nowner changed\n"
        "diff --git a/pipe b/pipe\nnew file mode 010644\n"
    )
    zero = "0" * 40
    assert f":000000 040700 {zero} {zero} A\td/empty\n" in views.show("raw")
    assert " d/empty/ | 0\n" in views.show("stat")
    assert views.show("story") == "files     + d/empty/  ~ key (mode)  ~ own (owner)  + pipe\n"


def test_patch_contains_modes_that_git_cannot_store(repo: Repo, git: Git) -> None:
    views = Views(repo, git, {b"key": file(b"1\n", 0o644)}, {b"key": file(b"2\n", 0o600)})
    assert "diff --git a/key b/key\nold mode 100644\nnew mode 100600\nindex " in views.show("patch")


ENV_BEFORE = b"# comment\nAPI_URL=http://a\nexport OLD=1\nSAME=x\n"
ENV_AFTER = b"API_URL=http://b\nSAME=x\nDEBUG='yes'\n"


@pytest.fixture
def secret(repo: Repo, git: Git) -> Views:
    other = b"another key\n"
    return Views(
        repo, git,
        {b".env.local": sealed(ENV_BEFORE), b"id_rsa": sealed(b"1"), b"lost/.env": sealed(b"A=1", other)},
        {b".env.local": sealed(ENV_AFTER), b"id_rsa": sealed(b"2"), b"lost/.env": sealed(b"A=2", other)},
    )  # fmt: skip


def test_a_sealed_file_of_variables_shows_keys_and_no_value(secret: Views) -> None:
    patch = secret.show("patch")
    assert (
        "diff --git a/.env.local b/.env.local\nsealed file changed, values masked (--reveal shows them)\n"
        "~ API_URL=***\n+ DEBUG=***\n- OLD=***\n"
    ) in patch
    assert "diff --git a/id_rsa b/id_rsa\nsealed file changed\n" in patch
    assert (
        "a/lost/.env b/lost/.env\nsealed file changed: sealed with key 'abc123', which is not here\n" in patch
    )
    for form in ("patch", "stat", "raw", "story", "name_status"):
        shown = secret.show(form)
        assert KEY.decode() not in shown
        assert "http" not in shown


def test_sealed_file_is_shown_as_a_hunk_on_a_terminal(secret: Views) -> None:
    patch = secret.show("patch", DiffStyle(columns=80))
    assert (
        "diff --git a/.env.local b/.env.local\n--- a/.env.local\n+++ b/.env.local\n"
        "@@ -1,2 +1,2 @@ sealed file changed, values masked (--reveal shows them)\n"
        "-API_URL=***\n-OLD=***\n+API_URL=***\n+DEBUG=***\n"
    ) in patch
    assert "@@ -1,1 +1,1 @@ sealed file changed\n-(sealed)\n+(sealed)\n" in patch
    assert "http" not in patch


def test_default_output_shows_variables_by_name(secret: Views) -> None:
    assert secret.show("story") == (
        "env       .env.local     ~ API_URL   + DEBUG   - OLD\n"
        "env       lost/.env      ~ sealed with key 'abc123', which is not here\n"
        "files     ~ id_rsa (sealed)\n"
    )


def test_reveal_shows_values_with_the_key(secret: Views) -> None:
    reveal = DiffStyle(reveal=True)
    assert "~ API_URL http://a → http://b   + DEBUG 'yes'   - OLD 1" in secret.show("story", reveal)
    patch = secret.show("patch", reveal)
    assert "--- a/.env.local\n+++ b/.env.local\n@@ -1,4 +1,3 @@\n-# comment\n-API_URL=http://a" in patch
    assert "--- a/id_rsa\n+++ b/id_rsa\n@@ -1 +1 @@\n-1\n\\ No newline at end of file\n+2\n" in patch
    assert "sealed with key 'abc123'" in patch


def test_variables_are_facts_with_values_masked(secret: Views) -> None:
    changes = compare(secret.git, secret.before, secret.after)
    source = DiffSource(secret.git, secret.before, secret.after, changes, open_sealed)
    assert variable_facts(source, reveal=False) == (
        FactChange("env", ".env.local/API_URL", "***", "***"),
        FactChange("env", ".env.local/DEBUG", None, "***"),
        FactChange("env", ".env.local/OLD", "***", None),
    )
    assert variable_facts(source, reveal=True)[0].after == "http://b"


def test_stat_marks_a_sealed_file(secret: Views) -> None:
    assert " id_rsa     | sealed\n" in secret.show("stat")


def test_file_in_chunks_is_shown_by_its_sizes(repo: Repo, git: Git) -> None:
    def pieces(size: int) -> Described:
        pointer = b"envhist-pieces 1\nsize %d\ntree %040d\n" % (size, size)
        return Described(content=pointer, stored=StoredAs.PIECES)

    views = Views(repo, git, {b"app.db": pieces(210 << 20)}, {b"app.db": pieces(211 << 20)})
    assert views.show("patch") == "diff --git a/app.db b/app.db\npieces, 210.0 MiB -> 211.0 MiB\n"
    assert " app.db | Bin 220200960 -> 221249536 bytes\n" in views.show("stat")


def test_nested_repositories_and_additional_roots_are_shown(repo: Repo, git: Git) -> None:
    views = Views(
        repo, git, {}, {},
        nested=({"lib": {b"HEAD": file(b"1")}}, {"lib": {b"HEAD": file(b"2")}}),  # type: ignore[arg-type]
        roots=({"nginx": {b"a.conf": file(b"1\n")}}, {"nginx": {b"a.conf": file(b"2\n")}}),  # type: ignore[arg-type]
    )  # fmt: skip
    patch = views.show("patch")
    assert "diff --git a/lib/.git b/lib/.git\nnested repository: its .git changed\n" in patch
    assert "--- a/nginx://a.conf\n+++ b/nginx://a.conf\n@@ -1 +1 @@\n-1\n+2\n" in patch
    assert " nginx://a.conf | 2 +-\n" in views.show("stat")
    assert views.show("name_status") == "M\tlib/.git\nM\tnginx://a.conf\n"


def test_many_changes_fold_into_a_few_lines_of_the_terminals_width(repo: Repo, git: Git) -> None:
    tree = {b".venv/lib/m%d.py" % number: file(b"%d" % number) for number in range(300)}
    tree |= {b"node_modules/x%d/i.js" % number: file() for number in range(40)}
    tree |= {b"config/app.toml": file(b"x")}
    views = Views(repo, git, {b"config/app.toml": file()}, tree)
    shown = views.show("story", DiffStyle(columns=50))
    assert shown == "files     .venv/ +300  node_modules/ +40\n          ~ config/app.toml\n"
    assert views.show("patch").count("diff --git ") == 341
    assert views.show("stat").count("\n") == 342


def test_formats_of_no_changes_are_empty(repo: Repo, git: Git) -> None:
    views = Views(repo, git, {b"a": file()}, {b"a": file()})
    assert [views.show(form) for form in ("story", "patch", "stat", "raw", "name_only")] == [""] * 5


def test_colours_do_not_change_the_text(plain: Views) -> None:
    manner = DiffStyle(palette=Palette(DEFAULTS))
    for form in ("patch", "stat", "story"):
        coloured = as_bytes(plain.show(form, manner)).decode()
        assert "\x1b[32m" in coloured
        bare = coloured.replace("\x1b[m", "")
        for code in DEFAULTS.values():
            bare = bare.replace(code, "") if code else bare
        assert bare == plain.show(form)


def test_control_characters_in_names_are_escaped(repo: Repo, git: Git) -> None:
    views = Views(repo, git, {}, {b"\x1b[2J\xc2\x9b1m\n": file(b"1")})
    for form in ("story", "patch", "stat", "raw", "name_only", "name_status"):
        shown = views.show(form, DiffStyle(quote_all=False))
        assert "\x1b" not in shown
        assert "\x9b" not in shown


@given(st.binary(min_size=1).filter(lambda path: b"\0" not in path))
def test_paths_are_quoted_as_git_quotes_them(tmp_path_factory: pytest.TempPathFactory, path: bytes) -> None:
    place = tmp_path_factory.getbasetemp()
    stream = b"100644 " + b"1" * 40 + b"\t" + path.replace(b"/", b"_").replace(b".", b"_") + b"\0"
    repository = place / "quoting"
    git = ["git", "-C", str(repository)]
    if not repository.exists():
        subprocess.run(["git", "init", "-q", str(repository)], check=True)
    subprocess.run([*git, "read-tree", "--empty"], check=True)
    subprocess.run([*git, "update-index", "-z", "--index-info"], input=stream, check=True)
    listed = subprocess.run([*git, "ls-files"], capture_output=True, check=True).stdout
    assert quoted(path.replace(b"/", b"_").replace(b".", b"_"), quote_all=True) + b"\n" == listed


LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\r\n", b"\x0cd\n", b"e"]), max_size=12).map(b"".join)


@given(LINES, LINES)
def test_computed_patch_turns_the_old_text_into_the_new(
    tmp_path_factory: pytest.TempPathFactory, before: bytes, after: bytes
) -> None:
    place = tmp_path_factory.mktemp("text")
    (place / "t").write_bytes(before)
    hunks = unified_hunks(before, after)
    assert (hunks == b"") == (before == after)
    if hunks:
        patch = b"--- a/t\n+++ b/t\n" + hunks
        require("patch")
        subprocess.run(["patch", "-s", "-p1", "--binary"], cwd=place, input=patch, check=True)
        assert (place / "t").read_bytes() == after if (place / "t").exists() else after == b""
