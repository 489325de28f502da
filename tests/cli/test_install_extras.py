"""Commands that install an extra: each must work in the environment that the program runs in."""

from __future__ import annotations

import pytest

from git_envhist.cli.install_extras import command_for, extra_install_command, requirements_of

DECLARED = [
    "click<9,>=8.1",
    "mcp<3,>=2.3; extra == 'mcp'",
    "mcp<3,>=2.3; extra == 'test'",
    'textual<9,>=8; extra == "tui"',
]


def test_install_command_names_the_requirements() -> None:
    assert requirements_of("mcp", DECLARED) == ["mcp<3,>=2.3"]
    assert requirements_of("tui", DECLARED) == ["textual<9,>=8"]
    assert requirements_of("tui", []) == ["git-envhist[tui]"]
    assert "git-envhist" not in extra_install_command("mcp").partition(" install ")[2]


@pytest.mark.parametrize(
    ("prefix", "installers", "command"),
    [
        (["pyvenv.cfg", "pipx_metadata.json"], {"pip"}, "pipx inject git-envhist 'mcp<3'"),
        (["uv-receipt.toml"], {"uv"}, "uv pip install --python /p/python 'mcp<3'"),
        (["pyvenv.cfg"], {"uv"}, "uv pip install --python /p/python 'mcp<3'"),
        (["pyvenv.cfg"], {"pip", "uv"}, "/p/python -m pip install 'mcp<3'"),
        (["pyvenv.cfg"], set(), "/p/python -m ensurepip && /p/python -m pip install 'mcp<3'"),
    ],
)
def test_install_command_depends_on_the_installer(
    prefix: list[str], installers: set[str], command: str
) -> None:
    assert command_for(["mcp<3"], prefix, "/p/python", frozenset(installers)) == command
