"""Turns an event into the bytes that are sent, or says which field is wrong and what to do."""

from __future__ import annotations

import datetime
import difflib
import json
from typing import Any, Mapping, Optional, Set, TypedDict

from .errors import ValidationError

TEXT_FIELDS = frozenset(
    ("action", "actor_id", "actor_type", "resource", "resource_type", "severity", "session_id", "ts_client")
)
EVENT_BYTES_MAX = 262_144
_DEPTH_MAX = 200  # of the search for what is wrong; the encoder itself goes deeper


class _Action(TypedDict):
    action: str


class Event(_Action, total=False):
    """For type checkers: `event: Event = {"action": "user.login"}` finds misspelt fields. `log` and `enqueue`
    also take any other mapping."""

    actor_id: Optional[str]
    actor_type: Optional[str]
    resource: Optional[str]
    resource_type: Optional[str]
    severity: Optional[str]
    session_id: Optional[str]
    ts_client: Optional[str]
    metadata: Optional[Mapping[str, Any]]


_encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def encode(event: Mapping[str, Any]) -> bytes:
    """The body of an event. Fields that are None count as absent."""
    kept = {}
    for name, value in event.items():
        if value is None:
            continue
        if name in TEXT_FIELDS:
            if not isinstance(value, str) or len(value) > 255 or "\0" in value:
                raise _wrong_text(name, value)
        elif name != "metadata":
            raise _unknown(name)
        elif not isinstance(value, dict):
            raise wrong("metadata", "must be a dict, not %s" % type(value).__name__)
        kept[name] = value
    if not kept.get("action"):
        raise wrong("action", 'is required, for example "user.login"')
    try:
        body = _encode_json(kept).encode()
    except (TypeError, ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError
        raise _find(kept) or wrong("metadata", "cannot be written as JSON: %s" % error) from None
    if len(body) > EVENT_BYTES_MAX:
        raise _too_large(kept, len(body))
    return body


def wrong(field: str, problem: str) -> ValidationError:
    return ValidationError("%s: %s" % (field, problem), code="client/invalid_event", field=field)


def _wrong_text(name: str, value: object) -> ValidationError:
    if not isinstance(value, str):
        advice = "; use value.isoformat()" if isinstance(value, datetime.date) else "; use str(value)"
        return wrong(name, "must be text, not %s%s" % (type(value).__name__, advice))
    if len(value) > 255:
        return wrong(
            name, "has %d characters; at most 255 are allowed. Put long texts into metadata" % len(value)
        )
    return wrong(name, "contains NUL; remove it")


def _unknown(name: object) -> ValidationError:
    known = sorted(TEXT_FIELDS | {"metadata"})
    near = difflib.get_close_matches(str(name), known, 1, 0.5)
    hint = "did you mean %s? " % near[0] if near else ""
    return wrong(str(name), "is not a field of an event; %sPut other data into metadata" % hint)


def _too_large(event: Mapping[str, Any], size: int) -> ValidationError:
    parts = event.get("metadata") or event
    largest = max(parts, key=lambda name: len(_encode_json(parts[name])))
    where = "metadata.%s" % largest if "metadata" in event else largest
    advice = (
        "at most {:,} are allowed. The largest part is {}: shorten it, or store it elsewhere and log its hash"
    )
    return wrong("event", "has {:,} bytes; ".format(size) + advice.format(EVENT_BYTES_MAX, where))


def _find(event: Mapping[str, Any]) -> Optional[ValidationError]:
    """The first value of the event that JSON lacks."""
    for name, value in event.items():
        problem = _search(value, name, set())
        if problem:
            return problem
    return None


def _search(value: Any, path: str, above: Set[int]) -> Optional[ValidationError]:
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return wrong(path, "contains a lone surrogate; decode the text with errors='replace'")
        return None
    if isinstance(value, (int, float)):
        try:
            _encode_json(value)
        except ValueError:
            what = str(value) if isinstance(value, float) else "an integer of too many digits"
            return wrong(path, "is %s, which JSON cannot carry; send None or a text" % what)
        return None
    if not isinstance(value, (dict, list, tuple)):
        advice = (
            "use value.isoformat()"
            if isinstance(value, (datetime.date, datetime.time))
            else "convert it first"
        )
        return wrong(path, "%s is not a JSON value; %s" % (type(value).__name__, advice))
    if id(value) in above:
        return wrong(path, "contains itself; JSON has no cycles")
    if len(above) > _DEPTH_MAX:
        return wrong(path, "is nested too deeply; flatten it")
    inside = above | {id(value)}
    if not isinstance(value, dict):
        parts = ((_search(part, "%s[%d]" % (path, index), inside)) for index, part in enumerate(value))
        return next((problem for problem in parts if problem), None)
    for key, part in value.items():
        if not isinstance(key, (str, int, float, type(None))):
            return wrong(path, "has a key of type %s; use texts as keys" % type(key).__name__)
        problem = _search(key, path, inside) or _search(part, "%s.%s" % (path, key), inside)
        if problem:
            return problem
    return None
