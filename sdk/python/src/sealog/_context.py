"""What a request knows and every event of it should have: actor, session, address, request id, trace."""

from __future__ import annotations

import contextvars
import hashlib
import ipaddress
from contextlib import contextmanager
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Union

from ._event import TEXT_FIELDS, wrong

_current: "contextvars.ContextVar[Optional[Dict[str, Any]]]" = contextvars.ContextVar("sealog", default=None)
_Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]


@contextmanager
def context(**fields: Any) -> Iterator[None]:
    """Adds fields to every event that is logged inside: `with context(actor_id="u-17"): ...`.

    Fields of the event win; members of `metadata` are merged. A value may be a function without arguments,
    which is called for each event: the user is often known only after the context begins. `traceparent` is
    sent as a header.
    """
    token = _current.set(_merged(_current.get(), fields))
    try:
        yield
    finally:
        _current.reset(token)


def _merged(outer: Optional[Mapping[str, Any]], fields: Mapping[str, Any]) -> Dict[str, Any]:
    for name in fields:
        if name not in TEXT_FIELDS and name not in ("metadata", "traceparent"):
            raise wrong(name, "is not a field of an event; put other data into metadata")
    merged = {**(outer or {}), **fields}
    if outer and "metadata" in outer and "metadata" in fields:
        merged["metadata"] = {**outer["metadata"], **fields["metadata"]}
    return merged


def apply(event: Dict[str, Any]) -> Optional[str]:
    """Fills what the event lacks. Returns the traceparent."""
    fields = _current.get()
    if fields is None:
        return None
    for name, value in fields.items():
        if name == "metadata":
            known = {key: part() if callable(part) else part for key, part in value.items()}
            given = event.get("metadata")
            if given is None or isinstance(given, dict):
                event["metadata"] = {
                    **{key: part for key, part in known.items() if part is not None},
                    **(given or {}),
                }
        elif name != "traceparent" and event.get(name) is None:
            event[name] = value() if callable(value) else value
    traceparent: Optional[str] = fields.get("traceparent")
    return traceparent


class TrustedProxies:
    """Proxies whose X-Forwarded-For is read: addresses and CIDR ranges."""

    def __init__(self, ranges: Iterable[str]) -> None:
        self._networks: List[_Network] = [ipaddress.ip_network(one, strict=False) for one in ranges]

    def __contains__(self, address: str) -> bool:
        found = _address(address)
        return found is not None and any(found in network for network in self._networks)

    def client_address(self, peer: Optional[str], forwarded: Iterable[str]) -> Optional[str]:
        """The client's address, by spec 8.2: from the right, the first one that is no trusted proxy."""
        if peer is None or _address(peer) is None:
            return peer
        client = str(_address(peer))
        entries = [entry.strip() for entry in ",".join(forwarded).split(",")]
        for count, entry in enumerate(reversed([entry for entry in entries if entry])):
            found = _address(_without_port(entry)) if len(entry) <= 64 and count < 32 else None
            if client not in self or found is None:
                break
            client = str(found)
        return client


def _address(text: str) -> Union[ipaddress.IPv4Address, ipaddress.IPv6Address, None]:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _without_port(entry: str) -> str:
    if entry.startswith("["):
        return entry[1:].partition("]")[0]
    return entry.partition(":")[0] if entry.count(":") == 1 else entry


def session_digest(key: Optional[str]) -> Optional[str]:
    """An id of a session for the log. The session's own key would let a reader of the log take the session
    over."""
    return "s_" + hashlib.sha256(key.encode()).hexdigest()[:32] if key else None


def request_fields(
    proxies: TrustedProxies, peer: Optional[str], headers: Mapping[str, List[str]]
) -> Dict[str, Any]:
    """What the middlewares share. `headers` has lower-case names."""
    metadata: Dict[str, Any] = {}
    address = proxies.client_address(peer, headers.get("x-forwarded-for", []))
    if address:
        metadata["ip_address"] = address
    if headers.get("x-request-id"):
        metadata["request_id"] = headers["x-request-id"][0][:255]
    fields: Dict[str, Any] = {"metadata": metadata}
    if headers.get("traceparent"):
        fields["traceparent"] = headers["traceparent"][0][:255]
    return fields
