"""Settings that changed on both sides are merged by key; the text of the present file is edited, not written anew."""

from __future__ import annotations

import json
import random
import tomllib
from typing import Any

import pytest

from git_envhist.restore.edit_toml import edit_toml
from git_envhist.restore.merge_keys import ABSENT, TheirKeys, place_in_order
from git_envhist.restore.merge_settings import MergedSettings, SettingsMerge
from git_envhist.restore.three_way import Prefer

PACKAGE = b"""\
{
  "name": "shop",
  "dependencies": {
    "left": "1.0.0",
    "middle": "1.0.0",
    "right": "1.0.0"
  },
  "files": ["a"]
}
"""
SETTINGS = b"""\
// settings of the editor
{
    "size": 4, // spaces
    "rulers": [80],
    /* the look */
    "theme": {"name": "dark", "contrast": 1},
    "last": true,
}
"""
PROJECT = b"""\
# a project
name = "shop"  # its name
size = 1

[tool.lint]
select = ["E",
          "F"]  # kept
line = 100
path.deep = "x"

[tool.types]
strict = true

[[source]]
name = "one"
"""
SERVICE = b"""\
# a service
name: shop
ports:
  web: 80
  db: 5432  # kept
  list:
  - a
  - b
env:
  MODE: dev
"""


def merge(
    name: bytes, base: bytes, ours: bytes, theirs: bytes, prefer: Prefer = Prefer.NEITHER
) -> MergedSettings:
    found = SettingsMerge.read(name, (base, ours, theirs), prefer)
    assert found is not None
    return found.with_lines(None)


def edit(text: bytes, *pairs: tuple[bytes, bytes]) -> bytes:
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


STRICT = b"[tool.types]\nstrict = true\n\n"

