#!/usr/bin/env python3
"""Check Sealog events yourself: recompute every hash and follow every link of a chain, without Sealog.

Written from docs/format.md; shares no code with Sealog. It needs Python 3.9 and nothing else, opens no network
connection and changes nothing. Sections 1 to 4 are what it takes to check an export; 5 reads the files of a store;
6 runs the project's test vectors; 7 is the command line.
"""

import argparse
import base64
import collections
import contextlib
import datetime
import functools
import gzip
import hashlib
import json  # for our own output and the vector files; never for an event, see section 1
import mmap
import os
import re
import shutil
import signal
import stat
import struct
import sys
import tempfile
import uuid
import zlib


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


def load(name):
    """The bytes of a file, or of standard input for '-', unpacked if they are gzip. They are mapped, by way of an
    unnamed temporary file if need be, because an export can be larger than memory."""
    with contextlib.ExitStack() as opened:
        source = sys.stdin.buffer if name == "-" else opened.enter_context(open(name, "rb"))
        packed = source.peek(2)[:2] == b"\x1f\x8b"
        if packed or name == "-" or not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            spool = opened.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(gzip.GzipFile(fileobj=source) if packed else source, spool)
            spool.flush()
            source = spool
        empty = os.fstat(source.fileno()).st_size == 0
        # The mapping has a descriptor of its own.
        return b"" if empty else mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)


def events_of(names):
    for name in names:
        try:
            yield from read_events(load(name))
        except Unreadable as error:
            raise Unreadable("%s: byte %d: %s" % (name, error.offset, error.what)) from None
        except (OSError, EOFError, zlib.error) as error:
            raise Unreadable("%s: %s" % (name, error)) from None


# --- 5. The files of the embedded store -------------------------------------------------------------------------------
#
# docs/format.md, sections 2 to 4, 6 and 7. Nothing counts that its checksum does not confirm. Checksums find accidents;
# intent is what the hashes, and heads noted elsewhere, are for.

MODES = ("live", "test")
FIELD_ORDER = (
    "log_id tenant_id project_id schema_version action category severity actor_id actor_type resource resource_type "
    "session_id ts_client ip_address country city metadata timestamp chain_seq prev_hash hash"
).split()
TAGS = "category severity actor_type resource_type session_id ts_client ip_address country city".split()
SEGMENT, FRAME = struct.Struct("<8sIBBHQ16sQQQQI48sI"), struct.Struct("<4sIBBHIQQ16s16sQQII")
RECORD, MARK, HEAD = struct.Struct("<II16s32s32s"), struct.Struct("<IIQQQQIIQQ"), struct.Struct("<16s16sQ16s32s")
Segment = collections.namedtuple(
    "Segment", "magic version mode origin zero number salt commit begun before before_length before_crc zeros crc"
)
FrameHeader = collections.namedtuple(
    "FrameHeader", "magic length version flags count distance commit offset tenant project first_seq received zero crc"
)
Record = collections.namedtuple("Record", "seq log_id prev_hash hash annotations text")
Mark = collections.namedtuple("Mark", "commit segment offset heads")


def crc_shift(value, bits):
    for _ in range(bits):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


# CRC32C is linear: what four bytes do is what their lower 11, middle 11 and upper 10 bits do, put together. So four
# bytes take three look-ups, in tables that still fit into a processor's cache.
CRC_BYTE = [crc_shift(value, 8) for value in range(256)]
CRC_LOW = [crc_shift(value, 32) for value in range(2048)]
CRC_MIDDLE = [crc_shift(value << 11, 32) for value in range(2048)]
CRC_HIGH = [crc_shift(value << 22, 32) for value in range(1024)]


def crc32c(data, crc=0):
    """CRC32C (Castagnoli) of data, continued from the CRC32C of what comes before it."""
    crc ^= 0xFFFFFFFF
    low, middle, high, words = CRC_LOW, CRC_MIDDLE, CRC_HIGH, len(data) >> 2
    for word in struct.unpack_from("<%dI" % words, data):
        word ^= crc
        crc = low[word & 2047] ^ middle[word >> 11 & 2047] ^ high[word >> 22]
    for byte in data[words << 2 :]:
        crc = CRC_BYTE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def crc_bytes(data, crc=0):
    return struct.pack("<I", crc32c(data, crc))


