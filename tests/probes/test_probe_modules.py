"""Each probe module: on bytes that its tool wrote, and on malformed bytes."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import struct
import subprocess
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.model import Fact
from git_envhist.probes import (
    apk,
    brew,
    cargo_crates,
    conda,
    dpkg,
    file_module,
    file_probes,
    go,
    machine_module,
    machine_probes,
    node,
    php,
    python,
    rootfs_packages,
    rpm,
    ruby,
    system_packages,
    variables,
)
from git_envhist.probes import go as gobuild
from git_envhist.probes import node as pnp
from git_envhist.probes.base import FileProbe, ProbedFile


def no_key(context: bytes, secret: bytes) -> str | None:
    return None


def files(**contents: bytes) -> dict[bytes, ProbedFile]:
    return named({name.encode(): data for name, data in contents.items()})


def named(contents: dict[bytes, bytes]) -> dict[bytes, ProbedFile]:
    return {name: ProbedFile(data, len(data), False, b"x" * 20) for name, data in contents.items()}


def said(facts: Iterable[Fact]) -> list[tuple[str, str, bool]]:
    return [(fact.key, fact.value, fact.auto) for fact in facts]


METADATA = b"Metadata-Version: 2.1\nName: Psycopg2_Binary\nVersion: 2.9.9\n\nName: not this\n"
SITE = b".venv/lib/python3.11/site-packages"


def test_python_package_names_are_normalised() -> None:
    place = SITE + b"/psycopg2_binary-2.9.9.dist-info"
    by_pip = files(METADATA=METADATA, INSTALLER=b"pip\n")
    assert said(python.facts_of(place, by_pip, no_key)) == [(".venv/psycopg2-binary", "2.9.9", True)]
    asked = {**by_pip, **files(REQUESTED=b"")}
    assert said(python.facts_of(place, asked, no_key)) == [(".venv/psycopg2-binary", "2.9.9", False)]


def test_editable_installation_is_marked() -> None:
    url = b'{"url": "file:///home/x", "dir_info": {"editable": true}}'
    found = python.facts_of(
        SITE + b"/app-1.dist-info", named({b"METADATA": METADATA, b"direct_url.json": url}), no_key
    )
    assert [fact.value for fact in found] == ["2.9.9 (editable)"]


def test_place_of_a_package_is_its_environment() -> None:
    for place, key in (
        (b"vendor/x-1.dist-info", "vendor/psycopg2-binary"),
        (b"lib/python3/dist-packages/x-1.dist-info", "psycopg2-binary"),
        (b"a/Lib/site-packages/x-1.dist-info", "a/psycopg2-binary"),
    ):
        assert [one[0] for one in said(python.facts_of(place, files(METADATA=METADATA), no_key))] == [key]
    own = python.facts_of(b"src/app.egg-info", named({b"PKG-INFO": METADATA}), no_key)
    assert said(own) == []


def test_dpkg_lists_installed_packages_and_dependencies() -> None:
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


def test_packages_of_this_machine_agree_with_dpkg_query() -> None:
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
    assert {(fact.key, fact.value) for fact in system_packages.facts_of("/") if fact.by == "dpkg"} == listed


def test_machine_stamp_changes_with_the_list(tmp_path: Path) -> None:
    assert system_packages.stamp(str(tmp_path)) == system_packages.stamp(str(tmp_path))
    before = system_packages.stamp(str(tmp_path))
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    status = tmp_path / "var/lib/dpkg/status"
    status.write_text("x")
    stamps = [before, system_packages.stamp(str(tmp_path))]
    other = tmp_path / "other"
    other.write_text("y")
    os.rename(other, status)
    stamps.append(system_packages.stamp(str(tmp_path)))
    assert len(set(stamps)) == 3


def test_node_packages_are_listed_in_every_node_modules() -> None:
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
    for place in (b"node_modules", b"node_modules/pg/lib", b"node_modules/@types", b"node_modules/.bin"):
        assert not node.wants(place)


REGISTRY = b"""{"packageRegistryData": [
  [null, [[null, {"packageDependencies": [["chalk", "npm:5.0.0"], ["alias", ["lodash", "npm:4.17.21"]]]}]]],
  ["chalk", [["npm:5.0.0", {"packageDependencies": [["it's", "virtual:0a1b#npm:1.0.0"]]}]]],
  ["it's", [["virtual:0a1b#npm:1.0.0", {}], ["npm:2.0.0", {}]]],
  ["@types/node", [["virtual:0a1b#npm:20.1.0", {}]]],
  ["lodash", [["npm:4.17.21", {}], ["patch:lodash@npm%3A4.17.21#x", {}]]],
  ["work", [["workspace:.", {"packageDependencies": [["@types/node", "virtual:0a1b#npm:20.1.0"]]}]]]
]}"""


@pytest.mark.parametrize(
    "program",
    [
        b"const RAW_RUNTIME_STATE =\n'%b';\n\nfunction $$SETUP_STATE(h, b) {"
        % REGISTRY.replace(b"'", rb"\'").replace(b"\n", b"\\\n").replace(b"]}", b"]\\\n}"),
        b"function $$SETUP_STATE(hydrateRuntimeState, basePath) {\n  return hydrateRuntimeState(%b, {basePath});\n}\n"
        % REGISTRY,
        REGISTRY,
    ],
    ids=["a text", "the thing itself", "beside the program"],
)
def test_yarn_pnp_list_marks_requested_packages(program: bytes) -> None:
    assert said(node.facts_of(b"web", named({b".pnp.cjs": program}), no_key)) == [
        ("web/.pnp.cjs/chalk", "5.0.0", False),
        ("web/.pnp.cjs/@types/node", "20.1.0", False),
        ("web/.pnp.cjs/lodash", "4.17.21", False),
    ]


def test_gems_are_listed_by_specification_names() -> None:
    names = (
        b"a-2-1.0.gemspec",
        b"b-1.0-arm64-darwin-22.gemspec",
        b"c_d-0.0.5.pre1-java.gemspec",
        b"e.gemspec",
    )
    specifications = named(dict.fromkeys(names, b""))
    for place, key, auto in (
        (b"vendor/bundle/ruby/3.1.0/specifications", "vendor/bundle/", False),
        (b"usr/lib/ruby/gems/3.1.0/specifications/default", "usr/", True),
        (b"specifications", "", False),
    ):
        assert ruby.wants(place)
        assert said(ruby.facts_of(place, specifications, no_key)) == [
            (key + "a-2", "1.0", auto),
            (key + "b", "1.0", auto),
            (key + "c_d", "0.0.5.pre1", auto),
        ]
    assert not ruby.wants(b"vendor/bundle/ruby/3.1.0/gems/b-1.0")


def test_replaced_go_modules_have_the_version_of_the_replacement() -> None:
    listed = b"# a.com/x v1.0.0\n## explicit; go 1.19\na.com/x\n# a.com/y v1.0.0 => b.com/z v2.0.0\n# a.com/w => ../w\n"
    assert said(go.facts_of(b"src/vendor", named({b"modules.txt": listed}), no_key)) == [
        ("src/vendor//a.com/x", "v1.0.0", False),
        ("src/vendor//a.com/y", "v2.0.0", True),
    ]


def test_crates_from_git_and_of_distributions_are_listed() -> None:
    notes = {
        b"a-0123.d": b"/w/deps/a-0123.d: /h/.cargo/git/checkouts/some-a-0123456789abcdef/0a1b2c3/src/lib.rs\n",
        b"b-0123.d": b"/w/target/debug/deps/b-0123.d: /usr/share/cargo/registry/b-c-0.2.1+x/src/lib.rs\n",
        b"own-0123.d": b"/w/target/debug/deps/own-0123.d: src/main.rs\n",
    }
    for place in (b"w/target/debug/deps", b"w/target/x86_64-unknown-linux-musl/release/deps"):
        assert said(cargo_crates.facts_of(place, named(notes), no_key)) == [
            ("w/target/some-a", "0a1b2c3", False),
            ("w/target/b-c", "0.2.1+x", False),
        ]
    assert said(cargo_crates.facts_of(b"w/deps", named(notes), no_key)) == []


def test_list_of_composer_1_is_read() -> None:
    listed = b'[{"name": "a/b", "version": "1.0"}, {"name": "../x", "version": "1"}, 7]'
    assert said(php.facts_of(b"web/vendor/composer", named({b"installed.json": listed}), no_key)) == [
        ("web/vendor//a/b", "1.0", False)
    ]


def test_conda_history_marks_requested_packages() -> None:
    history = (
        b"==> 2024-01-01 00:00:00 <==\n# cmd: /opt/conda/bin/conda create -n x python=3.11 numpy\n"
        b"# update specs: ['python=3.11', 'numpy', 'conda-forge::pandas[version=2]']\n+defaults::python-3.11.0-h1_0\n"
        b"==> 2024-01-02 00:00:00 <==\n# remove specs: ['numpy']\n# update specs: [__import__('os')]\n"
    )
    assert conda.requested_packages(history.decode()) == {"python", "pandas"}
    records = [
        b"python-3.11.0-h1_0.json",
        b"ca-certificates-2024.1-h2_0.json",
        b"pandas-2.0-py311_0.json",
        b"x.json",
    ]
    meta = named({b"history": history, **dict.fromkeys(records, b"")})
    assert said(conda.facts_of(b"envs/x/conda-meta", meta, no_key)) == [
        ("envs/x/python", "3.11.0-h1_0", False),
        ("envs/x/ca-certificates", "2024.1-h2_0", True),
        ("envs/x/pandas", "2.0-py311_0", False),
    ]


def test_homebrew_receipt_marks_dependencies(tmp_path: Path) -> None:
    for path, asked in (
        ("opt/homebrew/Cellar/wget/1.21.4", True),
        ("usr/local/Cellar/openssl@3/3.2.0_1", False),
    ):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "INSTALL_RECEIPT.json").write_text(json.dumps({"installed_on_request": asked}))
    (tmp_path / "opt/homebrew/Caskroom/firefox/120.0").mkdir(parents=True)
    stamps = [system_packages.stamp(str(tmp_path))]
    assert said(system_packages.facts_of(str(tmp_path))) == [
        ("wget", "1.21.4", False),
        ("firefox", "120.0", False),
        ("openssl@3", "3.2.0_1", True),
    ]
    (tmp_path / "opt/homebrew/Cellar/wget/1.22").mkdir()
    stamps.append(system_packages.stamp(str(tmp_path)))
    assert len(set(stamps)) == 2


def test_packages_of_a_root_file_system_have_its_place() -> None:
    status = b"Package: base\nStatus: install ok installed\nVersion: 1.0-1\n"
    whole = rootfs_packages.facts_of(b"a/rootfs/var/lib/dpkg", named({b"status": status}), no_key)
    assert said(whole) == [("a/rootfs/base", "1.0-1", False)]
    apart = named({b"libc6": b"Package: libc6\nVersion: 2.36\n", b"base": status})
    assert said(rootfs_packages.facts_of(b"var/lib/dpkg/status.d", apart, no_key)) == [
        ("libc6", "2.36", False),
        ("base", "1.0-1", False),
    ]
    alpine = named({b"installed": b"P:musl\nV:1.2.4-r2\n"})
    for place in (b"image/lib/apk/db", b"image/usr/lib/apk/db"):
        assert said(rootfs_packages.facts_of(place, alpine, no_key)) == [("image/musl", "1.2.4-r2", False)]


def test_variables_are_listed_without_values() -> None:
    data = b"API_URL=http://secret\nexport TOKEN = abc\n# no=comment\nTOKEN=xyz\n"
    sealed = {b".env.local": ProbedFile(data, len(data), True, b"x" * 20)}
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


def test_apk_lists_installed_and_requested_packages() -> None:
    text = "C:Q1abc=\nP:musl\nV:1.2.4-r2\nA:x86_64\nF:lib\nR:x\n\nC:Q1\nP:nginx\nV:1.24.0-r7\n"
    world = apk.parse_world("alpine-base\nnginx=1.24.0-r7\n")
    assert said(apk.parse_installed(text, world)) == [
        ("musl", "1.2.4-r2", True),
        ("nginx", "1.24.0-r7", False),
    ]


def _some_names(probe: FileProbe) -> st.SearchStrategy[bytes]:
    patterns = [pattern.rpartition(b"/")[2] for pattern in (*probe.reads, *probe.sees)]
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
    b"node_modules/.store/a/package",
    b"a/\xff",
    b"vendor/bundle/ruby/3.1.0/specifications",
    b"bundler/gems/a-0123456",
    b"go/pkg/mod/a.com/x@v1.0.0",
    b"cache/download/a.com/!x/@v",
    b"vendor",
    b"bin",
    b"target/debug/deps",
    b".cargo/registry/cache/x",
    b"vendor/composer",
    b"x/conda-meta",
    b"x/var/lib/dpkg",
    b"var/lib/dpkg/status.d",
    b"usr/lib/apk/db",
    b"var/lib/rpm",
]
TEXTS = st.one_of(
    st.binary(max_size=300),
    st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    ).map(lambda value: repr(value).encode("utf-8", "surrogatepass")),
    st.sampled_from([b"", b"[" * 100_000, b"{" * 100_000, b"Name: a\nVersion: 1", b"Name:\nVersion:"]),
)


@pytest.mark.parametrize("probe", file_probes().values(), ids=list(file_probes()))
def test_malformed_files_raise_nothing(probe: FileProbe) -> None:
    leaf = file_module(probe)

    @given(st.sampled_from(PLACES), st.dictionaries(_some_names(probe), TEXTS, max_size=4))
    def try_some(place: bytes, contents: dict[bytes, bytes]) -> None:
        leaf.wants(place)
        for fact in leaf.facts_of(place, named(contents), no_key):
            assert fact.key
            assert fact.probe in file_probes()

    try_some()


@given(
    st.one_of(
        st.binary(max_size=400),
        st.lists(st.sampled_from(["Package: a", "Status: x installed", "Version: 1", ""])).map(
            lambda lines: "\n".join(lines).encode()
        ),
    )
)
def test_malformed_machine_lists_raise_nothing(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    list(dpkg.parse_status(text, dpkg.parse_states(text)))
    list(apk.parse_installed(text, apk.parse_world(text)))


def _header(*fields: tuple[int, int, bytes]) -> bytes:
    """Return a package in the format of rpm's database."""
    entries, data = b"", b""
    for tag, kind, value in fields:
        entries += struct.pack(">IIiI", tag, kind, len(data), 1)
        data += value
    return struct.pack(">II", len(fields), len(data)) + entries + data


