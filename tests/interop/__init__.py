"""Other programs: remotes, transports and readers that know nothing of ours."""
