"""Each leaf by itself: on bytes that its tool wrote, and on bytes that nobody would."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.facts import (
    apk,
    dpkg,
    machine_leaf,
    machine_probes,
    node,
    python,
    system,
    tree_leaf,
    tree_probes,
    variables,
)
from git_envhist.facts.probe import File, TreeProbe
from git_envhist.model import Fact


def no_key(context: bytes, secret: bytes) -> str | None:
    return None


def files(**contents: bytes) -> dict[bytes, File]:
    return named({name.encode(): data for name, data in contents.items()})


def named(contents: dict[bytes, bytes]) -> dict[bytes, File]:
    return {name: File(data, len(data), False, b"x" * 20) for name, data in contents.items()}


def said(facts: Iterable[Fact]) -> list[tuple[str, str, bool]]:
    return [(fact.key, fact.value, fact.auto) for fact in facts]


METADATA = b"Metadata-Version: 2.1\nName: Psycopg2_Binary\nVersion: 2.9.9\n\nName: not this\n"
SITE = b".venv/lib/python3.11/site-packages"


def test_a_package_is_called_as_people_write_it() -> None:
    place = SITE + b"/psycopg2_binary-2.9.9.dist-info"
    by_pip = files(METADATA=METADATA, INSTALLER=b"pip\n")
    assert said(python.facts_of(place, by_pip, no_key)) == [(".venv/psycopg2-binary", "2.9.9", True)]
    asked = {**by_pip, **files(REQUESTED=b"")}
    assert said(python.facts_of(place, asked, no_key)) == [(".venv/psycopg2-binary", "2.9.9", False)]


def test_an_editable_installation_says_so() -> None:
    url = b'{"url": "file:///home/x", "dir_info": {"editable": true}}'
    found = python.facts_of(
        SITE + b"/app-1.dist-info", named({b"METADATA": METADATA, b"direct_url.json": url}), no_key
    )
    assert [fact.value for fact in found] == ["2.9.9 (editable)"]


def test_packages_stand_where_their_directory_does() -> None:
    for place, key in (
        (b"vendor/x-1.dist-info", "vendor/psycopg2-binary"),
        (b"lib/python3/dist-packages/x-1.dist-info", "psycopg2-binary"),
        (b"a/Lib/site-packages/x-1.dist-info", "a/psycopg2-binary"),
    ):
        assert [one[0] for one in said(python.facts_of(place, files(METADATA=METADATA), no_key))] == [key]
    own = python.facts_of(b"src/app.egg-info", named({b"PKG-INFO": METADATA}), no_key)
    assert said(own) == []


def test_dpkg_tells_what_is_installed_and_what_came_along() -> None:
    text = (
        "Package: dpkg\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.21\n\n"
        "Package: held\nStatus: hold ok installed\nArchitecture: amd64\nVersion: 1:2-3\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1\n\n"
        "Package: libc6\nStatus: install ok installed\nArchitecture: i386\nVersion: 2\nDescription: x\n Version: 9\n"
    )
    automatic = dpkg.parse_states("Package: held\nArchitecture: amd64\nAuto-Installed: 1\n")
    assert said(dpkg.parse_status(text, automatic)) == [
        ("dpkg", "1.21", False),
        ("held", "1:2-3", True),
        ("libc6:i386", "2", False),
    ]


def test_this_machines_packages_are_those_that_dpkg_lists() -> None:
    query = shutil.which("dpkg-query")
    if query is None:
        pytest.skip("no dpkg here")
    shown = subprocess.run(
        [query, "-W", "-f", "${db:Status-Status} ${binary:Package} ${Version}\n"],
        capture_output=True,
        check=True,
    )
    lines = [line.split() for line in shown.stdout.decode().splitlines()]
    native = (
        subprocess.run(["dpkg", "--print-architecture"], capture_output=True, check=True)
        .stdout.decode()
        .strip()
    )
    listed = {
        (name.removesuffix(f":{native}"), version) for state, name, version in lines if state == "installed"
    }
    assert {(fact.key, fact.value) for fact in system.facts_of("/") if fact.by == "dpkg"} == listed


def test_the_stamp_of_the_machine_is_another_one_when_the_list_is(tmp_path: Path) -> None:
    assert system.stamp(str(tmp_path)) == system.stamp(str(tmp_path))
    before = system.stamp(str(tmp_path))
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    status = tmp_path / "var/lib/dpkg/status"
    status.write_text("x")
    stamps = [before, system.stamp(str(tmp_path))]
    other = tmp_path / "other"
    other.write_text("y")
    os.rename(other, status)
    stamps.append(system.stamp(str(tmp_path)))
    assert len(set(stamps)) == 3


def test_node_packages_stand_in_any_node_modules() -> None:
    told = named({b"package.json": b'{"name": "other", "version": "8.11.3"}'})
    for place, key in (
        (b"node_modules/pg", "node_modules/pg"),
        (b"web/node_modules/@types/node", "web/node_modules/@types/node"),
        (b"node_modules/a/node_modules/b", "node_modules/a/node_modules/b"),
        (b"node_modules/.pnpm/pg@8.11.3/node_modules/pg", "node_modules/pg"),
        (
            b"web/node_modules/.pnpm/@types+node@8.11.3/node_modules/@types/node",
            "web/node_modules/@types/node",
        ),
    ):
        assert node.wants(place)
        assert said(node.facts_of(place, told, no_key)) == [(key, "8.11.3", False)]
    for place in (b"", b"node_modules", b"node_modules/pg/lib", b"node_modules/@types", b"node_modules/.bin"):
        assert not node.wants(place)


def test_archives_of_yarn_say_name_and_version() -> None:
    archives = named(
        {
            b"lodash-npm-4.17.21-6382451519-eb835a2e51.zip": b"",
            b"@types-node-npm-20.1.0-0123456789-8.zip": b"",
        }
    )
    assert said(node.facts_of(b".yarn/cache", archives, no_key)) == [
        (".yarn/cache/lodash", "4.17.21", False),
        (".yarn/cache/@types/node", "20.1.0", False),
    ]


def test_variables_are_told_by_key_and_never_by_value() -> None:
    data = b"API_URL=http://secret\nexport TOKEN = abc\n# no=comment\nTOKEN=xyz\n"
    sealed = {b".env.local": File(data, len(data), True, b"x" * 20)}
    keys: list[tuple[bytes, bytes]] = []

    def keyed(context: bytes, secret: bytes) -> str:
        keys.append((context, secret))
        return f"{len(keys):016x}"

    assert said(variables.facts_of(b"web", sealed, keyed)) == [
        ("web/.env.local/API_URL", "0000000000000001", False),
        ("web/.env.local/TOKEN", "0000000000000002", False),
    ]
    assert keys == [(b"web/.env.local\0API_URL", b"http://secret"), (b"web/.env.local\0TOKEN", b"xyz")]
    assert "secret" not in repr(said(variables.facts_of(b"web", sealed, no_key)))
    assert said(variables.facts_of(b"", named({b".env.example": b"A=1"}), keyed)) == []


def test_apk_tells_what_is_installed_and_what_was_asked_for() -> None:
    text = "C:Q1abc=\nP:musl\nV:1.2.4-r2\nA:x86_64\nF:lib\nR:x\n\nC:Q1\nP:nginx\nV:1.24.0-r7\n"
    world = apk.parse_world("alpine-base\nnginx=1.24.0-r7\n")
    assert said(apk.parse_installed(text, world)) == [
        ("musl", "1.2.4-r2", True),
        ("nginx", "1.24.0-r7", False),
    ]


def _some_names(probe: TreeProbe) -> st.SearchStrategy[bytes]:
    patterns = [*probe.reads, *probe.sees]
    return st.sampled_from(patterns).flatmap(
        lambda pattern: (
            st.just(pattern)
            if b"*" not in pattern
            else st.binary(max_size=8).map(lambda middle: pattern.replace(b"*", middle))
        )
    )


PLACES = [
    SITE,
    SITE + b"/a-1.dist-info",
    SITE + b"/a.egg-info",
    b"",
    b"x.egg/EGG-INFO",
    b"node_modules/a",
    b".yarn/cache",
    b"a/\xff",
]
TEXTS = st.one_of(
    st.binary(max_size=300),
    st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    ).map(lambda value: repr(value).encode("utf-8", "surrogatepass")),
    st.sampled_from([b"[" * 100_000, b"{" * 100_000, b"Name: a\nVersion: 1", b"Name:\nVersion:"]),
)


@pytest.mark.parametrize("probe", tree_probes().values(), ids=list(tree_probes()))
def test_no_garbage_raises_anything(probe: TreeProbe) -> None:
    leaf = tree_leaf(probe)

    @given(st.sampled_from(PLACES), st.dictionaries(_some_names(probe), TEXTS, max_size=4))
    def try_some(place: bytes, contents: dict[bytes, bytes]) -> None:
        leaf.wants(place)
        for fact in leaf.facts_of(place, named(contents), no_key):
            assert fact.key
            assert fact.probe in tree_probes()

    try_some()


@given(
    st.one_of(
        st.binary(max_size=400),
        st.lists(st.sampled_from(["Package: a", "Status: x installed", "Version: 1", ""])).map(
            lambda lines: "\n".join(lines).encode()
        ),
    )
)
def test_no_list_of_the_machine_raises_anything(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    list(dpkg.parse_status(text, dpkg.parse_states(text)))
    list(apk.parse_installed(text, apk.parse_world(text)))


def test_every_probe_has_a_leaf() -> None:
    leaves: list[Callable[..., object]] = [tree_leaf(probe).facts_of for probe in tree_probes().values()]
    leaves += [machine_leaf(probe).facts_of for probe in machine_probes().values()]
    assert all(map(callable, leaves))
