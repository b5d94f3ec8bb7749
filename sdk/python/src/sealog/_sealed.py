"""Canonical text, hashes and the checks on a chain. Copied from tools/sealog_verify.py by sync_sealed: change it there.

The types are in _sealed.pyi.
"""

import collections
import datetime
import functools
import hashlib
import re


class Unreadable(Exception):
    """The input is not what it should be, so nothing can be said about the chain: exit code 2."""

    def __init__(self, what, offset=None):
        super().__init__(what)
        self.what, self.offset = what, offset


# --- 1. Canonical JSON text -------------------------------------------------------------------------------------------
#
# A JSON library loses what was hashed: 1.0 becomes 1, of two equal keys one is dropped, a lone surrogate cannot be
# written again, deep nesting overflows the stack. So the text is scanned here. It must be strict JSON (RFC 8259); what
# comes out is the same text in the one spelling that Sealog hashes. No expression can backtrack beyond linear time.

SPACE = rb"[ \t\n\r]*"
STRING = rb'"[^"\\\x00-\x1f]*(?:\\[^\x00-\x1f][^"\\\x00-\x1f]*)*"'
LITERAL = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null"
VALUE = re.compile(SPACE + rb"(?:(" + STRING + rb")|(" + LITERAL + rb")|([\[{]))")
KEY = re.compile(SPACE + rb"(" + STRING + rb")" + SPACE + rb":")
NEXT = re.compile(SPACE + rb"([\]},]?)")
# A backslash and what may follow it; the last choice, which is empty, catches what may not.
ESCAPE = re.compile(
    rb"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|([\"\\/bfnrt])|)"
)
SHORT = {0x22: b'\\"', 0x5C: b"\\\\", 8: b"\\b", 12: b"\\f", 10: b"\\n", 13: b"\\r", 9: b"\\t"}


def spell(code):
    """The canonical spelling of one character."""
    if code < 0x20 or code in SHORT or 0xD800 <= code <= 0xDFFF:  # the last: half of a surrogate pair
        return SHORT.get(code) or b"\\u%04x" % code
    return chr(code).encode()


def respell(match):
    high, low, unit, short = match.groups()
    if high:
        return spell(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF))
    if unit:
        return spell(int(unit, 16))
    if short:
        return b"/" if short == b"/" else match.group()
    raise Unreadable("this backslash has nothing valid behind it", match.start())


def string_text(match):
    """The canonical text of the string in group 1, quotes included."""
    text = match[1]
    try:
        if not text.isascii():
            text.decode()
        return ESCAPE.sub(respell, text) if b"\\" in text else text
    except UnicodeDecodeError as error:
        raise Unreadable("this is not UTF-8", match.start(1) + error.start) from None
    except Unreadable as error:
        raise Unreadable(error.what, match.start(1) + error.offset) from None


def unexpected(what, data, pos):
    return Unreadable(what + " is expected here", NEXT.match(data, pos).start(1))


def read_key(data, pos):
    match = KEY.match(data, pos)
    if not match:
        raise unexpected("a key in double quotes and a colon", data, pos)
    return string_text(match), match.end()


def read_value(data, pos):
    """The canonical text of the JSON value at pos, and the offset behind it."""
    out, closers = [], []  # A stack of our own: metadata may be nested deeper than any call stack.
    while True:
        match = VALUE.match(data, pos)
        if not match:
            raise unexpected("a JSON value (a string: closed, without control characters)", data, pos)
        out.append(string_text(match) if match.lastindex == 1 else match[match.lastindex])
        pos = match.end()
        if match.lastindex == 3:  # an array or an object begins
            closers.append(b"}" if match[3] == b"{" else b"]")
            if NEXT.match(data, pos)[1] != closers[-1]:
                if match[3] == b"{":
                    key, pos = read_key(data, pos)
                    out += (key, b":")
                continue
        while closers:  # A value is complete. Does what it stands in end here, or does another value follow?
            match = NEXT.match(data, pos)
            if match[1] != b"," and match[1] != closers[-1]:
                raise unexpected("',' or '%s'" % closers[-1].decode(), data, pos)
            out.append(match[1])
            pos = match.end()
            if match[1] == b",":
                if closers[-1] == b"}":
                    key, pos = read_key(data, pos)
                    out += (key, b":")
                break
            closers.pop()
        else:
            return b"".join(out), pos


