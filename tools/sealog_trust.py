#!/usr/bin/env python3
"""Check Sealog's trees, notes and proofs yourself: RFC 6962, C2SP notes and policies, Ed25519, without Sealog.

Shares no code with Sealog's Rust. It needs Python 3.9 and nothing else, opens no network connection and changes
nothing. `--vectors DIR` runs the project's test vectors (vectors/trust). Sections: 1 texts, 2 Ed25519, 3 trees,
4 salts and leaves, 5 heads, 6 notes, 7 entries and tiles, 8 policies, 9 proofs, 10 vectors.
"""

import base64
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


def malformed(what):
    return Refused("malformed", what)


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


# --- 1. Texts: every value has one spelling ---------------------------------------------------------------------------

NUMBER_MAX = 2**63 - 1
SPACES = re.compile("[\u0000-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000+]")


def decimal(text, field):
    if not re.fullmatch(r"0|[1-9][0-9]{0,18}", text, re.ASCII) or int(text) > NUMBER_MAX:
        raise malformed("%s must be a decimal number without leading zeros, at most 2^63 - 1" % field)
    return int(text)


def unbase64(text, field, length=None):
    try:
        value = base64.b64decode(text.encode("ascii"), validate=True)
    except ValueError:
        raise malformed("%s must be standard base64 with padding" % field) from None
    if base64.b64encode(value).decode() != text or (length is not None and len(value) != length):
        raise malformed("%s must be standard base64 in its one spelling and of its length" % field)
    return value


def b64(value):
    return base64.b64encode(value).decode()


def unhex(text, length, field):
    if not re.fullmatch("[0-9a-f]{%d}" % (2 * length), text):
        raise malformed("%s must have %d hex digits in lower case" % (field, 2 * length))
    return bytes.fromhex(text)


def is_name(text):
    return text != "" and not SPACES.search(text)


class Lines:
    """A text whose lines all end with a line feed."""

    def __init__(self, text):
        self.rest = text

    def next(self, field):
        line, feed, rest = self.rest.partition("\n")
        if not feed:
            raise malformed("%s must be on a line of its own that ends with a line feed" % field)
        self.rest = rest
        return line

    def value(self, name):
        line = self.next(name)
        if not line.startswith(name + " "):
            raise malformed("%s must be the name of this line" % name)
        return line[len(name) + 1 :]

    def hashes(self, most):
        hashes = []
        while self.rest and not self.rest.startswith("\n"):
            if len(hashes) == most:
                raise malformed("the path has more than %d hashes" % most)
            hashes.append(unbase64(self.next("path"), "path", 32))
        return hashes

    def empty(self):
        if self.next("empty line"):
            raise malformed("an empty line must be here")

    def end(self):
        if self.rest:
            raise malformed("there are lines behind the end")


def utf8(data, field):
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise malformed("%s must be UTF-8" % field) from None


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
        raise Refused("size", "the size is above 2^63 - 1")
    if len(path) > PROOF_HASHES_MAX:
        raise Refused("too long", "the path has more than 63 hashes")
    if end > size:
        raise Refused("outside", "the proof is about %d leaves, but the tree has %d" % (end, size))


