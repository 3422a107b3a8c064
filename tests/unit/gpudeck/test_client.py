"""The client of the REST interface: what it never sends, and how it says what the hub refused."""

import json

import pytest

from gpudeck.client.hub import HubConnection, NotThere, refused
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


@pytest.mark.parametrize(("status", "code"), [
    (400, ExitCode.FAILED), (403, ExitCode.DENIED), (404, ExitCode.FAILED),
    (502, ExitCode.UNREACHABLE)])
def test_a_refusal_names_the_hub_except_on_its_own_pages(status: int, code: ExitCode) -> None:
    body = json.dumps({"title": "No", "detail": "by must be user or team"}).encode()
    error = refused("http://hub:8050", status, body)
    assert "http://hub:8050" in str(error)
    assert "by must be user or team" in str(error)
    assert isinstance(error, NotThere) == (status == 404)
    of_page = refused(None, status, body)
    assert (str(of_page), type(of_page)) == ("by must be user or team", type(error))
    assert of_page.code == error.code
    assert error.code == code or status == 404
    assert str(refused(None, status, b"<html>")) == f"the hub answers {status}"
