"""Networks given by a setting, and proxies among them that are trusted to name the client's
address."""

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class NetworkSet:
    networks: tuple[Network, ...] = ()

    def __str__(self) -> str:
        return ",".join(map(str, self.networks)) or "none"

    def hold(self, address: str) -> bool:
        try:
            parsed = ip_address(plain_address(address))
        except ValueError:
            return False
        return any(parsed in network for network in self.networks)


class TrustedProxies(NetworkSet):
    __slots__ = ()

    def client(self, address: str, forwarded_for: str) -> str:
        """Return the first address in `X-Forwarded-For`, from the right, that is not a trusted
        proxy: the client may have written everything further left itself."""
        for word in reversed([address, *forwarded_for.split(",")][1:]):
            if not self.hold(address):
                break
            hop = word.strip()
            try:
                address = plain_address(str(ip_address(hop)))
            except ValueError:
                break
        return address


NOBODY = TrustedProxies()
NONE = NetworkSet()


def plain_address(address: str) -> str:
    """Return the IPv4 address of a client that a socket for both families (`[::]`) names
    ::ffff:a.b.c.d: rules for IPv4 are about it, and it is one of many in that /64."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped if parsed.version == 6 else None
    return address if mapped is None else str(mapped)


def proxies(raw: str) -> TrustedProxies:
    return TrustedProxies(_read(raw))


def networks(raw: str) -> NetworkSet:
    return NetworkSet(_read(raw))


def _read(raw: str) -> tuple[Network, ...]:
    """Parse addresses and networks, separated by commas. Raises ValueError."""
    try:
        return tuple(ip_network(word.strip()) for word in raw.split(",") if word.strip())
    except ValueError as error:
        raise ValueError(f"{error}; addresses such as 10.0.0.5 or 10.0.0.0/24 are needed, with "
                         "commas between them") from error


def neighbourhood(address: str) -> str:
    """Return the group that counts as one address: for IPv6 a /64, in which anyone has 2^64."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    return str(ip_network(f"{address}/64", strict=False)) if parsed.version == 6 else str(parsed)
