"""Keys: created once, stored twice, found again, exported."""

from __future__ import annotations

import hmac
import multiprocessing
import os
import shutil
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist import EnvHistory
from git_envhist.errors import Refused, SealingError
from git_envhist.secrets import keys
from git_envhist.secrets.key_text import read_key_text, write_key_text
from git_envhist.secrets.keys import Key, KeyRing, compute_hmac, constant_time_equal, format_key_file
from tests.support.depth import FULL
from tests.support.repository import Repo

KNOWN = Key.of(bytes(range(64)))


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    return ring_of(tmp_path)


def ring_of(tmp_path: Path, clone: str = "clone", home: str = "config") -> KeyRing:
    """Return the ring of a repository with an existing git directory, as every repository has."""
    with suppress(FileExistsError):
        (tmp_path / clone).mkdir(parents=True)
    return KeyRing(str(tmp_path / clone / "envhist"), str(tmp_path / home))


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_key_id_subkeys_and_mac_are_frozen() -> None:
    # Frozen: files sealed by older versions are opened with these.
    assert KNOWN.id == "79e00dedc97e"
    assert KNOWN.derive(b"seal").hex().startswith("7cee1a019d00dce28fa789e861df7b22")
    assert KNOWN.mac(b"data") == "67379da3b27420a30cb26afe2d19a70fb6dd3e227ef7135f8bdf9023ef52974f"


def test_subkeys_of_labels_differ_and_none_contains_the_id() -> None:
    subkeys = [KNOWN.derive(label) for label in (b"seal", b"mac", b"key id", b"envhist key id", b"")]
    assert len(set(subkeys)) == len(subkeys)
    assert not any(subkey.hex().startswith(KNOWN.id) for subkey in subkeys)


def test_repr_of_a_key_hides_its_secret() -> None:
    assert KNOWN.secret.hex()[:8] not in repr(KNOWN)
    assert repr(KNOWN.secret) not in repr(KNOWN)


def test_first_use_creates_one_key_of_512_bits_in_both_places(ring: KeyRing) -> None:
    key = ring.current()
    assert len(key.secret) == 64
    assert ring.made == key
    for place in ring.places:
        assert Path(place.path(key.id)).read_bytes() == b"envhist-key 2\n%b\n" % key.material.hex().encode()
    assert ring.warnings == []


def test_key_files_are_private_with_any_umask(ring: KeyRing) -> None:
    os.umask(0)
    key = ring.current()
    for place in ring.places:
        assert mode_of(place.directory) == 0o700
        assert mode_of(place.path(key.id)) == 0o600


def test_key_is_the_same_in_later_runs(tmp_path: Path) -> None:
    first = ring_of(tmp_path).current()
    later = ring_of(tmp_path)
    assert later.current() == first
    assert later.made is None


def test_each_repository_has_its_own_key(tmp_path: Path) -> None:
    one, other = ring_of(tmp_path, "one"), ring_of(tmp_path, "other")
    assert one.current() != other.current()
    assert one.all() == (one.current(),)


def test_current_id_creates_no_key(ring: KeyRing, tmp_path: Path) -> None:
    assert ring.current_id() is None
    assert ring.all() == ()
    assert ring.get("0123456789ab") is None
    assert [path for path in tmp_path.rglob("*") if path != tmp_path / "clone"] == []


def test_key_of_another_repository_is_not_taken_from_the_configuration_home(tmp_path: Path) -> None:
    other = ring_of(tmp_path, "other").current()
    ring = ring_of(tmp_path)
    assert ring.get(other.id) is None
    assert other not in ring.all()
    with pytest.raises(SealingError, match="neither created nor imported") as caught:
        ring.to_open(other.id)
    path = ring.backup.path(other.id)
    assert caught.value.hint is not None
    assert path in caught.value.hint
    assert ring.ours.ids() == ()
    ring.import_(Path(path).read_text())
    assert ring_of(tmp_path).get(other.id) == other


