"""Adding our hooks to the text of an agent's settings and removing them: all other bytes remain."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from git_envhist.integrations.agents import jsonc
from git_envhist.integrations.agents.install import (
    CLAUDE_CODE,
    CODEX,
    COPILOT,
    CURSOR,
    GEMINI,
    AgentSettingsForm,
    UnknownSettingsForm,
    has_hooks,
    is_ours,
    with_hooks,
    with_table,
    without_hooks,
    without_table,
)

SHAPES = (CLAUDE_CODE, CODEX, GEMINI, CURSOR, COPILOT)


def commands(shape: AgentSettingsForm) -> dict[str, str]:
    return {hook.event: f'"/x/envhist/hooks/agent-{shape.name}" {hook.kind}' for hook in shape.hooks}


OTHERS = """\
{
    // what we run before anything is written
    "permissions": {"allow": ["Bash(ls:*)"]},  /* as agreed */
    "hooks": {
        "PreToolUse": [
            // theirs
            {"matcher": "Bash", "hooks": [{"type": "command", "command": "their-check"}]} // last
        ],
        "Notification": [],
    },
    "model": "large", "π": 3.14
}
"""


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@pytest.mark.parametrize(
    "text",
    [
        OTHERS,
        OTHERS.replace("\n", "\r\n"),
        OTHERS.replace("    ", "\t"),
        "\ufeff" + OTHERS,
        '{\n  "version": 1,\n  "theirs": true\n}\n',
        '{\n  "version": 1,\n  "hooks": {\n    "stop": [\n      {"command": "theirs"}\n    ]\n  }\n}\n',
    ],
    ids=["comments", "crlf", "tabs", "mark", "small", "others"],
)
def test_removed_hooks_leave_the_original_text(shape: AgentSettingsForm, text: str) -> None:
    if shape.skeleton and '"version"' not in text:
        text = text.replace("{", '{"version": 1,', 1)
    put = with_hooks(text, shape, commands(shape))

    assert has_hooks(put, shape, commands(shape))
    assert with_hooks(put, shape, commands(shape)) == put, "a second installation changes nothing"
    assert without_hooks(put, shape) == text
    # The original text is a subsequence of the new text: only our entries and their commas are added.
    rest = iter(put)
    assert all(letter in rest for letter in text)


@settings(max_examples=40)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=12,
    ),
    st.sampled_from([None, 2, "\t"]),
)
def test_any_settings_are_restored_and_keep_their_meaning(value: object, indent: int | str | None) -> None:
    whole = {"theirs": value, "hooks": {"Stop": [{"hooks": [{"command": "theirs"}]}]}}
    text = json.dumps(whole, indent=indent, ensure_ascii=False)
    put = with_hooks(text, CLAUDE_CODE, commands(CLAUDE_CODE))
    read = json.loads(put)
    assert read["theirs"] == value
    assert read["hooks"]["Stop"][0] == whole["hooks"]["Stop"][0]  # type: ignore[index]

    left = without_hooks(put, CLAUDE_CODE)
    assert left is not None
    assert json.loads(left) == whole
    if indent is not None:
        assert left == text


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_file_with_only_our_hooks_is_removed(shape: AgentSettingsForm) -> None:
    made = with_hooks("", shape, commands(shape))
    assert json.loads(made)
    assert without_hooks(made, shape) is None


def test_later_user_edits_are_kept() -> None:
    put = with_hooks(OTHERS, CLAUDE_CODE, commands(CLAUDE_CODE))
    edited = put.replace('"model": "large"', '"model": "small"').replace("their-check", "their-other-check")
    left = without_hooks(edited, CLAUDE_CODE)
    assert left == OTHERS.replace('"large"', '"small"').replace("their-check", "their-other-check")


def test_hooks_of_an_older_version_are_replaced() -> None:
    older = with_hooks(
        OTHERS, CLAUDE_CODE, {event: f"{each} older" for event, each in commands(CLAUDE_CODE).items()}
    )
    newer = with_hooks(older, CLAUDE_CODE, commands(CLAUDE_CODE))
    assert "older" not in newer
    assert newer == with_hooks(OTHERS, CLAUDE_CODE, commands(CLAUDE_CODE))


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"hooks": 1}', '{"hooks": {"Stop": {}}}', '{"a": 1} {}', "[" * 5000]
)
def test_settings_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(UnknownSettingsForm):
        with_hooks(text, CLAUDE_CODE, commands(CLAUDE_CODE))


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, // theirs\n "hooks":{} }',
        '{ // theirs\n "hooks": {"Stop": [ // more\n] } }',
        '{"a": [1], /* one */ "b": {} // last\n}',
        '{"url": "http://x" , "hooks": { /* none */ },}',
    ],
)
def test_comments_in_odd_places_are_kept(text: str) -> None:
    put = with_hooks(text, CLAUDE_CODE, commands(CLAUDE_CODE))
    assert has_hooks(put, CLAUDE_CODE, commands(CLAUDE_CODE))
    left = without_hooks(put, CLAUDE_CODE)
    assert left is not None
    for comment in ("// theirs", "// more", "/* one */", "// last", "/* none */"):
        assert left.count(comment) == text.count(comment)
    value = jsonc.load(left, jsonc.parse(left))
    before = jsonc.load(text, jsonc.parse(text))
    assert isinstance(value, dict)
    assert isinstance(before, dict)
    assert {**value, "hooks": {}} == {**before, "hooks": {}}
    assert not any((value.get("hooks") or {}).values())


TOML = """\
# how we work
model = "large"  # theirs

[[hooks.Stop]]
[[hooks.Stop.hooks]]
type = "command"
command = "theirs"
"""


@pytest.mark.parametrize("text", [TOML, TOML.rstrip("\n"), TOML.replace("\n", "\r\n"), ""])
def test_toml_settings_get_a_removable_block(text: str) -> None:
    put = with_table(text, CODEX, commands(CODEX))
    hooks = tomllib.loads(put.replace("\r\n", "\n"))["hooks"]
    assert [len(hooks[hook.event]) for hook in CODEX.hooks] == [1, 1, 1, 2 if text else 1, 1]
    assert with_table(put, CODEX, commands(CODEX)) == put
    assert without_table(put).rstrip("\r\n") == text.rstrip("\r\n")


def test_inline_toml_hooks_are_refused() -> None:
    with pytest.raises(UnknownSettingsForm):
        with_table("hooks = {Stop = [{hooks = []}]}\n", CODEX, commands(CODEX))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_hook_has_our_mark_and_a_timeout(shape: AgentSettingsForm) -> None:
    for hook in shape.hooks:
        element = shape.element(hook, commands(shape)[hook.event])
        assert is_ours(element)
        told = json.dumps(element)
        seconds = int(re.search(r'"timeout(?:Sec)?": (\d+)', told)[1]) / shape.unit  # type: ignore[index]
        # Codex allows hooks at its end three seconds and warns about a longer timeout.
        assert seconds == {"before": 120, "end": 3}.get(hook.kind, 10)


def test_group_with_a_hook_of_others_is_kept() -> None:
    ours, theirs = {"command": "/x/envhist/hooks/agent-codex after"}, {"command": "theirs"}
    text = json.dumps({"hooks": {"Stop": [{"hooks": [theirs, ours]}]}}, indent=2)
    assert json.loads(jsonc.remove_elements(text, is_ours)) == {"hooks": {"Stop": [{"hooks": [theirs]}]}}
