"""A second name for the index of every pack of ours, by which it comes back when somebody took it for garbage.

`git gc` removes an index beside which it saw no pack. It reads the directory while others write to it: where there are
more names than the system hands out at a time, one that came later may be seen and one that came before it missed. Then
the index of a fresh pack goes, and with it, if that was seen, the mark; the pack stays, and nobody finds what is in it.

The second name is a hard link. It is there before the first one, and goes before it, so that nothing comes back that
was taken away on purpose.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress

from git_envhist.store.durable import remove_if_present, sync_directory
from git_envhist.store.ownpacks import bears_mark, is_pack_name
from git_envhist.store.places import BESIDE_STATE, make_directory, write_keep

BESIDE_STATE_TOO = "indexes"
BESIDE_PACKS_TOO = ".envhist-indexes"


def spares(common_state: str, pack_dir: str) -> tuple[str, str]:
    """Where second names can stand: beside either place of stagings, on the file system of the packs."""
    return os.path.join(common_state, BESIDE_STATE_TOO), os.path.join(
        os.path.dirname(pack_dir), BESIDE_PACKS_TOO
    )


def spare_beside(place: str) -> str:
    """Where they stand for what is staged in a place."""
    above, name = os.path.split(place)
    return os.path.join(above, BESIDE_STATE_TOO if name == BESIDE_STATE else BESIDE_PACKS_TOO)


def link_spare_index(index: str, spare: str, name: str) -> None:
    """Link an index; a file system that cannot has no second names."""
    with suppress(OSError):
        make_directory(spare, stat.S_IMODE(os.stat(os.path.dirname(spare)).st_mode))
        os.link(index, os.path.join(spare, name))


def forget_second_names(common_state: str, pack_dir: str, names: Iterable[str]) -> None:
    """To be called before the packs go."""
    for name in names:
        for spare in spares(common_state, pack_dir):
            remove_if_present(os.path.join(spare, name))


def restore_lost_indexes(common_state: str, pack_dir: str) -> list[str]:
    """Give every pack of ours the index that it lost, and every index a second name; the packs that had lost theirs."""
    first, second = spares(common_state, pack_dir)
    known = {name: spare for spare in (first, second) for name in _names_in(spare)}
    present = _names_in(pack_dir)
    _name_again(first, second, pack_dir, present, known)
    lost = [name for name in known if is_pack_name(name) and f"{name}.idx" not in present]
    back = [name for name in lost if f"{name}.pack" in present and _bring_back(known[name], pack_dir, name)]
    for name in lost:
        if f"{name}.pack" not in present and not os.path.lexists(os.path.join(pack_dir, f"{name}.pack")):
            remove_if_present(os.path.join(known[name], name))
    if back:
        sync_directory(pack_dir)
    return back


def _bring_back(spare: str, pack_dir: str, name: str) -> bool:
    base = os.path.join(pack_dir, name)
    marked = not os.path.lexists(base + ".keep")
    try:
        if marked:
            write_keep(base + ".keep", os.stat(pack_dir))
        # At once or not at all: whoever takes the pack away took this name first.
        os.link(os.path.join(spare, name), base + ".idx")
    except OSError as error:
        if marked and not isinstance(error, FileExistsError):
            remove_if_present(base + ".keep")
        return False
    return True


def _name_again(
    first: str, second: str, pack_dir: str, present: frozenset[str], known: dict[str, str]
) -> None:
    """For packs of earlier versions, and for those that a clone brought along."""
    unnamed = [name[:-5] for name in present if name.endswith(".keep") and name[:-5] not in known]
    for name in unnamed:
        if (
            is_pack_name(name)
            and f"{name}.idx" in present
            and bears_mark(os.path.join(pack_dir, f"{name}.keep"))
        ):
            index = os.path.join(pack_dir, f"{name}.idx")
            same = _device(os.path.dirname(first)) == _device(pack_dir)
            link_spare_index(index, first if same else second, name)


def _device(path: str) -> int:
    return os.stat(path).st_dev


def _names_in(directory: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(directory))
    except FileNotFoundError:
        return frozenset()
