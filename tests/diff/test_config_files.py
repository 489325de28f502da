"""Configuration files are compared by keys; ambiguous files are not compared."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.diff.config_files import READERS, compare_settings, read_yaml

COMPOSE = """\
# what the shop runs on
version: "3"
services:
  db:
    image: postgres:15   # as on the server
    environment:
      POSTGRES_DB: shop
    ports:
    - "5432:5432"
  web: &web
    command: >
      npm run dev
      # no remark
    depends_on: [db]
x-empty:
"""


def told(name: str, before: str, after: str) -> list[str]:
    return [f"{mark} {key}" for mark, key in compare_settings(name.encode(), before.encode(), after.encode())]


def test_json_is_compared_by_keys() -> None:
    before = {"server": {"port": 1, "hosts": ["a"]}, "debug": True, "old": {"a": 1, "b": 2}}
    after = {"server": {"port": 2, "hosts": ["a"], "tls": {"a": 1, "b": 2}}, "debug": 1}
    assert told("config/app.json", json.dumps(before), json.dumps(after)) == [
        "~ server.port",
        "+ server.tls",
        "~ debug",
        "− old",
    ]
    assert told("a.json", "[1]", "[2]") == told("a.json", "{", "{}") == []


def test_toml_is_compared_by_keys() -> None:
    before = "[tool.x]\na = 1\n[[list]]\nb = 1\n[gone]\n"
    after = "[tool.x]\na = 1.0\nnew = 2020-01-01\n[[list]]\nb = 2\n"
    assert told("pyproject.toml", before, after) == ["~ tool.x.a", "+ tool.x.new", "~ list", "− gone"]


def test_ini_is_compared_by_sections_and_keys() -> None:
    before = "top = 1\n[a]\nx = 1\ny: 2\n  more\n; remark\n[b]\nz=1\n"
    after = "top = 2\n[a]\nx = 1\ny: 2\n  less\n[c]\nz=1\n"
    assert told("setup.cfg", before, after) == ["~ top", "~ [a].y", "+ [c]", "− [b]"]
    assert told(".npmrc", "registry=a\n", "registry=b\nsave=false\n") == ["~ registry", "+ save"]
    assert told("a.ini", "x = 1\n", "no setting\n") == []


def test_yaml_is_compared_by_keys() -> None:
    steps = {
        "POSTGRES_DB: shop": ("POSTGRES_DB: other", ["~ services.db.environment.POSTGRES_DB"]),
        "postgres:15   # as on the server": ("postgres:15 # as there", []),
        "postgres:15 ": ("postgres:16 ", ["~ services.db.image"]),
        '- "5432:5432"': ('- "5433:5432"', ["~ services.db.ports"]),
        "# no remark": ("# another line", ["~ services.web.command"]),
        "# what the shop runs on\n": ("", []),
        "x-empty:": ("x-empty:\n  a: 1\nadded: 1", ["~ x-empty", "+ added"]),
        "    depends_on: [db]\n": ("", ["− services.web.depends_on"]),
    }
    for old, (new, differing) in steps.items():
        assert told("compose.yaml", COMPOSE, COMPOSE.replace(old, new)) == differing, old


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\na: 2\n",
        "a: 1\n---\nb: 1\n",
        "a:\n\tb: 1\n",
        "{a: 1}\n",
        "- a\n- b\n",
        "a: {\n}\n",
        "? a\n: b\n",
        "a: 1\n  b: 1\n c: 1\n d\n",
        "  a: 1\nb: 2\n",
        "a: it's # so\n",
        "*a : 1\n",
        "%YAML 1.2\n---\na: 1\n",
        "",
    ],
)
def test_ambiguous_yaml_is_not_compared(text: str) -> None:
    assert read_yaml(text) is None
    assert told("a.yaml", text, "other: 1\n") == []


def test_generated_file_is_not_configuration() -> None:
    for path in (
        "package-lock.json",
        "node_modules/a/package.json",
        "dist/a.json",
        "web/pnpm-lock.yaml",
        "a.txt",
        "x",
    ):
        assert told(path, '{"a": 1}', '{"a": 2}') == []
    assert told("a.json", '{"a": 1}', '{"a": "' + "x" * (256 << 10) + '"}') == []


LINES = st.sampled_from(
    [
        "a: 1",
        "  b: 2",
        "b:",
        "  - c",
        "- d",
        "[x]",
        "y = 1",
        "  z",
        "'q': \"r\" # s",
        "k: |",
        "	",
        "a.b: &x",
        "{}",
    ]
)


@given(
    st.sampled_from([b"a" + end if end.startswith(b".") else end for end in READERS]),
    st.lists(LINES, max_size=8).map("\n".join).map(str.encode) | st.binary(max_size=200),
    st.lists(LINES, max_size=8).map("\n".join).map(str.encode)
    | st.sampled_from([b"[" * 5000, b'{"a":' * 5000]),
)
def test_arbitrary_bytes_raise_nothing(name: bytes, before: bytes, after: bytes) -> None:
    compare_settings(name, before, after)
    assert compare_settings(name, after, after) == ()
