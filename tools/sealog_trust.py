#!/usr/bin/env python3
"""Check Sealog's trees, notes and proofs yourself: RFC 6962, C2SP notes and policies, Ed25519, without Sealog.

Shares no code with Sealog's Rust. It needs Python 3.9 and nothing else, opens no network connection and changes
nothing. `--vectors DIR` runs the project's test vectors (vectors/trust). Sections: 1 texts, 2 Ed25519, 3 trees,
4 salts and leaves, 5 heads, 6 notes, 7 entries and tiles, 8 policies, 9 proofs, 10 the verdict of sealog_verify.py
(--key, --proof, --checkpoint), 11 vectors.
"""

import base64
import datetime
import hashlib
import hmac
import json
import os
import re
import sys

import sealog_verify as sv  # canonical JSON and the hash of an event


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


# --- 1. Texts: every value has one spelling ---------------------------------------------------------------------------

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


# --- 2. Ed25519 after RFC 8032, strict --------------------------------------------------------------------------------
#
# Points are (X, Y, Z, T) in extended coordinates. Refused: a scalar at or above the group's order, keys that are no
# point, have small order or are spelled a second way, and signatures whose R has small order.

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


def ed25519_secret(seed):
    wide = hashlib.sha512(seed).digest()
    scalar = int.from_bytes(wide[:32], "little") & ((1 << 254) - 8) | (1 << 254)
    return scalar, wide[32:], compress(multiply(scalar, BASE))


def ed25519_sign(seed, message):
    scalar, prefix, key = ed25519_secret(seed)
    r = int.from_bytes(hashlib.sha512(prefix + message).digest(), "little") % ORDER
    start = compress(multiply(r, BASE))
    h = int.from_bytes(hashlib.sha512(start + key + message).digest(), "little") % ORDER
    return start + ((r + h * scalar) % ORDER).to_bytes(32, "little")


# --- 3. Trees of RFC 6962 ---------------------------------------------------------------------------------------------

PROOF_HASHES_MAX = 63
EMPTY_ROOT = sha256()


def leaf_hash(entry):
    return sha256(b"\0", entry)


def node_hash(left, right):
    return sha256(b"\1", left, right)


def split(count):
    """The largest power of two below count."""
    return 1 << ((count - 1).bit_length() - 1)


class Tree:
    """A tree in memory; subtrees that are complete are hashed once."""

    def __init__(self, leaves):
        self.leaves, self.known = leaves, {}

    def root(self, start, end):
        if end - start <= 1:
            return self.leaves[start] if end > start else EMPTY_ROOT
        key = (start, end)
        if key not in self.known:
            middle = start + split(end - start)
            self.known[key] = node_hash(self.root(start, middle), self.root(middle, end))
        return self.known[key]

    def inclusion(self, index, size):
        start, end, path = 0, size, []
        while end - start > 1:
            middle = start + split(end - start)
            if index < middle:
                path.append(self.root(middle, end))
                end = middle
            else:
                path.append(self.root(start, middle))
                start = middle
        return path[::-1]

    def consistency(self, old, size):
        if old in (0, size):
            return []
        start, end, path = 0, size, []
        while end != old:
            middle = start + split(end - start)
            if old <= middle:
                path.append(self.root(middle, end))
                end = middle
            else:
                path.append(self.root(start, middle))
                start = middle
        return ([self.root(start, end)] if start else []) + path[::-1]

    def range(self, start, end, size):
        return [self.root(*span) for span in outside(start, end, (0, size))]


def outside(start, end, tree):
    """The largest subtrees outside of a range, from left to right."""
    if tree[1] <= start or end <= tree[0]:
        return [tree]
    if start <= tree[0] and tree[1] <= end:
        return []
    middle = tree[0] + split(tree[1] - tree[0])
    return outside(start, end, (tree[0], middle)) + outside(start, end, (middle, tree[1]))


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


def verify_consistency(old, old_root, size, root, path):
    check_place(old, size, path)
    if old in (0, size):
        check_length(path, 0)
        if (old == 0 and old_root != EMPTY_ROOT) or (old == size and old_root != root):
            raise Refused("root", "the roots do not fit")
        return
    level = (old & -old).bit_length() - 1
    index = (old - 1) >> level
    inner = ((old - 1) ^ (size - 1)).bit_length() - level
    is_whole = old & (old - 1) == 0
    check_length(path, (not is_whole) + inner + bin(index >> inner).count("1"))
    seed, path = (old_root, path) if is_whole else (path[0], path[1:])
    if climb_left(seed, index, path, inner) != old_root or climb(seed, index, path, inner) != root:
        raise Refused("root", "the older tree does not begin the newer one")


def verify_range(start, leaves, size, root, path):
    end = start + len(leaves)
    if not leaves:
        raise Refused("empty", "the range must have at least one leaf")
    check_place(end, size)
    check_length(path, len(outside(start, end, (0, size))))
    rest = iter(path)

    def join(tree):
        if tree[1] <= start or end <= tree[0]:
            return next(rest)
        if start <= tree[0] and tree[1] <= end:
            return Tree(leaves).root(tree[0] - start, tree[1] - start)
        middle = tree[0] + split(tree[1] - tree[0])
        left = join((tree[0], middle))
        return node_hash(left, join((middle, tree[1])))

    if join((0, size)) != root:
        raise Refused("root", "the range leads to another root")


# --- 4. Salts and leaves ----------------------------------------------------------------------------------------------

DEPTH = 48
PUBLIC = ("category", "severity", "actor_type", "resource_type")
PRIVATE = ("session_id", "ts_client", "ip_address", "country", "city")


def parse_key(line):
    words = line.split(" ")
    if len(words) != 4 or words[0] != "key":
        raise malformed("key", "must be `key DEPTH PREFIX HEX`")
    depth, prefix = decimal(words[1], "DEPTH"), decimal(words[2], "PREFIX")
    if depth > DEPTH or prefix >> depth:
        raise malformed("DEPTH", "must be at most 48, and PREFIX below 2^DEPTH")
    return depth, prefix, unhex(words[3], 16, "HEX")


def key_line(key):
    return "key %d %d %s" % (key[0], key[1], key[2].hex())


def key_seqs(key):
    below = DEPTH - key[0]
    return key[1] << below, ((key[1] + 1) << below) - 1


