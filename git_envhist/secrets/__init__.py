"""Decide which files are secret, and seal them.

A file is secret by its name (`rules`), by a token in it (`tokens`), by a setting with a value that looks random
(`setting_values`), or because it equals a secret file. `seal` encrypts it with a key of the repository (`keys`);
recipients can open files that were sealed for them (`age_file`). `masking` removes the same tokens from text that is
stored or printed.
"""