def check_length(path, expected):
    if len(path) != expected:
        raise Refused("length", "the path must have %d hashes, and has %d" % (expected, len(path)))


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
    found = seed
    for at, beside in enumerate(path):
        if at >= inner or index >> at & 1:
            found = node_hash(beside, found)
    if found != old_root or climb(seed, index, path, inner) != root:
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
        raise malformed("a key is `key DEPTH PREFIX HEX`")
    depth, prefix = decimal(words[1], "DEPTH"), decimal(words[2], "PREFIX")
    if depth > DEPTH or prefix >> depth:
        raise malformed("DEPTH is at most 48 and PREFIX below 2^DEPTH")
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
        pairs = []
        data = sv.canonical(text.encode())
        if not data.startswith(b"{") or sv.read_object(data, 1, pairs)[1]:
            raise sv.Unreadable("an event is a JSON object")
        event = sv.event_from_fields(pairs)
    except (sv.Unreadable, UnicodeEncodeError) as error:
        raise Refused("event", str(error)) from None
    if event.problem or len({key for key, _ in pairs}) != len(pairs):
        raise Refused("event", event.problem or "a field is there twice")
    values = {json.loads(key): value for key, value in pairs}
    out = {"chain_seq": event.seq, "hash": bytes.fromhex(event.hash), "fits": event.computed == event.hash}
    out["schema_version"] = int(values.get("schema_version", b"1"))
    for name in PUBLIC + PRIVATE + ("tenant_id", "project_id"):
        value = json.loads(values.get(name, b"null"))
        if not (value is None or isinstance(value, str)):
            raise Refused("event", "%s is not a string" % name)
        out[name] = value
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
        raise Refused("too long", "the path has more than 256 hashes")
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
        name, id_, key = (text.split("+", 2) + ["", ""])[:3]
        id_, key = unhex(id_, 4, "vkey"), unbase64(key, "vkey", 33)
        if not is_name(name) or key[0] not in (1, 4):
            raise malformed("a vkey has a name without white space, and type 01 or 04")
        if public_point(key[1:]) is None:
            raise malformed("the public key of a vkey is a point of large order in its one spelling")
        if sha256(name.encode(), b"\n", key)[:4] != id_:
            raise malformed("the id of the vkey is not that of its name and key")
        self.name, self.id, self.kind, self.key = name, id_, key[0], key[1:]

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
            raise malformed("a note has at most 1 MiB")
        note = utf8(data, "note")
        if re.search("[\0-\t\x0b-\x1f]", note):
            raise malformed("a note has no control characters but line feeds")
        cut_at = note.rfind("\n\n")
        if cut_at < 0 or not note[cut_at + 2 :].endswith("\n"):
            raise malformed("a note is a text, an empty line and signatures, a line each")
        self.text, self.signatures = note[: cut_at + 1], []
        lines = note[cut_at + 2 : -1].split("\n")
        if len(lines) > 64:
            raise malformed("a note has at most 64 signatures")
        for line in lines:
            match = re.fullmatch("\u2014 ([^ ]+) ([^ ]+)", line)
            if not match or not is_name(match[1]):
                raise malformed("a signature is `\u2014 NAME BASE64`")
            signature = unbase64(match[2], "signature")
            if len(signature) < 5:
                raise malformed("a signature has 4 bytes of key id before it")
            self.signatures.append((match[1], signature[:4], signature[4:]))

    def verify(self, keys):
        """The place of each key that signed, with the latest time of its cosignatures."""
        signed = {}
        for name, id_, signature in self.signatures:
            for place, key in enumerate(keys):
                if (key.name, key.id) == (name, id_):
                    time = key.verify(self.text, signature)
                    if time is None:
                        raise Refused("signature", "the signature of %s does not fit" % name)
                    signed[place] = max(time, signed.get(place, 0))
                    break
        if not signed:
            raise Refused("unknown", "no signature is by a known key")
        return signed


def parse_checkpoint(text):
    lines = Lines(text)
    origin, size, root = lines.next("origin"), lines.next("size"), lines.next("root")
    size, root = decimal(size, "size"), unbase64(root, "root", 32)
    if not origin:
        raise malformed("the origin must not be empty")
    lines.end()
    return origin, size, root


def sign_note(secret, text):
    name, id_, key = secret[len("PRIVATE+KEY+") :].split("+", 2)
    signature = ed25519_sign(unbase64(key, "signing key", 33)[1:], text.encode())
    return "%s\n\u2014 %s %s\n" % (text, name, b64(bytes.fromhex(id_) + signature))


# --- 7. Entries of the store log, tiles -------------------------------------------------------------------------------


def parse_entry(data):
    """The kind of an entry; None for one that is not known."""
    if len(data) > 65535:
        raise malformed("an entry has at most 65535 bytes")
    lines = Lines(utf8(data, "entry"))
    kind = lines.next("kind")
    number = lambda field: decimal(lines.next(field), field)
    if kind == "sealog/genesis/v1":
        origin, _, interval, delay = lines.next("origin"), number("time"), number("interval"), number("max delay")
        if not is_name(origin) or interval < 1 or delay < 1:
            raise malformed("a genesis entry has an origin, a time, and two numbers of seconds above 0")
        if lines.rest:
            words = lines.value("previous").split(" ")
            if len(words) != 3 or not is_name(words[0]):
                raise malformed("previous must be `previous ORIGIN SIZE ROOT`")
            decimal(words[1], "size"), unbase64(words[2], "root", 32)
    elif kind == "sealog/key/v1":
        number("time")
        if lines.next("role") not in ("log", "service") or lines.next("change") not in ("add", "retire"):
            raise malformed("role must be `log` or `service`, change `add` or `retire`")
        Key(lines.next("vkey"))
    elif kind == "sealog/heads/v1":
        number("time"), unbase64(lines.next("root"), "root", 32)
    elif kind == "sealog/restore/v1":
        number("time"), number("index")
        reason = lines.next("reason")
        if not reason.strip() or re.search("[\0-\x1f\x7f-\x9f]", reason):
            raise malformed("reason must be a line of printable text")
    else:
        return None
    lines.end()
    return kind


