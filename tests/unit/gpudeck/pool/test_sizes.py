"""One meaning of a size of memory."""

import pytest

from gpudeck.pool.sizes import parse_board_size


@pytest.mark.parametrize("unit", ["G", "GB", "GiB", " G", " GB"])
def test_every_gigabyte_of_a_board_is_binary(unit: str) -> None:
    assert parse_board_size(f"40{unit}") == 40 * 2**30


@pytest.mark.parametrize("text", ["much", "-1G", "40Gi", "40 bytes", ""])
def test_what_is_no_size_says_so(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        parse_board_size(text)
