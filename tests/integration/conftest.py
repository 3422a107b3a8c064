"""Fixtures that several files here use."""

from collections.abc import Iterator

import pytest

from tests.fakes.children import Children


@pytest.fixture
def children() -> Iterator[Children]:
    """Real processes that count as tasks; all of them end with the test."""
    children = Children()
    yield children
    children.close()