def _database() -> bytes:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY, blob BLOB NOT NULL)")
        database.execute("INSERT INTO Packages VALUES (1, ?)", (SMALL,))
        database.commit()
        return database.serialize()


SMALL = _header(
    (1000, 6, b"small\0"),
    (1001, 6, b"1.5\0"),
    (1002, 6, b"3\0"),
    (1003, 4, b"\0\0\0\2"),
    (1022, 6, b"noarch"),
)
KERNELS = [
    SMALL,
    _database(),
    gobuild.MARK + b"\x08\x02" + bytes(16) + b"\x08go1.19.8\x7f",
    gobuild.MARK + b"\x08\x00" + b"\x40" + bytes(15),
    b"\x7fELF\x02\x01" + bytes(60) + gobuild.MARK + b"\x08\x00" + bytes(16),
    b"RAW_RUNTIME_STATE =\n'{\"packageRegistryData\": [[null, []]]\\\n}';",
    b"# update specs: ['python=3.11', 'numpy']",
]


def test_rpm_package_has_its_epoch() -> None:
    assert rpm.parse_header(SMALL) == ("small", "2:1.5-3", "noarch")
    assert [(fact.key, fact.value) for fact in rpm.parse_database(_database())] == [("small", "2:1.5-3")]


@given(
    st.binary(max_size=400)
    | st.tuples(st.sampled_from(KERNELS), st.binary(max_size=200)).map(b"".join)
    | st.tuples(st.sampled_from(KERNELS), st.integers(0, 200), st.binary(min_size=1, max_size=8)).map(
        lambda made: made[0][: made[1]] + made[2] + made[0][made[1] + len(made[2]) :]
    )
)
def test_malformed_package_lists_raise_nothing(data: bytes) -> None:
    rpm.parse_header(data)
    rpm.parse_database(data)
    list(rpm.parse_headers([data, data]))
    gobuild.read_build(data)
    list(pnp.read_list(data))
    brew.is_dependency(data)
    conda.requested_packages(data.decode("utf-8", "replace"))


def test_every_probe_has_a_module() -> None:
    leaves: list[Callable[..., object]] = [file_module(probe).facts_of for probe in file_probes().values()]
    leaves += [machine_module(probe).facts_of for probe in machine_probes().values()]
    assert all(map(callable, leaves))
