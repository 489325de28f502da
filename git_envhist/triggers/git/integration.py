"""git itself as an integration: hooks of the configuration where git runs those, else the directory it really uses."""

from __future__ import annotations

import os

from git_envhist.errors import EnvhistError, Refused
from git_envhist.model.causing import FileEdit, InstalledPart
from git_envhist.store.repository import Repository
from git_envhist.triggers.edits import look, rewrite
from git_envhist.triggers.git import configured, directory
from git_envhist.triggers.git.places import (
    CONFIGURED_SINCE,
    git_version,
    hooks_directory,
    is_below,
    is_ignored,
    user_config,
    user_value,
)
from git_envhist.triggers.git.shim import is_for_named
from git_envhist.triggers.integration import NOT_NAMED, InstallPlan, InstallTarget
from git_envhist.values import replace

ONLY_NAMED = (
    "hooks of every repository capture where a person captured once (git envlog capture), or installed"
)


class GitHooks:
    """The hooks of git."""

    @property
    def name(self) -> str:
        return "git"

    def plan_install(self, place: InstallTarget) -> InstallPlan:
        if git_version() >= CONFIGURED_SINCE:
            return _configured(place)
        return _everywhere(place) if place.everywhere else _in_directory(place)

    def plan_uninstall(self, place: InstallTarget) -> InstallPlan:
        found = [configured.plan_away(_config_file(place))]
        return InstallPlan(
            (*filter(None, found), *(e for each in _directories(place) for e in directory.plan_away(each)))
        )

    def parts(self, place: InstallTarget) -> tuple[InstalledPart, ...]:
        version = git_version()
        found = configured.parts(_config_file(place), version, CONFIGURED_SINCE)
        if place.everywhere:
            found = (*found, *(part for each in _directories(place) for part in directory.parts(each)))
        else:
            found = (*found, *_parts_of_directory(place, bool(found)))
        return _as_named(place, found)


def _as_named(place: InstallTarget, found: tuple[InstalledPart, ...]) -> tuple[InstalledPart, ...]:
    """Return the parts; hooks of every repository are not active in one that no person named."""
    repository = place.repository
    if repository is None or place.trusted.has_repository(repository.common_dir):
        return found
    return tuple(
        replace(part, active=False, remark=NOT_NAMED) if part.active and _is_for_named(part.place) else part
        for part in found
    )


def _is_for_named(path: str) -> bool:
    content = look(path)
    return content is not None and is_for_named(content.data)


def _configured(place: InstallTarget) -> InstallPlan:
    """The configuration alone: what stood in the directory for an older git would be called, too."""
    away = [edit for each in _directories(place) for edit in directory.plan_away(each)]
    remarks = (ONLY_NAMED,) if place.everywhere else ()
    return InstallPlan(
        (configured.plan(_config_file(place), place.program, everywhere=place.everywhere), *away), remarks
    )


def _in_directory(place: InstallTarget) -> InstallPlan:
    repository = _repository(place)
    where = hooks_directory(repository)
    if not place.force:
        _refuse_anothers(repository, where)
    return InstallPlan(directory.plan(where, place.program))


def _everywhere(place: InstallTarget) -> InstallPlan:
    """An older git: the user's own hooks directory, else the template of repositories to come."""
    chosen = user_value(place, "core.hooksPath")
    if chosen is not None:
        return InstallPlan(directory.plan(chosen, place.program, everywhere=True), (ONLY_NAMED,))
    template = user_value(place, "init.templateDir")
    remark = f"repositories made from now on have the hooks; in one that is there: git envlog install; {ONLY_NAMED}"
    if template is not None:
        return InstallPlan(
            directory.plan(os.path.join(template, "hooks"), place.program, everywhere=True), (remark,)
        )
    template = _own_template(place)
    edits = directory.plan(os.path.join(template, "hooks"), place.program, everywhere=True)
    return InstallPlan((*edits, _template_configured(place, template)), (remark,))


def _own_template(place: InstallTarget) -> str:
    return os.path.join(place.state, "template")


def _template_configured(place: InstallTarget, template: str) -> FileEdit:
    edit = rewrite(user_config(place), b"")
    text = edit.before.data if edit.before is not None else b""
    newline = b"" if not text or text.endswith(b"\n") else b"\n"
    quoted = os.fsencode(template.replace("\\", "\\\\").replace('"', '\\"'))
    ours = configured.marked(b'[init]\n\ttemplateDir = "' + quoted + b'"\n')
    return rewrite(edit.path, text + newline + ours)


def _refuse_anothers(repository: Repository, where: str) -> None:
    if is_below(where, repository.common_dir):
        return
    if not is_below(where, repository.root):
        raise Refused(
            f"the hooks of this repository are shared with others: '{where}'",
            hint="for all that use them: --force; or give this one its own: git config core.hooksPath <directory>",
        )
    if not is_ignored(repository, os.path.join(where, "post-commit")):
        raise Refused(
            f"the hooks of this repository are part of its code: '{where}'",
            hint="to change them all the same: --force; with git 2.54 and newer they need no change",
        )


def _config_file(place: InstallTarget) -> str:
    if place.everywhere or place.repository is None:
        return user_config(place)
    return os.path.join(place.repository.common_dir, "config")


def _directories(place: InstallTarget) -> tuple[str, ...]:
    """Every directory where ours may stand: the one that git uses, and the one that it would use by itself."""
    if not place.everywhere and place.repository is not None:
        usual = os.path.join(place.repository.common_dir, "hooks")
        return tuple(dict.fromkeys((os.path.normpath(hooks_directory(place.repository)), usual)))
    template = user_value(place, "init.templateDir") or _own_template(place)
    chosen = user_value(place, "core.hooksPath")
    return tuple(filter(None, (chosen, os.path.join(template, "hooks"))))


def _parts_of_directory(place: InstallTarget, is_configured: bool) -> tuple[InstalledPart, ...]:
    repository = _repository(place)
    used = hooks_directory(repository)
    found = directory.parts(used)
    if found or is_configured:
        return found
    usual = os.path.join(repository.common_dir, "hooks")
    remark = f"git looks for hooks in '{used}' now: git envlog install"
    return tuple(
        InstalledPart(part.event, False, part.place, remark)
        for part in directory.parts(usual)
        if not is_below(usual, used)
    )


def _repository(place: InstallTarget) -> Repository:
    if place.repository is None:
        raise EnvhistError("no repository is meant", hint="go to one, or install for all of them: --global")
    return place.repository
