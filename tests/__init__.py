"""The tests; `support` holds what they share."""

import pytest

# What fails inside a helper says with what values, as in a test.
pytest.register_assert_rewrite("tests.support", "tests.end_to_end.captures")