class Invalid(Exception):
    """There is no valid frame where one should be."""


def frame_header(data, pos, salt_crc):
    """The frame header at pos, or None if there is none that is right and says that it belongs there."""
    if data[pos : pos + 4] != b"SLFR" or pos + FRAME.size > len(data):
        return None
    header = FrameHeader._make(FRAME.unpack_from(data, pos))
    return header if header.offset == pos and header.crc == crc32c(data[pos : pos + 84], salt_crc) else None


def find_headers(data, pos, end, salt_crc):
    """Yields offset and header of each right frame header from pos on."""
    pos = data.find(b"SLFR", pos, end)
    while pos >= 0:
        header = frame_header(data, pos, salt_crc)
        if header:
            yield pos, header
        pos = data.find(b"SLFR", pos + 1, end)


def read_frame(data, pos, end, salt_crc):
    """The header, the records, and all checksums of the frame at pos."""
    header = frame_header(data, pos, salt_crc)
    if not header:
        raise Invalid("no frame header with a right checksum")
    seqs, stop = range(header.first_seq, header.first_seq + header.count), pos + header.length
    where = "frame of project %s, chain_seq %d to %d: " % (uuid_text(header.project), seqs.start, seqs.stop - 1)
    if header.version != 1 or not 1 <= header.count <= 100 or stop > end:
        raise Invalid(where + "unknown version, impossible count, or longer than the segment")
    stop -= 84 if header.flags & 1 else 0  # the idempotency record
    at, records, sums = pos + FRAME.size, [], [data[pos + 84 : pos + 88]]
    chain_crc = crc32c(header.tenant + header.project, salt_crc)
    for seq in seqs:
        size, extra, log_id, prev_hash, hash_ = RECORD.unpack_from(data, at) if at + 92 <= stop else (0,) * 5
        if size < 92 + extra or at + size > stop:
            raise Invalid(where + "the record of chain_seq %d has an impossible length" % seq)
        split, tail = at + RECORD.size + extra, at + size - 4
        sums.append(data[tail : tail + 4])
        if sums[-1] != crc_bytes(struct.pack("<Q", seq) + data[at:tail], chain_crc):
            raise Invalid(where + "the record of chain_seq %d has a wrong checksum" % seq)
        records.append(Record(seq, log_id, prev_hash, hash_, data[at + RECORD.size : split], data[split:tail]))
        at += size
    if at != stop:
        raise Invalid(where + "its records do not fill it")
    if header.flags & 1:
        sums.append(data[at + 80 : at + 84])
        if sums[-1] != crc_bytes(struct.pack("<Q", pos) + data[at : at + 80], salt_crc):
            raise Invalid(where + "its idempotency record has a wrong checksum")
    return header, records, b"".join(sums)


