"""The text of a list, a full view and a template."""

from __future__ import annotations

import pytest

from git_envhist.cli.formats import FormatContext, read_format
from git_envhist.cli.output import DEFAULTS, PLAIN, Palette
from git_envhist.cli.terminal import as_bytes, width
from git_envhist.cli.views.log import full_view_lines, id_length, list_lines, oneline
from git_envhist.errors import UsageError
from git_envhist.model import (
    EnvPath,
    IntentSource,
    MissingPath,
    MissingReason,
    Snapshot,
    TextNote,
    Trigger,
    VerdictStatus,
)
from tests.cli.moments import NOW, at, moment, timeline, verdict

LOOK = FormatContext(NOW)


def written(template: str, snapshot: Snapshot, look: FormatContext = LOOK) -> str:
    return read_format(template)(snapshot, look)


def test_list_has_aligned_columns() -> None:
    after_install = "pip: +flask 3.0.1, +6 more · +1,204 ~2 files"
    assert list_lines(timeline(), LOOK, PLAIN, None) == [
        "9ac31f2  10:27  ✓ working version, app healthy  ~3 files · .env.local: API_URL",
        f"b71e02c  10:18  ✗ after package install         {after_install} · npm test: exit 1",
        "0f12dd8  10:11  · before auth refactor          ~2 files",
        "41be770  10:02  ✓ clean clone                   3,811 files in all",
    ]


def test_list_is_cut_to_the_width_of_the_terminal() -> None:
    wide = [*timeline(), moment("aaaaaaa", "日本語" * 30), moment("bbbbbbb", "x" * 500)]
    for columns in (60, 80, 120):
        assert all(width(line) <= columns for line in list_lines(wide, LOOK, PLAIN, columns))


def test_text_is_not_cut_without_a_terminal() -> None:
    (line,) = list_lines([moment("aaaaaaa", "x" * 500)], LOOK, PLAIN, None)
    assert "x" * 500 in line


def test_snapshots_of_other_days_have_their_date_in_the_column() -> None:
    lines = list_lines(
        [moment("aaaaaaa", "new"), moment("bbbbbbb", "old", at=at(9, 5, day=17))], LOOK, PLAIN, None
    )
    assert lines == [
        "aaaaaaa  10:18             · new  nothing changed",
        "bbbbbbb  2026-11-17 09:05  · old  nothing changed",
    ]


def test_line_without_an_intent_has_a_placeholder() -> None:
    assert list_lines([moment("aaaaaaa")], LOOK, PLAIN, None) == [
        "aaaaaaa  10:18  · (no intent)  nothing changed"
    ]


def test_names_follow_the_intent() -> None:
    assert (
        oneline(moment("aaaaaaa", "fix", names=("v1", "best")), LOOK, PLAIN, None) == "aaaaaaa fix (v1, best)"
    )


def test_control_characters_in_an_intent_are_escaped() -> None:
    hostile = moment("aaaaaaa", "\x1b[2J\rgone\u202e", names=("\x07",), story="\x9b31m")
    for line in [
        *list_lines([hostile], LOOK, PLAIN, None),
        *full_view_lines(hostile, LOOK, PLAIN),
        written("%s %B", hostile),
    ]:
        assert not set(line) & set("\x1b\r\u202e\x07\x9b")


def test_short_ids_are_unique() -> None:
    assert id_length(["a" * 40]) == 7
    assert id_length(["aaaaaaaa1" + "0" * 31, "aaaaaaaa2" + "0" * 31]) == 9


def test_colours_do_not_change_widths() -> None:
    (line,) = list_lines([timeline()[0]], LOOK, Palette(DEFAULTS), 80)
    printed = as_bytes(line).decode()
    assert printed.startswith("\x1b[33m9ac31f2\x1b[m  10:27")
    assert "\x1b[32m✓\x1b[m" in printed


def test_partial_snapshot_is_marked_in_the_list() -> None:
    (line,) = list_lines([moment("aaaaaaa", "x", complete=False, missing_count=2)], LOOK, PLAIN, None)
    assert line.endswith("partial: 2 paths missing")


def test_full_view_has_all_fields() -> None:
    failed = verdict(VerdictStatus.FAIL, exit_code=1, duration_ms=812, output_tail="not ok 3\n")
    snapshot = moment(
        "b71e02c", "after package install\n\nflask for the new service", names=("broken",), verdicts=(failed,),
        head="1" * 40, branch="refs/heads/main", complete=False, missing_count=1, meta=(("ticket", "42"),),
        remarks=(TextNote("it was the proxy", at(10, 20)),),
    )  # fmt: skip
    missing = [MissingPath(EnvPath(b"secret\x1b"), MissingReason.UNREADABLE, "Permission denied")]
    assert full_view_lines(snapshot, LOOK, PLAIN, missing) == [
        "snapshot b71e02c000000000000000000000000000000000 (broken)",
        "Timeline:  laptop/app-4f2a91",
        "Actor:     Test User <test@example.com>",
        "Date:      Wed Nov 18 10:18:03 2026 +0000",
        "Trigger:   manual",
        "Head:      1111111111111111111111111111111111111111 (main)",
        "Meta:      ticket=42",
        "Check:     ✗ failed (npm test: exit 1, 0.81 s)",
        "",
        "    after package install",
        "",
        "    flask for the new service",
        "",
        "Summary:   nothing changed",
        "Complete:  no, 1 path missing",
        "    secret\\x1b: unreadable (Permission denied)",
        "",
        "Output of npm test:",
        "    not ok 3",
        "",
        "Note (Wed Nov 18 10:20:03 2026 +0000):",
        "    it was the proxy",
    ]