def test_keys_of_a_lost_directory_are_read_from_the_configuration_home(tmp_path: Path) -> None:
    key = ring_of(tmp_path).current()
    shutil.rmtree(ring_of(tmp_path).ours.directory)
    ring = ring_of(tmp_path)
    assert ring.get(key.id) == key
    assert ring.all() == (key,)
    assert ring.ours.ids() == ()


def test_key_of_the_first_form_is_found_in_both_places(tmp_path: Path) -> None:
    ring = ring_of(tmp_path)
    ring.import_(write_key_text(KNOWN))
    os.unlink(ring.ours.path(KNOWN.id))
    assert ring_of(tmp_path).current() == KNOWN
    assert ring_of(tmp_path, "another").get(KNOWN.id) is None


def test_subkeys_of_two_repositories_differ_with_the_same_secret() -> None:
    one, other = (Key.of(bytes(range(64)) + bytes([number]) * 16) for number in (1, 2))
    assert len({one.id, other.id, KNOWN.id}) == 3
    assert len({key.mac(b"data") for key in (one, other, KNOWN)}) == 3
    assert len({key.derive(b"seal") for key in (one, other, KNOWN)}) == 3
    assert len(one.id) == 32


def test_import_refuses_another_key_with_a_known_id(ring: KeyRing, monkeypatch: pytest.MonkeyPatch) -> None:
    own = ring.current()
    # It takes 2**48 attempts to find such a key of the first form; here the hash is shortened instead.
    monkeypatch.setattr(keys, "compute_hmac", lambda *_: bytes.fromhex(own.id) * 2)
    with pytest.raises(Refused, match="another key has the id"):
        ring.import_(write_key_text(Key.of(bytes(80))))
    monkeypatch.undo()
    assert ring.get(own.id) == own
    for place in ring.places:
        assert Path(place.path(own.id)).read_bytes() == format_key_file(own)


def test_rebuilt_container_keeps_its_key_and_restores_the_copy(tmp_path: Path) -> None:
    key = ring_of(tmp_path, home="old home").current()
    rebuilt = ring_of(tmp_path, home="new home")
    assert rebuilt.current() == key
    assert rebuilt.backup.ids() == (key.id,)


@pytest.mark.parametrize(
    "damage", [b"", b"envhist-key 1\nzz\n", format_key_file(KNOWN), b"envhist-key 1\n00\n"]
)
def test_damaged_copy_is_restored_from_the_other_with_a_warning(tmp_path: Path, damage: bytes) -> None:
    key = ring_of(tmp_path).current()
    path = Path(ring_of(tmp_path).ours.path(key.id))
    path.write_bytes(damage)
    ring = ring_of(tmp_path)
    assert ring.current() == key
    assert any("is damaged" in warning for warning in ring.warnings)
    assert path.read_bytes() == format_key_file(key)


def test_key_damaged_in_both_places_is_reported_as_damaged(
    tmp_path: Path,
) -> None:
    key = ring_of(tmp_path).current()
    for place in ring_of(tmp_path).places:
        Path(place.path(key.id)).write_bytes(b"envhist-key 1\nzz\n")
    assert ring_of(tmp_path).get(key.id) is None
    with pytest.raises(SealingError, match=rf"the key file '.*{key.id}' is damaged") as caught:
        ring_of(tmp_path).to_open(key.id)
    assert caught.value.hint == "import the key from a backup: git envlog key import <file>"
    assert ring_of(tmp_path).to_open(KNOWN.id) is None


def test_lost_key_is_replaced_with_a_warning(tmp_path: Path) -> None:
    ring = ring_of(tmp_path)
    lost = ring.current()
    for place in ring.places:
        os.unlink(place.path(lost.id))
    later = ring_of(tmp_path)
    assert later.current() != lost
    assert any(lost.id in warning and "lost" in warning for warning in later.warnings)
    assert later.get(lost.id) is None


def test_key_that_a_killed_process_stored_is_used(tmp_path: Path) -> None:
    ring = ring_of(tmp_path)
    key = ring.current()
    os.unlink(ring.ours.path("current"))
    later = ring_of(tmp_path)
    assert later.current() == key
    assert later.current_id() == key.id


