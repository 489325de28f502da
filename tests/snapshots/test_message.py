from __future__ import annotations

import contextlib
import time
from dataclasses import fields, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from git_envhist.errors import Damaged, Refused
from git_envhist.model import Actor, ChangeCount, IntentSource, RestoreRole, Snapshot, Trigger
from git_envhist.snapshots.message import (
    TRAILERS,
    MessageFields,
    NewerFormat,
    mac_input,
    read_message,
    shown_intent,
    split_mac,
    with_mac,
    write_message,
)
from tests.git.loose import DRAFT

MAC = "ab" * 32
TEXT = st.binary(max_size=60).map(lambda data: data.decode("utf-8", "surrogateescape"))
HASHES = st.none() | st.sampled_from(["a" * 40, "0123456789abcdef" * 4])
COUNTS = st.integers(0, 10**9)
ACTORS = st.builds(Actor, TEXT, TEXT, st.none() | TEXT, st.none() | TEXT, st.none() | TEXT)
DRAFTS = st.builds(
    MessageFields,
    intent=st.binary(min_size=1).map(lambda data: data.replace(b"\0", b"-")),
    intent_source=st.sampled_from([IntentSource.GIVEN, IntentSource.AGENT, IntentSource.COMMIT]),
    timeline=TEXT,
    trigger=st.sampled_from(Trigger),
    actor=ACTORS,
    head=HASHES,
    branch=st.none() | TEXT,
    missing_count=COUNTS,
    content=TEXT,
    changed=st.builds(ChangeCount, COUNTS, COUNTS, COUNTS),
    story=TEXT,
    external_id=st.none() | TEXT,
    meta=st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple),
    attachments=st.lists(TEXT, max_size=3).map(tuple),
    restored_from=HASHES,
    restore=st.none() | st.sampled_from(RestoreRole),
    forked_from=HASHES,
    was=HASHES,
    key=st.none() | TEXT,
)


@given(DRAFTS)
@example(replace(DRAFT, intent=b"\n\n leading, and trailing \n\n\n"))
@example(replace(DRAFT, intent=b"(no intent)"))
@example(replace(DRAFT, intent=b"a\n\nEnv-Format: 1\nEnv-Timeline: other/one\nEnv-Mac: " + MAC.encode()))
@example(replace(DRAFT, story="a\nEnv-Mac: x\n\nEnv-Format: 9", meta=(("a=b", "c=d\r\n"), ("a=b", "%0a"))))
def test_message_fields_survive_a_round_trip(draft: MessageFields) -> None:
    unsigned = write_message(draft)
    assert read_message(unsigned).draft == draft
    read = read_message(with_mac(unsigned, MAC))
    assert (read.draft, read.mac, read.others) == (draft, MAC, ())
    assert read.complete == (draft.missing_count == 0)


@given(st.binary())
def test_any_bytes_are_a_message_or_damage(raw: bytes) -> None:
    for message in (raw, b"x\n\nEnv-Format: 1\n" + raw, write_message(DRAFT) + raw):
        with contextlib.suppress(Damaged):
            read_message(message)


def test_intent_is_first_and_mac_is_last() -> None:
    text = with_mac(write_message(DRAFT), MAC)
    assert text.startswith(b"before auth refactor\n\nEnv-Format: 1\nEnv-Timeline: laptop/app-123456\n")
    assert text.endswith(b"\nEnv-Mac: " + MAC.encode() + b"\n")


def test_missing_intent_is_a_placeholder_that_reads_as_empty() -> None:
    message = write_message(replace(DRAFT, intent=b""))
    assert message.startswith(b"(no intent)\n\n")
    read = read_message(message)
    assert (read.draft.intent, read.draft.intent_source) == (b"", IntentSource.NONE)


def test_nul_in_an_intent_is_replaced_by_its_symbol() -> None:
    assert read_message(write_message(replace(DRAFT, intent=b"a\0b"))).draft.intent == "a\u2400b".encode()


def test_mac_covers_everything_except_itself() -> None:
    unsigned = write_message(DRAFT)
    assert split_mac(with_mac(unsigned, MAC)) == (unsigned, MAC)
    assert split_mac(unsigned) == (unsigned, None)
    assert mac_input("t" * 40, b"A <a@b> 1 +0000", unsigned) == (
        b"tree " + b"t" * 40 + b"\nauthor A <a@b> 1 +0000\n\n" + unsigned
    )


