"""The page in a real Chromium: drawing, clicks, keys, search and printing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from git_envhist.html import document
from tests.html.conftest import MOMENTS, Sight, violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.full

WIDTHS = (380, 820, 1360)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("moments", [1, MOMENTS, 1000])
@pytest.mark.parametrize("width", WIDTHS)
def test_page_is_drawn_and_accessible(
    browser: Browser, pages: dict[int, Path], axe: str, width: int, moments: int, scheme: str
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    seen = Sight(context.new_page())
    seen.page.goto(pages[moments].as_uri())
    assert seen.page.locator(".row").count() == moments
    assert seen.page.locator("#drawn svg path.size").count() == 1
    # The page does not scroll horizontally.
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    # axe-core takes half a minute for a thousand rows, so that page is checked once, and only its first 40 rows.
    if moments < 1000 or width == WIDTHS[-1]:
        seen.page.evaluate(
            "document.querySelectorAll('.row').forEach((row, place) => { if (place > 40) row.remove(); })"
        )
        assert violations(seen.page, axe) == []
    context.close()
    assert seen.wrong == []


def test_chosen_snapshot_shows_its_details(sight: Sight, values: list[dict[str, object]]) -> None:
    page = sight.page
    page.locator(".row button", has_text="npm ci").click()
    card = page.locator("#card")
    assert card.locator("h2").inner_text() == "npm ci"
    assert re.search(r"\+ esbuild 0\.25\.9", card.inner_text())
    assert "node_modules/esbuild/" in card.locator(".map div").first.get_attribute("title") or ""  # type: ignore[operator]
    story = next(one for one in values if one["intent"] == "npm ci")
    assert f"git envrestore {str(story['id'])[:10]}" in card.inner_text()
    assert page.url.endswith(f"#{str(story['id'])[:12]}")


def test_title_is_shown_and_found_by_search(
    browser: Browser, values: list[dict[str, object]], tmp_path: Path
) -> None:
    line = "restore of 0123abc (2 paths)"
    place = tmp_path / "page.html"
    moments = [{**values[0], "title": line, "intent": "restored 0123abc"}, *values[1:4]]
    place.write_text(document("shop", "2026-11-18T10:27:00+00:00", moments), encoding="utf-8")
    page = browser.new_page()
    page.goto(place.as_uri())
    assert page.locator("#card h2").inner_text() == line
    page.locator("#query").fill("2 paths")
    assert page.locator(".row:visible .why").all_inner_texts() == [line]
    page.close()


def test_check_without_a_result_is_shown_next_to_the_earlier_result(
    browser: Browser, values: list[dict[str, object]], tmp_path: Path
) -> None:
    passed = next(one["verify"] for one in values if one["verify"])
    assert isinstance(passed, dict)
    failed = {**passed, "status": "error", "exit_code": 127, "command": "no-such-check"}
    moment = {**values[0], "verify": passed, "verdicts": [passed, failed]}
    place = tmp_path / "page.html"
    place.write_text(document("shop", str(values[0]["at"]), [moment, *values[1:3]]), "utf-8")
    page = browser.new_page()
    page.goto(place.as_uri())
    row = page.locator(".row").first
    assert row.locator(".told").inner_text().startswith("the last check gave no result · ")
    assert row.locator(".v").get_attribute("class") == f"v v-{passed['status']}"
    assert re.search(r"Last check\s+! gave no result\s+no-such-check", page.locator("#card dl").inner_text())
    page.close()


def test_link_opens_its_snapshot(
    browser: Browser, pages: dict[int, Path], values: list[dict[str, object]]
) -> None:
    wanted = values[17]
    page = browser.new_page()
    page.goto(f"{pages[MOMENTS].as_uri()}#{str(wanted['id'])[:10]}")
    assert page.locator("#card h2").inner_text() == wanted["intent"]
    page.close()


def test_change_lists_the_snapshots_that_changed_it_as_links(
    browser: Browser, values: list[dict[str, object]], axe: str, tmp_path: Path
) -> None:
    call = {
        "tool": "Bash",
        "command": "<b>npm</b> ci",
        "paths": [],
        "agent": "claude-code",
        "began": "x",
        "failed": True,
    }
    place = tmp_path / "page.html"
    place.write_text(
        document("shop", str(values[0]["at"]), [{**one, "calls": [call]} for one in values]), "utf-8"
    )
    seen = Sight(browser.new_page())
    page = seen.page
    page.goto(place.as_uri())
    page.locator(".row button", has_text="npm ci").first.click()
    card = page.locator("#card")
    assert "Bash <b>npm</b> ci, by claude-code, failed" in card.inner_text()
    card.locator("button.why-of", has_text="esbuild 0.25.9").first.click()
    why = page.locator("#why")
    assert why.locator("h3").inner_text().lower() == "why esbuild"
    assert "ran in this step: Bash <b>npm</b> ci, by claude-code, failed" in why.inner_text()
    assert violations(page, axe) == []
    first = why.locator("li button").last
    wanted = first.inner_text()
    first.click()
    assert page.url.partition("#")[2].startswith(wanted)
    assert seen.wrong == []
    page.close()


def test_search_shows_only_matching_snapshots(sight: Sight, values: list[dict[str, object]]) -> None:
    sight.page.keyboard.press("/")
    sight.page.keyboard.type("react-router")
    fitting = [one for one in values if "react-router" in json.dumps(one)]
    assert sight.rows() == len(fitting)
    assert sight.page.locator("#found").inner_text() == f"{len(fitting)} of {MOMENTS} snapshots"
    sight.page.keyboard.type(" no such word")
    assert sight.rows() == 0
    assert sight.page.locator("#nothing").is_visible()
    sight.page.keyboard.press("Escape")
    assert sight.rows() == MOMENTS


def test_check_results_filter_the_list(sight: Sight, values: list[dict[str, object]]) -> None:
    failed = [one for one in values if (one["verify"] or {}).get("status") == "fail"]  # type: ignore[attr-defined]
    chip = sight.page.locator("#chips button", has_text="failed")
    chip.click()
    assert sight.rows() == len(failed)
    assert chip.get_attribute("aria-pressed") == "true"
    chip.click()
    assert sight.rows() == MOMENTS


def test_keys_move_through_the_list(sight: Sight, values: list[dict[str, object]]) -> None:
    press = sight.page.keyboard.press
    intents = [str(one["intent"]) for one in values]
    for key, wanted in (
        ("j", 1),
        ("ArrowDown", 2),
        ("k", 1),
        ("ArrowUp", 0),
        ("ArrowUp", 0),
        ("End", MOMENTS - 1),
        ("Home", 0),
    ):
        press(key)
        assert sight.chosen == intents[wanted]
    press("b")
    statuses = [(one["verify"] or {}).get("status") for one in values]  # type: ignore[attr-defined]
    assert sight.chosen == intents[statuses.index("fail", 1)]
    # The chosen row has the focus, and it is the only row in the tab order.
    assert sight.page.evaluate("document.activeElement.getAttribute('aria-current')") == "true"
    assert sight.page.locator(".row button[tabindex='0']").count() == 1
    press("?")
    assert sight.page.locator("#help").is_visible()
    press("Escape")
    assert not sight.page.locator("#help").is_visible()


def test_click_on_a_chart_chooses_the_snapshot(sight: Sight, values: list[dict[str, object]]) -> None:
    drawn = sight.page.locator("#drawn")
    box = drawn.bounding_box()
    assert box is not None
    sight.page.mouse.move(box["x"] + 64, box["y"] + 40)
    assert str(values[-1]["intent"]) in sight.page.locator("#readout").inner_text()
    sight.page.mouse.click(box["x"] + 64, box["y"] + 40)
    assert sight.chosen == values[-1]["intent"]
    sight.page.get_by_role("button", name="by time").click()
    assert sight.page.locator("#drawn svg path.size").count() == 1


def test_theme_is_remembered(sight: Sight) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    before = sight.page.evaluate(ground)
    sight.page.keyboard.press("t")
    dark = sight.page.evaluate(ground)
    assert dark != before
    sight.page.reload()
    assert sight.page.evaluate(ground) == dark


def test_print_contains_every_snapshot(sight: Sight, values: list[dict[str, object]], tmp_path: Path) -> None:
    sight.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    sight.page.emulate_media(media="print", color_scheme="dark")
    # The print is black on white, also with a dark color scheme.
    ink = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    assert sight.page.evaluate(ink) == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]
    told = sight.page.locator("#print").inner_text()
    assert all(str(one["intent"]) in told for one in values)
    assert not sight.page.locator(".columns").is_visible()
    assert len(sight.page.pdf()) > 10_000


@pytest.mark.parametrize("width", WIDTHS)
def test_chosen_row_is_visible(
    browser: Browser, pages: dict[int, Path], values: list[dict[str, object]], width: int
) -> None:
    """In narrow windows the details are below their row; the sticky day heading covers neither."""
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(pages[MOMENTS].as_uri())
    for place in (25, 24, 3):
        page.locator(".row > button").nth(place).click()
        page.keyboard.press("j")
        page.keyboard.press("k")
        assert page.locator("#card h2").inner_text() == values[place]["intent"]
        top = """(which) => { const box = document.querySelector(which).getBoundingClientRect();
            return document.elementFromPoint(box.left + 20, box.top + 3).closest(which) && box.top; }"""
        row, card = page.evaluate(top, ".row > [aria-current=true]"), page.evaluate(top, "#card")
        assert row is not None
        assert card is not None
        assert 0 <= row < 800
        assert 0 <= card < 800
    page.close()


def test_text_in_other_scripts_is_legible(
    browser: Browser, values: list[dict[str, object]], tmp_path: Path
) -> None:
    """Right-to-left lines are drawn right to left; a long text has a short heading and the full text below it."""
    arabic, long = "إصلاح سلة المشتريات " * 12, "we tried one thing, then another; " * 40
    moments = [
        {**values[number], "intent": intent, "title": intent.split("\n")[0], "id": f"{number:040x}"}
        for number, intent in enumerate((arabic, long, "one line\n\nand more", ""))
    ]
    place = tmp_path / "words.html"
    place.write_text(document("shop", str(values[0]["at"]), moments), "utf-8")
    seen = Sight(browser.new_page(viewport={"width": 1280, "height": 800}))
    seen.page.goto(place.as_uri())
    whys = seen.page.locator(".row .why")
    assert [whys.nth(at).evaluate("one => getComputedStyle(one).direction") for at in (0, 1)] == [
        "rtl",
        "ltr",
    ]
    heading, told = seen.page.locator("#card h2"), seen.page.locator("#card .words")
    seen.page.keyboard.press("j")
    assert len(heading.inner_text()) <= 161
    assert not told.is_visible()
    seen.page.locator("#card summary", has_text="Full text").click()
    assert told.inner_text().strip() == long.strip()
    seen.page.keyboard.press("j")
    assert (heading.inner_text(), told.inner_text()) == ("one line", "and more")
    seen.page.keyboard.press("j")
    assert heading.inner_text() == "(no intent)"
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 1280
    seen.page.close()
    assert seen.wrong == []


def test_restore_links_to_its_snapshot_and_timelines_have_own_charts(
    browser: Browser, values: list[dict[str, object]], tmp_path: Path
) -> None:
    lines = ("vm/one-000000", "vm/two-000000")
    moments = [
        {**one, "timeline": lines[number % 2], "restored_from": values[4]["id"] if number == 0 else None}
        for number, one in enumerate(values[:6])
    ]
    place = tmp_path / "two.html"
    place.write_text(document("shop", str(values[0]["at"]), moments), "utf-8")
    seen = Sight(browser.new_page(viewport={"width": 1280, "height": 800}))
    seen.page.goto(place.as_uri())
    assert "2 timelines" in seen.page.locator("#span").inner_text()
    assert seen.page.locator("#drawn rect").count() == 3
    assert lines[0] in seen.page.locator("#card dl").inner_text()
    seen.page.locator("#card dd button", has_text=str(values[4]["id"])[:7]).click()
    assert seen.page.locator("#card h2").inner_text() == values[4]["intent"]
    seen.page.keyboard.press("j")
    assert lines[1] in seen.page.locator("#card dl").inner_text()
    box = seen.page.locator("#drawn").bounding_box()
    assert box is not None
    seen.page.mouse.click(box["x"] + box["width"] - 15, box["y"] + 40)
    assert seen.page.locator("#card h2").inner_text() == values[1]["intent"]
    seen.page.close()
    assert seen.wrong == []


def test_hostile_text_is_shown_and_not_run(
    browser: Browser, values: list[dict[str, object]], tmp_path: Path
) -> None:
    hostile = "<img src=x onerror='window.ran=1'><script>window.ran=1</script>\u202e"
    moment = {
        **values[0], "intent": hostile, "title": hostile, "names": [hostile], "timeline": hostile, "branch": hostile,
        "story": [{"probe": hostile, "key": f"{hostile}/x", "before": None, "after": hostile}],
    }  # fmt: skip
    moment["extent"] = {**values[0]["extent"], "packages": {"constructor": 3}}  # type: ignore[dict-item]
    moment["extent"]["areas"] = [  # type: ignore[index]
        {"path": hostile, "added": 1, "modified": 0, "removed": 0, "bytes_before": 0, "bytes_after": 9}
    ]
    place = tmp_path / "hostile.html"
    place.write_text(document(hostile, str(values[0]["at"]), [moment, values[1]]), "utf-8")
    seen = Sight(browser.new_page())
    seen.page.goto(place.as_uri())
    seen.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert seen.page.locator("#card h2").inner_text() == hostile.replace("\u202e", "\\u202e")
    assert seen.page.evaluate("window.ran") is None
    assert seen.page.locator("img").count() == 0
    seen.page.close()
    assert seen.wrong == []


def test_page_of_a_thousand_snapshots_responds_quickly(browser: Browser, pages: dict[int, Path]) -> None:
    """Counts changed elements instead of time: a key press may change only a few, in a page of any size."""
    assert pages[1000].stat().st_size < 5_000_000
    seen = Sight(browser.new_page(viewport={"width": 1280, "height": 860}))
    seen.page.goto(pages[1000].as_uri())
    touched = """() => new Promise((done) => {
        let count = 0;
        const watch = new MutationObserver((found) => { count += found.length; });
        watch.observe(document.getElementById('rows'), { subtree: true, attributes: true, childList: true });
        document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'j', bubbles: true }));
        setTimeout(() => { watch.disconnect(); done(count); }, 0);
    })"""
    seen.page.keyboard.press("Home")
    assert seen.page.evaluate(touched) < 20
    seen.page.close()
    assert seen.wrong == []


def test_changes_use_the_full_width_of_a_phone(sight: Sight) -> None:
    page = sight.page
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator(".row button", has_text="npm ci").click()
    cells = page.locator("#card table.story td.changes")
    assert cells.count() >= 2
    widths = [box["width"] for one in cells.all() if (box := one.bounding_box())]
    assert min(widths) > 300
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_count_names_folded_snapshots(
    browser: Browser, values: list[dict[str, object]], tmp_path: Path
) -> None:
    newest, folded, *rest = values
    made = [newest, {**folded, "folded_into": newest["id"]}, *rest]
    place = tmp_path / "page.html"
    place.write_text(document("shop", str(newest["at"]), made), "utf-8")
    page = browser.new_page()
    page.goto(place.as_uri())
    assert page.locator("#found").inner_text() == f"{MOMENTS} snapshots (1 folded)"
    page.locator("#query").fill(str(folded["id"])[:12])
    assert page.locator("#found").inner_text() == f"1 of {MOMENTS} snapshots"
    page.close()
