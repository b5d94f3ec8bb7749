"""Proofs of events. Copied from tools/sealog_trust.py by sync_sealed: change it there.

Sections: 1 texts, 2 Ed25519, 3 trees, 4 leaves, 5 heads, 6 notes, 9 proofs. The types are in _proof.pyi.
"""

import base64
import hashlib
import json
import re

from . import _sealed as sv  # canonical JSON and the hash of an event



class Refused(Exception):
    """`reason` is the word that the vectors use, the text says what is wrong."""

    def __init__(self, reason, what):
        super().__init__(what)
        self.reason = reason


def malformed(field, problem, line=0):
    """A text that does not have the form it must have. line: counted from 1; 0 if the text as a whole is wrong."""
    return Refused("malformed", "%s`%s` %s" % ("line %d: " % line if line else "", field, problem))


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()

NUMBER_MAX = 2**63 - 1

SPACES = re.compile("[\u0000-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000+]")


def decimal(text, field, line=0):
    if not re.fullmatch(r"0|[1-9][0-9]{0,18}", text, re.ASCII) or int(text) > NUMBER_MAX:
        problem = "must be a decimal number without leading zeros, at most 9223372036854775807"
        raise malformed(field, problem, line)
    return int(text)


def unbase64(text):
    """None if it is not standard base64 with padding, in its one spelling."""
    try:
        value = base64.b64decode(text.encode("ascii"), validate=True)
    except ValueError:
        return None
    return value if base64.b64encode(value).decode() == text else None


def unhash(text, field, line=0):
    value = unbase64(text)
    if value is None or len(value) != 32:
        raise malformed(field, "must be 32 bytes in standard base64 with padding", line)
    return value


def b64(value):
    return base64.b64encode(value).decode()


def unhex(text, length, field, line=0):
    if not re.fullmatch("[0-9a-f]{%d}" % (2 * length), text):
        raise malformed(field, "must have %d hex digits in lower case" % (2 * length), line)
    return bytes.fromhex(text)


def is_name(text):
    return text != "" and not SPACES.search(text)


class Lines:
    """A text whose lines all end with a line feed."""

    def __init__(self, text):
        self.rest, self.number = text, 0

    def wrong(self, field, problem):
        return malformed(field, problem, self.number)

    def next(self, field):
        self.number += 1
        line, feed, rest = self.rest.partition("\n")
        if not feed:
            raise self.wrong(field, "must be on a line of its own that ends with a line feed")
        self.rest = rest
        return line

    def value(self, name):
        line = self.next(name)
        if not line.startswith(name + " "):
            raise self.wrong(name, "must be the name of this line, before a space and the value")
        return line[len(name) + 1 :]

    def decimal(self, field, text):
        return decimal(text, field, self.number)

    def hex(self, field, text, length):
        return unhex(text, length, field, self.number)

    def hash(self, field, text):
        return unhash(text, field, self.number)

    def hashes(self, most):
        hashes = []
        while self.rest and not self.rest.startswith("\n"):
            line = self.next("path")
            if len(hashes) == most:
                raise self.wrong("path", "has more hashes than a tree of any size needs")
            hashes.append(self.hash("path", line))
        return hashes

    def empty(self):
        if self.next("empty line"):
            raise self.wrong("empty line", "must be here")

    def end(self):
        if self.rest:
            raise malformed("end", "must be here; remove further lines", self.number + 1)


def utf8(data, field, line=0):
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise malformed(field, "must be UTF-8", line) from None

P = 2**255 - 19

ORDER = 2**252 + 27742317777372353535851937790883648493

D = -121665 * pow(121666, P - 2, P) % P

