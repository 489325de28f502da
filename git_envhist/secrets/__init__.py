"""Decide what is secret, and seal it.

A file is secret by its name (`rules`), by a token in it (`tokens`), by a setting whose value looks random
(`setting_values`), or because it equals a secret file. `seal` encrypts with a key of the repository (`keys`);
recipients can open what was sealed for them (`age_file`). `masking` removes the same tokens from text that is stored
or printed.
"""
