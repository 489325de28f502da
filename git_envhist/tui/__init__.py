"""A history on a terminal: the timeline on the left, what is told of a moment on the right."""