def test_last_mac_covers_an_earlier_one() -> None:
    twice = with_mac(with_mac(write_message(DRAFT), "cd" * 32), MAC)
    assert split_mac(twice) == (with_mac(write_message(DRAFT), "cd" * 32), MAC)


@pytest.mark.parametrize("raw", [b"", b"fix the build", b"a\n\nSigned-off-by: x <x@y>\n", b"Env-Format: 1\n"])
def test_other_commit_is_not_a_snapshot(raw: bytes) -> None:
    with pytest.raises(Damaged, match="not a snapshot"):
        read_message(raw)


def test_newer_format_is_refused_with_a_hint() -> None:
    with pytest.raises(NewerFormat, match="format '2'") as refused:
        read_message(b"x\n\nEnv-Format: 2\nEnv-Wholly-New: 1\n")
    assert refused.value.hint is not None
    assert "upgrade" in refused.value.hint


def test_unknown_trailers_are_preserved() -> None:
    message = write_message(DRAFT) + b"Reviewed-by: B <b@c>\nno trailer at all\nEnv-Weather: mild\n"
    read = read_message(message)
    assert read.draft == DRAFT
    assert read.others == (("Reviewed-by", "B <b@c>"), ("Env-Weather", "mild"))


def test_unknown_trigger_and_source_are_read_as_defaults() -> None:
    message = write_message(DRAFT).replace(b"Trigger: manual", b"Trigger: moon").replace(b"given", b"guessed")
    draft = read_message(message).draft
    assert (draft.trigger, draft.intent_source) == (Trigger.API, IntentSource.GIVEN)


@pytest.mark.parametrize(
    "trailer",
    [
        b"Env-Was: --upload-pack=evil",
        b"Env-Head: HEAD",
        b"Env-Missing: -1",
        b"Env-Missing: " + b"9" * 5000,
        "Env-Missing: ٣".encode(),
        b"Env-Changed: many",
        b"Env-Format: 0",
        b"Env-Format: one",
        b"Env-Actor: nobody",
    ],
)
def test_malformed_trailer_value_is_damage(trailer: bytes) -> None:
    with pytest.raises(Damaged, match="trailer"):
        read_message(write_message(DRAFT) + trailer + b"\n")


def test_huge_intent_is_read_and_huge_trailers_are_refused_quickly() -> None:
    begun = time.monotonic()
    intent = b"long \n\n" * 1_500_000
    assert read_message(write_message(replace(DRAFT, intent=intent))).draft.intent == intent
    with pytest.raises(Damaged, match="larger than any"):
        read_message(write_message(DRAFT) + b"Env-Meta: a=b\n" * 100_000)
    with pytest.raises(Damaged, match="larger than any"):
        read_message(write_message(DRAFT) + b"Env-Story: " + b"x" * (5 << 20))
    assert time.monotonic() - begun < 5


def test_message_beyond_a_limit_is_not_written() -> None:
    with pytest.raises(Refused, match="too long"):
        write_message(replace(DRAFT, meta=(("a", "b"),) * 30_000))
    with pytest.raises(Refused, match="longer than"):
        write_message(replace(DRAFT, intent=b"x" * (65 << 20)))
    with pytest.raises(Damaged):
        write_message(replace(DRAFT, was="@~1"))


def test_every_trailer_fills_a_field_of_the_message_and_of_the_snapshot() -> None:
    filled = {trailer.field for trailer in TRAILERS}
    assert filled - {"complete"} == {field.name for field in fields(MessageFields)} - {"intent"}
    assert filled - {"was"} <= {field.name for field in fields(Snapshot)}


def test_optional_fields_have_the_same_default_in_message_and_snapshot() -> None:
    drafts = {field.name: field.default for field in fields(MessageFields)}
    snapshots = {field.name: field.default for field in fields(Snapshot)}
    optional = {trailer.field for trailer in TRAILERS} - {"was", "complete", "timeline", "trigger", "actor"}
    assert {name: drafts[name] for name in optional - {"intent_source"}} == {
        name: snapshots[name] for name in optional - {"intent_source"}
    }


def test_own_words_without_an_intent_are_the_subject_of_the_code_commit() -> None:
    draft = replace(DRAFT, intent=b"snapshot after 31c520f\n\nadd q", intent_source=IntentSource.COMMIT)
    assert shown_intent(draft.intent, draft.intent_source) == b"add q"
    assert shown_intent(b"add q", draft.intent_source) == b"add q"
    assert shown_intent(draft.intent, IntentSource.GIVEN) == draft.intent
