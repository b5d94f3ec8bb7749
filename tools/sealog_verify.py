#!/usr/bin/env python3
"""Check Sealog events yourself: recompute every hash and every link of a chain without Sealog.

This program was written from docs/format.md and shares no code with Sealog. It needs Python 3.9 and
nothing else. It never opens a network connection, and it only reads.

Read it in this order: 1. canonical JSON text, 2. an event and its hash, 3. the checks on a chain,
4. events as text (exports, API pages), 5. the files of the embedded store, 6. test vectors, 7. the
command line.
"""

import argparse
import base64
import collections
import datetime
import functools
import gzip
import hashlib
import json  # For our own output and for the vector files. Never for an event: see section 1.
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

ZEROS = "0" * 64  # prev_hash of the first event of a chain


class Unreadable(Exception):
    """The input is not what it should be, so that nothing can be said about the chain (exit code 2)."""

    def __init__(self, what, offset=None):
        super().__init__(what)
        self.what, self.offset = what, offset


# --- 1. Canonical JSON text -----------------------------------------------------------------------------
#
# A JSON library would lose what was hashed: 1.0 becomes 1, of two equal keys one is dropped, a lone
# surrogate cannot be written again, deep nesting overflows the stack. So the text is scanned here: it must
# be strict JSON (RFC 8259), and what comes out is the same text in the one spelling that Sealog hashes.
# Everything works on bytes; the regular expressions cannot backtrack into more than linear time.

SPACE = re.compile(rb"[ \t\n\r]*")
LITERAL = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
STRING = re.compile(rb'"[^"\\\x00-\x1f]*(?:\\[^\x00-\x1f][^"\\\x00-\x1f]*)*"')
# A backslash and what may follow it. The last, empty, choice catches what may not.
ESCAPE = re.compile(
    rb"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|([\"\\/bfnrt])|)"
)
SHORT = {0x22: b'\\"', 0x5C: b"\\\\", 8: b"\\b", 12: b"\\f", 10: b"\\n", 13: b"\\r", 9: b"\\t"}


def spell(code):
    """The canonical spelling of one character."""
    if code in SHORT:
        return SHORT[code]
    if code < 0x20 or 0xD800 <= code <= 0xDFFF:  # a control character, or half of a surrogate pair
        return b"\\u%04x" % code
    return chr(code).encode()


def respell(match):
    high, low, unit, short = match.groups()
    if high:
        return spell(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF))
    if unit:
        return spell(int(unit, 16))
    if short:
        return b"/" if short == b"/" else b"\\" + short
    raise Unreadable("a backslash with nothing valid behind it", match.start())


def skip(data, pos):
    return SPACE.match(data, pos).end()


def read_string(data, pos):
    """The canonical text of the string at pos, quotes included, and the offset behind it."""
    match = STRING.match(data, pos)
    if not match:
        raise Unreadable("a string is expected here, closed and without control characters", pos)
    text = match.group()
    try:
        if not text.isascii():
            text.decode()
        return (ESCAPE.sub(respell, text) if b"\\" in text else text), match.end()
    except UnicodeDecodeError as error:
        raise Unreadable("this is not UTF-8", pos + error.start) from None
    except Unreadable as error:
        raise Unreadable(error.what, pos + error.offset) from None


def read_key(data, pos):
    key, pos = read_string(data, skip(data, pos))
    pos = skip(data, pos)
    if data[pos : pos + 1] != b":":
        raise Unreadable("':' is expected here", pos)
    return key, skip(data, pos + 1)


def read_value(data, pos):
    """The canonical text of the JSON value at pos, and the offset behind it."""
    out, closers = [], []  # An own stack: metadata may be nested deeper than any call stack.
    while True:
        pos = skip(data, pos)
        first = data[pos : pos + 1]
        if first == b"{" or first == b"[":
            out.append(first)
            closers.append(b"}" if first == b"{" else b"]")
            pos = skip(data, pos + 1)
            if data[pos : pos + 1] != closers[-1]:
                if first == b"{":
                    key, pos = read_key(data, pos)
                    out += (key, b":")
                continue
        elif first == b'"':
            text, pos = read_string(data, pos)
            out.append(text)
        else:
            match = LITERAL.match(data, pos)
            if not match:
                raise Unreadable("a JSON value is expected here", pos)
            out.append(match.group())
            pos = match.end()
        while closers:  # A value is complete. Does it close what it stands in, or does another follow?
            pos = skip(data, pos)
            mark = data[pos : pos + 1]
            if mark == closers[-1]:
                out.append(closers.pop())
                pos += 1
            elif mark == b",":
                out.append(mark)
                pos += 1
                if closers[-1] == b"}":
                    key, pos = read_key(data, pos)
                    out += (key, b":")
                break
            else:
                raise Unreadable("',' or '%s' is expected here" % closers[-1].decode(), pos)
        else:
            return b"".join(out), pos


