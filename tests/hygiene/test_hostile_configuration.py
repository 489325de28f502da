"""Hostile git configuration: captured and printed bytes do not change, and no configured command runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.end_to_end.captures import capture
from tests.hygiene.user_data import busy
from tests.support.repository import Repo

HOOKS = (
    *("reference-transaction", "post-index-change", "pre-commit", "commit-msg", "post-commit"),
    *("pre-auto-gc", "post-rewrite", "fsmonitor-watchman", "post-checkout", "prepare-commit-msg"),
)


def hostile(canary: Path, place: Path) -> str:
    """Return a configuration in which every command creates the canary and every setting differs from the default."""
    touch = f"touch '{canary}'"
    return f"""\
[core]
	autocrlf = true
	eol = crlf
	safecrlf = true
	fsmonitor = "{touch}; false"
	hooksPath = {place}/hooks
	pager = "{touch}"
	editor = "{touch}"
	sshCommand = "{touch}"
	askPass = "{touch}"
	alternateRefsCommand = "{touch}"
	quotePath = true
	precomposeUnicode = true
	ignoreCase = true
	fileMode = false
	symlinks = false
	untrackedCache = true
	splitIndex = true
	logAllRefUpdates = always
	attributesFile = {place}/attributes
	excludesFile = {place}/excludes
	notesRef = refs/notes/elsewhere
	abbrev = 4
	commentChar = x
	bigFileThreshold = 1
	looseCompression = 0
	sharedRepository = 0660
	warnAmbiguousRefs = true
	createObject = rename
	commitGraph = false
	multiPackIndex = false
	checkStat = minimal
	trustctime = false
	preloadIndex = false
	preferSymlinkRefs = false
[commit]
	gpgSign = true
	template = /nonexistent
	cleanup = scissors
[tag]
	gpgSign = true
[gpg]
	program = "{touch}; false"
	format = ssh
[gpg "ssh"]
	defaultKeyCommand = "{touch}"
[diff]
	external = "{touch}"
	noprefix = true
	mnemonicPrefix = true
	renames = copies
	orderFile = /nonexistent
	submodule = log
	algorithm = patience
	ignoreSubmodules = all
[diff "shout"]
	textconv = "{touch}; cat"
	command = "{touch}"
[filter "shout"]
	clean = "{touch}; tr a-z A-Z"
	smudge = "{touch}; tr A-Z a-z"
	process = "{touch}"
	required = true
[merge "shout"]
	driver = "{touch}"
[log]
	showSignature = true
	decorate = full
	follow = true
	mailmap = true
	showRoot = false
	diffMerges = off
[format]
	pretty = "%h"
	notes = true
[i18n]
	logOutputEncoding = ISO-8859-1
	commitEncoding = ISO-8859-1