def test_stale_temporary_files_are_swept_and_recent_ones_kept(tmp_path: Path) -> None:
    ring = ring_of(tmp_path)
    ring.current()
    old, young = Path(ring.ours.path(".new-1-old")), Path(ring.ours.path(".new-2-young"))
    old.write_bytes(b"secret")
    young.write_bytes(b"secret")
    long_ago = time.time() - 7200
    os.utime(old, (long_ago, long_ago))
    ring.import_(write_key_text(KNOWN))
    assert not old.exists()
    assert young.exists()


def test_key_file_readable_by_others_is_made_private_with_a_warning(tmp_path: Path) -> None:
    key = ring_of(tmp_path).current()
    ring = ring_of(tmp_path)
    path = ring.ours.path(key.id)
    os.chmod(path, 0o644)
    assert ring.current() == key
    assert mode_of(path) == 0o600
    assert ring.warnings == [f"the key file '{path}' was readable by other users: fixed"]


def test_directory_of_keys_that_others_can_enter_is_made_private_with_a_warning(tmp_path: Path) -> None:
    key = ring_of(tmp_path).current()
    ring = ring_of(tmp_path)
    for place in ring.places:
        os.chmod(place.directory, 0o755)
    assert ring.current() == key
    assert [mode_of(place.directory) for place in ring.places] == [0o700, 0o700]
    assert ring.warnings == [
        f"the directory of keys '{place.directory}' was readable by other users: fixed"
        for place in ring.places
    ]


@pytest.mark.parametrize("blocked", ["config", "clone"])
def test_unwritable_place_is_a_warning(tmp_path: Path, blocked: str) -> None:
    (tmp_path / blocked).write_text("not a directory")
    ring = ring_of(tmp_path)
    key = ring.current()
    assert ring.current() == key
    assert any("git envlog key export" in warning for warning in ring.warnings)
    assert [key.id in place.ids() for place in ring.places] == [blocked == "config", blocked == "clone"]


def test_no_key_is_created_without_a_writable_place(tmp_path: Path) -> None:
    for name in ("clone", "config"):
        (tmp_path / name).write_text("not a directory")
    with pytest.raises(SealingError, match="cannot store the key"):
        ring_of(tmp_path).current()


def test_unreadable_key_is_not_replaced_by_a_new_one(tmp_path: Path) -> None:
    ring = ring_of(tmp_path)
    key = ring.current()
    for place in ring.places:
        # A directory in place of the file is unreadable also for root, to whom permission bits do not apply.
        os.unlink(place.path(key.id))
        os.mkdir(place.path(key.id))
    with pytest.raises(SealingError, match="cannot read the key file"):
        ring_of(tmp_path).current()
    assert ring_of(tmp_path).current_id() == key.id


def make_first_key(
    top: str, gate: multiprocessing.synchronize.Barrier, answers: multiprocessing.Queue[str]
) -> None:
    ring = ring_of(Path(top))
    gate.wait()
    answers.put(ring.current().id)


