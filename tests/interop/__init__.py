"""Interoperation with other programs: git versions, remotes, transports and dulwich."""