def canonical(data):
    """The canonical text of data, which must be one JSON value and nothing else."""
    text, pos = read_value(data, 0)
    if skip(data, pos) != len(data):
        raise Unreadable("something follows the JSON value", skip(data, pos))
    return text


# --- 2. An event and its hash ---------------------------------------------------------------------------

UUID_TEXT = rb'"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"'
HASH_TEXT = rb'"[0-9a-f]{64}"'
# The fields that take part in the check, and how the canonical text of each must begin. It is known to be one
# JSON value, so the beginning is enough. Other fields (category, ip_address, ...) are not covered by the hash.
SHAPES = {
    b'"log_id"': rb'"[0-7][0-9A-HJKMNP-TV-Z]{25}"',
    b'"tenant_id"': UUID_TEXT,
    b'"project_id"': UUID_TEXT,
    b'"action"': rb'"',
    b'"actor_id"': rb'"|null',
    b'"resource"': rb'"|null',
    b'"metadata"': rb"\{|null",
    b'"timestamp"': rb'"(\d{4}-\d\d-\d\d)T([01]\d|2[0-3]):([0-5]\d):([0-5]\d)\.(\d{3})Z"',
    b'"chain_seq"': rb"-?(?:0|[1-9]\d{0,18})\Z",
    b'"prev_hash"': HASH_TEXT,
    b'"hash"': HASH_TEXT,
}
SHAPES = {key: re.compile(shape) for key, shape in SHAPES.items()}
PAYLOAD = (b'"log_id"', b'"tenant_id"', b'"action"', b'"actor_id"', b'"resource"', b'"metadata"')
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # the digits of a ULID, in ascending order
TO_ULID = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", CROCKFORD)  # from base64.b32encode
FROM_ULID = str.maketrans(CROCKFORD, "0123456789abcdefghijklmnopqrstuv")  # to int(text, 32)
EPOCH = datetime.date(1970, 1, 1).toordinal()


class Event:
    """What the checks need to know of an event. `problem` says why it is malformed, if it is."""

    __slots__ = ("seq", "hash", "chain", "log_id", "ms", "prev_hash", "computed", "problem")

    def __init__(self, seq, hash_, chain=None, log_id=None, ms=None, prev_hash=None, payload=None, problem=None):
        self.seq, self.hash, self.chain, self.log_id = seq, hash_, chain, log_id
        self.ms, self.prev_hash, self.problem = ms, prev_hash, problem
        if not problem:  # The rule of docs/format.md, section 1.
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
        try:  # Whole numbers only: no rounding, no time zone.
            minutes = (day_number(date) * 24 + int(hours)) * 60 + int(minutes)
            ms = (minutes * 60 + int(seconds)) * 1000 + int(millis)
        except ValueError:
            bad = ['"timestamp"']
    seq = int(values[b'"chain_seq"']) if parts[b'"chain_seq"'] else None
    hash_ = values[b'"hash"'][1:-1].decode() if parts[b'"hash"'] else None
    if bad:
        return Event(seq, hash_, problem=problem or ", ".join(bad) + " missing or malformed")
    log_id, tenant, project, prev_hash = (
        values[key][1:-1].decode() for key in (b'"log_id"', b'"tenant_id"', b'"project_id"', b'"prev_hash"')
    )
    payload = b"{%s}" % b",".join([key + b":" + values.get(key, b"null") for key in PAYLOAD])
    return Event(seq, hash_, (tenant, project), log_id, ms, prev_hash, payload)


# --- 3. The checks on a chain ---------------------------------------------------------------------------

MEANING = {
    "malformed": "The event cannot be checked as it stands.",
    "chain": "The event is of another tenant or project than the first: chains were mixed, or an event was moved.",
    "gap": "Events were removed, added, repeated or reordered before this one.",
    "link": "The event does not follow the one before it: one of the two was replaced, or events between them removed.",
    "hash": "The event was changed after it was sealed.",
    "order": "The event's id is not newer than the one before, or does not carry the event's time.",
    "head": "The chain was rewritten: the event that was noted here had another hash.",
    "tail": "Events at the end are missing that were known to exist.",
}


