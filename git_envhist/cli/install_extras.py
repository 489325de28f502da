"""The command that installs the requirements of an extra.

No package index contains git-envhist, so `pip install 'git-envhist[mcp]'` finds nothing: the command names the
requirements themselves. pipx and uv change their environments with their own commands, and those of uv have no pip.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec

NAME = "git-envhist"
PIPX, UV = "pipx_metadata.json", "uv-receipt.toml"
"""The files that mark an environment of pipx and of `uv tool`."""
MARKER = re.compile(r"extra\s*==\s*['\"](?P<extra>[a-z]+)['\"]")


def extra_install_command(extra: str) -> str:
    """Return the command that installs the requirements of an extra into the environment of this program."""
    wanted = requirements_of(extra, _declared())
    return command_for(wanted, os.listdir(sys.prefix), sys.executable, _installers())


def requirements_of(extra: str, declared: list[str]) -> list[str]:
    """Return the requirements of an extra, from the metadata of the distribution; its own name if none are declared."""
    found = [line.partition(";")[0].strip() for line in declared if _extra_of(line) == extra]
    return found or [f"{NAME}[{extra}]"]


def command_for(wanted: list[str], prefix: list[str], python: str, installers: frozenset[str]) -> str:
    """Return the command for an environment with these marker files and these installers on the PATH."""
    words = shlex.join(wanted)
    if PIPX in prefix:
        return f"pipx inject {NAME} {words}"
    if UV in prefix or ("pip" not in installers and "uv" in installers):
        return f"uv pip install --python {shlex.quote(python)} {words}"
    if "pip" not in installers:
        return f"{shlex.quote(python)} -m ensurepip && {shlex.quote(python)} -m pip install {words}"
    return f"{shlex.quote(python)} -m pip install {words}"


def _installers() -> frozenset[str]:
    found = {"pip"} if find_spec("pip") is not None else set()
    return frozenset(found | ({"uv"} if shutil.which("uv") else set()))


def _declared() -> list[str]:
    try:
        return requires(NAME) or []
    except PackageNotFoundError:
        return []


def _extra_of(line: str) -> str:
    found = MARKER.search(line.partition(";")[2])
    return found["extra"] if found else ""