[notes]
	rewriteRef = refs/notes/*
	displayRef = refs/notes/*
	mergeStrategy = ours
[color]
	ui = always
	diff = always
[column]
	ui = always
[alias]
	update-ref = "!{touch}"
	cat-file = "!{touch}"
	log = "!{touch}"
	config = "!{touch}"
	rev-parse = "!{touch}"
	envlog = "!{touch}"
	envdiff = "!{touch}"
[feature]
	manyFiles = true
	experimental = true
[fetch]
	writeCommitGraph = true
[receive]
	denyCurrentBranch = refuse
[transfer]
	hideRefs = refs/envhist
	fsckObjects = true
[status]
	showUntrackedFiles = no
[pack]
	packSizeLimit = 1
	writeBitmaps = true
[index]
	version = 4
	sparse = true
[gc]
	auto = 1
	autoDetach = false
[maintenance]
	auto = true
	autoDetach = false
[trace2]
	normalTarget = {place}/trace
[credential]
	helper = "!{touch}"
[pager]
	log = "{touch}"
	diff = "{touch}"
	config = "{touch}"
	envlog = false
	envdiff = false
[interactive]
	diffFilter = "{touch}"
[user]
	name = Test User
	email = test@example.com
"""


@pytest.fixture
def enemy(tmp_path: Path) -> tuple[Path, str]:
    """Return the path of the canary and the text of a hostile configuration."""
    place, canary = tmp_path / "enemy", tmp_path / "canary"
    (place / "hooks").mkdir(parents=True)
    for name in HOOKS:
        hook = place / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch '{canary}'\nexit 1\n")
        hook.chmod(0o755)
    (place / "attributes").write_text("* text eol=crlf ident filter=shout diff=shout merge=shout\n")
    (place / "excludes").write_text("*\n")
    return canary, hostile(canary, place)


def tree(repo: Repo, snapshot: str) -> list[str]:
    """Return the entries of a snapshot without the facts of hooks, which depend on the configuration."""
    listed = repo.git("ls-tree", "-r", "-z", snapshot).split("\0")
    return [line for line in listed if not line.endswith("\t.envhist/facts/hook")]


def test_hostile_configuration_changes_no_capture_and_runs_no_command(
    repo: Repo, enemy: tuple[Path, str]
) -> None:
    canary, configuration = enemy
    busy(repo)
    wanted = tree(repo, capture(repo, "na\u00efve"))
    config = Path(repo.env["GIT_CONFIG_GLOBAL"])
    plain = config.read_text()
    shutil.rmtree(repo.path / ".git" / "envhist" / "cache")
    config.write_text(configuration)
    warm_or_cold = [capture(repo, "na\u00efve"), capture(repo, "na\u00efve")]
    config.write_text(plain)
    assert not canary.exists()
    assert [tree(repo, snapshot) for snapshot in warm_or_cold] == [wanted, wanted]
    messages = [repo.git("log", "-1", "--format=%s", snapshot) for snapshot in warm_or_cold]
    assert messages == ["na\u00efve", "na\u00efve"]
    assert not list((repo.path / ".git").rglob("logs/refs/envhist/**"))
    assert not list((repo.path / ".git").rglob("logs/refs/notes/**"))


READING = (
    ("envlog",),
    ("envlog", "--json"),
    ("envlog", "-p"),
    ("envlog", "--stat"),
    ("envlog", "--name-status"),
    ("envlog", "show"),
    ("envdiff", "@~1..@"),
    ("envdiff", "-p", "@~1..@"),
    ("envdiff", "--raw", "@~1..@"),
    ("envdiff", "--stat", "-M", "@~1..@"),
    ("envdiff", "--only=packages,services,databases,env,files"),
)


def test_hostile_configuration_changes_no_output_and_runs_no_command(
    repo: Repo, enemy: tuple[Path, str]
) -> None:
    canary, configuration = enemy
    busy(repo)
    capture(repo, "na\u00efve \u2713")
    repo.write("untracked", b"?\r\nmore\n")
    repo.write("app.py", b"print('again')\n")
    repo.write("\u00e4.txt", b"1\n")
    capture(repo, "second")
    repo.write("now", b"1\n")
    before = [repo.run(*words) for words in READING]
    # These settings may change the output: colors, the length of ids and the size of big files.
    wishes = {
        "ui = always": "ui = false",
        "bigFileThreshold = 1": "bigFileThreshold = 512m",
        "abbrev = 4": "abbrev = 7",
    }
    for wish, none in wishes.items():
        configuration = configuration.replace(wish, none)
    Path(repo.env["GIT_CONFIG_GLOBAL"]).write_text(configuration)
    after = [repo.run(*words) for words in READING]
    assert not canary.exists()
    for words, old, new in zip(READING, before, after, strict=True):
        assert (new.status, new.out) == (old.status, old.out), words


ENVIRONMENT = {
    "GIT_EXTERNAL_DIFF": "touch {canary}",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "touch {canary}",
    "GIT_DIFF_OPTS": "-u0",
    "GIT_TRACE": "1",
    "GIT_TRACE_SETUP": "1",
    "GIT_TRACE2": "1",
    "GIT_ASKPASS": "touch {canary}",
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "touch {canary}; false",
    "GIT_CONFIG_KEY_1": "core.autocrlf",
    "GIT_CONFIG_VALUE_1": "true",
    "LANG": "de_DE.ISO-8859-1",
    "LC_ALL": "POSIX",
}


def test_hostile_variables_change_no_capture_and_run_no_command(repo: Repo, tmp_path: Path) -> None:
    busy(repo)
    wanted = tree(repo, capture(repo, "one"))
    canary = tmp_path / "canary"
    variables = {name: value.format(canary=canary) for name, value in ENVIRONMENT.items()}
    shutil.rmtree(repo.path / ".git" / "envhist" / "cache")
    done = repo.run("envlog", "capture", "--porcelain", "-m", "two", env=variables, check=True)
    assert tree(repo, done.out.strip()) == wanted
    assert not canary.exists()


def test_capture_fetches_nothing_in_a_partial_clone(repo: Repo, tmp_path: Path) -> None:
    repo.git("config", "uploadpack.allowFilter", "true")
    repo.write("late", "x")
    repo.commit("another")
    clone = Repo(tmp_path / "clone", repo.env)
    repo.git("clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{repo.path}", str(clone.path))
    clone.git("read-tree", "HEAD")
    clone.git("update-ref", "-d", "HEAD")
    helper = tmp_path / "helper"
    helper.write_text(f'#!/bin/sh\ntouch {tmp_path}/ran\nexec git-upload-pack "$@"\n')
    helper.chmod(0o755)
    clone.git("config", "remote.origin.uploadpack", str(helper))

    capture(clone, "what is staged is not here")

    assert not (tmp_path / "ran").exists()