class Chain:
    """Takes the events of one chain, oldest first, and stops at the first break.

    expected: (chain_seq, hash) of heads that were noted earlier. whole: the chain must begin at 1; otherwise
    a later first event is the start of a part of a chain.
    """

    def __init__(self, expected=(), whole=False):
        self.expected, self.whole = collections.defaultdict(set), whole
        for seq, hash_ in expected:
            self.expected[seq].add(hash_)
        self.checked, self.first_seq, self.before, self.broken = 0, None, None, None

    def add(self, event):
        """Whether the chain is still sound."""
        if self.broken:
            return False
        due = self.before.seq + 1 if self.before else 1
        seq = due if event.seq is None else event.seq
        if self.first_seq is None:
            self.first_seq = seq
        self.checked += 1
        fault = self.fault(event, due)
        if fault:
            self.broken = (seq, event.hash) + fault
            return False
        self.before = event
        return True

    def fault(self, event, due):
        """The first check that fails, in the order of vectors/README.md, as (reason, what was seen)."""
        before, seq = self.before, event.seq
        if event.problem:
            return "malformed", event.problem
        if before and event.chain != before.chain:
            return "chain", "tenant %s, project %s" % event.chain
        if seq != due and (before or self.whole or seq < 1):
            return "gap", "chain_seq is %d where %d is due" % (seq, due)
        # At the start of a part, only a head noted earlier can say what came before.
        links = {ZEROS} if seq == 1 else {before.hash} if before else self.expected.get(seq - 1, ())
        if any(event.prev_hash != link for link in links):
            return "link", "prev_hash is %s, the hash before is %s" % (event.prev_hash, min(links))
        if event.computed != event.hash:
            return "hash", "hash is %s, recomputing gives %s" % (event.hash, event.computed)
        if before and event.log_id <= before.log_id:
            return "order", "log_id is %s, the one before is %s" % (event.log_id, before.log_id)
        if int(event.log_id[:10].translate(FROM_ULID), 32) != event.ms:
            return "order", "log_id %s does not carry the timestamp" % event.log_id
        if any(event.hash != hash_ for hash_ in self.expected.get(seq, ())):
            return "head", "hash is %s, expected %s" % (event.hash, " and ".join(sorted(self.expected[seq])))
        return None

    def result(self):
        """Call it when there are no more events."""
        last = self.before.seq if self.before else 0
        beyond = sorted(seq for seq in self.expected if seq > last)
        if beyond and not self.broken:
            seen = "the chain ends at %d, before the expected head %d" % (last, beyond[0])
            self.broken = (last + 1, min(self.expected[beyond[0]]), "tail", seen)
        first = 1 if self.first_seq is None else self.first_seq
        result = {"valid": not self.broken, "checked": self.checked, "first_seq": first, "last_seq": last}
        if self.broken:
            seq, hash_, reason, seen = self.broken
            result.update(last_seq=seq, broken_at=seq, reason=reason)
            if hash_:
                result["broken_hash"] = hash_
            result["message"] = "Broken at chain_seq %d (%s): %s. %s" % (seq, reason, seen, MEANING[reason])
            return result
        message = "Valid: %d events, chain_seq %d to %d" % (self.checked, first, last)
        if self.before:
            message += ", head %d:%s" % (last, self.before.hash)
        message += ". Every hash was recomputed, every link followed."
        reached = [seq for seq in self.expected if seq >= first - 1]
        if reached:
            message += " %d expected head(s) found." % len(reached)
        else:
            message += " No head to compare with: that the end is complete is not shown (--expect)."
        for seq in sorted(self.expected):
            if seq < first - 1:
                message += " NOT CHECKED: the expected head %d lies before the first event given." % seq
        result["message"] = message
        return result


# --- 4. Events as text ----------------------------------------------------------------------------------


def read_object(data, pos, fields):
    """Appends an object's members to fields, from behind its '{' or from behind a member's value.

    Returns the offset behind the object, or, for a page, the offset of its events array. Second: which.
    """
    while True:
        pos = skip(data, pos)
        mark = data[pos : pos + 1]
        if mark == b"}":
            return pos + 1, False
        if fields:
            if mark != b",":
                raise Unreadable("',' or '}' is expected here", pos)
            pos += 1
        key, pos = read_key(data, pos)
        if key == b'"events"' and data[pos : pos + 1] == b"[" and (key, b"") not in fields:
            fields.append((key, b""))
            return pos, True
        value, pos = read_value(data, pos)
        fields.append((key, value))


def read_events(data):
    """Yields the events in data: objects one after the other, arrays of them, API pages, in any mixture."""
    pos, inside = 0, []  # inside: None for each array that is open, the fields so far for each page
    while True:
        pos = skip(data, pos)
        first = data[pos : pos + 1]
        if first == b"[":
            inside.append(None)
            pos = skip(data, pos + 1)
            if data[pos : pos + 1] != b"]":
                continue
        elif first == b"{":
            fields = []
            pos, is_page = read_object(data, pos + 1, fields)
            if is_page:
                inside.append(fields)
                continue
            yield event_from_fields(fields)
        elif not first and not inside:
            return
        else:
            raise Unreadable("an event, a page of events or an array of them is expected here", pos)
        while inside:
            pos = skip(data, pos)
            mark = data[pos : pos + 1]
            if inside[-1] is not None:  # The array of a page has ended; the rest of the page follows.
                fields = inside.pop()
                pos, _ = read_object(data, pos, fields)
                names = [key for key, _ in fields]
                # Otherwise an event could be hidden as a page without events.
                if names.count(b'"events"') > 1 or any(name in SHAPES for name in names):
                    raise Unreadable("the object that ends here is neither a page nor an event", pos - 1)
            elif mark == b"]":
                inside.pop()
                pos += 1
            elif mark == b",":
                pos += 1
                break
            else:
                raise Unreadable("',' or ']' is expected here", pos)


