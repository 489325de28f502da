"""The packs that captures published into a repository: which objects they hold, and the objects.

Only packs whose `.keep` bears our mark count. The user's `gc` leaves these alone, whereas anything else in the
repository may be gone by the time a snapshot relies on it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from typing import Self

from git_envhist.errors import Damaged
from git_envhist.store.idx import PackIndex
from git_envhist.store.packfile import PackFile
from git_envhist.system import NOFOLLOW

KEEP_MARK = b"git-envhist\n"
NAME_LENGTHS = (len("pack-") + 40, len("pack-") + 64)
HEX = frozenset("0123456789abcdef")


def is_pack_name(name: str) -> bool:
    """Whether a name is one that our packs can have: no path, nothing of anybody else's."""
    return len(name) in NAME_LENGTHS and name.startswith("pack-") and HEX.issuperset(name[5:])


def bears_mark(keep_path: str) -> bool:
    """Whether a `.keep` file is one of ours."""
    try:
        descriptor = os.open(keep_path, os.O_RDONLY | NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(descriptor, len(KEEP_MARK) + 1) == KEEP_MARK
    except OSError:
        return False
    finally:
        os.close(descriptor)


def own_names(pack_dir: str) -> list[str]:
    """The names of our packs, whatever else is left of them than the mark."""
    try:
        names = os.listdir(pack_dir)
    except FileNotFoundError:
        return []
    kept = [name.removesuffix(".keep") for name in names if name.endswith(".keep")]
    return sorted(
        name for name in kept if is_pack_name(name) and bears_mark(os.path.join(pack_dir, f"{name}.keep"))
    )


class OwnPacks:
    """Our published packs at one moment. Nothing but their names is read until something is looked up."""

    def __init__(self, pack_dir: str, object_format: str, candidates: list[str]) -> None:
        self.pack_dir = pack_dir
        self.damaged: list[Damaged] = []
        """What is wrong with packs that had to be passed over."""
        self._format = object_format
        self._candidates = candidates
        self._packs: dict[str, PackFile] | None = None
        self._finders: list[Callable[[bytes], int | None]] | None = None

    @classmethod
    def open(
        cls,
        pack_dir: str,
        object_format: str,
        exclude: Container[str] | Callable[[], Container[str]] = (),
    ) -> Self:
        """The packs of ours in a directory, less the excluded ones.

        Give a function for packs that are being published: it is called after the directory was read and before
        any pack is opened, the one order in which no pack that a sweep takes away can be relied upon.
        """
        try:
            names = os.listdir(pack_dir)
        except FileNotFoundError:
            names = []
        present = frozenset(names)
        left_out = exclude() if callable(exclude) else exclude
        kept = [name.removesuffix(".keep") for name in names if name.endswith(".keep")]
        candidates = [
            name for name in kept if is_pack_name(name) and name + ".idx" in present and name not in left_out
        ]
        return cls(pack_dir, object_format, sorted(candidates))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._opened())

    @property
    def paths(self) -> tuple[str, ...]:
        """The `.pack` files."""
        return tuple(pack.path for pack in self._opened().values())

    @property
    def packs(self) -> tuple[PackFile, ...]:
        return tuple(self._opened().values())

    def __contains__(self, oid: bytes) -> bool:
        finders = self._finders if self._finders is not None else self._open_finders()
        for place, find in enumerate(finders):
            if find(oid) is not None:
                if place:
                    # What is asked for next most likely stands there, too.
                    finders.insert(0, finders.pop(place))
                return True
        return False

    def read(self, oid: bytes) -> tuple[bytes, bytes]:
        """The kind and the bytes of an object; `KeyError` where no pack has it, `Damaged` where none has it whole."""
        damage = None
        for pack in self._opened().values():
            try:
                found = pack.read(oid)
            except Damaged as error:
                damage = damage or error
                continue
            if found is not None:
                return found
        if damage or self.damaged:
            raise damage or self.damaged[0]
        raise KeyError(oid.hex())

    def close(self) -> None:
        for pack in (self._packs or {}).values():
            pack.close()
        self._packs, self._finders, self._candidates = None, None, []

    def _open_finders(self) -> list[Callable[[bytes], int | None]]:
        # The fullest pack is the likeliest to have what is looked for.
        indexes = sorted((pack.index for pack in self._opened().values()), key=lambda index: -index.count)
        self._finders = [index.find for index in indexes]
        return self._finders

    def _opened(self) -> dict[str, PackFile]:
        if self._packs is None:
            self._packs = {}
            for name in self._candidates:
                self._open_pack(name, self._packs)
        return self._packs

    def _open_pack(self, name: str, packs: dict[str, PackFile]) -> None:
        base = os.path.join(self.pack_dir, name)
        if not bears_mark(base + ".keep"):
            return
        try:
            index = PackIndex(base + ".idx", 20 if self._format == "sha1" else 32)
        except FileNotFoundError:
            return  # swept meanwhile
        except OSError as error:
            self.damaged.append(Damaged(f"cannot read the pack index '{base}.idx': {error.strerror}"))
        except Damaged as error:
            # Its objects count as absent and are stored again, which mends what this capture needs of it.
            self.damaged.append(error)
        else:
            packs[name] = PackFile(base + ".pack", index, self._format)