CASES: dict[str, tuple[bytes, bytes, tuple[bytes, bytes], tuple[bytes, bytes]]] = {
    "adjacent values": (b"package.json", PACKAGE, (b'"left": "1', b'"left": "2'), (b'"middle": "1', b'"middle": "2')),
    "an added and a removed member": (
        b"package.json",
        PACKAGE,
        (b'    "left": "1.0.0",\n', b'    "left": "1.0.0",\n    "less": "1.0.0",\n'),
        (b'    "middle": "1.0.0",\n', b""),
    ),
    "a removed last member": (
        b"package.json",
        PACKAGE,
        (b'"middle": "1', b'"middle": "2'),
        (b',\n    "right": "1.0.0"\n', b"\n"),
    ),
    "a new last member of the file": (
        b"package.json",
        PACKAGE,
        (b'"name": "shop"', b'"name": "other"'),
        (b'"files": ["a"]\n', b'"files": ["a"],\n  "scripts": {\n    "test": "x"\n  }\n'),
    ),
    "a removed object": (
        b"settings.json",
        SETTINGS,
        (b'"size": 4', b'"size": 8'),
        (b'    "theme": {"name": "dark", "contrast": 1},\n', b""),
    ),
    "a member of an object in one line": (
        b"settings.json",
        SETTINGS,
        (b'"name": "dark"', b'"name": "light"'),
        (b', "contrast": 1', b', "contrast": 2'),
    ),
    "comments and a last comma": (
        b"settings.json",
        SETTINGS,
        (b'    "rulers": [80],\n', b'    "rulers": [80],\n    "wrap": false,\n'),
        (b'"last": true', b'"last": false'),
    ),
    "values of TOML": (b"pyproject.toml", PROJECT, (b"line = 100", b"line = 120"), (b'"F"', b'"F", "I"')),
    "a dotted key of TOML": (b"x.toml", PROJECT, (b"line = 100", b"line = 120"), (b'deep = "x"', b'deep = "y"')),
    "a removed key of TOML": (b"x.toml", PROJECT, (b"size = 1", b"size = 2"), (b"line = 100\n", b"")),
    "a removed table of TOML": (b"x.toml", PROJECT, (b"size = 1", b"size = 2"), (STRICT, b"")),
    "a new key of TOML": (b"Pipfile", PROJECT, (b"size = 1\n", b""), (b"line = 100\n", b"line = 100\nwidth = 5\n")),
    "values of YAML": (b"app.yaml", SERVICE, (b"web: 80", b"web: 81"), (b"db: 5432", b"db: 5433")),
    "a new and a removed key of YAML": (
        b"app.yml",
        SERVICE,
        (b"  web: 80\n", b""),
        (b"  MODE: dev\n", b"  MODE: dev\n  URL: x\n"),
    ),
    "a list of YAML": (b"app.yml", SERVICE, (b"web: 80", b"web: 81"), (b"  - b\n", b"  - b\n  - c\n")),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_changes_of_both_sides_are_kept_in_the_text(
    case: tuple[bytes, bytes, tuple[bytes, bytes], tuple[bytes, bytes]],
) -> None:
    name, base, ours, theirs = case
    both = edit(base, ours, theirs)
    for one, other in ((ours, theirs), (theirs, ours)):
        found = merge(name, base, edit(base, one), edit(base, other))
        assert (found.conflicts, found.text) == ((), both)


def test_new_members_are_inserted_in_order_of_sorted_keys() -> None:
    ours = edit(
        PACKAGE, (b'    "left": "1.0.0",\n', b'    "left": "1.0.0",\n    "less": "1.0.0",\n    "low": "1",\n')
    )
    theirs = edit(PACKAGE, (b'    "left": "1.0.0",\n', b'    "left": "1.0.0",\n    "lock": "1.0.0",\n'))
    found = merge(b"package.json", PACKAGE, ours, theirs)
    assert found.text == edit(ours, (b'    "low": "1",\n', b'    "lock": "1.0.0",\n    "low": "1",\n'))


def test_layout_of_ours_is_kept_if_theirs_is_written_anew() -> None:
    value = json.loads(PACKAGE)
    value["dependencies"]["middle"] = "2.0.0"
    value["scripts"] = {"test": {"run": ["x"]}}
    theirs = json.dumps(value, indent=8).encode()
    ours = edit(PACKAGE, (b'"left": "1', b'"left": "3'))
    found = merge(b"package.json", PACKAGE, ours, theirs)
    scripts = (
        b'"files": ["a"],\n  "scripts": {\n    "test": {\n      "run": [\n        "x"\n      ]\n    }\n  }\n'
    )
    assert found.text == edit(ours, (b'"middle": "1', b'"middle": "2'), (b'"files": ["a"]\n', scripts))


def test_first_package_of_one_side_does_not_take_the_table_of_the_other_away() -> None:
    base = b'{\n  "name": "x",\n  "dependencies": {\n    "a": "1"\n  }\n}\n'
    ours = edit(base, (b'"a": "1"\n', b'"a": "1",\n    "b": "1"\n'))
    theirs = b'{\n  "name": "x"\n}\n'
    assert merge(b"package.json", base, ours, theirs).text == edit(base, (b'"a"', b'"b"'))
    assert merge(b"package.json", base, theirs, ours).text == edit(base, (b'"a"', b'"b"'))
    assert merge(b"package.json", base, base.replace(b'"x"', b'"y"'), theirs).text == theirs.replace(
        b'"x"', b'"y"'
    )


@pytest.mark.parametrize(
    ("name", "base", "old", "key"),
    [
        (b"package.json", PACKAGE, b'"left": "1.0.0"', "dependencies.left"),
        (b"x.toml", PROJECT, b"line = 100", "tool.lint.line"),
        (b"x.yaml", SERVICE, b"web: 80", "ports.web"),
    ],
)
def test_key_that_changed_on_both_sides_is_a_named_conflict(
    name: bytes, base: bytes, old: bytes, key: str
) -> None:
    last = old[-2:] if old.endswith(b'"') else old[-1:]
    ours, theirs = (edit(base, (old, old[: -len(last)] + number + last)) for number in (b"1", b"2"))
    found = merge(name, base, ours, theirs)
    assert found == MergedSettings(None, (key,))
    assert merge(name, base, ours, theirs, Prefer.OURS).text == ours
    assert merge(name, base, ours, theirs, Prefer.THEIRS).text == theirs


def test_lines_are_used_where_they_give_the_merged_values() -> None:
    theirs = edit(SETTINGS, (b"the look", b"another comment"), (b'"size": 4', b'"size": 5'))
    ours = edit(SETTINGS, (b'"last": true', b'"last": false'))
    lines = edit(theirs, (b'"last": true', b'"last": false'))
    found = SettingsMerge.read(b"x.json", (SETTINGS, ours, theirs), Prefer.NEITHER)
    assert found is not None
    assert found.with_lines(lines).text == lines
    assert found.with_lines(lines.replace(b": 5", b": 6")).text == edit(ours, (b'"size": 4', b'"size": 5'))


def test_lock_file_of_deno_is_merged_by_keys() -> None:
    base = b'{\n  "version": "5",\n  "jsr": {\n    "@std/assert@1.0.13": {}\n  }\n}\n'
    ours = edit(base, (b'13": {}', b'13": {},\n    "@std/fmt@1.0.0": {}'))
    theirs = edit(base, (b'13": {}', b'13": {},\n    "@std/path@1.0.0": {}'))
    found = SettingsMerge.read(b"deno.lock", (base, ours, theirs), Prefer.NEITHER)
    assert found is not None
    merged = found.with_lines(None)
    assert merged.text is not None
    assert list(json.loads(merged.text)["jsr"]) == ["@std/assert@1.0.13", "@std/fmt@1.0.0", "@std/path@1.0.0"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"x.json", b'{"a": 1, "a": 2}'),
        (b"x.json", b"[1]"),
        (b"x.json", b"{" * 5000),
        (b"x.json", b'{"a": }'),
        (b"x.json", b'{"a": 1}}'),
        (b"x.json", b"\xff"),
        (b"x.toml", b"a = 1\na = 2"),
        (b"x.yaml", b"a: 1\n---\nb: 2"),
        (b"x.txt", b"{}"),
    ],
)
def test_text_that_is_not_understood_is_not_merged_by_keys(name: bytes, text: bytes) -> None:
    assert SettingsMerge.read(name, (b"", b"", text), Prefer.NEITHER) is None
    assert SettingsMerge.read(name, (text, text, text), Prefer.NEITHER) is None


