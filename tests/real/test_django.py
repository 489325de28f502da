"""A Django project that was broken in every usual way is restored exactly, and runs."""

from __future__ import annotations

import signal
import socket
import sqlite3
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.real.shop import FIELD, manage
from tests.real.tools import Project

# Every test here installs packages from a registry.
pytestmark = pytest.mark.full


def freeze(shop: Project) -> str:
    return shop.call(".venv/bin/pip", "freeze", "--all").out


def rows(shop: Project) -> tuple[int, list[str]]:
    """Return the number of rows and the columns, after SQLite's own integrity check."""
    with closing(sqlite3.connect(f"file:{shop.path}/db.sqlite3?mode=ro", uri=True)) as database:
        assert database.execute("pragma integrity_check").fetchall() == [("ok",)]
        columns = [row[1] for row in database.execute("pragma table_info(catalog_item)")]
        return database.execute("select count(*) from catalog_item").fetchone()[0], columns


def judge(shop: Project, frozen: str) -> None:
    """Check that the project equals the copy, runs, and still equals it: nothing had to be compiled again."""
    assert shop.differences() == ()
    assert manage(shop, "check") == "System check identified no issues (0 silenced).\n"
    manage(shop, "migrate", "--check")
    assert rows(shop) == (50, ["id", "name"])
    assert freeze(shop) == frozen
    shop.call(".venv/bin/pip", "check")
    assert shop.differences() == ()


def test_packages_migration_rows_settings_and_variables_are_restored(shop: Project) -> None:
    frozen = freeze(shop)
    with open(shop.path / "catalog/models.py", "a") as models:
        models.write(FIELD)
    manage(shop, "makemigrations", "-v0", "catalog")
    manage(shop, "migrate", "-v0")
    manage(shop, "shell", "-c", "from catalog.models import Item; Item.objects.filter(id__gt=10).delete()")
    shop.call(".venv/bin/pip", "install", "-q", "--upgrade", "sqlparse")
    shop.call(".venv/bin/pip", "uninstall", "-q", "-y", "asgiref")
    shop.repo.write(".env.local", "SHOP_TITLE=other things\n")
    shop.repo.write("shop/settings.py", "import nothing_that_is_here\n")
    assert shop.call(".venv/bin/pip", "check", check=False).status != 0
    assert shop.call(".venv/bin/python", "manage.py", "check", check=False).status != 0
    output = shop.repo.run("envdiff", "working", "--only=databases", check=True).out
    assert output.startswith(
        "sqlite    db.sqlite3     ~ catalog_item 50 → 10 rows, + column price integer"
        "   + migration catalog.0002_item_price"
    )
    done = shop.repo.run("envrestore", "working", check=True)
    assert "verified" in done.out
    judge(shop, frozen)
    # The broken state can be restored, too.
    shop.repo.run("envrestore", "--undo", check=True)
    assert rows(shop) == (10, ["id", "name", "price"])
    assert (shop.path / "catalog/migrations/0002_item_price.py").exists()
    assert shop.call(".venv/bin/python", "manage.py", "check", check=False).status != 0


@contextmanager
def served(shop: Project, *words: str, **more: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run the development server, and return it with its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [".venv/bin/python", "manage.py", "runserver", "--noreload", *words, address]
    server = subprocess.Popen(
        command, cwd=shop.path, env={**shop.variables, **more}, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield server, f"http://{address}/"
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()


def answer(server: subprocess.Popen[bytes], address: str) -> str:
    """Return the server's answer, once it listens."""
    while server.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=60) as said:
                return str(said.read().decode())
        except urllib.error.URLError:
            time.sleep(0.05)
    pytest.fail("the server ended")


def test_server_with_the_database_open_is_named_and_its_writes_are_kept(shop: Project) -> None:
    # Without threads, the server keeps its database connection open as configured.
    with served(shop, "--nothreading", KEEP_CONNECTIONS="600") as (server, address):
        assert answer(server, address) == "fine things: 50 items"
        manage(
            shop, "shell", "-c", "from catalog.models import Item; Item.objects.filter(id__gt=10).delete()"
        )
        shop.repo.write(".env.local", "SHOP_TITLE=other things\n")
        before = shop.differences()
        refused = shop.repo.run("envrestore", "working")
        assert (refused.status, "'db.sqlite3' is open in" in refused.err) == (3, True)
        assert f"({server.pid})" in refused.err
        assert shop.differences() == before
        # Files other than the database are restored; the server keeps running with the old ones.
        done = shop.repo.run("envrestore", "working", "--", ".env.local", check=True)
        assert f"({server.pid}) still runs the old files" in done.out
        assert answer(server, address) == "fine things: 10 items"
        forced = shop.repo.run("envrestore", "--force", "working", check=True)
        assert f"({server.pid}) still runs the old files" in forced.out
    assert rows(shop)[0] == 50
    assert shop.differences() == ()


def test_server_without_an_open_database_does_not_prevent_a_restore(shop: Project) -> None:
    with served(shop) as (server, address):
        assert answer(server, address) == "fine things: 50 items"
        manage(
            shop, "shell", "-c", "from catalog.models import Item; Item.objects.filter(id__gt=10).delete()"
        )
        assert answer(server, address) == "fine things: 10 items"
        done = shop.repo.run("envrestore", "working", check=True)
        assert f"({server.pid}) still runs the old files" in done.out
        # The server opens the database again for each answer.
        assert answer(server, address) == "fine things: 50 items"
    assert shop.differences() == ()