def oldest_first(events):
    """Lists come newest first. Turned round if chain_seq falls all the way; otherwise as they come, so that
    any other disorder is found as a break."""
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
    """The bytes of a file, or of standard input for '-', unpacked if gzip. Mapped: exports can be larger than memory."""
    source = sys.stdin.buffer if name == "-" else open(name, "rb")
    packed = source.peek(2)[:2] == b"\x1f\x8b"
    if packed or name == "-" or not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
        spool = tempfile.TemporaryFile()
        shutil.copyfileobj(gzip.GzipFile(fileobj=source) if packed else source, spool, 1 << 20)
        spool.flush()
        source = spool
    size = os.fstat(source.fileno()).st_size
    return mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) if size else b""


def events_of(names):
    for name in names:
        try:
            yield from read_events(load(name))
        except Unreadable as error:
            raise Unreadable("%s: byte %d: %s" % (name, error.offset, error.what)) from None
        except (OSError, EOFError, zlib.error) as error:
            raise Unreadable("%s: %s" % (name, error)) from None


# --- 5. The files of the embedded store -----------------------------------------------------------------
#
# docs/format.md, sections 2 to 4 and 6. Nothing is believed that its checksum does not confirm. A checksum
# shows accidents, not intent; intent is what the hashes and the noted heads are for.

SEGMENT = struct.Struct("<8sIBBHQ16sQQQQI48sI")
FRAME = struct.Struct("<4sIBBHIQQ16s16sQQII")
RECORD = struct.Struct("<II16s32s32s")
MARK = struct.Struct("<IIQQQQII")
HEAD = struct.Struct("<16s16sQ16s32s")
TAGS = ("category", "severity", "actor_type", "resource_type", "session_id", "ts_client", "ip_address", "country", "city")
MODES = ("live", "test")
QUOTED = ("log_id", "tenant_id", "project_id", "timestamp", "prev_hash", "hash")
FIELD_ORDER = (
    "log_id tenant_id project_id schema_version action category severity actor_id actor_type resource resource_type "
    "session_id ts_client ip_address country city metadata timestamp chain_seq prev_hash hash"
).split()
Mark = collections.namedtuple("Mark", "commit segment offset heads")
Record = collections.namedtuple("Record", "seq log_id prev_hash hash annotations text")
Frame = collections.namedtuple("Frame", "length commit tenant project records sums")
Header = collections.namedtuple(
    "Header", "magic version mode origin zero number salt commit begun before before_length before_crc zeros crc"
)


def crc_step(value, count):
    for _ in range(count):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


# CRC32C is linear: what four bytes do is what their lower 11, middle 11 and upper 10 bits do, combined.
# That is three look-ups for four bytes, and the tables still fit into a processor's cache.
CRC_BYTE = [crc_step(value, 8) for value in range(256)]
CRC_LOW = [crc_step(value, 32) for value in range(2048)]
CRC_MIDDLE = [crc_step(value << 11, 32) for value in range(2048)]
CRC_HIGH = [crc_step(value << 22, 32) for value in range(1024)]


def crc32c(data, crc=0):
    """CRC32C (Castagnoli) of data, going on from the crc of what came before."""
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
    """The fields of the frame header at pos, or None if there is none that says it belongs there."""
    if data[pos : pos + 4] != b"SLFR" or pos + FRAME.size > len(data):
        return None
    fields = FRAME.unpack_from(data, pos)
    return fields if fields[7] == pos and crc32c(data[pos : pos + 84], salt_crc) == fields[-1] else None


def find_frames(data, pos, end, salt_crc):
    """Yields offset and header of each frame from pos on whose header is right."""
    pos = data.find(b"SLFR", pos, end)
    while pos >= 0:
        header = frame_header(data, pos, salt_crc)
        if header:
            yield pos, header
        pos = data.find(b"SLFR", pos + 1, end)


