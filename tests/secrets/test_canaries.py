"""Data that leaves the machine through git contains no canary and does not allow guesses of one to be tested."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest
import zstandard

from tests.secrets.canaries import (
    ROUNDS,
    STAGED,
    Captured,
    canary,
    every_canary,
    every_content,
    take_canaries,
)
from tests.support.repository import Repo, make_repo

Carry = Callable[[Captured, Path], bytes]
FORTY = 40


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory, sealed_session: None) -> Captured:
    repo = make_repo(tmp_path_factory.mktemp("canaries") / "repo")
    repo.git("config", "push.default", "current")
    repo.git("tag", "v1")
    return take_canaries(repo)


def everything_in(at: Path, repo: Repo, without: frozenset[str] = frozenset()) -> bytes:
    """Return all objects of a repository, unpacked, and its refs, as one text."""
    git = ("--git-dir", str(at))
    ids = repo.git(*git, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    wanted = "".join(f"{one}\n" for one in ids if one not in without)
    return (
        repo.run_git(*git, "cat-file", "--batch", input=wanted).stdout
        + repo.git(*git, "for-each-ref").encode()
    )


def files_below(directory: Path) -> Iterator[bytes]:
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield bytes(path)
            yield path.read_bytes()


def pushed(*words: str) -> Carry:
    def carry(captured: Captured, place: Path) -> bytes:
        remote = make_repo(place / "remote.git", bare=True)
        options = [word for word in words if word.startswith("-")]
        captured.repo.git("push", "-q", *options, str(remote.path), *(w for w in words if w not in options))
        return everything_in(remote.path, captured.repo)

    return carry


def shared(captured: Captured, place: Path) -> bytes:
    """Return everything that `git envlog push` sends and a colleague fetches."""
    remote = make_repo(place / "remote.git", bare=True)
    captured.repo.run("envlog", "push", "--yes", str(remote.path), check=True)
    colleague = make_repo(place / "theirs")
    colleague.run("envlog", "fetch", "--full", str(remote.path), check=True)
    fetched = colleague.path / ".git" / "envhist" / "fetched.git"
    return everything_in(remote.path, captured.repo) + everything_in(fetched, colleague)


def in_a_file(captured: Captured, place: Path) -> bytes:
    """Return the bytes of `git envlog export` and everything that an import stores."""
    file = place / "all.envhist.tar.zst"
    captured.repo.run("envlog", "export", str(file), check=True)
    captured.repo.run("envlog", "export", str(place / "some"), "@~2", "@", check=True)
    colleague = make_repo(place / "theirs")
    for one in (file, place / "some"):
        colleague.run("envlog", "import", str(one), check=True)
    fetched = colleague.path / ".git" / "envhist" / "fetched.git"
    return everything_in(fetched, colleague) + b"".join(
        one.read_bytes() + unpacked(one.read_bytes()) for one in (file, place / "some")
    )


def cloned(*words: str) -> Carry:
    def carry(captured: Captured, place: Path) -> bytes:
        captured.repo.git("clone", "-q", *words, str(place / "clone"))
        inside = place / "clone" / ".git"
        # A clone of a directory links every existing object, including those of the user's own `git add`.
        found = everything_in(inside if inside.exists() else place / "clone", captured.repo, captured.staged)
        return found + b"".join(
            path.read_bytes() for path in (place / "clone").glob("[!.]*") if path.is_file()
        )

    return carry


def bundled(captured: Captured, place: Path) -> bytes:
    captured.repo.git("bundle", "create", "-q", str(place / "all"), "--all")
    captured.repo.git("clone", "-q", "--mirror", str(place / "all"), str(place / "of.git"))
    return (place / "all").read_bytes() + everything_in(place / "of.git", captured.repo)


def exported(captured: Captured, _place: Path) -> bytes:
    return captured.repo.run_git("fast-export", "--all").stdout


def archived(captured: Captured, _place: Path) -> bytes:
    packed = captured.repo.run_git("archive", captured.snapshots[-1]).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as tar:
        assert any(member.name == ".env.local" for member in tar)
    return packed


def checked_out(captured: Captured, place: Path) -> bytes:
    captured.repo.git("worktree", "add", "-q", "--detach", str(place / "then"), captured.snapshots[-1])
    try:
        return b"".join(files_below(place / "then"))
    finally:
        captured.repo.git("worktree", "remove", "--force", str(place / "then"))


def of_every_pack(captured: Captured, _place: Path) -> bytes:
    return everything_in(captured.repo.path / ".git", captured.repo, captured.staged)


def of_our_own_files(captured: Captured, _place: Path) -> bytes:
    """Return all our loose files in the git directory, also decompressed, and the failure reports.

    The keys and the private list of checks are left out, because they are never shared.
    """
    found = []
    own = captured.repo.path / ".git/envhist"
    for path in sorted(own.rglob("*")):
        if path.is_file() and path.parent.name != "keys" and path != own / "checks":
            data = path.read_bytes()
            found += [bytes(path), data, unpacked(data)]
    assert len(found) > 6, "the stat cache is included"
    return b"".join([*found, *files_below(Path(captured.repo.env["XDG_STATE_HOME"]))])


def unpacked(data: bytes) -> bytes:
    try:
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    except zstandard.ZstdError:
        return b""


CARRIERS: dict[str, Carry] = {
    "push": pushed(),
    "push --all": pushed("--all"),
    "push --tags": pushed("--tags"),
    "push --mirror": pushed("--mirror"),
    "push of every ref": pushed("--force", "refs/*:refs/*"),
    "envlog push and fetch": shared,
    "export and import": in_a_file,
    "clone .": cloned("."),
    "clone --mirror": cloned("--mirror", "."),
    "clone --no-local --mirror": cloned("--no-local", "--mirror", "."),
    "bundle": bundled,
    "fast-export": exported,
    "archive": archived,
    "worktree": checked_out,
    "packs": of_every_pack,
    "our own files": of_our_own_files,
}
CARRY_SNAPSHOTS = {
    "push --mirror",
    "push of every ref",
    "envlog push and fetch",
    "export and import",
    "clone --mirror",
    "bundle",
    "fast-export",
    "archive",
    "packs",
}


@pytest.mark.parametrize("way", CARRIERS)
def test_no_canary_is_in_objects_output_or_remotes(captured: Captured, tmp_path: Path, way: str) -> None:
    carried = CARRIERS[way](captured, tmp_path)
    assert [one for one in every_canary() if one.encode() in carried] == []
    if way in CARRY_SNAPSHOTS:
        assert carried.count(b"envhist-sealed 1\n") >= FORTY - len(STAGED), "sealed files are included"


def test_each_round_has_forty_canaries(captured: Captured) -> None:
    assert len(set(every_canary())) == len(every_canary()) >= FORTY * ROUNDS
    assert len(captured.snapshots) == ROUNDS


def test_no_unkeyed_hash_of_a_canary_is_stored(captured: Captured, tmp_path: Path) -> None:
    carried = CARRIERS["push of every ref"](captured, tmp_path) + of_our_own_files(captured, tmp_path)
    values = [one.encode() for one in every_canary()]
    for plain in (*values, *every_content()):
        for form in {plain, plain.rstrip(b"\n"), b"blob %d\0" % len(plain) + plain}:
            for algorithm in ("md5", "sha1", "sha256", "sha512"):
                digest = hashlib.new(algorithm, form)
                assert digest.digest()[:10] not in carried, (algorithm, plain)
                assert digest.hexdigest()[:20].encode() not in carried, (algorithm, plain)


SHOWN = {
    "list": ("envlog",),
    "list --json": ("envlog", "--json"),
    "list --full": ("envlog", "--full"),
    "list -p": ("envlog", "-p"),
    "list --format": ("envlog", "--format=%B %s %b %(name) %(story)"),
    "show": ("envlog", "show"),
    "show --json": ("envlog", "show", "--json"),
    "envdiff": ("envdiff", "@~2..@"),
    "envdiff -p": ("envdiff", "-p", "@~2..@"),
    "envdiff -p a first": ("envdiff", "-p", "@~1", "@"),
    "envdiff --json": ("envdiff", "--json", "@~2..@"),
    "envdiff against now": ("envdiff", "-p", "@~1"),
    "dry run": ("envlog", "capture", "-n"),
    "key show": ("envlog", "key", "show"),
}


@pytest.mark.parametrize("what", SHOWN)
def test_canaries_are_not_printed_without_reveal(captured: Captured, what: str) -> None:
    done = captured.repo.run(*SHOWN[what], check=True)
    printed = done.stdout + done.stderr
    assert done.stdout
    # The output of a check is printed with the key.
    assert [one for one in every_canary("verify output") if one.encode() in printed] == []


def test_reveal_prints_canaries(captured: Captured) -> None:
    repo, last = captured.repo, ROUNDS - 1
    assert canary(".env.local", last) in repo.run("envlog", "show", "@", "--", ".env.local", check=True).out
    revealed = repo.run("envdiff", "-p", "--reveal", "@~1", "@", check=True).out
    assert canary(".env.local", last) in revealed
    assert canary("notes.txt", last) in revealed


def test_diff_of_a_sealed_program_is_readable_with_its_secrets_masked(repo: Repo) -> None:
    token, value = f"ghp_{canary('notes.txt', 0)}", canary("src/pay.py", 0)
    program = f'TOKEN = "{token}"\nAPI_KEY = "{value}"\nLIMIT = 1\n'
    repo.write("src/app.py", program)
    repo.write("src/plain.py", "LIMIT = 1\n")
    repo.run("envlog", "capture", "one", check=True)
    repo.write("src/app.py", program.replace("LIMIT = 1", "LIMIT = 2"))
    repo.write("src/plain.py", f'LIMIT = 1\nAPI_KEY = "{value}"\n')
    repo.run("envlog", "capture", "two", check=True)
    printed = repo.run("envdiff", "-p", "@~1", "@", check=True).out
    assert "-LIMIT = 1\n+LIMIT = 2\n" in printed
    assert 'TOKEN = "ghp_***"' in printed
    assert 'API_KEY = "***"' in printed
    assert token[4:] not in printed
    assert value not in printed


def test_failed_capture_leaves_no_canary(captured: Captured) -> None:
    repo = captured.repo
    done = repo.run(
        "envlog", "capture", f"ghp_{canary('intent', 0)}", "--attach", f"/none/ghp_{canary('note', 0)}"
    )
    assert done.status != 0
    assert not list((repo.path / ".git/envhist/staging").glob("*-*"))
    assert not [one for one in every_canary() if one.encode() in of_our_own_files(captured, repo.path)]