def random_value(choose: random.Random, depth: int = 0) -> Any:
    kind = choose.randrange(3 if depth > 3 else 5)
    if kind >= 3:
        size = choose.randrange(4)
        return {
            choose.choice("abcdefgh") * choose.randrange(1, 3): random_value(choose, depth + 1)
            for _ in range(size)
        }
    return choose.choice([1, 2.5, True, "text", 'quoted "x"', [1, {"a": 2}], [], "é\n"])


def changed(choose: random.Random, value: dict[str, Any]) -> dict[str, Any]:
    """Return the object with a few keys changed, added and removed, at any depth."""
    found = dict(value)
    for key in list(found):
        roll = choose.random()
        if isinstance(found[key], dict) and roll < 0.5:
            found[key] = changed(choose, found[key])
        elif roll < 0.65:
            found[key] = random_value(choose)
        elif roll < 0.75:
            del found[key]
    if choose.random() < 0.6:
        found["new" + choose.choice("abc")] = random_value(choose)
    return found


def toml_of(value: dict[str, Any], above: tuple[str, ...] = ()) -> str:
    scalars = (bool, int, float, str)
    lines = [f"{key} = {json.dumps(one)}\n" for key, one in value.items() if isinstance(one, scalars)]
    for key, one in value.items():
        if isinstance(one, dict):
            lines.append(f"\n[{'.'.join((*above, key))}]\n" + toml_of(one, (*above, key)))
    return "".join(lines)


