"""Events as the service returns them, and the offline checks of chains and proofs. Nothing here uses the
network.

The hash of an event covers its text, not its values: 1.0 and 1 differ. So an event keeps the bytes it came
in.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union

from . import _proof, _sealed
from .errors import bad_option


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


class ProofResult(NamedTuple):
    """Whether a proof holds. `reason` is one of vectors/trust/README.md, or `fork`: another checkpoint of
    the same size had another root."""

    holds: bool
    reason: Optional[str] = None
    message: str = ""


class Proofs:
    """Checks the proofs of one log. Checkpoints of one size have to agree over all of them."""

    def __init__(self, vkey: Optional[str] = None, are_published: bool = True) -> None:
        self.are_published = are_published
        self._key: Optional[_proof.Key] = None
        # The checkpoint whose signature was checked last. Proofs share it, and a signature takes 7 ms.
        self._signed: Optional[Tuple[str, List[Tuple[str, bytes, bytes]]]] = None
        self._roots: Dict[int, bytes] = {}
        if vkey is not None:
            try:
                self._key = _proof.Key(vkey)
            except (_proof.Refused, TypeError, AttributeError):
                self._key = None
            if self._key is None or self._key.kind != 1:
                problem = "must be the log's key, NAME+ID+KEY, as `sealog trust vkey` prints it"
                raise bad_option("vkey", problem)

    @property
    def has_key(self) -> bool:
        return self._key is not None

    def check(self, event: bytes, proof: bytes) -> ProofResult:
        try:
            self._check(event, proof)
        except _proof.Refused as refused:
            return ProofResult(False, "signature" if refused.reason == "unknown" else refused.reason, str(refused))
        except _proof.Uncovered as uncovered:
            name, version = uncovered.args
            if version is not None:
                return ProofResult(False, "schema", "schema_version %d is not known" % version)
            return ProofResult(False, "annotations", "neither the hash nor the proof covers the field %s" % name)
        return ProofResult(True)

    def _check(self, event: bytes, proof: bytes) -> None:
        file = _proof.Proof(proof)
        claim = _proof.EventProof(file.extra or b"")
        entry = claim.lead(_proof.read_event(event.decode("utf-8", "replace")))[0]
        origin, size, root = _proof.parse_checkpoint(file.note.text)
        note = file.note.text, file.note.signatures
        if self._key is not None and note != self._signed:
            if origin != self._key.name:
                raise _proof.Refused("origin", "the checkpoint is of the log %s" % origin)
            file.note.verify([self._key])
            self._signed = note
        try:
            _proof.verify_inclusion(_proof.leaf_hash(entry.encode()), file.index, size, root, file.path)
        except _proof.Refused as refused:
            raise _proof.Refused("root", str(refused)) from None
        if self._roots.setdefault(size, root) != root:
            raise _proof.Refused("fork", "another checkpoint of %d entries had another root" % size)


def verify_proof(event: Union[StoredEvent, bytes, str], proof: Union[bytes, str], vkey: Optional[str] = None) -> ProofResult:
    """Checks a proof of an event (`GET /tlog/v1/chain/proof?format=tlog-proof`) offline. Without the log's
    `vkey` no signature is checked."""
    text = event.text if isinstance(event, StoredEvent) else event
    data = [part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part for part in (text, proof)]
    return Proofs(vkey).check(data[0], data[1])