def canonical(data):
    """The canonical text of data, which must be one JSON value and nothing else."""
    text, pos = read_value(data, 0)
    if NEXT.match(data, pos).start(1) != len(data):
        raise unexpected("the end", data, pos)
    return text


# --- 2. An event and its hash -----------------------------------------------------------------------------------------

UUID_TEXT = rb'"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"'
HASH_TEXT = rb'"[0-9a-f]{64}"'
# The fields that take part in the check, and how the canonical text of each must begin. It is known to be one JSON
# value, so the beginning is enough. Other fields (category, ip_address, ...) are not covered by the hash.
SHAPES = {
    b'"log_id"': rb'"[0-7][0-9A-HJKMNP-TV-Z]{25}"',
    b'"tenant_id"': UUID_TEXT,
    b'"project_id"': UUID_TEXT,
    b'"action"': rb'"',
    b'"actor_id"': rb'"|null',
    b'"resource"': rb'"|null',
    b'"metadata"': rb"\{|null",
    b'"timestamp"': rb'"((?:19[7-9]|[2-9]\d\d)\d-\d\d-\d\d)T([01]\d|2[0-3]):([0-5]\d):([0-5]\d)\.(\d{3})Z"',
    b'"chain_seq"': rb"(?:0|[1-9]\d{0,18})\Z",
    b'"prev_hash"': HASH_TEXT,
    b'"hash"': HASH_TEXT,
}
SHAPES = {key: re.compile(shape) for key, shape in SHAPES.items()}
PAYLOAD = (b'"log_id"', b'"tenant_id"', b'"action"', b'"actor_id"', b'"resource"', b'"metadata"')
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # the digits of a ULID; their ASCII order is their order
TO_ULID = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", CROCKFORD)  # from base64.b32encode
FROM_ULID = str.maketrans(CROCKFORD, "0123456789abcdefghijklmnopqrstuv")  # to int(text, 32)
EPOCH = datetime.date(1970, 1, 1).toordinal()


class Event:
    """What the checks need to know of an event. `problem` says why it is malformed, if it is; `other` has the fields that
    the hash does not cover."""

    __slots__ = ("seq", "hash", "chain", "log_id", "ms", "prev_hash", "computed", "problem", "other")

    def __init__(self, seq, hash_, chain=None, log_id=None, ms=None, prev_hash=None, payload=None, problem=None):
        self.seq, self.hash, self.chain, self.log_id = seq, hash_, chain, log_id
        self.ms, self.prev_hash, self.problem, self.other = ms, prev_hash, problem, ()
        if not problem:  # the rule of docs/format.md, section 1
            self.computed = hashlib.sha256(b"%s%s%d" % (prev_hash.encode(), payload, ms)).hexdigest()


@functools.lru_cache(maxsize=64)
def day_number(date):
    return datetime.date.fromisoformat(date.decode()).toordinal() - EPOCH  # ValueError for 2026-02-30


def event_from_fields(fields):
    """fields: pairs of canonical key and canonical value, in the order of the event's text."""
    values, problem = {}, None
    for key, value in fields:
        if key in SHAPES:
            if key in values:  # Which one was meant? Two readers could answer differently.
                problem, value = key.decode() + " stands twice", b""
            values[key] = value
    parts = {key: shape.match(values.get(key, b"null")) for key, shape in SHAPES.items()}
    bad = [key.decode() for key, part in parts.items() if not part]
    if not bad:
        date, hours, minutes, seconds, millis = parts[b'"timestamp"'].groups()
        try:  # whole numbers only: no rounding, no time zone
            minutes = (day_number(date) * 24 + int(hours)) * 60 + int(minutes)
            ms = (minutes * 60 + int(seconds)) * 1000 + int(millis)
        except ValueError:
            bad = ['"timestamp"']
    seq = int(values[b'"chain_seq"']) if parts[b'"chain_seq"'] else None
    hash_ = values[b'"hash"'][1:-1].decode() if parts[b'"hash"'] else None
    if bad:
        return Event(seq, hash_, problem=problem or ", ".join(bad) + " missing or malformed")
    ids = (b'"tenant_id"', b'"project_id"', b'"log_id"', b'"prev_hash"')
    tenant, project, log_id, prev_hash = (values[key][1:-1].decode() for key in ids)
    payload = b"{%s}" % b",".join([key + b":" + values.get(key, b"null") for key in PAYLOAD])
    event = Event(seq, hash_, (tenant, project), log_id, ms, prev_hash, payload)
    event.other = [pair for pair in fields if pair[0] not in SHAPES]
    return event