def heads_text(time, root):
    return "sealog/heads/v1\n%d\n%s\n" % (time, b64(root))


def parse_tile(path):
    match = re.fullmatch(r"tile/(entries|0|[1-9][0-9]?)/((?:x[0-9]{3}/)*[0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?", path, re.ASCII)
    if not match:
        raise malformed("a path is tile/L/N or tile/L/N.p/W")
    level, index, width = match[1], int(re.sub("[x/]", "", match[2])), int(match[3] or 256)
    if (level != "entries" and int(level) > 63) or match[2].startswith("x000") or index > NUMBER_MAX:
        raise malformed("L is at most 63, N has no needless group and is below 2^63")
    if match[3] and width > 255:
        raise malformed("W is from 1 to 255")
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
            raise malformed("the bundle ends inside an entry")
        entries.append(data[2:end])
        data = data[end:]
    if data:
        raise malformed("the bundle has more entries than its width")
    return entries


# --- 8. Policies ------------------------------------------------------------------------------------------------------


class Policy:
    """Logs, witnesses and the quorum. Names are octets."""

    def __init__(self, data):
        self.logs, self.witnesses, self.groups, self.quorum = [], {}, {}, None
        if len(data) > 1 << 18 or (data and not data.endswith(b"\n")) or re.search(rb"[\0-\x08\x0b-\x1f\x7f]", data):
            raise malformed("a policy has at most 256 KiB, ends with a line feed and has no control characters")
        taken, has_quorum = set(), False
        for line in data.split(b"\n"):
            words = [word for word in re.split(rb"[ \t]+", line) if word]
            if not words or words[0].startswith(b"#"):
                continue
            kind, count = words[0], len(words)
            if kind == b"log" and count in (2, 3):
                self.logs.append(self.key(words[1], 1, self.logs))
            elif kind == b"witness" and count in (3, 4):
                key = self.key(words[2], 4, list(self.witnesses.values()))
                self.witnesses[self.fresh(words[1])] = key
            elif kind == b"group" and count >= 3:
                name, members = self.fresh(words[1]), words[3:]
                for member in members:
                    if member in taken or not self.is_known(member):
                        raise malformed("a member of a group is defined above and in no other group")
                    taken.add(member)
                shorthand = {b"all": len(members), b"any": 1}.get(words[2])
                needed = decimal(words[2].decode("latin-1"), "K") if shorthand is None else shorthand
                if not 1 <= needed <= len(members):
                    raise malformed("a group needs `any`, `all` or a number from 1 to that of its members")
                self.groups[name] = needed, members
            elif kind == b"quorum" and count == 2 and not has_quorum:
                if words[1] != b"none" and not self.is_known(words[1]):
                    raise malformed("the quorum must name a witness or a group of a line above")
                has_quorum, self.quorum = True, None if words[1] == b"none" else words[1]
            else:
                raise malformed("a line is log, witness, group, one quorum, or a comment")
            if max(len(self.logs), len(self.witnesses), len(self.groups)) > 32:
                raise malformed("there are at most 32 logs, witnesses and groups")
        if not has_quorum:
            raise malformed("there must be one quorum line")

    def key(self, text, kind, others):
        key = Key(utf8(text, "vkey"))
        if key.kind != kind:
            raise malformed("the vkey of a log has type 01, that of a witness 04")
        if any(key.key == other.key or (key.name, key.id) == (other.name, other.id) for other in others):
            raise malformed("two lines have the same key")
        return key

    def is_known(self, name):
        return name in self.witnesses or name in self.groups

    def fresh(self, name):
        if name == b"none" or self.is_known(name):
            raise malformed("a name must be new and not `none`")
        return name

    def verify(self, note):
        origin, size, root = parse_checkpoint(note.text)
        if all(log.name != origin for log in self.logs):
            raise Refused("origin", "the policy has no log %s" % origin)
        names = list(self.witnesses)
        try:
            signed = note.verify(self.logs + list(self.witnesses.values()))
        except Refused as refused:
            raise Refused("signature", str(refused)) from None
        if not any(place in signed and log.name == origin for place, log in enumerate(self.logs)):
            raise Refused("signature", "the log did not sign")
        cosigned = {names[place - len(self.logs)] for place in signed if place >= len(self.logs)}

        def has_witnessed(name):
            if name in self.witnesses:
                return name in cosigned
            needed, members = self.groups[name]
            return sum(map(has_witnessed, members)) >= needed

        if self.quorum is not None and not has_witnessed(self.quorum):
            raise Refused("quorum", "%d of %d witnesses signed, too few" % (len(cosigned), len(names)))
        return size, root, len(cosigned)


