"""The engine of a restore: what is to change (pure), staged beside the environment, swapped in, looked at again."""
