"""Answer which directories may have changed: a process that follows an environment with inotify, and its client.

The process (`server`) watches every directory of the environment (`watched_directories`, `inotify`). A capture asks it
over a socket (`client`) which directories may have changed since an earlier capture, and compares only these with the
stat cache. The answer is a token and a list of directories, or "unknown": then the capture looks at everything.

- The token is taken before the capture looks, after all pending events were read. The answer of the next capture
  contains every directory with an event after it.
- The process knows the tokens of one stat cache: that of the last capture that wrote it. Any other cache, another
  process, another scope or another root is unknown.
- Files that can change without an event are looked at by each capture: those with several hard links and those that
  could not be captured (a list in the head of the stat cache), and those that a process holds open or mapped for
  writing (`open_files`).
- A file is found by its place in its file system (`mounted_files`), because a process may use another mount or another
  namespace. One whose name is unknown, e.g. because the name by which it was opened is gone, leads to a full look and
  to no token: what is written to it gives an event elsewhere.
- Any doubt makes earlier tokens unknown: an overflow of the queue, another table of mounts, a new hard link, a new name
  that was gone before its links were counted (`new_paths`), a file system that reports no changes of other machines.
- From time to time a child of the process compares every directory with the stat cache (`verify`). A difference
  that the process does not know of ends its use; a change time alone is a doubt.
"""