# --- 9. Proofs of events and heads ------------------------------------------------------------------------------------


class Proof:
    """A c2sp.org/tlog-proof@v1 file."""

    def __init__(self, data):
        if len(data) > (1 << 20) + (1 << 17):
            raise malformed("the proof is too long")
        lines = Lines(utf8(data, "proof"))
        if lines.next("header") != "c2sp.org/tlog-proof@v1":
            raise malformed("the first line must be c2sp.org/tlog-proof@v1")
        self.extra = None
        if lines.rest.startswith("extra "):
            self.extra = unbase64(lines.value("extra"), "extra")
            if not 1 <= len(self.extra) <= 65536:
                raise malformed("extra must have 1 to 65536 bytes")
        self.index = decimal(lines.value("index"), "index")
        self.path = lines.hashes(PROOF_HASHES_MAX)
        lines.empty()
        self.note = Note(lines.rest.encode())

    def verify(self, entry, policy):
        size, root, cosigned = policy.verify(self.note)
        try:
            verify_inclusion(leaf_hash(entry.encode()), self.index, size, root, self.path)
        except Refused as refused:
            raise Refused("root", str(refused)) from None
        return cosigned


def read_head_path(lines, tag, size, root):
    """The text of the entry that has the head."""
    lines.empty()
    time = decimal(lines.value("time"), "time")
    blind = unhex(lines.value("blind"), 16, "blind")
    path = lines.hashes(256)
    lines.end()
    return heads_text(time, trie_climb(tag, trie_leaf(tag, hidden_head(size, root, blind)), path))


def entry_of_head(extra):
    lines = Lines(utf8(extra, "extra"))
    if lines.next("kind") != "sealog/head-proof/v1":
        raise malformed("the kind must be sealog/head-proof/v1")
    tag, size = unhex(lines.value("tag"), 32, "tag"), decimal(lines.value("size"), "size")
    root = unbase64(lines.value("root"), "root", 32)
    return read_head_path(lines, tag, size, root)


def entry_of_event(extra, event):
    """The text of the store log's entry that has the event, if the proof is right."""
    lines = Lines(utf8(extra, "extra"))
    if lines.next("kind") != "sealog/event-proof/v1":
        raise malformed("the kind must be sealog/event-proof/v1")
    mode = lines.value("mode")
    if mode not in ("live", "test"):
        raise malformed("mode must be `live` or `test`")
    seq, salt = decimal(lines.value("seq"), "seq"), lines.value("salt")
    is_erased = salt == "-"
    secret = unhex(lines.value("private"), 32, "private") if is_erased else unhex(salt, 16, "salt")
    size, path = decimal(lines.value("size"), "size"), lines.hashes(PROOF_HASHES_MAX)
    behind = Lines(lines.rest)
    read_head_path(behind, ZERO, 0, ZERO)  # its form, before anything is judged
    if seq != event["chain_seq"]:
        raise Refused("seq", "the proof is about event #%d" % seq)
    if event["schema_version"] != 1:
        raise Refused("schema", "schema_version %d is not known" % event["schema_version"])
    if not event["fits"]:
        raise Refused("hash", "the event was changed: its content does not match its hash")
    if is_erased and any(event[name] is not None for name in PRIVATE):
        raise Refused("annotations", "the event shows private fields, but its proof has no salt for them")
    leaf = leaf_hash(leaf_of(event, secret if is_erased else commitment(secret, event)))
    try:
        root = root_from_path(leaf, seq - 1 if seq else NUMBER_MAX, size, path)
    except Refused as refused:
        raise Refused("root", str(refused)) from None
    return read_head_path(lines, tag_of(event, mode), size, root)


# --- 10. The test vectors ---------------------------------------------------------------------------------------------


def result_of(call):
    try:
        call()
        return "ok"
    except Refused as refused:
        return refused.reason


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
        extra = proof.extra or b""
        if case["event"] is None:
            entry = entry_of_head(extra)
        else:
            entry = entry_of_event(extra, read_event(case["event"]))
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