class Log:
    """One log directory (live or test). frames() reads it; damage and notes then say what was met."""

    def __init__(self, path, mode=None):
        self.path, self.mode, self.damage, self.notes = path, mode, [], []
        self.end, self.commit = (0, 0), 0  # how far the log was read: segment and offset; commit number
        self.mark = self.read_mark()  # Before the segments: in a store in use, those can only be ahead of it.
        self.through, self.dropped = self.read_dropped()

    def broken(self, what, segment=None, offset=None):
        self.damage.append({"segment": segment, "offset": offset, "message": what})

    def is_mode(self, mode):
        if self.mode is None and mode < len(MODES):
            self.mode = mode
        return mode == self.mode

    def read(self, name, size=-1):
        with open(os.path.join(self.path, name), "rb") as file:
            return file.read(size)

    def read_mark(self):
        mark, pos = Mark(0, 0, 0, {}), 16
        if not os.path.exists(os.path.join(self.path, "mark")):
            if any(name.endswith(".log") for name in os.listdir(self.path)):
                self.notes.append("There is no mark: a tail that was cut off would not show.")
            return mark
        data = self.read("mark")
        mode = int.from_bytes(data[12:16], "little")
        if len(data) < 16 or data[:12] != b"SEALOGMK\1\0\0\0" or not self.is_mode(mode):
            self.broken("the header of the mark is wrong, so the heads in it are lost")
            return mark
        good = pos
        while pos + MARK.size <= len(data):
            size, crc, commit, segment, offset, _, _, count, _, _ = MARK.unpack_from(data, pos)
            stop = pos + size
            if size != MARK.size + count * HEAD.size or stop > len(data) or crc != crc32c(data[pos + 8 : stop]):
                pos += 1  # Look for the next good record: if there is one, this was no record that was being written.
                continue
            if pos != good:
                self.broken("the mark is damaged from offset %d to %d, so heads in it are lost" % (good, pos))
            for tenant, project, seq, _, hash_ in HEAD.iter_unpack(data[pos + MARK.size : stop]):
                mark.heads[tenant, project] = (seq, hash_.hex())
            mark = Mark(commit, segment, offset, mark.heads)
            pos = good = stop
        if data[good:].strip(b"\0"):
            self.notes.append("The mark ends at offset %d with an incomplete record, which does not count." % good)
        return mark

    def read_dropped(self):
        """The last segment that was dropped, and the last dropped event of each chain: docs/format.md, section 7."""
        if not os.path.exists(os.path.join(self.path, "dropped")):
            return 0, {}
        if self.mode == 0:
            self.broken("there is a file `dropped`, which a live log never has: it is not believed")
            return 0, {}
        data = self.read("dropped")
        through, _, count, _ = struct.unpack_from("<QQII", data, 16) if len(data) >= 40 else (0,) * 4
        right = data[:12] == b"SEALOGDR\1\0\0\0" and len(data) == 40 + count * HEAD.size
        if not right or data[12:16] != crc_bytes(data[16:]):
            self.broken("the file `dropped` is damaged, so what was dropped cannot be told from what is missing")
            return 0, {}
        dropped = {}
        for tenant, project, seq, log_id, hash_ in HEAD.iter_unpack(data[40:]):
            head = self.mark.heads.get((tenant, project))
            if self.mark.heads and (head or (0,))[0] < seq:
                said = "events of project %s are said to be dropped up to %d, beyond its head in the mark"
                self.broken(said % (uuid_text(project), seq))
                continue
            ids = (uuid_text(tenant), uuid_text(project))
            dropped[tenant, project] = Event(seq, hash_.hex(), ids, ulid_text(log_id), problem="dropped")
        return through, dropped

    def reached_mark(self):
        return self.end >= (self.mark.segment, self.mark.offset) and self.commit >= self.mark.commit

    def read_headers(self):
        """The header of each segment by number, None for a segment that is missing or has no valid one."""
        names = [name for name in os.listdir(self.path) if re.fullmatch(r"([0-9]{8}|[1-9][0-9]{8,})\.log", name)]
        numbers = {int(name[:-4]) for name in names if int(name[:-4]) > self.through}
        if numbers and not self.read("%08d.log" % max(numbers)).strip(b"\0"):  # next.seg, renamed just before a crash
            self.notes.append("Segment %d was prepared but never begun." % max(numbers))
            numbers.remove(max(numbers))
        headers = dict.fromkeys(range(self.through + 1, max(numbers, default=self.through) + 1))
        for number in headers:
            if number not in numbers:
                self.broken("the segment is missing", number)
                continue
            data = self.read("%08d.log" % number, SEGMENT.size)
            if data[:8] != b"SEALOGSG" or data[124:] != crc_bytes(data[:124]):
                self.broken("the segment's header is damaged, so nothing in the segment can be checked", number, 0)
                continue
            header = headers[number] = Segment._make(SEGMENT.unpack(data))
            if header.version != 1:
                raise Unreadable("segment %d has version %d; this program knows 1" % (number, header.version))
            if header.number != number or not self.is_mode(header.mode):
                self.broken("by its header it is segment %d of mode %d" % (header.number, header.mode), number, 0)
            if header.before != number - 1 or (number == 1 and (header.before_length or header.before_crc)):
                self.broken("its header names segment %d as the one before" % header.before, number, 56)
        return headers

    def frames(self):
        """Yields header and records of each frame that counts, in order."""
        headers = self.read_headers()
        for number, header in headers.items():
            if header:
                yield from self.segment_frames(number, header, headers.get(number + 1), number == max(headers))
        if not self.damage and not self.reached_mark():
            found = "the log ends at commit %d, segment %d, offset %d; " % (self.commit, *self.end)
            found += "its mark says that it reached commit %d, segment %d, offset %d: " % self.mark[:3]
            self.broken(found + "events that were acknowledged are missing", *self.end)

    def segment_frames(self, number, header, follower, is_last):
        """follower: the header of the next segment. It says how much of this one counts: its before_length."""
        data, salt_crc = self.read("%08d.log" % number), crc32c(header.salt)
        end, running, pos, damaged = len(data), 0, SEGMENT.size, len(self.damage)
        self.end, self.commit = (number, pos), max(self.commit, header.commit - 1)
        if follower and SEGMENT.size <= follower.before_length <= len(data):
            end = follower.before_length
        elif follower:
            seen = "%d bytes of it count by the next segment's header, it has %d"
            self.broken(seen % (follower.before_length, len(data)), number, len(data))
        # Zeros end the last segment; but not if something stands behind them.
        while pos < end and (follower or data[pos : pos + 4].strip(b"\0") or data[pos:].strip(b"\0")):
            try:
                frame, records, sums = read_frame(data, pos, end, salt_crc)
            except Invalid as error:
                if not follower and not is_last:
                    return  # Where this segment ended stood in the next one, whose loss is reported.
                if is_last and not self.was_complete(data, pos, salt_crc):
                    torn = "Torn tail in segment %d at offset %d: a write that a crash cut short. "
                    self.notes.append(torn % (number, pos) + "It was never acknowledged; nothing is lost.")
                    return
                self.broken("invalid frame, %s" % error, number, pos)
                pos = next(find_headers(data, pos + 1, end, salt_crc), (end, None))[0]
                continue
            yield frame, records
            running = crc32c(sums, running)
            pos += frame.length
            self.end, self.commit = (number, pos), max(self.commit, frame.commit)
        if follower and follower.before_crc not in (0, running) and len(self.damage) == damaged:
            self.broken("its frames are not those that the next segment's running checksum covers", number, pos)

    def was_complete(self, data, pos, salt_crc):
        """Whether the invalid frame at pos was once whole on disk: the mark covers it, or a later group was begun
        behind it, which happens only after the sync of the group before succeeded."""
        headers = find_headers(data, pos + 1, len(data), salt_crc)
        return not self.reached_mark() or any(at - header.distance > pos for at, header in headers)