def read_frame(data, pos, end, salt_crc):
    header = frame_header(data, pos, salt_crc)
    if not header:
        raise Invalid("no frame header with a right checksum")
    _, length, version, flags, count, _, commit, _, tenant, project, first_seq, _, _, _ = header
    where = "frame of project %s, chain_seq %d to %d: " % (uuid.UUID(bytes=project), first_seq, first_seq + count - 1)
    stop = pos + length - (84 if flags & 1 else 0)
    if version != 1 or not 1 <= count <= 100 or pos + length > end:
        raise Invalid(where + "unknown version, impossible count, or longer than the segment")
    at, records, sums = pos + FRAME.size, [], [data[pos + 84 : pos + 88]]
    chain_crc = crc32c(tenant + project, salt_crc)
    for seq in range(first_seq, first_seq + count):
        size, extra, log_id, prev_hash, hash_ = RECORD.unpack_from(data, at) if at + 92 <= stop else (0,) * 5
        if size < 92 + extra or at + size > stop:
            raise Invalid(where + "the record of chain_seq %d has an impossible length" % seq)
        tail = at + size - 4
        if data[tail : tail + 4] != crc_bytes(struct.pack("<Q", seq) + data[at:tail], chain_crc):
            raise Invalid(where + "the record of chain_seq %d has a wrong checksum" % seq)
        sums.append(data[tail : tail + 4])
        split = at + RECORD.size + extra
        records.append(Record(seq, log_id, prev_hash, hash_, data[at + RECORD.size : split], data[split:tail]))
        at += size
    if at != stop:
        raise Invalid(where + "its records do not fill it")
    if flags & 1:
        sums.append(data[at + 80 : at + 84])
        if sums[-1] != crc_bytes(struct.pack("<Q", pos) + data[at : at + 80], salt_crc):
            raise Invalid(where + "its idempotency record has a wrong checksum")
    return Frame(length, commit, tenant, project, records, b"".join(sums))


class Log:
    """One log directory (live or test). frames() reads it; damage and notes then say what was met."""

    def __init__(self, path, mode=None):
        self.path, self.mode, self.damage, self.notes = path, mode, [], []
        self.end, self.commit = (0, 0), 0  # how far the log was read: segment and offset; commit number
        self.mark = self.read_mark()  # Before the segments: those of a store in use can only be ahead of it.

    def broken(self, what, segment=None, offset=None):
        self.damage.append({"segment": segment, "offset": offset, "message": what})

    def is_mode(self, mode):
        if self.mode is None and mode < len(MODES):
            self.mode = mode
        return mode == self.mode

    def read_mark(self):
        mark = Mark(0, 0, 0, {})
        try:
            with open(os.path.join(self.path, "mark"), "rb") as file:
                data = file.read()
        except FileNotFoundError:
            self.notes.append("There is no mark: a tail that was cut off cannot be noticed here.")
            return mark
        if len(data) < 16 or data[:12] != b"SEALOGMK\1\0\0\0" or not self.is_mode(int.from_bytes(data[12:16], "little")):
            self.broken("the mark's header is wrong, so the heads in it are lost")
            return mark
        pos = 16
        while pos + MARK.size <= len(data):
            size, crc, commit, segment, offset, _, _, count = MARK.unpack_from(data, pos)
            stop = pos + size
            if size != MARK.size + count * HEAD.size or stop > len(data) or crc32c(data[pos + 8 : stop]) != crc:
                break
            for tenant, project, seq, _, hash_ in HEAD.iter_unpack(data[pos + MARK.size : stop]):
                mark.heads[tenant, project] = (seq, hash_.hex())
            mark, pos = Mark(commit, segment, offset, mark.heads), stop
        if data[pos:].strip(b"\0"):
            self.notes.append("The mark ends at offset %d with an incomplete record, which does not count." % pos)
        return mark

    def reached_mark(self):
        return self.end >= (self.mark.segment, self.mark.offset) and self.commit >= self.mark.commit

    def read_segment(self, number):
        with open(os.path.join(self.path, "%08d.log" % number), "rb") as file:
            return file.read()

    def headers(self):
        """The headers of the segments by number, None for a segment that is missing or has no valid header."""
        names = [name for name in os.listdir(self.path) if re.fullmatch(r"([0-9]{8}|[1-9][0-9]{8,})\.log", name)]
        numbers = {int(name[:-4]) for name in names}
        if numbers and not self.read_segment(max(numbers)).strip(b"\0"):
            self.notes.append("Segment %d was prepared but never begun." % max(numbers))
            numbers.discard(max(numbers))
        headers = {}
        for number in range(1, max(numbers, default=0) + 1):
            headers[number] = None
            if number not in numbers:
                self.broken("the segment is missing", number)
                continue
            with open(os.path.join(self.path, "%08d.log" % number), "rb") as file:
                data = file.read(SEGMENT.size)
            if len(data) < SEGMENT.size or data[:8] != b"SEALOGSG" or data[124:] != crc_bytes(data[:124]):
                self.broken("the segment's header is damaged, so nothing in the segment can be checked", number, 0)
                continue
            header = headers[number] = Header._make(SEGMENT.unpack(data))
            if header.version != 1:
                raise Unreadable("segment %d has version %d; this program knows version 1" % (number, header.version))
            if header.number != number or not self.is_mode(header.mode):
                self.broken("its header says segment %d, mode %d" % (header.number, header.mode), number, 0)
            if header.before != number - 1 or (number == 1 and (header.before_length or header.before_crc)):
                self.broken("the segment names %d as the one before it" % header.before, number, 56)
        return headers

    def frames(self):
        """Yields the frames that count, in order."""
        headers = self.headers()
        for number, header in headers.items():
            if header:
                yield from self.segment_frames(number, header, headers.get(number + 1), number == max(headers))
        if not self.damage and not self.reached_mark():
            found = "the log ends at commit %d, segment %d, offset %d; " % (self.commit, *self.end)
            found += "its mark says that it reached commit %d, segment %d, offset %d: " % self.mark[:3]
            self.broken(found + "events that were acknowledged are missing", *self.end)

    def segment_frames(self, number, header, follower, is_last):
        """follower: the header of the next segment. It says where this one ends: bytes behind that do not count."""
        data, salt_crc = self.read_segment(number), crc32c(header.salt)
        end = follower.before_length if follower else len(data)
        running, damaged, pos = 0, len(self.damage), SEGMENT.size
        self.commit = max(self.commit, header.commit - 1)
        if not pos <= end <= len(data):
            self.broken("the next segment says that %d bytes count, there are %d" % (end, len(data)), number, len(data))
            end = len(data)
        self.end = (number, pos)
        while pos < end and (follower or data[pos : pos + 4].strip(b"\0") or data[pos:].strip(b"\0")):
            try:
                frame = read_frame(data, pos, end, salt_crc)
            except Invalid as error:
                if not follower and not is_last:
                    break  # The next segment's loss is reported; where this one ended is not known.
                if is_last and not self.was_complete(data, pos, salt_crc):
                    self.notes.append(
                        "Torn tail in segment %d at offset %d: a write that did not finish and was never acknowledged. "
                        "A crash leaves this; it is no loss." % (number, pos)
                    )
                    break
                self.broken("invalid frame, %s" % error, number, pos)
                pos = next(find_frames(data, pos + 1, end, salt_crc), (end, None))[0]
                continue
            yield frame
            running = crc32c(frame.sums, running)
            pos += frame.length
            self.end, self.commit = (number, pos), max(self.commit, frame.commit)
        if follower and running != follower.before_crc and len(self.damage) == damaged:
            self.broken("these are not the frames that the next segment's running checksum covers", number, pos)

    def was_complete(self, data, pos, salt_crc):
        """Whether the invalid frame at pos was once whole on disk: the mark covers it, or there is a frame of a
        later group behind it, which is written only after the sync of the group before succeeded."""
        groups = (at - header[5] for at, header in find_frames(data, pos + 1, len(data), salt_crc))
        return not self.reached_mark() or any(group > pos for group in groups)


