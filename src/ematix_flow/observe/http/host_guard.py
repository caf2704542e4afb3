"""Decides which hosts this process may connect to on behalf of a URL; it opens no connection itself."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.errors import RunError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable

    Address = ipaddress.IPv4Address | ipaddress.IPv6Address
    Network = ipaddress.IPv4Network | ipaddress.IPv6Network
    Resolve = Callable[[str, int], list[str]]

VARIABLE = "EMATIX_FLOW_ALLOW_HOSTS"

_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)", re.IGNORECASE)
"""What a resolver of C reads as a part of an address: decimal, octal or hexadecimal."""

_WITH_IPV4 = ipaddress.IPv6Network("64:ff9b::/96")
"""Addresses of translators; their last four bytes are an IPv4 address."""

_METADATA = (ipaddress.ip_network("168.63.129.16"), ipaddress.ip_network("192.0.0.0/24"))
"""Where clouds serve their own machines by addresses that count as public."""


class RefusedHostError(RunError):
    """A host that nothing may be sent to."""


class HostUnreachableError(TransientError):
    """A host that did not answer; nothing was sent to it."""


@dataclass(frozen=True, slots=True)
class Reachable:
    """A host that may be connected to, with the addresses that its name had when it was resolved."""

    host: str
    port: int
    addresses: tuple[str, ...]
    listed: bool
    """True when the operator named it, so that plain text is fine."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """The private hosts that the operator allows."""

    names: frozenset[str] = frozenset()
    """Hosts, with or without a port."""
    networks: tuple[Network, ...] = ()

    def lists(self, host: str, port: int, addresses: tuple[Address, ...]) -> bool:
        """Return whether a host is named, or all its addresses are."""
        spelled = f"[{host}]" if ":" in host else host
        if not self.names.isdisjoint({host, spelled, f"{spelled}:{port}"}):
            return True
        return bool(addresses) and all(any(one in network for network in self.networks) for one in addresses)


def allowed_hosts(text: str | None = None) -> Allowed:
    """Return what a list allows, by default that of EMATIX_FLOW_ALLOW_HOSTS: hosts, host:port and networks by comma."""
    entries = (os.environ.get(VARIABLE, "") if text is None else text).split(",")
    names, networks = set(), []
    for entry in (entry.strip().lower().rstrip(".") for entry in entries):
        try:
            networks.append(ipaddress.ip_network(entry.strip("[]"), strict=False))
        except ValueError:
            names.add(entry)
    return Allowed(frozenset(names - {""}), tuple(networks))


def system_addresses(host: str, port: int) -> list[str]:
    """Return the addresses of a host as the system knows them."""
    return [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def reach(host: str, port: int, allowed: Allowed | None = None, resolve: Resolve = system_addresses) -> Reachable:
    """Return the addresses of a host, resolved once, or refuse it."""
    allowed = allowed_hosts() if allowed is None else allowed
    name = host.lower().rstrip(".").strip("[]")
    written = _written_address(name)
    try:
        resolved = (str(written),) if written is not None else tuple(dict.fromkeys(resolve(name, port)))
    except OSError as error:
        message = f"host {host!r} is not known: {error.strerror}"
        raise HostUnreachableError(message) from None
    addresses = tuple(_embedded_ipv4(ipaddress.ip_address(one.partition("%")[0])) for one in resolved)
    listed = allowed.lists(name, port, addresses)
    private = [one for one in addresses if not _is_public(one)]
    if private and not listed:
        message = f"host {host!r} is private or belongs to this machine, so nothing is sent to it"
        raise RefusedHostError(message, hint=f"{VARIABLE}={name}:{port} allows it.")
    if not resolved:
        raise HostUnreachableError(f"host {host!r} has no address")
    return Reachable(name, port, resolved, listed)


def _written_address(name: str) -> Address | None:
    """Return the address that a host is written as; spellings of which only some programs know the meaning are refused."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        if not name or _NUMBER.fullmatch(name.rpartition(".")[2]) or any(ord(character) <= 32 for character in name):  # noqa: PLR2004 - blanks and controls
            message = f"{name!r} is no name of a host"
            raise RefusedHostError(message, hint="write an address as four decimal numbers or as IPv6.") from None
        return None
    if _embedded_ipv4(address) != address:
        message = f"{name!r} hides an address of IPv4 in one of IPv6"
        raise RefusedHostError(message, hint="write it as four decimal numbers.")
    return address


def _embedded_ipv4(address: Address) -> Address:
    """Return the IPv4 address that one of IPv6 stands for, or the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inside = address.ipv4_mapped or address.sixtofour
    if inside is None and (address in _WITH_IPV4 or (int(address) >> 32 == 0 and int(address) > 1)):
        inside = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address if inside is None else inside


def _is_public(address: Address) -> bool:
    return address.is_global and not address.is_multicast and not any(address in one for one in _METADATA)
