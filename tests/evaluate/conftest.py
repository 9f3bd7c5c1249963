"""A method of AFABench in each setting and with each kind of choice."""

import pytest
from batches import METHODS


@pytest.fixture(params=METHODS.values(), ids=METHODS)
def method(request):
    return request.param()
