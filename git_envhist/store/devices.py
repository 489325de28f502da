"""Device numbers as Linux packs them, without asking the system that reads them (pure)."""

from __future__ import annotations


def split_device(device: int) -> tuple[int, int]:
    """Major and minor number of a device."""
    return (device >> 8 & 0xFFF) | (device >> 32 & 0xFFFFF000), (device & 0xFF) | (device >> 12 & 0xFFFFFF00)


def join_device(major: int, minor: int) -> int:
    """One number of two with 32 bits each: undoes `split_device`."""
    return (major & 0xFFF) << 8 | (major & 0xFFFFF000) << 32 | (minor & 0xFF) | (minor & 0xFFFFFF00) << 12