@functools.lru_cache(maxsize=1024)
def uuid_text(raw):
    return str(uuid.UUID(bytes=raw))


def ulid_text(raw):
    return base64.b32encode(b"\0\0\0\0" + raw)[6:].decode().translate(TO_ULID)


def drops_in(record):
    """The drops of test events that a record of a system chain names: project_id, last number and its hash."""
    if not record.text.startswith((b'"action":"sealog.test_events_dropped"', b'"action":"sealog.baseline"')):
        return
    try:
        named = json.loads(b"{" + record.text)["metadata"].get("dropped", ())
        yield from [(drop["project_id"], drop["last_seq"], drop["last_hash"]) for drop in named]
    except (ValueError, TypeError, KeyError, AttributeError):
        return  # A record that names nothing covers nothing.


def event_from_record(record, chain):
    """chain: tenant_id and project_id as text."""
    log_id = ulid_text(record.log_id)
    payload = b'{"log_id":"%s","tenant_id":"%s",%s' % (log_id.encode(), chain[0].encode(), record.text)
    ms = int.from_bytes(record.log_id[:6], "big")
    return Event(record.seq, record.hash.hex(), chain, log_id, ms, record.prev_hash.hex(), payload)


def event_text(record, event):
    """The event as a read returns it, one line, its fields in the order of the API."""
    fields, notes = [], record.annotations
    try:
        pos, _ = read_object(record.text, 0, fields)
    except Unreadable:
        pos = None
    if pos != len(record.text) or [key for key, _ in fields] != list(PAYLOAD[2:]):
        raise Unreadable("chain_seq %d: the stored text is not the end of a payload" % record.seq)
    values = {key[1:-1].decode(): value for key, value in fields if value != b"null"}
    pos = 5 if notes[:5] == b"\1\0\0\0\0" else len(notes)  # Encrypted annotations cannot be shown.
    while pos + 3 <= len(notes):
        tag, size = struct.unpack_from("<BH", notes, pos)
        text = notes[pos + 3 : pos + 3 + size].decode(errors="replace")
        if 1 <= tag <= len(TAGS):
            values[TAGS[tag - 1]] = b'"%s"' % b"".join(spell(ord(char)) for char in text)
        pos += 3 + size
    # datetime ends with the year 9999, a ULID does not; but the calendar repeats every 400 years.
    days, ms = divmod(event.ms, 86400000)
    cycles, days = divmod(days, 146097)
    day = datetime.date.fromordinal(days + EPOCH)
    time = "%04d-%02d-%02dT" % (day.year + 400 * cycles, day.month, day.day)
    time += "%02d:%02d:%02d.%03dZ" % (ms // 3600000, ms // 60000 % 60, ms // 1000 % 60, ms % 1000)
    texts = {"log_id": event.log_id, "tenant_id": event.chain[0], "project_id": event.chain[1], "timestamp": time}
    texts.update({"prev_hash": event.prev_hash, "hash": event.hash})
    values.update({name: b'"%s"' % text.encode() for name, text in texts.items()})
    values.update({"schema_version": b"1", "chain_seq": b"%d" % event.seq})
    members = [b'"%s":%s' % (name.encode(), values[name]) for name in FIELD_ORDER if name in values]
    return b"{%s}\n" % b",".join(members)


def open_logs(path, mode):
    """The logs in a data directory, or the one log that path is; only those of mode, if given."""
    inside = [name for name in MODES if os.path.isdir(os.path.join(path, name)) and mode in (None, name)]
    if inside:
        with open(os.path.join(path, "FORMAT"), "rb") as file:
            line = file.read(100).strip()
        if line != b"sealog embedded 1":
            raise Unreadable("FORMAT says %r; this program knows 'sealog embedded 1'" % line.decode(errors="replace"))
        logs = [Log(os.path.join(path, name), MODES.index(name)) for name in inside]
        if not mode and len(logs) < len(MODES):
            logs[0].notes.append("This is the only log; the directory of the other mode is missing.")
        return logs
    if not any(name == "mark" or name.endswith(".log") for name in os.listdir(path)):
        raise Unreadable("%s holds no log%s" % (path, " of mode " + mode if mode else ""))
    return [Log(path, MODES.index(mode) if mode else None)]


# --- 6. Test vectors --------------------------------------------------------------------------------------------------


def run_vectors(path):
    passed, failed = 0, 0
    for name, run in (("metadata.json", metadata_case), ("chains.json", chain_case)):
        with open(os.path.join(path, name), encoding="utf-8") as file:
            cases = json.load(file)["cases"]
        for case in cases:
            wrong = run(case)
            passed, failed = passed + (not wrong), failed + bool(wrong)
            if wrong:
                print("FAILED %s: %s: %s" % (name, case["name"], wrong))
    print("%d passed, %d failed" % (passed, failed))
    return 10 if failed else 0


def metadata_case(case):
    """What is wrong, or an empty text."""
    text = case["input"] if "input" in case else "".join(part * times for part, times in case["input_parts"])
    try:
        got = canonical(text.encode("utf-8", "surrogatepass"))
    except Unreadable as error:
        return "" if case.get("canonical", "") is None else "byte %d: %s" % (error.offset, error.what)
    if "canonical_sha256" in case:
        right = hashlib.sha256(got).hexdigest() == case["canonical_sha256"]
    else:
        right = case["canonical"] is not None and got == case["canonical"].encode()
    return "" if right and canonical(got) == got else "canonical text is %r" % got[:200]


def chain_case(case):
    chain = Chain(parse_head(head) for head in case.get("expect", ()))
    try:
        all(map(chain.add, oldest_first(read_events("\n".join(case["events"]).encode("utf-8", "surrogatepass")))))
    except Unreadable as error:
        return "byte %d of the events: %s" % (error.offset, error.what)
    got, want = chain.result(), case["result"]
    keys = ("valid", "checked", "first_seq", "last_seq", "broken_at", "broken_hash", "reason")
    return ", ".join("%s is %r, not %r" % (k, got.get(k), want.get(k)) for k in keys if got.get(k) != want.get(k))


# --- 7. The command line ----------------------------------------------------------------------------------------------

HELP = """
what is checked, event by event, in this order:
  malformed  every field that takes part is there, once, and has the right form
  chain      tenant_id and project_id are the first event's
  gap        chain_seq is one more than before
  link       prev_hash is the hash before
  hash       hash is SHA-256 of prev_hash, payload and time, recomputed here
  order      log_id increases and carries the timestamp
  head       where a head is expected, the event has that hash
  tail       the chain reaches every expected head

A chain shows that nothing inside it was changed. That its end was not cut off, and that it was not rewritten as a
whole, only a head can show that was noted earlier and elsewhere: give it with --expect. Receipts are such heads (the
headers Sealog-Chain-Seq and Sealog-Hash of the answer to a POST).

FILE holds events one a line (NDJSON), API pages or arrays of events, one after the other, oldest or newest first
throughout, plain or gzip. Several files are read as one. All events must be of one chain.

--data reads the files of an embedded store: checksums, every chain, and the heads in the store's own mark. Best on a
copy or with Sealog stopped; in a store in use, the write that is under way looks like a torn tail. Old test events are
dropped; each drop has a record in the system chain, which is in the live log. Index files are not looked at.

With a proof or a checkpoint, the report names every attack that was found (origin, signature, quorum, fork, rollback,
root, leaf, annotations, schema, time, beside those above), and in words what was not shown. --key, --proof,
--checkpoint and --consistency can be repeated. This needs sealog_trust.py beside this file.

exit codes: 0 valid, 10 broken, 2 wrong usage or unreadable input

examples:
  sealog_verify.py --expect 4711:9f2c...e1a0 export.ndjson.gz
  curl -s -H "Authorization: Bearer $KEY" "$URL/v1/events?limit=100" | sealog_verify.py -
  sealog_verify.py --key "$VKEY" --checkpoint kept.txt --proof 4711.tlog-proof export.ndjson
  sealog_verify.py --data DIR
  sealog_verify.py --data DIR --export PROJECT_ID | sealog_verify.py --expect 4711:9f2c...e1a0 -
"""


def parse_head(text):
    match = re.fullmatch(r"([1-9][0-9]{0,18}):([0-9a-f]{64})", text)
    if not match:
        raise argparse.ArgumentTypeError("%r is not SEQ:HASH, a number and 64 lower-case hex digits" % text)
    return int(match[1]), match[2]


def progress(count):
    if count % 5000 == 0 and sys.stderr.isatty():
        print("\r%d events " % count, end="\r", file=sys.stderr, flush=True)


def verify_text(names, expected):
    chain = Chain(expected)
    for event in oldest_first(events_of(names)):
        if not chain.add(event):
            break
        progress(chain.checked)
    if not chain.checked and not expected:
        raise Unreadable("there are no events in the input")
    return chain.result()


def verify_trust(args):
    """Events, proofs and checkpoints together, by sealog_trust.py, which lies beside this file."""
    sys.modules.setdefault("sealog_verify", sys.modules[__name__])
    import sealog_trust as st

    def read(names, most, parse):
        out = []
        for name in names:
            with open(name, "rb") as file:
                data = file.read(most + 1)  # What is longer is refused, and must not fill the memory.
            try:
                out.append(parse(name, data))
            except st.Refused as refused:
                raise Unreadable("%s: %s" % (st.printable(name), refused)) from None
        return out

    policy = None
    if args.policy:
        policy = read([args.policy], 1 << 18, lambda _, data: st.Policy(data))[0]
    elif args.key:
        try:
            policy = st.policy_of_keys(args.key)
        except st.Refused as refused:
            raise Unreadable("--key: %s" % refused) from None
    kept = read(args.checkpoint, 1 << 20, st.Kept)
    proofs = read(args.proof, (1 << 20) + (1 << 17), st.Given)
    consistency = read(args.consistency, 1 << 16, st.Consistency)
    trial = st.Trial(policy, kept, proofs, consistency, args.expect if args.files else None)
    needed = trial.needs_events()
    if needed:
        raise Unreadable("%s: give event #%d, too: the proof is about it" % (needed.name, needed.seq))
    for event in oldest_first(events_of(args.files)):
        if not trial.add(event):
            break
        progress(trial.chain.checked)
    if trial.chain and not trial.chain.checked and not args.expect:
        raise Unreadable("there are no events in the input")
    result = trial.judge()
    print(st.in_json(result) if args.json else st.in_words(result))
    return 0 if result["valid"] else 10


def verify_data(path, mode, project=None):
    """Checks every chain; writes the events of project, if given, to standard output."""
    report, exported = {"valid": True, "checked": 0, "chains": [], "damage": [], "notes": []}, 0
    recorded = {}  # by tenant that has a system chain: the furthest drop of each project that is recorded there
    for log in open_logs(path, mode):
        # The heads in the mark are heads noted earlier; a chain that is gone altogether is missed by them, too.
        new = lambda key, expected=(): Chain(expected, whole=True, dropped=log.dropped.get(key))
        chains = {key: new(key, [head]) for key, head in log.mark.heads.items()}
        counts = collections.Counter()
        for frame, records in log.frames():
            key, ids = (frame.tenant, frame.project), (uuid_text(frame.tenant), uuid_text(frame.project))
            if key not in chains:
                chains[key] = new(key)
            is_system = log.mode == 0 and frame.project[6] >> 4 == 8
            for record in records:
                for drop, seq, hash_ in drops_in(record) if is_system else ():
                    furthest = recorded.setdefault(frame.tenant, {})
                    furthest[drop] = max(furthest.get(drop, (0, "")), (seq, hash_))
                event = event_from_record(record, ids)
                chains[key].add(event)
                counts[key] += 1
                report["checked"] += 1
                progress(report["checked"])
                if ids[1] == project:
                    sys.stdout.buffer.write(event_text(record, event))
                    exported += 1
            if is_system:
                recorded.setdefault(frame.tenant, {})
        check_drops(log, recorded)
        named = {"mode": MODES[log.mode or 0]}
        for key, chain in sorted(chains.items()):
            last, result = chain.before, chain.result()
            ids = {"tenant_id": uuid_text(key[0]), "project_id": uuid_text(key[1]), "events": counts[key]}
            report["chains"].append({**named, **ids, "head": last and "%d:%s" % (last.seq, last.hash), **result})
        report["damage"] += [{**named, **damage} for damage in log.damage]
        report["notes"] += ["%s: %s" % (named["mode"], note) for note in log.notes]
    if (project and not exported) or not (report["chains"] or report["damage"]):
        raise Unreadable("there are no events%s in %s" % (" of project " + project if project else "", path))
    broken = sum(not chain["valid"] for chain in report["chains"])
    report["valid"] = not broken and not report["damage"]
    message = "%d events in %d chains were read; %d chains are broken, %d places damaged."
    report["message"] = message % (report["checked"], len(report["chains"]), broken, len(report["damage"]))
    return report


def check_drops(log, recorded):
    """A drop is recorded in the system chain of its tenant before it is done. Without that chain nothing speaks for it
    but the store itself. A step of a larger drop ends before its record does."""
    for (tenant, project), last in sorted(log.dropped.items()):
        seq, hash_ = recorded.get(tenant, {}).get(uuid_text(project), (0, ""))
        if tenant not in recorded:
            said = "Project %s: dropped up to %d, by the store's own word."
            log.notes.append(said % (uuid_text(project), last.seq))
        elif seq < last.seq or (seq == last.seq and hash_ != last.hash):
            said = "events of project %s up to %d are said to be dropped, and the system chain has no record of it"
            log.broken(said % (uuid_text(project), last.seq))


def print_report(report, out):
    for chain in report["chains"]:
        verdict = "ok" if chain["valid"] else chain["message"]
        print("{mode}  {project_id}  {events} events  head {head}  ".format(**chain) + verdict, file=out)
    for damage in report["damage"]:
        where = ["%s %d" % (key, damage[key]) for key in ("segment", "offset") if damage[key] is not None]
        print("Damage: %s: %s." % (", ".join([damage["mode"], *where]), damage["message"]), file=out)
    for note in report["notes"]:
        print("Note: %s" % note, file=out)
    print("%s: %s" % ("Valid" if report["valid"] else "Broken", report["message"]), file=out)


def main():
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog=HELP, formatter_class=shape)
    parser.add_argument("files", nargs="*", metavar="FILE", help="events as text; - for standard input")
    heads = {"action": "append", "default": [], "type": parse_head, "metavar": "SEQ:HASH"}
    parser.add_argument("--expect", **heads, help="a head noted earlier; can be repeated")
    file = {"action": "append", "default": [], "metavar": "FILE"}
    who = parser.add_mutually_exclusive_group()
    who.add_argument("--key", action="append", default=[], metavar="VKEY", help="the vkey of a log that is believed")
    who.add_argument("--policy", "--witness-policy", metavar="FILE", help="which logs and witnesses are believed")
    parser.add_argument("--proof", **file, help="a proof of an event or of a chain's head (*.tlog-proof)")
    parser.add_argument("--checkpoint", **file, help="a checkpoint that was kept earlier")
    parser.add_argument("--consistency", **file, help="a consistency proof between two checkpoints")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.add_argument("--data", metavar="DIR", help="check the data directory of an embedded store, or one log in it")
    parser.add_argument("--export", metavar="PROJECT_ID", help="with --data: print this project's events, one a line")
    parser.add_argument("--mode", choices=MODES, help="with --data: only this log; --export takes live unless told")
    parser.add_argument("--vectors", metavar="DIR", help="run the test vectors in DIR")
    args = parser.parse_args()
    is_trial = bool(args.key or args.policy or args.proof or args.checkpoint or args.consistency)
    has_input = bool(args.files or args.proof or args.checkpoint)
    if has_input + bool(args.data) + bool(args.vectors) != 1:
        parser.error("give files, or --data, or --vectors")
    if is_trial and not has_input:
        parser.error("--key, --policy and --consistency go with files, --proof or --checkpoint")
    if (args.export or args.mode) and not args.data:
        parser.error("--export and --mode go with --data")
    if args.expect and not args.files:
        parser.error("--expect goes with files; for a store, verify what --export prints")
    if args.json and (args.export or args.vectors):
        parser.error("--json does not go with --export or --vectors")
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # so that `--export ID | head` ends quietly
    try:
        if args.vectors:
            return run_vectors(args.vectors)
        if args.data:
            project = args.export and str(uuid.UUID(args.export))
            both = os.path.isdir(os.path.join(args.data, "live"))
            result = verify_data(args.data, args.mode or ("live" if project and both else None), project)
        elif is_trial:
            return verify_trust(args)
        else:
            result = verify_text(args.files, args.expect)
    except (Unreadable, OSError, ValueError) as error:
        print("sealog_verify: %s" % error, file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(result))
    elif args.data:
        print_report(result, sys.stderr if args.export else sys.stdout)
    else:
        print(result["message"])
    return 0 if result["valid"] else 10


if __name__ == "__main__":
    sys.exit(main())
