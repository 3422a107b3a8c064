"""The client of the REST interface: what it never sends."""

import pytest

from gpudeck.client import HubConnection
from gpudeck.errors import CommandError, ExitCode


@pytest.mark.parametrize("token", ["gdk1.a\ngdk1.b", "gdk1.a gdk1.b", "gdk1.\u00e9", "gdk1.\x7f"])
def test_a_token_of_several_words_is_refused_and_not_shown(token: str) -> None:
    """A file with two tokens ended in a traceback that printed both."""
    with pytest.raises(CommandError) as error:
        HubConnection("http://127.0.0.1:1", token)
    assert error.value.code == ExitCode.USAGE
    assert "gdk1" not in str(error.value)


def test_no_token_is_the_hubs_to_refuse() -> None:
    HubConnection("http://127.0.0.1:1", "")