@functools.lru_cache(maxsize=1024)
def uuid_text(raw):
    return str(uuid.UUID(bytes=raw))


def event_from_record(record, chain):
    """chain: tenant_id and project_id as text."""
    log_id = base64.b32encode(b"\0\0\0\0" + record.log_id)[6:].decode().translate(TO_ULID)
    payload = b'{"log_id":"%s","tenant_id":"%s",%s' % (log_id.encode(), chain[0].encode(), record.text)
    ms = int.from_bytes(record.log_id[:6], "big")
    return Event(record.seq, record.hash.hex(), chain, log_id, ms, record.prev_hash.hex(), payload)


def event_text(record, event):
    """The event as a read returns it, one line, its fields in the order of the API."""
    fields = []
    try:
        pos, _ = read_object(record.text, 0, fields)
    except Unreadable:
        pos = None
    if pos != len(record.text) or [key for key, _ in fields] != list(PAYLOAD[2:]):
        raise Unreadable("chain_seq %d: the stored text is not the end of a payload" % record.seq)
    values = {key[1:-1].decode(): value for key, value in fields if value != b"null"}
    notes = record.annotations
    pos = 5 if notes[:5] == b"\1\0\0\0\0" else len(notes)  # Encrypted ones cannot be shown.
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
    clock = (ms // 3600000, ms // 60000 % 60, ms // 1000 % 60, ms % 1000)
    time = "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ" % (day.year + 400 * cycles, day.month, day.day, *clock)
    values.update(schema_version=b"1", chain_seq=b"%d" % event.seq)
    for name, text in zip(QUOTED, (event.log_id, *event.chain, time, event.prev_hash, event.hash)):
        values[name] = b'"%s"' % text.encode()
    return b"{%s}\n" % b",".join(b'"%s":%s' % (name.encode(), values[name]) for name in FIELD_ORDER if name in values)


def open_logs(path, mode):
    """The logs in a data directory, or the one log that path is; only those of mode, if given."""
    inside = [name for name in MODES if os.path.isdir(os.path.join(path, name)) and mode in (None, name)]
    if inside:
        with open(os.path.join(path, "FORMAT"), "rb") as file:
            line = file.read(100).strip()
        if line != b"sealog embedded 1":
            raise Unreadable("FORMAT says %r; this program knows 'sealog embedded 1'" % line.decode(errors="replace"))
        return [Log(os.path.join(path, name), MODES.index(name)) for name in inside]
    if not any(name == "mark" or name.endswith(".log") for name in os.listdir(path)):
        raise Unreadable("%s holds no log%s" % (path, " of mode " + mode if mode else ""))
    return [Log(path, MODES.index(mode) if mode else None)]


# --- 6. Test vectors ------------------------------------------------------------------------------------


def run_vectors(path):
    passed, failed = 0, 0
    for name in ("metadata.json", "chains.json"):
        with open(os.path.join(path, name), encoding="utf-8") as file:
            cases = json.load(file)["cases"]
        for case in cases:
            wrong = (metadata_case if name == "metadata.json" else chain_case)(case)
            if wrong:
                print("FAILED %s: %s: %s" % (name, case["name"], wrong))
            passed, failed = passed + (not wrong), failed + bool(wrong)
    print("%d passed, %d failed" % (passed, failed))
    return 10 if failed else 0


def metadata_case(case):
    text = case["input"] if "input" in case else "".join(part * times for part, times in case["input_parts"])
    try:
        got = canonical(text.encode("utf-8", "surrogatepass"))
    except Unreadable as error:
        return None if case.get("canonical", "") is None else "refused: %s (byte %d)" % (error.what, error.offset)
    if "canonical_sha256" in case:
        return None if hashlib.sha256(got).hexdigest() == case["canonical_sha256"] else "another canonical text"
    if case["canonical"] is None:
        return "taken for valid JSON"
    if got != case["canonical"].encode():
        return "canonical text is %r" % got[:200]
    return None if canonical(got) == got else "the canonical text has another canonical text"


def chain_case(case):
    chain = Chain(parse_head(head) for head in case.get("expect", ()))
    try:
        for event in oldest_first(read_events("\n".join(case["events"]).encode("utf-8", "surrogatepass"))):
            if not chain.add(event):
                break
    except Unreadable as error:
        return "unreadable: %s" % error.what
    got, keys = chain.result(), ("valid", "checked", "first_seq", "last_seq", "broken_at", "broken_hash", "reason")
    wrong = [key for key in keys if got.get(key) != case["result"].get(key)]
    return ", ".join("%s is %r, not %r" % (key, got.get(key), case["result"].get(key)) for key in wrong)


# --- 7. The command line --------------------------------------------------------------------------------

HELP = """
what is checked, event by event, in this order:
  chain      tenant_id and project_id are the first event's
  gap        chain_seq is one more than before
  link       prev_hash is the hash before
  hash       hash is SHA-256 of prev_hash, payload and time, recomputed here
  order      log_id increases and carries the timestamp
  head       an expected head has the expected hash
  tail       the chain reaches every expected head

A chain can only show that nothing was changed inside it. That its end was not cut off, and that it was not
rewritten as a whole, shows only a head that was noted earlier and elsewhere: give it with --expect. Receipts
(the headers Sealog-Chain-Seq and Sealog-Hash of an answer) are such heads.

input: events one a line (NDJSON), API pages, arrays of events, one after the other, oldest or newest first
throughout, plain or gzip. Several files are read as one. All events must be of one chain.

exit codes: 0 valid, 10 broken, 2 wrong usage or unreadable input

examples:
  sealog_verify.py --expect 4711:9f2c...e1a0 export.ndjson.gz
  curl -s -H "Authorization: Bearer $KEY" "$URL/v1/events?limit=100" | sealog_verify.py -
  sealog_verify.py --data /var/lib/sealog
  sealog_verify.py --data /var/lib/sealog --export 0b7c...  | sealog_verify.py --expect 4711:9f2c...e1a0 -

--data reads the files of an embedded store. Best on a copy or with Sealog stopped: of a store in use, the write
that is under way looks like a torn tail.
"""


def parse_head(text):
    match = re.fullmatch(r"([1-9][0-9]{0,18}):([0-9a-f]{64})", text)
    if not match:
        raise argparse.ArgumentTypeError("%r is not SEQ:HASH (a number from 1, a colon, 64 lower-case hex digits)" % text)
    return int(match[1]), match[2]


def progress(count):
    if count % 5000 == 0 and sys.stderr.isatty():
        print("\r%d events " % count, end="", file=sys.stderr, flush=True)


def verify_text(names, expected):
    chain = Chain(expected)
    for event in oldest_first(events_of(names)):
        if not chain.add(event):
            break
        progress(chain.checked)
    if not chain.checked and not expected:
        raise Unreadable("there are no events in the input")
    return chain.result()


def verify_data(path, mode, project=None):
    """Checks every chain; writes the events of project, if given, to standard output."""
    report = {"valid": True, "checked": 0, "chains": [], "damage": [], "notes": []}
    exported = 0
    for log in open_logs(path, mode):
        # The heads in the mark are heads noted earlier: a chain that is gone altogether is missed as well.
        chains = {key: Chain([head], whole=True) for key, head in log.mark.heads.items()}
        counts = collections.Counter()
        for frame in log.frames():
            key, ids = (frame.tenant, frame.project), (uuid_text(frame.tenant), uuid_text(frame.project))
            if key not in chains:
                chains[key] = Chain(whole=True)
            for record in frame.records:
                event = event_from_record(record, ids)
                chains[key].add(event)
                counts[key] += 1
                report["checked"] += 1
                progress(report["checked"])
                if ids[1] == project:
                    sys.stdout.buffer.write(event_text(record, event))
                    exported += 1
        named = {"mode": MODES[log.mode or 0]}
        for key, chain in sorted(chains.items()):
            result, last = chain.result(), chain.before
            ids = {"tenant_id": uuid_text(key[0]), "project_id": uuid_text(key[1])}
            head = "%d:%s" % (last.seq, last.hash) if last else None
            report["chains"].append({**named, **ids, "events": counts[key], "head": head, **result})
        report["damage"] += [{**named, **damage} for damage in log.damage]
        report["notes"] += ["%s: %s" % (named["mode"], note) for note in log.notes]
    if not report["chains"] and not report["damage"]:
        raise Unreadable("there are no events in %s" % path)
    if project and not exported:
        raise Unreadable("no events of project %s there" % project)
    broken = sum(not chain["valid"] for chain in report["chains"])
    report["valid"] = not broken and not report["damage"]
    report["message"] = "%s: %d events in %d chains read, %d chains broken, %d places damaged." % (
        "Valid" if report["valid"] else "BROKEN", report["checked"], len(report["chains"]), broken, len(report["damage"]),
    )  # fmt: skip
    return report


def print_report(report, out):
    for chain in report["chains"]:
        verdict = "ok" if chain["valid"] else chain["message"]
        line = "{mode}  {project_id}  {events} events  head {head}  ".format(**chain)
        print(line + verdict, file=out)
    for damage in report["damage"]:
        where = damage["mode"] + "".join(", %s %d" % (k, damage[k]) for k in ("segment", "offset") if damage[k] is not None)
        print("DAMAGE in %s: %s." % (where, damage["message"]), file=out)
    for note in report["notes"]:
        print("Note, %s" % note, file=out)
    print(report["message"], file=out)


def main():
    parser = argparse.ArgumentParser(
        description="Check a chain of Sealog events without Sealog.", epilog=HELP, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="events as text; - for standard input")
    parser.add_argument("--expect", action="append", default=[], type=parse_head, metavar="SEQ:HASH", help="a head noted earlier; may be repeated")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.add_argument("--data", metavar="DIR", help="check the data directory (or one log directory) of an embedded store")
    parser.add_argument("--export", metavar="PROJECT_ID", help="with --data: print this project's events, one a line")
    parser.add_argument("--mode", choices=MODES, help="with --data: only this log; --export takes live unless told")
    parser.add_argument("--vectors", metavar="DIR", help="run the test vectors in DIR")
    args = parser.parse_args()
    if (len(args.files) > 0) + (args.data is not None) + (args.vectors is not None) != 1:
        parser.error("give files, or --data, or --vectors")
    if (args.export or args.mode) and not args.data:
        parser.error("--export and --mode go with --data")
    if args.expect and not args.files:
        parser.error("--expect goes with files; for a store, verify what --export prints")
    if args.json and (args.export or args.vectors):
        parser.error("--json does not go with --export or --vectors")
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `... --export P | head` ends quietly
    try:
        if args.vectors:
            return run_vectors(args.vectors)
        if args.data:
            mode = args.mode
            if args.export and not mode and os.path.isdir(os.path.join(args.data, "live")):
                mode = "live"
            result = verify_data(args.data, mode, args.export and str(uuid.UUID(args.export)))
            if not args.json:
                print_report(result, sys.stderr if args.export else sys.stdout)
        else:
            result = verify_text(args.files, args.expect)
            if not args.json:
                print(result["message"])
        if args.json:
            print(json.dumps(result))
        return 0 if result["valid"] else 10
    except (Unreadable, OSError, ValueError) as error:
        print("sealog_verify: %s" % error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
