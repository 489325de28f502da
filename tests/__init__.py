"""The tests; `support` has their shared helpers."""

import pytest

# Assertions in helpers show the compared values, as those in tests do.
pytest.register_assert_rewrite("tests.support", "tests.end_to_end.captures")