# --- 3. The checks on a chain -----------------------------------------------------------------------------------------

MEANING = {
    "malformed": "The event cannot be checked as it stands.",
    "chain": "The event is of another tenant or project than the first: chains were mixed, or it was moved.",
    "gap": "Events before this one were removed, added, repeated or reordered.",
    "link": "The event does not follow the one before it: one of the two was replaced.",
    "hash": "The event was changed after it was sealed.",
    "order": "The event's id is not newer than the one before, or does not carry the event's time.",
    "head": "The chain was rewritten: the event that was noted here had another hash.",
    "tail": "Events at the end are missing that are known to have existed.",
}


class Chain:
    """Takes the events of one chain, oldest first, and stops at the first break.

    expected: (chain_seq, hash) of heads that were noted earlier. whole: the chain must begin at 1; otherwise a later
    first event is taken as the start of a part. dropped: the last event that retention has dropped, if any.
    """

    def __init__(self, expected=(), whole=False, dropped=None):
        self.expected, self.whole = collections.defaultdict(set), whole
        for seq, hash_ in expected:
            self.expected[seq].add(hash_)
        self.checked, self.first_seq, self.before, self.broken = 0, dropped.seq + 1 if dropped else 1, dropped, None
        if dropped and self.expected.get(dropped.seq, set()) - {dropped.hash}:
            self.broken = (dropped.seq, dropped.hash, "head", "the last dropped event has another hash than was expected")

    def add(self, event):
        """Returns whether the chain is still sound."""
        if self.broken:
            return False
        due = self.before.seq + 1 if self.before else 1
        seq = due if event.seq is None else event.seq
        if not self.checked:
            self.first_seq = seq
        self.checked += 1
        fault = self.fault(event, due)
        if fault:
            self.broken = (seq, event.hash, *fault)
            return False
        self.before = event
        return True

    def fault(self, event, due):
        """The first check that fails, in the order of vectors/README.md: the reason and what was seen."""
        before, seq = self.before, event.seq
        if event.problem:
            return "malformed", event.problem
        if before and event.chain != before.chain:
            return "chain", "tenant %s, project %s" % event.chain
        if seq != due and (before or self.whole or seq < 1):
            return "gap", "chain_seq is %d where %d is due" % (seq, due)
        # At the start of a part, only a head noted earlier can say what came before.
        links = {"0" * 64} if seq == 1 else {before.hash} if before else self.expected.get(seq - 1, set())
        if links - {event.prev_hash}:
            return "link", "prev_hash is %s, the hash before is %s" % (event.prev_hash, " and ".join(sorted(links)))
        if event.computed != event.hash:
            return "hash", "hash is %s, recomputing gives %s" % (event.hash, event.computed)
        if before and event.log_id <= before.log_id:
            return "order", "log_id is %s, the one before is %s" % (event.log_id, before.log_id)
        if int(event.log_id[:10].translate(FROM_ULID), 32) != event.ms:
            return "order", "log_id %s does not carry the timestamp" % event.log_id
        if self.expected.get(seq, set()) - {event.hash}:
            return "head", "hash is %s, expected was %s" % (event.hash, " and ".join(sorted(self.expected[seq])))
        return None

    def result(self):
        """To be called when there are no more events."""
        first, last = self.first_seq, self.before.seq if self.before else 0
        beyond = min((seq for seq in self.expected if seq > last), default=None)
        if beyond and not self.broken:
            seen = "the chain ends at %d, before the expected head %d" % (last, beyond)
            self.broken = (last + 1, min(self.expected[beyond]), "tail", seen)
        result = {"valid": not self.broken, "checked": self.checked, "first_seq": first, "last_seq": last}
        if self.broken:
            seq, hash_, reason, seen = self.broken
            result.update({"last_seq": seq, "broken_at": seq, "broken_hash": hash_, "reason": reason})
            result["message"] = "Broken at chain_seq %d (%s): %s. %s" % (seq, reason, seen, MEANING[reason])
            return {key: value for key, value in result.items() if value is not None}
        message = "Valid: %d events, chain_seq %d to %d" % (self.checked, first, last)
        message += ". Every hash was recomputed and every link followed."
        if self.before:
            message += " Head: %d:%s." % (last, self.before.hash)
        found = sum(seq >= first - 1 for seq in self.expected)
        early = sorted(seq for seq in self.expected if seq < first - 1)
        alone = " No head to compare with (--expect): a tail cut off or a chain rewritten as a whole would not show."
        message += " %d expected heads found." % found if found else alone
        message += " NOT CHECKED: expected heads before the first event: %s." % early if early else ""
        return {**result, "message": message}


