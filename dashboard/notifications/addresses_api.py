"""REST of the table of owners' addresses. What is allowed, the service decides."""

from dataclasses import dataclass
from http import HTTPStatus

from flask import Flask, Response

from ..access.requests import asker, body
from ..web.answers import PREFIX, ApiError, answer
from .addresses import OwnerAddresses
from .views import AddressList, AddressView


@dataclass(frozen=True, slots=True)
class AddressesApi:
    addresses: OwnerAddresses

    def listed(self) -> Response:
        return answer(_listed(self.addresses.all()))

    def replace(self) -> Response:
        items = body(AddressList).items
        wanted = {each.unix_name: each.address for each in items}
        if len(wanted) != len(items):
            raise ApiError(HTTPStatus.BAD_REQUEST, "a Unix name is listed twice")
        self.addresses.replace(asker(), wanted)
        return answer(_listed(wanted))


def _listed(addresses: dict[str, str]) -> AddressList:
    return AddressList([AddressView(*row) for row in sorted(addresses.items())])


def add_addresses_api(server: Flask, api: AddressesApi) -> None:
    for method, view in (("GET", api.listed), ("PUT", api.replace)):
        server.add_url_rule(f"{PREFIX}/addresses", f"addresses {method}", view, methods=[method],
                            provide_automatic_options=False)
