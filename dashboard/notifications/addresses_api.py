"""REST of the table of owners' addresses. What is allowed, the service decides."""

from dataclasses import dataclass
from http import HTTPStatus

from flask import Flask, Response

from ..access.policy import PermissionReach, Role
from ..access.requests import asker, body
from ..access.routes import Route, change, see, serve_routes
from ..web.answers import ApiError, answer
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


ROUTES = (
    Route("GET addresses", AddressesApi.listed, "list_addresses",
          see(Role.ADMIN, PermissionReach.NONE),
          "Where owners read their mail.",
          answer=AddressList),
    Route("PUT addresses", AddressesApi.replace, "put_addresses",
          change(Role.ADMIN, is_fresh=False),
          "The whole table.",
          answer=AddressList, body=AddressList, errors=(400, 409, 415, 503)),
)


def add_addresses_api(server: Flask, api: AddressesApi) -> None:
    serve_routes(server, api, ROUTES)
