import pytest

pytest.register_assert_rewrite("tests.ablations.storm.place")
