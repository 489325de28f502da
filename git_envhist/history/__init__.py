"""Questions about the past, answered without touching the world."""
