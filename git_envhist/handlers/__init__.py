"""Handle calls of git, of coding agents and of the daily timer.

`git_hook` captures after a commit, a checkout or a merge; `auto_push` pushes the history after a `git push`;
`agent_hook` captures for the tools and turns of an agent; `daily_upkeep` runs the daily maintenance. These detach from
the caller, print nothing, and never make it fail; their results are written for `git envlog status`. `agent_shim`
writes the script that a plugin's hooks call. `agent_worktree` makes and removes the worktrees of an agent, which waits
for its output.
"""