def test_unsigned_check_result_is_marked() -> None:
    claimed = verdict(VerdictStatus.PASS, claimed_by="origin")
    assert "Check:     ? passed, unsigned (author given as origin) (npm test)" in full_view_lines(
        moment("aaaaaaa", "x", verdicts=(claimed,)), LOOK, PLAIN
    )


def test_check_without_a_result_is_named_before_the_changes() -> None:
    checks = (verdict(VerdictStatus.PASS), verdict(VerdictStatus.ERROR, exit_code=127))
    (line,) = list_lines([moment("aaaaaaa", "x", verdicts=checks)], LOOK, PLAIN, None)
    assert line.endswith("✓ x  the last check gave no result (npm test: exit 127) · nothing changed")
    (line,) = list_lines([moment("aaaaaaa", "x", verdicts=checks[1:])], LOOK, PLAIN, None)
    assert line.endswith("! x  nothing changed · npm test: exit 127")
    (line,) = list_lines([moment("aaaaaaa", "x", verdicts=checks[::-1])], LOOK, PLAIN, None)
    assert line.endswith("✓ x  nothing changed")


def test_unsigned_error_hides_no_signed_result() -> None:
    checks = (verdict(VerdictStatus.PASS), verdict(VerdictStatus.ERROR, exit_code=127, claimed_by="origin"))
    (line,) = list_lines([moment("aaaaaaa", "x", verdicts=checks)], LOOK, PLAIN, None)
    assert line.endswith("✓ x  nothing changed")


def test_check_that_changed_files_is_reported() -> None:
    changing = verdict(VerdictStatus.PASS, tree_before="a", tree_after="b")
    lines = full_view_lines(moment("aaaaaaa", "x", verdicts=(changing,)), LOOK, PLAIN)
    assert any("the check changed files" in line for line in lines)


def test_full_view_of_an_automatic_snapshot_has_the_title_of_the_list() -> None:
    automatic = {"intent_source": IntentSource.COMMIT, "branch": "refs/heads/main"}
    commit = full_view_lines(
        moment("aaaaaaa", "add tags\n\nfor posts", trigger=Trigger.COMMIT, **automatic), LOOK, PLAIN
    )
    assert commit[commit.index("") :][:5] == ["", "    commit: add tags", "", "    for posts", ""]
    checkout = full_view_lines(
        moment("aaaaaaa", "add the shop", trigger=Trigger.CHECKOUT, **automatic), LOOK, PLAIN
    )
    assert checkout[checkout.index("") :][:3] == ["", "    checkout main", ""]


def test_template_of_the_contract_is_rendered() -> None:
    lines = [written("%(time) %s%(, verdict)", snapshot) for snapshot in timeline()]
    assert lines[1] == "10:18 after package install, verify failing"
    assert lines[2] == "10:11 before auth refactor"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("%H", "b71e02c" + "0" * 33),
        ("%h %s", "b71e02c after package install"),
        ("tformat:%h", "b71e02c"),
        ("oneline", "b71e02c after package install"),
        ("%an <%ae>", "Test User <test@example.com>"),
        (
            "%ad|%ar|%aI|%at",
            "Wed Nov 18 10:18:03 2026 +0000|12 minutes ago|2026-11-18T10:18:03+00:00|1794997083",
        ),
        ("%n%x00%x09%%", "\n\0\t%"),
        ("%(story)", "pip: +flask 3.0.1, +6 more · +1,204 ~2 files · npm test: exit 1"),
        ("%(name)|%(trigger)|%(complete)", "|manual|complete"),
        ("[%( is called name)]", "[]"),
        ("%b", ""),
    ],
)
def test_each_placeholder_is_replaced(template: str, text: str) -> None:
    assert written(template, timeline()[1]) == text


def test_body_is_the_text_after_the_subject() -> None:
    assert written("%s|%b", moment("aaaaaaa", "one\ntwo\n\nthree\n\nfour\n")) == "one two|three\n\nfour"


@pytest.mark.parametrize("template", ["%(nonsense)", "%q", "%", "%(", "medium"])
def test_unknown_placeholder_is_a_usage_error(template: str) -> None:
    with pytest.raises(UsageError):
        read_format(template)


def test_date_style_applies_to_list_and_template() -> None:
    look = FormatContext(NOW, "short")
    assert written("%(time) %ad", timeline()[0], look) == "2026-11-18 2026-11-18"
    assert list_lines(timeline()[:1], look, PLAIN, None)[0].startswith("9ac31f2  2026-11-18  ✓")
