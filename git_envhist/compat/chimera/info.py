"""What is known of one checkpoint."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass
class CheckpointInfo:
    """A checkpoint: the environment's id of it, and what it is called."""

    id: str
    name: str
    timestamp: float
    description: str = ""

    @property
    def time_str(self) -> str:
        """When it was taken, in the time of this machine."""
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.timestamp))
