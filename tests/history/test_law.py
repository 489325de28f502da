"""The law: each line's id, printed time, name and `:/its intent` lead to that line, or list the candidates.

The generated timelines are unusual: intents and names that look like revisions, ranges, ids and times, names that git
knows as branches, ids with a common beginning, snapshots of one minute and of the hour that the clock shows twice.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import example, given, settings
from hypothesis import strategies as st

from git_envhist.errors import AmbiguousRevision
from git_envhist.history.resolve import resolve, resolve_range
from git_envhist.history.revisions import RESERVED
from git_envhist.history.timeline import Catalog, Position, Timeline, subject
from git_envhist.history.times import printed_time
from git_envhist.history.titles import title
from git_envhist.lazy import replace
from git_envhist.model import IntentSource, RestoreRole, Snapshot, Trigger
from tests.history.snapshots import BERLIN, KnownCommits, named, snapshot

CODE = ("c0de" * 10, "beef" * 10)
BEGINNINGS = ("abcdef0", "abcdef0123456789", "deadbeef", "1027", "20261118", "cafe")

odd_words = st.sampled_from(
    [
        "fix", "fix~1", "fix~1~2", "~2", "a..b", "..", "...", "a..", "fix a..b thing", "@{", "@{1}", "@{02:30}",
        "x@{now}", "good", "bad", "good@{1}", "@", "@~1", "now", "HEAD", "HEAD~1", "main", "^x", "x^", ":/fix", ":/",
        "10:27", "2:30", "2026-10-25 02:30", "2 hours ago", "10m", "1d", "yesterday", "deadbeef", "abcdef0", "cafe",
        "1027", "20261118", "laptop/app-1a2b3c", "box/app-ffffff", "größer ’s", "日本", "-n", "--", "%H", "(no intent)",
        "a\nb", "fix\n\nb", " a ", "\n", "\t", "a\u2028b", "a\x0bb", "\udcff", "e\u0301", "x" * 90,
    ]
)  # fmt: skip
any_words = st.text(max_size=6) | st.text(alphabet="ab.~@{}:/^ 12\n", max_size=8)
words = odd_words | odd_words | odd_words | any_words
intents = words | st.lists(odd_words, max_size=3).map(" ".join)
names = words.filter(lambda name: bool(name) and name not in RESERVED)

# Around the hour that occurs twice in Berlin in this night, and the minutes before it.
MIDDLE = datetime(2026, 10, 25, 1, 0, tzinfo=UTC)
seconds = (
    st.integers(-5400, 5400) | st.sampled_from([-1800, -1790, 0, 10, 1800, 1810]) | st.integers(-172_800, 0)
)


@st.composite
def lines(draw: st.DrawFn, timeline: str) -> Snapshot:
    beginning = draw(st.sampled_from(BEGINNINGS) | st.just(""))
    rest = draw(st.integers(0, 16**20 - 1))
    line = snapshot(
        draw(intents),
        MIDDLE + timedelta(seconds=draw(seconds)),
        id=f"{beginning}{rest:040x}"[:10] + f"{rest:030x}",
        head=draw(st.sampled_from([None, *CODE])),
        names=tuple(draw(st.lists(names, max_size=2, unique=True))),
        records=tuple(draw(st.lists(st.builds(named, names, st.integers(0, 9)), max_size=1))),
        timeline=timeline,
    )
    # A hook's snapshot, with the subject of a commit instead of an intent; or one of a restore.
    if draw(st.booleans()):
        return line
    cause = draw(st.sampled_from(Trigger))
    source = draw(st.sampled_from((IntentSource.COMMIT, IntentSource.GIVEN)))
    came = draw(st.sampled_from((None, *RestoreRole)))
    return replace(line, trigger=cause, intent_source=source, restore=came, branch="refs/heads/main")


@st.composite
def timelines(draw: st.DrawFn, name: str) -> Timeline:
    found = draw(st.lists(lines(name), max_size=6, unique_by=lambda line: line.id))
    ids = [one.id for one in found]
    found = [replace(one, restored_from=draw(st.sampled_from(ids))) if one.restore else one for one in found]
    return Timeline.of(name, found)


@st.composite
def worlds(draw: st.DrawFn) -> Catalog:
    known = draw(st.dictionaries(words, st.sampled_from(CODE), max_size=4))
    other = draw(timelines("box/app-ffffff"))
    return Catalog(draw(timelines("laptop/app-1a2b3c")), {other.name: other}, KnownCommits(known))


nows = st.integers(0, 100_000).map(lambda after: (MIDDLE + timedelta(seconds=after)).astimezone(BERLIN))


def by_resolve(text: str, world: Catalog, now: datetime) -> str:
    return resolve(text, world, now).id


def by_range(text: str, world: Catalog, now: datetime) -> str:
    span = resolve_range(text, world, now)
    assert span.start is None
    assert isinstance(span.end, Position)
    return span.end.snapshot.id


def leads_to(
    text: str, line: Snapshot, world: Catalog, now: datetime, look: Callable[[str, Catalog, datetime], str]
) -> bool:
    try:
        return look(text, world, now) == line.id
    except AmbiguousRevision as failure:
        beginnings = [candidate.split(" ", 1)[0] for candidate in failure.candidates]
        assert len(set(beginnings)) > 1
        return any(line.id.startswith(beginning) for beginning in beginnings)


def spellings(line: Snapshot, world: Catalog, now: datetime) -> list[str]:
    time, printed = printed_time(line.at, now), title(line)
    words = (f":/{subject(line.intent)}", f":/{printed}")
    return [line.id[:7], line.id, time, f"@{{{time}}}", *words, *line.names]


TWICE = Timeline.of(
    "laptop/app-1a2b3c",
    [snapshot("b", MIDDLE + timedelta(minutes=-15)), snapshot("a", MIDDLE + timedelta(minutes=-30))],
)


@settings(max_examples=400)
@example(world=Catalog(TWICE, {}, KnownCommits()), now=(MIDDLE + timedelta(minutes=50)).astimezone(BERLIN))
@given(world=worlds(), now=nows)
def test_every_printed_line_resolves_to_itself_or_lists_itself(world: Catalog, now: datetime) -> None:
    for line in world.own.snapshots:
        for text in spellings(line, world, now):
            for look in (by_resolve, by_range):
                assert leads_to(text, line, world, now, look), (text, look)


@given(world=worlds(), now=nows)
def test_every_line_of_another_timeline_is_found_by_its_id(world: Catalog, now: datetime) -> None:
    for line in world.others["box/app-ffffff"].snapshots:
        if all(line.id != own.id for own in world.own.snapshots):
            assert leads_to(line.id[:7], line, world, now, by_resolve)


@given(world=worlds(), now=nows)
def test_name_is_printed_in_one_line_only(world: Catalog, now: datetime) -> None:
    shown = [name for line in world.own.snapshots for name in line.names]
    assert len(shown) == len(set(shown))


@given(world=worlds(), now=nows, zone=st.sampled_from(["Asia/Kolkata", "America/Sao_Paulo", "UTC"]))
def test_printed_lines_resolve_in_every_time_zone(world: Catalog, now: datetime, zone: str) -> None:
    there = now.astimezone(ZoneInfo(zone))
    for line in world.own.snapshots:
        assert leads_to(printed_time(line.at, there), line, world, there, by_resolve)