ROOT = pow(2, (P - 1) // 4, P)  # of -1

NEUTRAL = (0, 1, 1, 0)


def add(p, q):
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def multiply(scalar, point):
    result = NEUTRAL
    while scalar:
        if scalar & 1:
            result = add(result, point)
        point, scalar = add(point, point), scalar >> 1
    return result


def decompress(data):
    """The point, or None if there is none or this is not its one spelling."""
    y, sign = int.from_bytes(data, "little") & (2**255 - 1), data[31] >> 7
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT % P
    if (x * x - square) % P or (x == 0 and sign):
        return None
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


def compress(point):
    inverse = pow(point[2], P - 2, P)
    x, y = point[0] * inverse % P, point[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def is_small(point):
    x, y, z, _ = multiply(8, point)
    return x % P == 0 and (y - z) % P == 0

BASE_Y = 4 * pow(5, P - 2, P) % P

BASE = decompress(BASE_Y.to_bytes(32, "little"))


def public_point(key):
    """A public key that all implementations agree on, or None."""
    point = decompress(key)
    return None if point is None or is_small(point) else point


def ed25519_verify(key, message, signature):
    a = public_point(key)
    if len(signature) != 64 or a is None:
        return False
    r, s = decompress(signature[:32]), int.from_bytes(signature[32:], "little")
    if r is None or is_small(r) or s >= ORDER:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % ORDER
    minus_a = (P - a[0], a[1], 1, P - a[3])
    return compress(add(multiply(s, BASE), multiply(h, minus_a))) == signature[:32]

PROOF_HASHES_MAX = 63


def leaf_hash(entry):
    return sha256(b"\0", entry)


def node_hash(left, right):
    return sha256(b"\1", left, right)


def check_place(end, size, path=()):
    if size > NUMBER_MAX:
        raise Refused("size", "`size` %d is above %d" % (size, NUMBER_MAX))
    if len(path) > PROOF_HASHES_MAX:
        raise Refused("too long", "`path` may have 63 hashes, and has %d" % len(path))
    if end > size:
        raise Refused("outside", "the proof is about %d leaves, but the tree has %d" % (end, size))


def check_length(path, expected):
    if len(path) != expected:
        problem = "`path` must have %d hashes for this place and size, and has %d"
        raise Refused("length", problem % (expected, len(path)))


def climb(hash_, index, path, inner):
    for level, beside in enumerate(path):
        is_right = level >= inner or index >> level & 1
        hash_ = node_hash(beside, hash_) if is_right else node_hash(hash_, beside)
    return hash_


def root_from_path(leaf, index, size, path):
    check_place(index + 1, size, path)
    inner = (index ^ (size - 1)).bit_length()
    check_length(path, inner + bin(index >> inner).count("1"))
    return climb(leaf, index, path, inner)


def root_up_to(leaf, index, size, path):
    """The root of the tree that ends with the leaf: the siblings on the left are all of it. So a proof of its last leaf
    shows that an older tree begins a newer one."""
    root_from_path(leaf, index, size, path)
    return climb_left(leaf, index, path, (index ^ (size - 1)).bit_length())


def climb_left(hash_, index, path, inner):
    for level, beside in enumerate(path):
        if level >= inner or index >> level & 1:
            hash_ = node_hash(beside, hash_)
    return hash_


def verify_inclusion(leaf, index, size, root, path):
    if root_from_path(leaf, index, size, path) != root:
        raise Refused("root", "the proof leads to another root")

PUBLIC = ("category", "severity", "actor_type", "resource_type")

PRIVATE = ("session_id", "ts_client", "ip_address", "country", "city")


def fields(event, names, first_tag):
    out = b""
    for tag, name in enumerate(names, first_tag):
        if event.get(name) is not None:
            value = event[name].encode()
            if len(value) > 65535:
                problem = "`%s` is above what two bytes can say: no leaf can be made of this event"
                raise Refused("leaf", problem % name)
            out += bytes([tag]) + len(value).to_bytes(2, "big") + value
    return out


def commitment(salt, event):
    return sha256(b"\4", salt, fields(event, PRIVATE, 5))


def leaf_of(event, private):
    fixed = b"\1" + event["chain_seq"].to_bytes(8, "big") + event["hash"] + private
    return fixed + event["schema_version"].to_bytes(2, "big") + fields(event, PUBLIC, 1)


def tag_of(event, mode):
    return sha256(("sealog/chain/v1\n%s\n%s\n%s\n" % (event["tenant_id"], event["project_id"], mode)).encode())


def read_event(text):
    """The fields of an event that a leaf commits to, and whether its hash fits."""
    try:
        event = next(sv.read_events(text.encode()), None)
    except (sv.Unreadable, UnicodeEncodeError) as error:
        raise Refused("event", str(error)) from None
    if event is None or event.problem:
        raise Refused("event", event.problem if event else "there is no event")
    return whole_event(event)


class Uncovered(Exception):
    """A field that neither the hash nor a leaf covers, or (None, version): a schema that is not known here."""


def whole_event(event):
    """An event with the fields outside its hash. The first one that Sealog does not write, that stands twice or has
    another form than its own, is refused."""
    out = {"chain_seq": event.seq, "hash": bytes.fromhex(event.hash), "fits": event.computed == event.hash}
    out.update({name: None for name in PUBLIC + PRIVATE}, schema_version=1)
    out["tenant_id"], out["project_id"] = event.chain
    seen, first, schema = set(), None, None
    for key, value in event.other:
        name, is_right = key[1:-1].decode(), value == b"null"
        if name == "schema_version":
            is_number = re.fullmatch(rb"[1-9][0-9]{0,9}", value) and int(value) < 2**32
            is_right = is_right or is_number
            schema = int(value) if is_number and value != b"1" else None
        elif name in PUBLIC + PRIVATE:
            text = json.loads(value) if value[:1] == b'"' else None
            is_right = is_right or (text is not None and not re.search("[\ud800-\udfff]", text))
            out[name] = text if is_right else None
        else:
            is_right = False
        if (name in seen or not is_right) and first is None:
            first = name
        seen.add(name)
    if schema is not None:
        raise Uncovered(None, schema)
    if first is not None:
        raise Uncovered(first, None)
    return out

ZERO = bytes(32)


def hidden_head(size, root, blind):
    return sha256(b"\7\1", size.to_bytes(8, "big"), root, blind)


def trie_leaf(tag, hidden):
    return sha256(b"\2", tag, hidden)


def bit_of(tag, depth):
    return tag[depth // 8] >> (7 - depth % 8) & 1


def trie_climb(tag, end, path):
    if len(path) > 256:
        raise Refused("too long", "`path` may have 256 hashes, and has %d" % len(path))
    for beside, depth in zip(path, range(len(path) - 1, -1, -1)):
        end = sha256(b"\3", beside, end) if bit_of(tag, depth) else sha256(b"\3", end, beside)
    return end


class Key:
    """A vkey of type 01 (notes) or 04 (cosignatures)."""

    def __init__(self, text):
        parts = text.split("+", 2)
        key = unbase64(parts[2]) if len(parts) == 3 else None
        if key is None or not re.fullmatch("[0-9a-f]{8}", parts[1]):
            form = "must be `NAME+ID+KEY`: a name, 8 hex digits in lower case, a key in base64"
            raise malformed("vkey", form)
        if key[:1] not in (b"\1", b"\4"):
            raise malformed("vkey", "must have type 01 or 04; other types are not supported")
        if len(key) != 33:
            raise malformed("vkey", "must have a public key of 32 bytes")
        if not is_name(parts[0]):
            raise malformed("vkey", "must have a name that is not empty and has no white space and no `+`")
        if public_point(key[1:]) is None:
            raise malformed("vkey", "must have a public key that is a point of large order in its one spelling")
        self.name, self.id, self.kind, self.key = parts[0], bytes.fromhex(parts[1]), key[0], key[1:]
        if sha256(self.name.encode(), b"\n", key)[:4] != self.id:
            raise malformed("vkey", "has an id that is not that of its name and key; copy it again")

    def verify(self, text, signature):
        """The time of a cosignature, 0 for others; None if the signature does not fit."""
        if self.kind == 1:
            return 0 if ed25519_verify(self.key, text.encode(), signature) else None
        time = int.from_bytes(signature[:8], "big")
        message = "cosignature/v1\ntime %d\n%s" % (time, text)
        fits = time <= NUMBER_MAX and ed25519_verify(self.key, message.encode(), signature[8:])
        return time if fits else None


class Note:
    def __init__(self, data):
        if len(data) > 1 << 20:
            raise malformed("note", "must have at most 1048576 bytes")
        note = utf8(data, "note")
        if re.search("[\0-\t\x0b-\x1f]", note):
            raise malformed("note", "must have no control characters but line feeds")
        cut_at = note.rfind("\n\n")
        if cut_at < 0 or not note[cut_at + 2 :].endswith("\n"):
            ends = "must be a text that ends with a line feed, an empty line and signatures, a line each"
            raise malformed("note", ends)
        self.text, self.signatures = note[: cut_at + 1], []
        for line in note[cut_at + 2 : -1].split("\n"):
            if len(self.signatures) == 64:
                raise malformed("note", "must have at most 64 signatures")
            match = re.fullmatch("\u2014 ([^ ]+) ([^ ]+)", line)
            signature = unbase64(match[2]) if match and is_name(match[1]) else None
            if signature is None or len(signature) < 5:
                form = "must be `\u2014 NAME BASE64`, with a key id of 4 bytes before the signature"
                raise malformed("signature", form)
            self.signatures.append((match[1], signature[:4], signature[4:]))

    def verify(self, keys):
        """The place of each key that signed, with the latest time of its cosignatures."""
        signed = {}
        for name, id_, signature in self.signatures:
            for place, key in enumerate(keys):
                if (key.name, key.id) == (name, id_):
                    time = key.verify(self.text, signature)
                    if time is None:
                        raise Refused("signature", name)
                    signed[place] = max(time, signed.get(place, 0))
                    break
        if not signed:
            raise Refused("unknown", "no signature is by a known key")
        return signed


def parse_checkpoint(text):
    lines = Lines(text)
    origin = lines.next("origin")
    if not origin:
        raise lines.wrong("origin", "must not be empty")
    size = lines.decimal("size", lines.next("size"))
    root = lines.hash("root", lines.next("root"))
    lines.end()
    return origin, size, root


def heads_text(time, root):
    return "sealog/heads/v1\n%d\n%s\n" % (time, b64(root))


class Proof:
    """A c2sp.org/tlog-proof@v1 file."""

    def __init__(self, data):
        if len(data) > (1 << 20) + (1 << 17):
            raise malformed("proof", "must have at most 1179648 bytes")
        lines = Lines(utf8(data, "proof"))
        if lines.next("header") != "c2sp.org/tlog-proof@v1":
            raise lines.wrong("header", "must be `c2sp.org/tlog-proof@v1`")
        self.extra = None
        if lines.rest.startswith("extra "):
            self.extra = unbase64(lines.value("extra"))
            if self.extra is None or not 1 <= len(self.extra) <= 65536:
                raise lines.wrong("extra", "must be 1 to 65536 bytes in base64")
        self.index = lines.decimal("index", lines.value("index"))
        self.path = lines.hashes(PROOF_HASHES_MAX)
        lines.empty()
        self.note = Note(lines.rest.encode())

    def verify(self, entry, policy):
        size, root, cosigned, _ = policy.verify(self.note)
        try:
            verify_inclusion(leaf_hash(entry.encode()), self.index, size, root, self.path)
        except Refused as refused:
            raise Refused("root", str(refused)) from None
        return cosigned


def read_kind(extra, kind):
    lines = Lines(utf8(extra, "extra"))
    if lines.next("kind") != kind:
        raise lines.wrong("kind", "must be `%s`" % kind)
    return lines


class HeadPath:
    """The way from a chain's head to a heads entry, at the end of the extra data."""

    def __init__(self, lines):
        lines.empty()
        self.time = lines.decimal("time", lines.value("time"))
        self.blind = lines.hex("blind", lines.value("blind"), 16)
        self.path = lines.hashes(256)
        lines.end()

    def entry(self, tag, size, root):
        leaf = trie_leaf(tag, hidden_head(size, root, self.blind))
        return heads_text(self.time, trie_climb(tag, leaf, self.path))


class EventProof:
    def __init__(self, extra):
        lines = read_kind(extra, "sealog/event-proof/v1")
        self.mode = lines.value("mode")
        if self.mode not in ("live", "test"):
            raise lines.wrong("mode", "must be `live` or `test`")
        self.seq = lines.decimal("seq", lines.value("seq"))
        salt = lines.value("salt")
        self.is_erased = salt == "-"
        if self.is_erased:
            self.secret = lines.hex("private", lines.value("private"), 32)
        else:
            self.secret = lines.hex("salt", salt, 16)
        self.size = lines.decimal("size", lines.value("size"))
        self.path = lines.hashes(PROOF_HASHES_MAX)
        self.head = HeadPath(lines)

    def lead(self, event):
        """The same for an event, as whole_event gives it."""
        if self.seq != event["chain_seq"]:
            raise Refused("seq", "the proof is about event #%d" % self.seq)
        if event["schema_version"] != 1:
            raise Refused("schema", "schema_version %d is not known" % event["schema_version"])
        if not event["fits"]:
            raise Refused("hash", "the event was changed: its content does not match its hash")
        if self.is_erased and any(event[name] is not None for name in PRIVATE):
            raise Refused("annotations", "the event shows private fields, but its proof has no salt for them")
        leaf = leaf_hash(leaf_of(event, self.secret if self.is_erased else commitment(self.secret, event)))
        index = self.seq - 1 if self.seq else NUMBER_MAX
        try:
            root = root_from_path(leaf, index, self.size, self.path)
        except Refused as refused:
            raise Refused("root", str(refused)) from None
        tag = tag_of(event, self.mode)
        return self.head.entry(tag, self.size, root), tag, root, root_up_to(leaf, index, self.size, self.path)
