"""What a program of others has beyond the verbs: events, a round between two moments, tools, threads, `asyncio`.

Our own programs open `git_envhist.api.EnvHistory`; who imports the package is given `library.history.EnvHistory`, which
lives as long as its host: what it knows is read afresh for each verb, and it may be used by many threads and after a
fork.
"""
