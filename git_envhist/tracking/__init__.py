"""Record what happens beside the files: tasks, effects outside the machine, attached files."""