@pytest.mark.parametrize("seed", range(60))
def test_random_objects_are_merged_by_key(seed: int) -> None:
    choose = random.Random(seed)
    base = {f"k{number}": random_value(choose) for number in range(6)}
    ours, theirs = changed(choose, base), changed(choose, base)
    indents = [choose.choice([None, 2, 4]) for _ in range(3)]
    sides = zip((base, ours, theirs), indents, strict=True)
    texts = [json.dumps(one, indent=indent).encode() for one, indent in sides]
    found = merge(b"x.json", texts[0], texts[1], texts[2], Prefer.THEIRS)
    back = merge(b"x.json", texts[0], texts[2], texts[1], Prefer.OURS)
    assert found.text is not None
    assert back.text is not None
    assert json.loads(found.text) == json.loads(back.text)
    tables = [toml_of(one).encode() for one in (base, ours, theirs)]
    table = merge(b"x.toml", tables[0], tables[1], tables[2], Prefer.THEIRS)
    if table.text is not None:
        tomllib.loads(table.text.decode())


def test_edit_that_reads_back_as_other_values_is_not_used() -> None:
    base = b"part:\n  one: 1\n  two: 1\nlast: 1\n"
    ours, theirs = edit(base, (b"  one: 1\n", b"")), edit(base, (b"  two: 1\n", b""))
    assert merge(b"x.yaml", base, ours, theirs) == MergedSettings(None, ())


def test_file_with_mixed_line_ends_is_not_edited() -> None:
    base = edit(PROJECT, (b"size = 1\n", b"size = 1\r\n"))
    ours, theirs = (
        edit(base, (b"line = 100", b"line = 90")),
        edit(base, (b"strict = true", b"strict = false")),
    )
    assert merge(b"x.toml", base, ours, theirs) == MergedSettings(None, ())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"x.toml", ".".join(["a"] * 3000) + " = 1\nb = 1\n"),
        (b"x.toml", "x = 0x" + "f" * 6000 + "\nb = 1\n"),
    ],
)
def test_values_that_cannot_be_compared_end_in_no_error(name: bytes, text: str) -> None:
    base, ours, theirs = text.encode(), edit(text.encode(), (b"b", b"d")), b""
    for versions in ((base, ours, theirs), (theirs, ours, base), (base, base.replace(b"1", b"2"), ours)):
        found = SettingsMerge.read(name, versions, Prefer.THEIRS)
        assert found is None or isinstance(found.with_lines(None), MergedSettings)


def test_key_that_is_no_unicode_text_is_not_merged() -> None:
    theirs = b'{"a": 1, "\\ud800": 2}'
    assert merge(b"x.json", b'{"a": 1}', b'{"a": 5}', theirs) == MergedSettings(None, ())


class CountedKey(str):
    """A key that counts its comparisons."""

    __slots__ = ()
    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedKey.comparisons += 1
        return str.__eq__(self, other)


def test_places_of_new_keys_are_found_without_comparing_all_pairs() -> None:
    number = 300
    order = [CountedKey(f"o{one}") for one in range(number, 0, -1)]
    theirs = [CountedKey(f"t{one}") for one in range(number, 0, -1)]
    CountedKey.comparisons = 0
    assert place_in_order(theirs[-1], order, dict.fromkeys(order), TheirKeys.of(theirs), None) == number
    assert CountedKey.comparisons < number


def test_toml_keys_between_many_arrays_are_edited() -> None:
    arrays = "".join(f"[[a{one}]]\nx = {one}\n[a{one}.b]\ny = 1\n" for one in range(30))
    base, theirs = "k = 1\nl = 1\n" + arrays, "k = 1\nnew = 3\nl = 1\n" + arrays
    ours = "k = 1\nl = 2\n" + arrays
    changes: dict[Any, object] = {("new",): 3}
    assert edit_toml(ours, theirs, changes, {}) == ours.replace("l = 2", "new = 3\nl = 2")
    assert edit_toml(base, base, {("k",): ABSENT}, {}) == base.replace("k = 1\n", "", 1)
    table = "[t]\na = 1\n[t.u]\nb = 1\n[v]\nc = 1\n"
    assert edit_toml(table, table, {("t",): ABSENT}, {}) == "[v]\nc = 1\n"
