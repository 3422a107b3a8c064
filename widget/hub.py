"""`connect()`: a hub's answers as DataFrames."""

from gpudeck.client.frames import HubFrames, Item
from gpudeck.client.hub import Client, client_of


def connect(hub: str, token: str | None = None, *, ca_file: str | None = None) -> "Hub":
    """Connect to a hub; a wrong token is an error here and not later."""
    client, url = client_of(hub, token, ca_file)
    return Hub(client, url, client.me())


class Hub(HubFrames):
    """A hub as its token may see it."""

    def __init__(self, client: Client, url: str, me: Item) -> None:
        super().__init__(client)
        self.url = url
        self.me = me

    def __repr__(self) -> str:
        return (f"<gpudeck hub at {self.url}, as {self.me.get('name')} ({self.me.get('role')}): "
                ".gpus() .tasks() .series() .usage() .quotas() .leases() .claims() .events()>")
