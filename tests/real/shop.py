"""A shop: a Django project with a virtual environment, migrations and rows, and a Node front end."""

from __future__ import annotations

import json

from tests.real.tools import Project, fetch, make_venv

PACKAGES = ("django", "sqlparse==0.5.0")
SETTINGS = """
import os

INSTALLED_APPS += ["catalog"]
ALLOWED_HOSTS = ["127.0.0.1"]
STATIC_ROOT = BASE_DIR / "static"
for line in (BASE_DIR / ".env.local").read_text().splitlines():
    name, _, value = line.partition("=")
    os.environ[name] = value
DATABASES["default"]["CONN_MAX_AGE"] = int(os.environ.get("KEEP_CONNECTIONS", "0"))
TITLE = os.environ["SHOP_TITLE"]
"""
MODELS = """\
from django.db import models


class Item(models.Model):
    name = models.CharField(max_length=50)
"""
FIELD = "    price = models.IntegerField(default=1)\n"
URLS = """\
from django.conf import settings
from django.http import HttpResponse
from django.urls import path

from catalog.models import Item


def shown(request):
    return HttpResponse(f"{settings.TITLE}: {Item.objects.count()} items")


urlpatterns = [path("", shown)]
"""
ROWS = "from catalog.models import Item; Item.objects.bulk_create(Item(name=f'item {n}') for n in range(50))"
IGNORED = ".venv/\nnode_modules/\n*.sqlite3\n.env*\n__pycache__/\n"

DEPENDENCIES = {"has-flag": "3.0.0", "mkdirp": "0.5.6", "semver": "7.5.4", "supports-color": "7.2.0"}
TEST = """\
const assert = require('assert')
const { execFileSync } = require('child_process')
const fs = require('fs')
// The nested one is another version than that at the top.
const versions = ['has-flag', 'supports-color/node_modules/has-flag', 'semver', 'supports-color', 'mkdirp']
  .map((name) => JSON.parse(fs.readFileSync(`${__dirname}/node_modules/${name}/package.json`)).version)
assert.deepStrictEqual(versions, ['3.0.0', '4.0.0', '7.5.4', '7.2.0', '0.5.6'])
assert.strictEqual(typeof require('supports-color').stdout, 'boolean')
assert.strictEqual(execFileSync('semver', ['-r', '>=2', '1.0.0', '2.1.0'], { encoding: 'utf8' }), '2.1.0\\n')
console.log('fine', require.resolve('semver'))
"""


def build_backend(project: Project) -> None:
    """Run `django-admin startproject`, add an application, apply its migrations and add rows."""
    repo = project.repo
    make_venv(project, *PACKAGES)
    repo.write(".gitignore", IGNORED)
    repo.write(".env.local", "SHOP_TITLE=fine things\nSECRET_TOKEN=0123456789abcdef\n", mode=0o600)
    project.call(".venv/bin/django-admin", "startproject", "shop", ".")
    manage(project, "startapp", "catalog")
    with open(project.path / "shop/settings.py", "a") as settings:
        settings.write(SETTINGS)
    repo.write("catalog/models.py", MODELS)
    repo.write("shop/urls.py", URLS)
    manage(project, "makemigrations", "-v0")
    manage(project, "migrate", "-v0")
    manage(project, "shell", "-c", ROWS)
    project.call(".venv/bin/pip", "check")
    repo.commit("a shop")


def build_frontend(project: Project, npm: str) -> None:
    """Install a few packages by npm, including one at two versions."""
    repo = project.repo
    package = {
        "name": "front", "version": "1.0.0", "private": True,
        "scripts": {"test": "node test.js", "where": "command -v semver"}, "dependencies": DEPENDENCIES,
    }  # fmt: skip
    repo.write("front/package.json", json.dumps(package, indent=2) + "\n")
    repo.write("front/test.js", TEST)
    fetch(project.path / "front", project.variables, npm, "install", "--silent")
    repo.commit("a front end")


def manage(project: Project, *words: str, check: bool = True) -> str:
    """Run `manage.py` with the Python of the virtual environment."""
    return project.call(".venv/bin/python", "manage.py", *words, check=check).out
