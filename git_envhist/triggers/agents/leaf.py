"""One coding agent as an integration: its settings call a shim in the data directory of the user.

The shim is never in a repository: the directory that an agent works in may be one that came with a clone.
"""

from __future__ import annotations

import os
import shlex

from git_envhist.errors import Refused
from git_envhist.model.causing import FileEdit, InstalledPart
from git_envhist.triggers.agents.events import PROJECT_VARIABLES, READING
from git_envhist.triggers.agents.outcomes import last_outcome
from git_envhist.triggers.agents.settings import (
    UnknownSettingsForm,
    elements,
    has_table_hooks,
    table_elements,
    with_hooks,
    with_table,
    without_hooks,
    without_table,
)
from git_envhist.triggers.agents.shapes import MARK, AgentSettingsForm, Hook
from git_envhist.triggers.edits import PROGRAM_MODE, look, rewrite
from git_envhist.triggers.git.shim import template
from git_envhist.triggers.integration import NOT_NAMED, InstallPlan, InstallTarget
from git_envhist.triggers.kept import read_record
from git_envhist.values import dataclass

SHIM = "agent-hook.sh"


@dataclass(frozen=True, slots=True)
class AgentIntegration:
    """A leaf of `AGENTS`."""

    shape: AgentSettingsForm

    @property
    def name(self) -> str:
        return self.shape.name

    def plan_install(self, place: InstallTarget) -> InstallPlan:
        """Our shim, and the settings with our hooks in them."""
        path = self._settings(place)
        text = _read(path)
        commands = self._commands(place)
        try:
            new = (with_table if _is_toml(path) else with_hooks)(text, self.shape, commands)
        except UnknownSettingsForm:
            raise _refused(path) from None
        looking = " ".join(sorted(READING))
        shim = template(SHIM).replace("@LOOKING@", looking).replace("@PROGRAM@", shlex.quote(place.program))
        variable = PROJECT_VARIABLES.get(self.name)
        shim = shim.replace("@PROJECT@", f"${{{variable}-}}" if variable else "")
        return InstallPlan(
            (rewrite(path, _bytes(new)),),
            (self.shape.remark,) if self.shape.remark else (),
            own=(rewrite(self._shim(place), os.fsencode(shim), PROGRAM_MODE),),
        )

    def plan_uninstall(self, place: InstallTarget) -> InstallPlan:
        """The settings without ours, wherever they are; the shim goes with the last repository that uses it."""
        # Another working tree of the repository has settings of its own, and loses its hooks with this one.
        recorded = read_record(place.state).of(self.name)
        paths = dict.fromkeys(map(os.path.realpath, (*self._places(place), *recorded)))
        # What was written there and cannot be read now is told; what never was ours is passed over.
        ours = [path for path in paths if _is_file(path) or (path in recorded and os.path.lexists(path))]
        edits = [self._emptied(path) for path in ours]
        return InstallPlan(
            tuple(edits), own=() if self._is_used_elsewhere(place) else (rewrite(self._shim(place), None),)
        )

    def _is_used_elsewhere(self, place: InstallTarget) -> bool:
        return any(place.named != one for one in place.trusted.places_of(self.name))

    def parts(self, place: InstallTarget) -> tuple[InstalledPart, ...]:
        """Each event that we are called for."""
        shim = os.path.exists(self._shim(place))
        for path in filter(_is_file, self._places(place)):
            text = _read(path)
            found = table_elements(text) if _is_toml(path) else elements(text)
            if found:
                return tuple(self._part(place, hook, path, found, shim) for hook in self.shape.hooks)
        return ()

    def _part(
        self, place: InstallTarget, hook: Hook, path: str, found: dict[str, list[object]], shim: bool
    ) -> InstalledPart:
        if hook.event not in found:
            missing = f"not in the settings any more: git envlog install --agent {self.name}"
            return InstalledPart(hook.event, False, path, missing)
        if not shim:
            return InstalledPart(
                hook.event, False, path, f"'{self._shim(place)}' is missing: it calls nothing"
            )
        if place.repository is not None and not place.trusted.has_repository(place.repository.common_dir):
            return InstalledPart(hook.event, False, path, NOT_NAMED)
        last = last_outcome(place.repository.state, self.name, hook.kind) if place.repository else None
        return InstalledPart(hook.event, True, path, last or "")

    def _emptied(self, path: str) -> FileEdit:
        text = _read(path)
        try:
            left = without_table(text) if _is_toml(path) else without_hooks(text, self.shape)
        except UnknownSettingsForm:
            if MARK not in text:
                return rewrite(path, _bytes(text))
            raise _refused(path) from None
        return rewrite(path, None if left is None else _bytes(left))

    def _settings(self, place: InstallTarget) -> str:
        """The file that hooks are put into."""
        json_file, *toml_file = self._places(place)
        # Codex warns where both forms are in use: what is there decides.
        if (
            toml_file
            and not os.path.exists(json_file)
            and has_table_hooks(without_table(_read(toml_file[0])))
        ):
            return toml_file[0]
        return json_file

    def _places(self, place: InstallTarget) -> tuple[str, ...]:
        """The files that ours may stand in."""
        path = self._below(place)
        if self.name != "codex":
            return (path,)
        return (path, os.path.join(os.path.dirname(path), "config.toml"))

    def _below(self, place: InstallTarget) -> str:
        if place.repository is not None and not place.everywhere:
            return os.path.join(place.repository.root, self.shape.project)
        variable = place.environ.get(self.shape.home_variable or "")
        if variable:
            return os.path.join(variable, self.shape.user.partition("/")[2])
        return os.path.join(place.home, self.shape.user)

    def _shim(self, place: InstallTarget) -> str:
        return os.path.join(place.own_data, "hooks", f"agent-{self.name}")

    def _commands(self, place: InstallTarget) -> dict[str, str]:
        """By event; in a repository without a word about this machine, since such settings may be shared."""
        shim = shlex.quote(self._shim(place))
        if place.repository is not None and not place.everywhere and not place.repository.plain:
            # The first slash: a relative XDG_DATA_HOME must not lead into the directory that the agent is in.
            shim = f'"/${{XDG_DATA_HOME:-$HOME/.local/share}}/git-{MARK}{self.name}"'
        return {hook.event: f"{shim} {hook.kind} 2>/dev/null || :" for hook in self.shape.hooks}


def _is_toml(path: str) -> bool:
    return path.endswith(".toml")


def _read(path: str) -> str:
    found = look(os.path.realpath(path))
    return "" if found is None else found.data.decode("utf-8", "surrogateescape")


def _is_file(path: str) -> bool:
    """Whether there is something that hooks of ours could stand in: what cannot be read holds none."""
    return os.access(path, os.R_OK) and os.path.isfile(path)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _refused(path: str) -> Refused:
    return Refused(
        f"the settings are not as the agent documents them: '{path}'",
        hint="nothing was written; docs/agents.md says what would stand there",
    )
