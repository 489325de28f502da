"""git-envhist: the history of an environment, kept in git."""