def test_concurrent_first_uses_create_one_key(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for attempt in range(5 if FULL else 2):
        top = tmp_path / str(attempt)
        gate, answers = context.Barrier(8), context.Queue()
        processes = [context.Process(target=make_first_key, args=(str(top), gate, answers)) for _ in range(8)]
        for process in processes:
            process.start()
        ids = {answers.get(timeout=30) for _ in processes}
        for process in processes:
            process.join()
        assert len(ids) == 1
        ring = ring_of(top)
        assert ring.ours.ids() == ring.backup.ids() == tuple(ids)
        assert not [name for name in os.listdir(ring.ours.directory) if name.startswith(".new")]


@given(st.binary(min_size=64, max_size=64) | st.binary(min_size=80, max_size=80))
def test_exported_key_is_read_with_any_line_breaks(secret: bytes) -> None:
    key = Key.of(secret)
    text = write_key_text(key)
    assert "\n" not in text
    assert text.startswith(f"envhist-key-{key.form}-{key.id}-")
    wrapped = "\n  ".join(text[i : i + 20] for i in range(0, len(text), 20))
    assert read_key_text(text) == read_key_text(f" {wrapped.upper()}\r\n") == key


def test_every_mistyped_letter_is_found() -> None:
    text = write_key_text(KNOWN)
    for place in range(len(text)):
        for other in {"a", "7", "-", "é", ""} - {text[place]}:
            with pytest.raises(SealingError):
                read_key_text(text[:place] + other + text[place + 1 :])


@pytest.mark.parametrize(
    "text", ["", "hello", "envhist-key-1-", "envhist-key-2-79e00dedc97e-aa", "envhist-key 1\nzz"]
)
def test_other_text_is_refused_as_key(text: str) -> None:
    with pytest.raises(SealingError):
        read_key_text(text)


def test_mistyped_key_is_reported_as_mistyped() -> None:
    with pytest.raises(SealingError, match="mistyped or incomplete"):
        read_key_text(write_key_text(KNOWN)[:-3])


def test_key_file_can_be_imported(ring: KeyRing) -> None:
    assert ring.import_(format_key_file(KNOWN).decode()) == KNOWN


def test_imported_key_seals_on_another_machine(tmp_path: Path) -> None:
    here = ring_of(tmp_path, "here", "home here")
    text = here.export(here.current().id)
    there = ring_of(tmp_path, "there", "home there")
    assert there.import_(text) == here.current()
    assert there.current() == here.current()
    assert ring_of(tmp_path, "there", "home there").current() == here.current()
    assert there.made is None


def test_imported_key_does_not_replace_the_key_in_use(ring: KeyRing) -> None:
    own = ring.current()
    assert ring.import_(write_key_text(KNOWN)) == KNOWN
    assert ring.current() == own
    assert set(ring.all()) == {own, KNOWN}
    ring.use(KNOWN)
    assert ring.current() == KNOWN
    assert ring.current_id() == KNOWN.id


def test_unknown_key_cannot_be_exported(ring: KeyRing) -> None:
    with pytest.raises(SealingError, match="no key '0123456789ab'"):
        ring.export("0123456789ab")


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "current", "", "16B62D9AF6FC", "0123456789ab\n", "\ud800"]
)
def test_hostile_key_id_never_leaves_the_key_directories(ring: KeyRing, name: str) -> None:
    ring.current()
    assert ring.get(name) is None


@given(key=st.binary(max_size=300), data=st.binary(max_size=300), name=st.sampled_from(["sha256", "sha512"]))
def test_keyed_equals_the_standard_hmac(key: bytes, data: bytes, name: str) -> None:
    assert compute_hmac(key, data, name) == hmac.digest(key, data, name)


def test_constant_time_equal_compares_text() -> None:
    assert constant_time_equal("a1b2", "a1b2")
    assert not constant_time_equal("a1b2", "a1b3")
    assert not constant_time_equal("a1b2", "a1b2c3")
    assert not constant_time_equal("a1b2", "\u00e91b2")
    assert not constant_time_equal("a1b2", "\udce91b2")


def test_signature_check_does_not_load_openssl() -> None:
    told = (
        "import sys; from git_envhist.secrets import keys; from git_envhist.snapshots import message; "
        "print('_hashlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("content", [b"\xff\0junk\n{[", b"\n\n", b"not an id\n"])
def test_damaged_list_of_origins_is_kept_and_written_again(repo: Repo, content: bytes) -> None:
    history = EnvHistory.open(repo.path, workers="here")
    repo.write(".env", b"API_KEY=one\n")
    history.capture("one")
    origins = repo.path / ".git/envhist/repository"
    before = origins.read_bytes()
    origins.write_bytes(content)
    repo.write(".env", b"API_KEY=two\n")
    again = EnvHistory.open(repo.path, workers="here")
    assert again.capture("two").snapshot is not None
    assert [one.trusted for one in map(again.judge, again.log())] == [True, True]
    assert again.read_file("@~1", ".env") == b"API_KEY=one\n"
    assert origins.read_bytes() == before
    assert origins.with_name("repository.damaged").read_bytes() == content