def cut(key, first, last):
    """The keys below this one that lie inside and outside of a range of events."""
    low, high = key_seqs(key)
    if first <= low and high <= last:
        return [key], []
    if high < first or last < low:
        return [], [key]
    children, inside, beyond = sha256(b"\5", key[2]), [], []
    for bit in (0, 1):
        child = (key[0] + 1, key[1] << 1 | bit, children[16 * bit : 16 * bit + 16])
        more_inside, more_beyond = cut(child, first, last)
        inside, beyond = inside + more_inside, beyond + more_beyond
    return inside, beyond


def salt_of(keys, seq):
    found = [key for one in keys for key in cut(one, seq, seq)[0]]
    return found[0][2] if found else None


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


# --- 5. Heads ---------------------------------------------------------------------------------------------------------

ZERO = bytes(32)


def hidden_head(size, root, blind):
    return sha256(b"\7\1", size.to_bytes(8, "big"), root, blind)


def trie_leaf(tag, hidden):
    return sha256(b"\2", tag, hidden)


def bit_of(tag, depth):
    return tag[depth // 8] >> (7 - depth % 8) & 1


def trie_root(heads, depth=0):
    """heads: pairs of tag and hidden head."""
    if not heads:
        return ZERO
    if len(heads) == 1:
        return trie_leaf(*heads[0])
    sides = [[head for head in heads if bit_of(head[0], depth) == bit] for bit in (0, 1)]
    return sha256(b"\3", trie_root(sides[0], depth + 1), trie_root(sides[1], depth + 1))


def trie_climb(tag, end, path):
    if len(path) > 256:
        raise Refused("too long", "`path` may have 256 hashes, and has %d" % len(path))
    for beside, depth in zip(path, range(len(path) - 1, -1, -1)):
        end = sha256(b"\3", beside, end) if bit_of(tag, depth) else sha256(b"\3", end, beside)
    return end


def verify_absent(tag, root, path, foreign):
    end = ZERO
    if foreign is not None:
        same = all(bit_of(tag, depth) == bit_of(foreign[0], depth) for depth in range(min(len(path), 256)))
        if foreign[0] == tag or not same:
            raise Refused("foreign", "the foreign head lies on another way")
        end = trie_leaf(*foreign)
    if trie_climb(tag, end, path) != root:
        raise Refused("root", "the proof leads to another root of the trie")


def blind_of(secret, tag, index):
    return hmac.new(secret, tag + index.to_bytes(8, "big"), hashlib.sha256).digest()[:16]


# --- 6. Notes, keys, checkpoints --------------------------------------------------------------------------------------


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


def sign_note(secret, text):
    name, id_, key = secret[len("PRIVATE+KEY+") :].split("+", 2)
    signature = ed25519_sign(unbase64(key)[1:], text.encode())
    return "%s\n\u2014 %s %s\n" % (text, name, b64(bytes.fromhex(id_) + signature))


# --- 7. Entries of the store log, tiles -------------------------------------------------------------------------------


def parse_entry(data):
    """The kind of an entry; None for one that is not known."""
    if len(data) > 65535:
        raise malformed("entry", "must have at most 65535 bytes")
    lines = Lines(utf8(data, "entry"))
    kind = lines.next("kind")
    number = lambda field: lines.decimal(field, lines.next(field))
    if kind == "sealog/genesis/v1":
        origin, _, interval, delay = lines.next("origin"), number("time"), number("interval"), number("max delay")
        if not is_name(origin) or interval < 1 or delay < 1:
            raise malformed("genesis", "must have an origin, a time, and two numbers of seconds above 0")
        if lines.rest:
            words = lines.value("previous").split(" ")
            if len(words) != 3 or not is_name(words[0]):
                raise lines.wrong("previous", "must be `previous ORIGIN SIZE ROOT`")
            lines.decimal("size", words[1]), lines.hash("root", words[2])
    elif kind == "sealog/key/v1":
        number("time")
        if lines.next("role") not in ("log", "service") or lines.next("change") not in ("add", "retire"):
            raise lines.wrong("role", "must be `log` or `service`, and the change `add` or `retire`")
        Key(lines.next("vkey"))
    elif kind == "sealog/heads/v1":
        number("time"), lines.hash("root", lines.next("root"))
    elif kind == "sealog/restore/v1":
        number("time"), number("index")
        reason = lines.next("reason")
        if not reason.strip() or re.search("[\0-\x1f\x7f-\x9f]", reason):
            raise lines.wrong("reason", "must be a line of printable text")
    else:
        return None
    lines.end()
    return kind


def heads_text(time, root):
    return "sealog/heads/v1\n%d\n%s\n" % (time, b64(root))


def parse_tile(path):
    match = re.fullmatch(r"tile/(entries|0|[1-9][0-9]?)/((?:x[0-9]{3}/)*[0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?", path, re.ASCII)
    if not match:
        raise malformed("path", "must be tile/L/N or tile/L/N.p/W")
    level, index, width = match[1], int(re.sub("[x/]", "", match[2])), int(match[3] or 256)
    if (level != "entries" and int(level) > 63) or match[2].startswith("x000") or index > NUMBER_MAX:
        raise malformed("path", "must have L up to 63, and N below 2^63 without a needless group")
    if match[3] and width > 255:
        raise malformed("path", "must have W from 1 to 255")
    return level, index, width


def tile_path(level, index, width):
    digits = str(index).zfill((len(str(index)) + 2) // 3 * 3)
    groups = re.findall("...", digits)
    return "tile/%s/%s%s" % (level, "/".join(["x" + g for g in groups[:-1]] + groups[-1:]), ".p/%d" % width if width < 256 else "")


def tiles_of(size):
    tiles = []
    for level in range(8):
        count = size >> 8 * level
        tiles += [tile_path(level, index, min(256, count - 256 * index)) for index in range((count + 255) // 256)]
    return tiles


def parse_bundle(data, width):
    entries = []
    for _ in range(width):
        end = 2 + int.from_bytes(data[:2], "big")
        if len(data) < max(2, end):
            raise malformed("bundle", "must not end inside an entry")
        entries.append(data[2:end])
        data = data[end:]
    if data:
        raise malformed("bundle", "must have no more entries than its width")
    return entries


# --- 8. Policies ------------------------------------------------------------------------------------------------------


class Policy:
    """Logs, witnesses and the quorum. Names are octets."""

    def __init__(self, data):
        self.logs, self.witnesses, self.groups, self.quorum = [], {}, {}, None
        self.taken, self.has_quorum, self.line = set(), False, 0
        if len(data) > 1 << 18:
            raise malformed("policy", "must have at most 262144 bytes")
        *lines, rest = data.split(b"\n")
        for line in lines:
            self.line += 1
            self.read(line)
        if rest:
            self.line += 1
            raise self.wrong("policy", "must end with a line feed")
        if not self.has_quorum:
            raise malformed("quorum", "must be there once; write `quorum none` for no witnesses")

    def wrong(self, field, problem):
        return malformed(field, problem, self.line)

    def read(self, line):
        if re.search(rb"[\0-\x08\x0b-\x1f\x7f]", line):
            raise self.wrong("policy", "must have no control characters but tab and line feed")
        words = [word for word in re.split(rb"[ \t]+", line) if word]
        if not words or words[0].startswith(b"#"):
            return
        kind, count = words[0], len(words)
        if kind == b"log":
            if count not in (2, 3):
                raise self.wrong("log", "must be `log VKEY [URL]`")
            self.logs.append(self.key(words[1], 1, "log", self.logs))
            self.limit("log", self.logs)
        elif kind == b"witness":
            if count not in (3, 4):
                raise self.wrong("witness", "must be `witness NAME VKEY [URL]`")
            fresh = lambda: self.fresh("witness", words[1])
            self.witnesses[words[1]] = self.key(words[2], 4, "witness", list(self.witnesses.values()), fresh)
            self.limit("witness", self.witnesses)
        elif kind == b"group":
            if count < 3:
                raise self.wrong("group", "must be `group NAME K|any|all MEMBER\u2026`")
            self.group(words[1], words[2], words[3:])
        elif kind == b"quorum":
            if count != 2:
                raise self.wrong("quorum", "must be `quorum NAME` or `quorum none`")
            if self.has_quorum:
                raise self.wrong("quorum", "must be there once; remove this line")
            if words[1] != b"none" and not self.is_known(words[1]):
                raise self.wrong("quorum", "must name a witness or a group of a line above")
            self.has_quorum, self.quorum = True, None if words[1] == b"none" else words[1]
        else:
            raise self.wrong("policy", "must have lines `log`, `witness`, `group`, `quorum` or `#` alone")

    def group(self, name, needed, members):
        self.fresh("group", name)
        for member in members:
            if not self.is_known(member):
                raise self.wrong("group", "has a member that no line above defines")
            if member in self.taken:
                raise self.wrong("group", "has a member that is in a group already")
            self.taken.add(member)
        count = {b"all": len(members), b"any": 1}.get(needed)
        if count is None:
            count = int(needed) if re.fullmatch(rb"[1-9][0-9]{0,2}", needed) else 0
        if not 1 <= count <= len(members):
            raise self.wrong("group", "must need `any`, `all` or a number from 1 to that of its members")
        self.groups[name] = count, members
        self.limit("group", self.groups)

    def limit(self, field, defined):
        if len(defined) > 32:
            raise self.wrong(field, "must be there 32 times at most")

    def key(self, text, kind, field, others, fresh=lambda: None):
        try:
            key = Key(utf8(text, "vkey"))
        except Refused as refused:  # its problem, on this line
            raise self.wrong("vkey", str(refused).split("` ", 1)[1]) from None
        if key.kind != kind:
            raise self.wrong("vkey", "of a %s must have type %s" % (field, "01" if kind == 1 else "04"))
        fresh()
        if any(key.key == other.key or (key.name, key.id) == (other.name, other.id) for other in others):
            raise self.wrong(field, "has the key of an earlier %s; remove one of the lines" % field)
        return key

    def is_known(self, name):
        return name in self.witnesses or name in self.groups

    def fresh(self, field, name):
        if name == b"none" or self.is_known(name):
            raise self.wrong(field, "must have a name that is new and not `none`")

    def verify(self, note):
        origin, size, root = parse_checkpoint(note.text)
        if all(log.name != origin for log in self.logs):
            raise Refused("origin", origin)
        names = list(self.witnesses)
        try:
            signed = note.verify(self.logs + list(self.witnesses.values()))
        except Refused as refused:
            raise Refused("signature" if refused.reason == "signature" else "unsigned", str(refused)) from None
        if not any(place in signed and log.name == origin for place, log in enumerate(self.logs)):
            raise Refused("unsigned", origin)
        cosigned = {names[place - len(self.logs)] for place in signed if place >= len(self.logs)}

        def has_witnessed(name):
            if name in self.witnesses:
                return name in cosigned
            needed, members = self.groups[name]
            return sum(map(has_witnessed, members)) >= needed

        if self.quorum is not None and not has_witnessed(self.quorum):
            raise Refused("quorum", "%d of %d witnesses" % (len(cosigned), len(names)))
        times = [time for place, time in signed.items() if place >= len(self.logs)]
        return size, root, len(cosigned), max(times, default=None)


# --- 9. Proofs of events and heads ------------------------------------------------------------------------------------


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


class HeadProof:
    def __init__(self, extra):
        lines = read_kind(extra, "sealog/head-proof/v1")
        self.tag = lines.hex("tag", lines.value("tag"), 32)
        self.size = lines.decimal("size", lines.value("size"))
        self.root = lines.hash("root", lines.value("root"))
        self.head = HeadPath(lines)

    def lead(self, _event=None):
        """The text of the store log's entry that has the head; tag, root, and the root of the tree that ends with it."""
        return self.head.entry(self.tag, self.size, self.root), self.tag, self.root, self.root


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


# --- 10. The verdict --------------------------------------------------------------------------------------------------
#
# What events, proofs and checkpoints show together. Each step looks for one kind of attack; the report names those that
# were found, and in words what was not shown. sealog-verify and sealog_trust.mjs say the same in the same words.

TIME_SLACK_MS = 600000
YEARS_END_MS = 253402300800000
ATTACKS = {
    "malformed": ("an event that cannot be read", "a field that is checked is missing, duplicate or malformed"),
    "chain": ("events of two chains", "the event belongs to another tenant or project than the previous events"),
    "gap": ("events removed, added or moved", "one or more events before it are missing, or the order was changed"),
    "link": (
        "an event removed, added or replaced",
        "its prev_hash is not the hash of the previous event: an event was removed, inserted or replaced here",
    ),
    "hash": ("an event changed", "its hash does not match its content: the event was changed after it was sealed"),
    "order": ("an event that Sealog did not seal", "its log_id and timestamp do not follow those of the previous event"),
    "head": (
        "history rewritten",
        "its hash differs from the one recorded for this position: the chain was rewritten",
    ),
    "tail": (
        "the tail was cut off",
        "the chain ends before a position that it is known to have reached: its end was cut off",
    ),
}


def printable(text):
    """Text from the input without what could steer a terminal."""
    safe = "".join(char if " " <= char <= "~" else "\\u{%x}" % ord(char) for char in text[:200])
    return safe + ("..." if len(text) > 200 else "")


def shown_time(ms):
    if ms >= YEARS_END_MS:
        return "%d ms" % ms
    time = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=ms)
    return time.isoformat(timespec="milliseconds") + "Z"


def amount(count, what):
    return "1 " + what if count == 1 else "%d %s" % (count, "entries" if what == "entry" else what + "s")


def span(first, last):
    return "Event #%d" % first if first == last else "Events #%d to #%d" % (first, last)


def policy_of_keys(vkeys):
    for vkey in vkeys:
        Key(vkey)
    return Policy(("".join("log %s\n" % vkey for vkey in vkeys) + "quorum none\n").encode())


class Kept:
    """A checkpoint; `claim` is None where it is not that of a proof."""

    claim = None

    def __init__(self, name, data):
        self.name, self.note, self.refused = printable(name), Note(data), False
        self.origin, self.size, self.root = parse_checkpoint(self.note.text)


class Given(Kept):
    """A proof file of Sealog with its checkpoint."""

    def __init__(self, name, data):
        self.name, self.refused, self.file = printable(name), False, Proof(data)
        self.note = self.file.note
        self.origin, self.size, self.root = parse_checkpoint(self.note.text)
        if self.file.extra is None:
            raise malformed("extra", "must be there: it says of what")
        is_head = self.file.extra.startswith(b"sealog/head-proof/")
        self.claim = (HeadProof if is_head else EventProof)(self.file.extra)
        self.seq = None if is_head else self.claim.seq


class Consistency:
    def __init__(self, name, data):
        form = malformed("consistency", "must be a JSON object with `from`, `to` and `path`, each once")
        if len(data) > 1 << 16:
            raise malformed("consistency", "must have at most 65536 bytes")
        utf8(data, "consistency")
        pairs = []
        try:
            text = sv.canonical(data)
            if not text.startswith(b"{"):
                raise form
            pos = 1
            while text[pos : pos + 1] not in (b"}", b""):
                key, pos = sv.read_key(text, pos + (text[pos : pos + 1] == b","))
                value, pos = sv.read_value(text, pos)
                pairs.append((key, value.decode()))
        except sv.Unreadable:
            raise form from None
        values = []
        for key in (b'"from"', b'"to"', b'"path"'):
            found = [value for name, value in pairs if name == key]
            is_number = key == b'"path"' or re.fullmatch(r"0|[1-9][0-9]{0,18}", found[0] if found else "", re.ASCII)
            if len(found) != 1 or not is_number or (key != b'"path"' and int(found[0]) > NUMBER_MAX):
                raise form
            values.append(found[0])
        self.name, self.old, self.new, self.path = printable(name), int(values[0]), int(values[1]), []
        if not (values[2].startswith("[") and values[2].endswith("]")):
            raise form
        for item in values[2][1:-1].split(",") if values[2] != "[]" else ():
            if len(self.path) == PROOF_HASHES_MAX:
                raise malformed("path", "has more hashes than a tree of any size needs")
            if len(item) < 2 or item[0] != '"' or item[-1] != '"':
                raise form
            self.path.append(unhash(item[1:-1], "path"))


class Trial:
    """Holds events against checkpoints and proofs. expected: None if there are no events to come."""

    def __init__(self, policy, kept, proofs, consistency, expected):
        self.policy, self.kept, self.proofs, self.consistency = policy, kept, proofs, consistency
        self.chain = None if expected is None else sv.Chain(expected)
        self.expected = sorted(expected or (), key=lambda head: head[0])
        self.wanted = {proof.seq: None for proof in proofs if proof.seq is not None}
        self.times = {seq: None for proof in proofs for seq in (proof.claim.size, proof.claim.size + 1)}
        self.latest, self.faults, self.links = None, [], []

    def needs_events(self):
        """The first proof of an event, if there are no events to come."""
        return next((proof for proof in self.proofs if proof.seq is not None and self.chain is None), None)

    def add(self, event):
        """Takes the next event, oldest first. Returns whether the chain is still sound."""
        if not event.problem:
            if event.seq in self.wanted and self.wanted[event.seq] is None:
                self.wanted[event.seq] = event
            if event.seq in self.times and self.times[event.seq] is None:
                self.times[event.seq] = event.ms
            if self.latest is None or self.latest[0] < event.seq:
                self.latest = event.seq, event.ms
        return self.chain.add(event)

    def judge(self, steps=None):
        """The result as a dictionary."""
        self.outcome = self.chain and self.chain.result()
        last = self.chain and self.chain.before
        self.seqs = (self.chain.first_seq, last.seq) if last else None
        self.is_sound = bool(self.outcome and self.outcome["valid"])
        for source in self.kept + self.proofs:
            source.refusal = source.accepted = None
            try:
                source.accepted = self.policy and self.policy.verify(source.note)
            except Refused as refused:
                source.refusal = refused
        for proof in self.proofs:
            proof.found = self.find(proof)
        for _, step in STEPS if steps is None else steps:
            step(self)
        result = {"valid": not self.faults, "signed": self.policy is not None}
        if self.outcome:
            result.update({name: self.outcome[name] for name in ("checked", "first_seq", "last_seq")})
        result["faults"] = self.faults
        result["shown"] = [] if self.faults else self.shown()
        result["not_shown"] = self.not_shown()
        result["head"] = "%d:%s" % (last.seq, last.hash) if last and not self.faults else None
        return result

    def find(self, proof):
        """What a proof leads to: ("holds", tag, root, root up to the event, the log's root up to the entry), or a word
        for what is wrong and its details."""
        event = None
        if proof.seq is not None:
            raw = self.wanted[proof.seq]
            if raw is None or not self.seqs or not self.seqs[0] <= proof.seq <= self.seqs[1]:
                return ("not given",)
            try:
                event = whole_event(raw)
            except Uncovered as uncovered:
                name, schema = uncovered.args
                return ("schema", schema) if name is None else ("field", name)
        leaf = None
        try:
            entry, tag, root, up_to = proof.claim.lead(event)
            leaf = leaf_hash(entry.encode())
            verify_inclusion(leaf, proof.file.index, proof.size, proof.root, proof.file.path)
        except Refused as refused:
            if refused.reason == "annotations":
                return ("erased",)
            return ("not in log",) if refused.reason == "root" and leaf else ("path", str(refused))
        return "holds", tag, root, up_to, root_up_to(leaf, proof.file.index, proof.size, proof.file.path)

    def fault(self, reason, attack, at, message):
        where = {"broken_at": at[1], "broken_from": at[0]} if at else {}
        self.faults.append({"reason": reason, "attack": attack, **where, "message": message})

    # What is not refused.

    def sources(self):
        return [source for source in self.kept + self.proofs if not source.refused]

    def good(self):
        return [proof for proof in self.proofs if not proof.refused]

    def held(self):
        return [proof for proof in self.good() if proof.found[0] == "holds"]

    def events(self):
        return sorted((proof for proof in self.good() if proof.seq is not None), key=lambda proof: proof.seq)

    def is_own(self, tag):
        first = self.chain and self.chain.checked and self.owner_ids()
        return bool(first) and tag in [tag_of(first, mode) for mode in ("live", "test")]

    def owner_ids(self):
        before = self.chain.before
        return before and {"tenant_id": before.chain[0], "project_id": before.chain[1]}

    def roots(self):
        """Every root of a log that a checkpoint or a proof shows: origin, size, root, name."""
        roots = []
        for source in self.sources():
            roots.append((source.origin, source.size, source.root, source.name))
            if source.claim and source.found[0] == "holds":
                roots.append((source.origin, source.file.index + 1, source.found[4], source.name))
        return roots

    # The steps.

    def signatures(self):
        for source in self.kept + self.proofs:
            reason = source.refusal and source.refusal.reason
            if reason in ("origin", "signature", "unsigned"):
                source.refused = True
                if reason == "origin":
                    said = "%s is of the log %s, and no key of that log was given."
                    said %= source.name, printable(source.origin)
                    self.fault("origin", "a checkpoint of an unknown log", None, said)
                elif reason == "signature":
                    said = "The signature of %s in %s does not fit the checkpoint."
                    said %= printable(str(source.refusal)), source.name
                    self.fault("signature", "a forged or damaged signature", None, said)
                else:
                    said = "No key that was given for the log %s signed %s." % (printable(source.origin), source.name)
                    self.fault("signature", "a checkpoint that the log did not sign", None, said)

    def quorum(self):
        for source in self.kept + self.proofs:
            if source.refusal and source.refusal.reason == "quorum":
                source.refused = True
                said = "%s signed %s; the policy asks for more." % (source.refusal, source.name)
                self.fault("quorum", "too few witnesses", None, said)

    def fork(self):
        pair = differing(self.roots())
        if pair:
            (origin, size, _, one), (_, _, _, other) = pair
            said = "%s and %s have different roots for the first %s of %s. Keep both files: they are the evidence."
            said %= one, other, amount(size, "entry"), printable(origin)
            self.fault("fork", "two histories", None, said)

    def pairs_of(self, proof):
        """The roots of one log between which a consistency proof leads."""
        roots = self.roots()
        of = lambda size: [root for root in roots if root[1] == size]
        return [(old, new) for old in of(proof.old) for new in of(proof.new) if old[0] == new[0]]

    def check_consistency(self):
        for proof in self.consistency:
            pairs = self.pairs_of(proof)
            for old, new in pairs:
                try:
                    verify_consistency(proof.old, old[2], proof.new, new[2], proof.path)
                except Refused:
                    continue
                self.links.append((old[0], proof.old, proof.new))
                break
            else:
                if pairs:
                    said = "%s does not show that the first %s begin the %d. If it was made for these sizes, the log has two histories."
                    said %= proof.name, amount(proof.old, "entry"), proof.new
                    self.fault("fork", "two histories", None, said)

    def rollback(self):
        newest = newest_of(self.good())
        kept = newest and largest_of(self.kept_of(newest.origin))
        if kept and kept.size > newest.size:
            said = "%s has %s of %s, and the newest proof, %s, only %d. If the proof was made before the checkpoint, ask for it again."
            said %= kept.name, amount(kept.size, "entry"), printable(kept.origin), newest.name, newest.size
            self.fault("rollback", "an older state was restored", None, said)

    def kept_of(self, origin):
        return [source for source in self.kept if not source.refused and source.origin == origin]

    def chain_fork(self):
        roots = []
        for proof in self.held():
            _, tag, root, up_to, _ = proof.found
            roots.append((tag, proof.claim.size, root, proof.name))
            if proof.seq is not None:
                roots.append((tag, proof.seq, up_to, proof.name))
        pair = differing(roots)
        if pair:
            (_, size, _, one), (_, _, _, other) = pair
            said = "%s and %s have different roots for the first %s of one chain. Keep both files: they are the evidence."
            self.fault("fork", "two histories of a chain", None, said % (one, other, amount(size, "event")))

    def chain_rollback(self):
        held = sorted(self.held(), key=lambda proof: proof.file.index)
        for one in held:
            for other in held:
                is_same = (one.found[1], one.origin) == (other.found[1], other.origin)
                if is_same and one.file.index < other.file.index and one.claim.size > other.claim.size:
                    said = "The chain had %s in entry %d (%s), and has %d in the later entry %d (%s)."
                    said %= amount(one.claim.size, "event"), one.file.index, one.name, other.claim.size, other.file.index, other.name
                    return self.fault("rollback", "the tail of a chain was cut off", None, said)

    def heads(self):
        for proof in self.good():
            if proof.seq is None and proof.found[0] in ("path", "not in log"):
                error = proof.found[1] if proof.found[0] == "path" else "its entry is not in the checkpoint's tree"
                said = "%s does not lead from a head of %s to its checkpoint: %s."
                said %= proof.name, amount(proof.claim.size, "event"), error
                self.fault("root", "a changed proof", None, said)

    def check_chain(self):
        if self.outcome and not self.outcome["valid"]:
            at, reason = self.outcome["broken_at"], self.outcome["reason"]
            attack, explained = ATTACKS[reason]
            self.fault(reason, attack, (at, at), "Event #%d: %s." % (at, explained))

    def fields(self):
        for proof in self.events():
            if proof.found[0] == "field":
                said = "The field %s of event #%d is not one that Sealog writes: neither its hash nor its proof covers it."
                said %= printable(proof.found[1]), proof.seq
                self.fault("annotations", "a field that nothing covers", (proof.seq, proof.seq), said)

    def schema(self):
        for proof in self.events():
            if proof.found[0] == "schema":
                said = "Event #%d has the schema_version %d, which this program does not know. Use a newer one."
                self.fault("schema", "an unknown schema", (proof.seq, proof.seq), said % (proof.seq, proof.found[1]))

    def erasure(self):
        for proof in self.events():
            if proof.found[0] == "erased":
                said = "Event #%d shows private fields, and %s has no salt to check them with." % (proof.seq, proof.name)
                self.fault("annotations", "a change under a claim of erasure", (proof.seq, proof.seq), said)

    def leaves(self):
        if not self.seqs:
            return
        for proof in self.events():
            seq = proof.seq
            # A proof that holds in another history says nothing about this one.
            passed = [one for one in self.events() if one.found[0] == "holds" and self.is_one_history(proof, one)]
            passed = [one.seq for one in passed]
            later = next((one for one in passed if one > seq), None)
            first = next((one + 1 for one in reversed(passed) if one < seq), self.seqs[0])
            if proof.found[0] == "path":
                said = "%s does not lead from event #%d to its checkpoint: %s." % (proof.name, seq, proof.found[1])
                self.fault("root", "a changed proof", (seq, seq), said)
            elif proof.found[0] == "not in log" and later is not None:
                said = "Event #%d is not the one in the log (%s), although #%d behind it is. So its hash is right, and a field outside the hash was changed, or the proof."
                self.fault("annotations", "a field outside the hash changed", (seq, seq), said % (seq, proof.name, later))
            elif proof.found[0] == "not in log":
                place = "event #%d" % seq if first == seq else "one of #%d to #%d" % (first, seq)
                said = "Event #%d is not the one in the log (%s). The first wrong event is %s, unless the proof was changed: ask for it again."
                self.fault("leaf", "history rewritten", (first, seq), said % (seq, proof.name, place))

    def owner(self):
        for proof in self.held():
            if self.chain and self.owner_ids() and not self.is_own(proof.found[1]):
                said = "%s is about another chain than the events given." % proof.name
                self.fault("chain", "a proof of another chain", None, said)

    def tail(self):
        if not self.seqs or not self.is_sound:
            return
        last, furthest, what = self.seqs[1], self.seqs[1], None
        for proof in self.good():
            if proof.seq is None and proof.found[0] == "holds" and self.is_own(proof.found[1]):
                reach, said = proof.claim.size, "The chain has %s in entry %d of the log (%s)"
                said %= amount(reach, "event"), proof.file.index, proof.name
            elif proof.found[0] == "not given":
                reach, said = proof.seq, "%s is about event #%d" % (proof.name, proof.seq)
            else:
                continue
            if reach > furthest:
                furthest, what = reach, said
        if what:
            what += ", and the events given end at #%d. If they were exported before, export them again." % last
            self.fault("tail", "the tail was cut off", (last + 1, last + 1), what)

    def time(self):
        if not self.seqs or not self.is_sound:
            return
        for proof in self.held():
            if not self.is_own(proof.found[1]):
                continue
            size, made = proof.claim.size, proof.claim.head.time
            newest = self.latest if size >= self.seqs[1] else (size, self.times.get(size))
            next_ms = self.times.get(size + 1)
            found = []
            if newest[1] is not None and newest[1] > made + TIME_SLACK_MS:
                found.append((*newest, "has it already"))
            if next_ms is not None and next_ms + TIME_SLACK_MS < made:
                found.append((size + 1, next_ms, "does not have it yet"))
            for seq, ms, rest in found:
                said = "Event #%d says %s, and entry %d of the log, made at %s, %s (%s)."
                said %= seq, shown_time(ms), proof.file.index, shown_time(made), rest, proof.name
                self.fault("time", "a time that cannot be right", (seq, seq), said)

    # In words.

    def reached(self):
        """The last event that a proof of an event reaches. Its hash covers those before it."""
        return max((proof.seq for proof in self.held() if proof.seq is not None), default=None)

    def pairs(self):
        """Each kept checkpoint beside the newest of its log."""
        pairs = []
        for kept in self.kept:
            if not kept.refused:
                newest = newest_of([source for source in self.sources() if source.origin == kept.origin])
                if newest is not kept:
                    pairs.append((kept, newest))
        return pairs

    def begins(self, old, new):
        """Whether it was shown that the older tree is the beginning of the newer one."""
        links = self.links + [(proof.origin, proof.file.index + 1, proof.size) for proof in self.held()]
        reached = {new.size}
        for origin, low, high in sorted(links, key=lambda link: (link[2], link[1]), reverse=True):
            if origin == new.origin and high in reached:
                reached.add(low)
        return (old.size == 0 and old.root == EMPTY_ROOT) or old.size in reached

    def is_one_history(self, one, other):
        old, new = (one, other) if one.size <= other.size else (other, one)
        return old.origin == new.origin and (old.size < new.size or old.root == new.root) and self.begins(old, new)

    def shown(self):
        lines = []
        if self.seqs:
            said = ": every hash was computed again, and every event names the hash before it."
            lines.append(span(*self.seqs) + said)
            if any(self.seqs[0] <= seq + 1 and seq <= self.seqs[1] for seq, _ in self.expected):
                lines.append("The events agree with each head that was noted (--expect).")
        for proof in self.held():
            place = "in entry %d of %s, made at %s (%s)."
            place %= proof.file.index, printable(proof.origin), shown_time(proof.claim.head.time), proof.name
            if proof.seq is None:
                lines.append("The chain has %s %s" % (amount(proof.claim.size, "event"), place))
            else:
                which = "without its private fields" if proof.claim.is_erased else "with all its fields"
                lines.append("Event #%d is, %s, %s" % (proof.seq, which, place))
        reached = self.reached()
        if self.seqs and reached is not None and self.seqs[0] < reached:
            said = "So the hashed fields of events #%d to #%d are those that the log has."
            lines.append(said % (self.seqs[0], reached))
        for source in self.sources():
            if source.accepted:
                _, _, cosigned, latest = source.accepted
                said = "%s: %s of %s, signed by the log" % (source.name, amount(source.size, "entry"), printable(source.origin))
                if latest is not None:
                    seen = shown_time(min(latest * 1000, 2**64 - 1))
                    said += " and by %d of %d witnesses, the latest at %s" % (cosigned, len(self.policy.witnesses), seen)
                lines.append(said + ".")
        for kept, newest in self.pairs():
            if self.begins(kept, newest):
                sizes = amount(kept.size, "entry"), amount(newest.size, "entry")
                lines.append("%s (%s) is the beginning of %s (%s)." % (kept.name, sizes[0], newest.name, sizes[1]))
        return lines

    def not_shown(self):
        lines = []
        if self.policy is None:
            lines.append("Who made these files: no key was given (--key, --policy), so anyone could have made them.")
        elif self.policy.quorum is None:
            lines.append("That there is no second history: no witness is asked for, so the operator could have signed another one.")
        if not self.proofs and self.chain:
            lines.append("That the events are in the log: no proof was given (--proof).")
        if not self.kept:
            lines.append("That the log was not rewritten or rolled back: no checkpoint that was kept earlier was given (--checkpoint).")
        for kept, newest in self.pairs():
            if not self.begins(kept, newest):
                said = "That %s and %s are of one history: give the answer to /tlog/v1/store/consistency?from=%d&to=%d (--consistency)."
                lines.append(said % (kept.name, newest.name, kept.size, newest.size))
        origins = {proof.origin for proof in self.good()}
        for kept in self.kept:
            if origins and not kept.refused and kept.origin not in origins:
                lines.append("Anything by %s: it is of another log than the proofs." % kept.name)
        for proof in self.consistency:
            if not self.pairs_of(proof):
                said = "Anything by %s: no two checkpoints of one log have the sizes %d and %d."
                lines.append(said % (proof.name, proof.old, proof.new))
        if self.seqs:
            self.put_events_not_shown(lines)
        if self.held():
            made = shown_time(max(proof.claim.head.time for proof in self.held()))
            lines.append("That the log has not grown since: the newest entry given was made at %s." % made)
        return lines

    def put_events_not_shown(self, lines):
        first, last = self.seqs
        if first > 1:
            lines.append("%s: not given." % span(1, first - 1))
        for seq, hash_ in self.expected:
            if seq + 1 < first:
                lines.append("The head %d:%s: it lies before the events given." % (seq, hash_))
        for proof in self.good():
            if proof.found[0] == "not given" and proof.seq < first:
                lines.append("Anything by %s: it is about event #%d, which was not given." % (proof.name, proof.seq))
        held = [proof for proof in self.held() if proof.seq is not None]
        reached = max(self.reached() or first - 1, first - 1)
        if reached < last and self.proofs:
            said = ": no proof of an event reaches this far, so only the hashes were checked."
            lines.append(span(reached + 1, last) + said)
        size = max((proof.claim.size for proof in held), default=0)
        if size > last:
            lines.append("%s: in the log, and not given." % span(last + 1, size))
        bare = last - first + 1 - len({proof.seq for proof in held})
        if bare > 0:
            said = "Fields outside the hash (%s) of the events without a proof of their own (%d)."
            lines.append(said % (", ".join(PUBLIC + PRIVATE), bare))
        for proof in self.events():
            if proof.found[0] == "holds" and proof.claim.is_erased:
                lines.append("The private fields of event #%d: erased or withheld." % proof.seq)


STEPS = [
    ("signatures", Trial.signatures),
    ("quorum", Trial.quorum),
    ("fork", Trial.fork),
    ("consistency", Trial.check_consistency),
    ("rollback", Trial.rollback),
    ("chain fork", Trial.chain_fork),
    ("chain rollback", Trial.chain_rollback),
    ("heads", Trial.heads),
    ("chain", Trial.check_chain),
    ("fields", Trial.fields),
    ("schema", Trial.schema),
    ("erasure", Trial.erasure),
    ("leaves", Trial.leaves),
    ("owner", Trial.owner),
    ("tail", Trial.tail),
    ("time", Trial.time),
]


def largest_of(sources):
    """The checkpoint with the most entries; the first of several."""
    return max(sources, key=lambda source: source.size, default=None)


def newest_of(sources):
    """The same, but the last of several: proofs come behind kept checkpoints, and are what the server says today."""
    return largest_of(sources[::-1])


def differing(roots):
    """The first two roots of one tree and size that differ, by size, then in the order given."""
    roots = sorted(roots, key=lambda root: root[1])
    for at, one in enumerate(roots):
        for other in roots[at + 1 :]:
            if other[1] != one[1]:
                break
            if other[0] == one[0] and other[2] != one[2]:
                return one, other
    return None


def in_words(result):
    lines = []
    for fault in result["faults"]:
        low, high = fault.get("broken_from"), fault.get("broken_at")
        at = "" if high is None else " at chain_seq %d" % high if low == high else " from chain_seq %d to %d" % (low, high)
        lines += ["BROKEN%s (%s): %s" % (at, fault["reason"], fault["attack"]), "  " + fault["message"]]
    if result["valid"]:
        lines.append("VALID" if result["signed"] else "VALID, BUT NO SIGNATURE WAS CHECKED")
    for title, name in (("Shown:", "shown"), ("Not shown:", "not_shown")):
        lines += ([title] if result[name] else []) + ["  " + line for line in result[name]]
    if result["head"]:
        lines.append("Head, to be noted for the next time: %s" % result["head"])
    return "\n".join(lines)


def in_json(result):
    return json.dumps(result, ensure_ascii=False, separators=(",", ":"))


# --- 11. The test vectors ---------------------------------------------------------------------------------------------


def result_of(call):
    try:
        call()
        return "ok"
    except Refused as refused:
        return "signature" if refused.reason == "unsigned" else refused.reason
    except Uncovered as uncovered:
        return "schema" if uncovered.args[0] is None else "event"


def expect(found, wanted):
    if found != wanted:
        raise AssertionError("%r, but expected %r" % (found, wanted))


def hashes(texts):
    return [base64.b64decode(text) for text in texts]


TREE = Tree([])


def test_tree(size):
    """The tree of the vectors: entry i is i in decimal digits."""
    for number in range(len(TREE.leaves), size):
        TREE.leaves.append(leaf_hash(b"%d" % number))
    return TREE


def size_case(case):
    size = int(case["size"])
    tree = test_tree(size)
    root = tree.root(0, size)
    expect(b64(root), case["root"])
    if "inclusion" not in case:
        return
    digest = hashlib.sha256()
    for index in range(size):
        path = tree.inclusion(index, size)
        verify_inclusion(tree.leaves[index], index, size, root, path)
        digest.update(b"".join(path))
    expect(digest.hexdigest(), case["inclusion"])
    digest = hashlib.sha256()
    for old in range(1, size + 1):
        path = tree.consistency(old, size)
        verify_consistency(old, tree.root(0, old), size, root, path)
        digest.update(b"".join(path))
    expect(digest.hexdigest(), case["consistency"])
    digest = hashlib.sha256()
    for start in range(size):
        end = min(size, start + 5)
        path = tree.range(start, end, size)
        verify_range(start, tree.leaves[start:end], size, root, path)
        digest.update(b"".join(path))
    expect(digest.hexdigest(), case["range"])


def tree_case(case):
    path, root, size = hashes(case["path"]), hashes([case["root"]])[0], int(case["size"])
    if case["kind"] == "inclusion":
        leaf = hashes([case["leaf"]])[0]
        call = lambda: verify_inclusion(leaf, int(case["index"]), size, root, path)
    elif case["kind"] == "consistency":
        old_root = hashes([case["old_root"]])[0]
        call = lambda: verify_consistency(int(case["old"]), old_root, size, root, path)
    else:
        call = lambda: verify_range(int(case["start"]), hashes(case["leaves"]), size, root, path)
    expect(result_of(call), case["result"])


def leaf_case(case):
    event, private = read_event(case["event"]), bytes.fromhex(case["private"])
    if case["salt"] is not None:
        expect(commitment(bytes.fromhex(case["salt"]), event).hex(), case["private"])
    leaf = leaf_of(event, private)
    expect((leaf.hex(), b64(leaf_hash(leaf))), (case["leaf"], case["leaf_hash"]))
    expect(tag_of(event, case["mode"]).hex(), case["tag"])


def salt_case(case):
    if case["kind"] == "line":
        return expect(result_of(lambda: parse_key(case["line"])), case["result"])
    keys = [parse_key(line) for line in case["keys"]]
    if case["kind"] == "salt":
        salt = salt_of(keys, int(case["seq"]))
        return expect(salt and salt.hex(), case["salt"])
    parts = [cut(key, int(case["from"]), int(case["to"])) for key in keys]
    for side, name in enumerate(("cover", "punctured")):
        expect([key_line(key) for part in parts for key in part[side]], case[name])


def head_case(case):
    tag = bytes.fromhex(case.get("tag", ""))
    if case["kind"] == "blind":
        return expect(blind_of(bytes.fromhex(case["secret"]), tag, int(case["index"])).hex(), case["blind"])
    hidden = lambda head: hidden_head(int(head["size"]), hashes([head["root"]])[0], bytes.fromhex(head["blind"]))
    if case["kind"] == "trie":
        heads = [(bytes.fromhex(head["tag"]), hidden(head)) for head in case["heads"]]
        return expect(b64(trie_root(heads)), case["trie_root"])
    path, root = hashes(case["path"]), hashes([case["trie_root"]])[0]
    if case["kind"] == "present":

        def call():
            if trie_climb(tag, trie_leaf(tag, hidden(case)), path) != root:
                raise Refused("root", "another root")

    else:
        foreign = case["foreign"] and (bytes.fromhex(case["foreign"][0]), hashes([case["foreign"][1]])[0])
        call = lambda: verify_absent(tag, root, path, foreign)
    expect(result_of(call), case["result"])


def note_case(case):
    if case["kind"] == "vkey":
        return expect(result_of(lambda: Key(case["vkey"])), case["result"])
    if case["kind"] == "checkpoint":
        return expect(result_of(lambda: parse_checkpoint(case["text"])), case["result"])
    if case["kind"] == "sign":
        return expect(sign_note(case["skey"], case["text"]), case["note"])
    signed = {}
    call = lambda: signed.update(Note(case["note"].encode()).verify([Key(key) for key in case["keys"]]))
    expect(result_of(call), case["result"])
    expect([[place, str(time)] for place, time in sorted(signed.items())], case.get("signed", []))


def entry_case(case):
    kinds = []
    result = result_of(lambda: kinds.append(parse_entry(case["entry"].encode())))
    expect("unknown" if kinds == [None] else result, case["result"])


def tile_case(case):
    if case["kind"] == "path":
        expect(result_of(lambda: parse_tile(case["path"])), case["result"])
        if case["result"] == "ok":
            expect(tile_path(*parse_tile(case["path"])), case["path"])
    elif case["kind"] == "tree":
        expect(tiles_of(int(case["size"])), case["tiles"])
    elif case["kind"] == "tile":
        level, index, width = parse_tile(case["path"])
        tree, span = test_tree(int(case["size"])), 256 ** int(level)
        starts = [(index * 256 + at) * span for at in range(width)]
        expect(sha256(*(tree.root(start, start + span) for start in starts)).hex(), case["sha256"])
    else:
        found = []
        call = lambda: found.extend(parse_bundle(base64.b64decode(case["bundle"]), case["width"]))
        expect(result_of(call), case["result"])
        expect([entry.hex() for entry in found], case.get("entries", []))


def policy_case(case):
    result = result_of(lambda: Policy(case["policy"].encode()))
    if result != "ok":
        return expect("policy", case["result"])
    found = []
    call = lambda: found.append(Policy(case["policy"].encode()).verify(Note(case["note"].encode()))[2])
    expect((result_of(call), found), (case["result"], [case["cosigned"]] if "cosigned" in case else []))


def proof_case(case):
    def call():
        proof = Proof(case["proof"].encode())
        kind = HeadProof if case["event"] is None else EventProof
        claim = kind(proof.extra or b"")
        entry = claim.lead(case["event"] and read_event(case["event"]))[0]
        if "entry" in case:
            expect(entry, case["entry"])
        proof.verify(entry, Policy(case["policy"].encode()))

    expect(result_of(call), case["result"])


FILES = {
    "sizes": size_case, "trees": tree_case, "leaves": leaf_case, "salts": salt_case, "heads": head_case,
    "notes": note_case, "entries": entry_case, "tiles": tile_case, "policies": policy_case, "proofs": proof_case,
}  # fmt: skip


def run_vectors(directory):
    passed = failed = 0
    for name, run in FILES.items():
        with open(os.path.join(directory, name + ".json"), encoding="utf-8") as file:
            cases = json.load(file)["cases"]
        for case in cases:
            try:
                run(case)
                passed += 1
            except Exception as error:  # a crash is a failed case, too
                failed += 1
                print("%s: %s: %s: %s" % (name, case["name"], type(error).__name__, error))
    print("%d passed, %d failed" % (passed, failed))
    return 10 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "--vectors":
        sys.exit("usage: sealog_trust.py --vectors DIR")
    sys.exit(run_vectors(sys.argv[2]))
