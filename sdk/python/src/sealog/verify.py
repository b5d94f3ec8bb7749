"""Events as the service returns them, and the offline check of a chain. Nothing here uses the network.

The hash of an event covers its text, not its values: 1.0 and 1 differ. So an event keeps the bytes it came
in.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union

from . import _sealed


class StoredEvent(Mapping[str, Any]):
    """An event with its exact text: `event["action"]`, `event.text`, `event.is_sound`."""

    __slots__ = ("text", "_members")

    def __init__(self, text: bytes) -> None:
        members = json.loads(text)
        if not isinstance(members, dict):
            raise ValueError("it is not an object")
        self.text, self._members = text, members

    def __getitem__(self, name: str) -> Any:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        return "StoredEvent(%s)" % self.text.decode("utf-8", "replace")

    @property
    def is_sound(self) -> bool:
        """Whether its text gives its hash. It says nothing of the events before and behind it."""
        events = _checked(self.text)
        return len(events) == 1 and not events[0].problem and events[0].computed == events[0].hash


class ChainResult(NamedTuple):
    """The verdict on a chain. `reason` and the fields after `last_seq` are those of vectors/README.md."""

    valid: bool
    checked: int
    first_seq: int
    last_seq: int
    message: str
    broken_at: Optional[int] = None
    broken_hash: Optional[str] = None
    reason: Optional[str] = None


def verify_events(
    events: Iterable[Union[StoredEvent, bytes, str]], heads: Iterable[Union[str, Tuple[int, str]]] = ()
) -> ChainResult:
    """Recomputes every hash and follows every link, oldest or newest first. `heads` are receipts noted
    earlier, as (chain_seq, hash) or "SEQ:HASH": without one, a tail that was cut off does not show."""

    def each() -> Iterator[_sealed.Event]:
        for event in events:
            text = event.text if isinstance(event, StoredEvent) else event
            yield from _checked(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)

    chain = _sealed.Chain([_head(head) for head in heads])
    for event in _sealed.oldest_first(each()):
        if not chain.add(event):
            break
    return ChainResult(**chain.result())


def _checked(text: bytes) -> List[_sealed.Event]:
    try:
        return list(_sealed.read_events(text))
    except _sealed.Unreadable as error:
        raise ValueError("not an event: byte %s: %s" % (error.offset, error.what)) from None


def _head(head: Union[str, Tuple[int, str]]) -> Tuple[int, str]:
    if not isinstance(head, str):
        return head[0], head[1]
    match = re.fullmatch(r"([1-9][0-9]{0,18}):([0-9a-f]{64})", head)
    if not match:
        raise ValueError("%r is not SEQ:HASH, a number and 64 lower-case hex digits" % head)
    return int(match[1]), match[2]


def event_of(text: bytes) -> StoredEvent:
    return StoredEvent(text)


def page_of(body: bytes) -> Tuple[List[StoredEvent], Dict[str, Any]]:
    """The events of a page with their texts, and the page's other members."""
    members = json.loads(body)
    if not isinstance(members, dict) or not isinstance(members.get("events"), list):
        raise ValueError("it has no array of events")
    fields: List[Tuple[bytes, bytes]] = []
    start = _sealed.VALUE.match(body, 0)
    pos, found = _sealed.read_object(body, start.end(), fields) if start else (0, False)
    if not found:
        raise ValueError("it has no array of events")
    events, pos = [], pos + 1
    for _ in members["events"]:
        begin = _sealed.VALUE.match(body, pos)
        assert begin  # the body is JSON
        _, end = _sealed.read_value(body, pos)
        events.append(StoredEvent(body[begin.start(begin.lastindex or 0) : end]))
        separator = _sealed.NEXT.match(body, end)
        assert separator
        pos = separator.end()
    return events, members