# --- 4. Events as text ------------------------------------------------------------------------------------------------


def read_object(data, pos, fields):
    """Appends an object's members to fields, from behind its '{' or from behind a member's value.

    Returns the offset behind the object and False; or, for a page, the offset of its array of events and True.
    """
    while True:
        match = NEXT.match(data, pos)
        if match[1] == b"}":
            return match.end(), False
        if fields and match[1] != b",":
            raise unexpected("',' or '}'", data, pos)
        key, pos = read_key(data, match.end() if fields else pos)
        match = VALUE.match(data, pos) if key == b'"events"' else None
        if match and match[3] == b"[" and (key, b"") not in fields:
            fields.append((key, b""))
            return match.start(3), True
        value, pos = read_value(data, pos)
        fields.append((key, value))


def read_events(data):
    """Yields the events in data: objects one after the other, arrays of them, API pages, in any mixture."""
    pos, inside = 0, []  # inside: None for each array that is open, the fields so far for each page
    while True:
        match = VALUE.match(data, pos)
        if match and match[3] == b"[":
            inside.append(None)
            pos = match.end()
            if NEXT.match(data, pos)[1] != b"]":
                continue
        elif match and match[3] == b"{":
            fields = []
            pos, is_page = read_object(data, match.end(), fields)
            if is_page:
                inside.append(fields)
                continue
            yield event_from_fields(fields)
        elif not inside and NEXT.match(data, pos).start(1) == len(data):
            return
        else:
            raise unexpected("an event, a page of events or an array of events", data, pos)
        while inside:  # An event, an array or a page is complete. What does it stand in?
            if inside[-1] is not None:  # It was the array of a page; the rest of the page follows.
                fields = inside.pop()
                pos, _ = read_object(data, pos, fields)
                names = [key for key, _ in fields]
                # Otherwise an event could pass for a page without events, and so be left out.
                if names.count(b'"events"') > 1 or any(name in SHAPES for name in names):
                    raise Unreadable("the object that ends here is neither a page nor an event", pos - 1)
                continue
            match = NEXT.match(data, pos)
            if match[1] not in (b"]", b","):
                raise unexpected("',' or ']'", data, pos)
            pos = match.end()
            if match[1] == b",":
                break
            inside.pop()


def oldest_first(events):
    """Lists come newest first. They are turned round if chain_seq falls all the way; otherwise events are passed on as
    they come, so that any other disorder is found as a break. events: an iterator."""
    held, last, falls = [], None, False
    for event in events:
        held.append(event)
        if event.seq is not None:
            if last is not None and event.seq >= last:
                yield from held
                yield from events
                return
            falls, last = last is not None, event.seq
    yield from reversed(held) if falls else held
