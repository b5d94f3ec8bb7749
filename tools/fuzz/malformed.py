"""Sends what no client should: requests that are wrong below JSON, byte by byte over a socket.

Whatever comes, the server goes on, and every answer is complete, has an X-Request-Id, is never a 5xx, and carries the envelope if it is an error.
"""

import collections
import concurrent.futures
import contextlib
import json
import random
import re
import socket
import string
import time

REQUEST_ID = re.compile(r"^req_[0-7][0-9A-HJKMNP-TV-Z]{25}$")
# How long the server may take over one connection. Its own deadlines are longer than this only for clients that keep silent, and these do not.
SECONDS_MAX = 20
# After this long without an answer none is expected.
SILENCE_SECONDS = 0.25
AT_A_TIME = 16

Answer = collections.namedtuple("Answer", "status headers body")


class Broken(Exception):
    """Something that must hold did not."""


# --- Answers ----------------------------------------------------------------------------------------------------------


def exchange(address, data):
    """Sends, and returns all that is answered, and whether the connection was reset."""
    received, reset, finished = [], False, False
    with socket.create_connection(address, timeout=SECONDS_MAX) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError):  # It may have answered and closed already.
            link.sendall(data)
        # A client that stops sending in the middle is taken for gone, so this comes only when nothing more is to be expected.
        link.settimeout(SILENCE_SECONDS)
        while True:
            try:
                piece = link.recv(65536)
            except socket.timeout as error:
                if finished:
                    raise Broken("the server neither answers nor closes") from error
                finished = True
                link.settimeout(SECONDS_MAX)
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_WR)
                continue
            except OSError:
                reset = True
                break
            if not piece:
                break
            received.append(piece)
    return b"".join(received), reset


def read_answers(data, methods):
    """Splits what was received into answers. `methods` are those of the requests as far as they are known: a HEAD has no body."""
    answers, methods = [], list(methods)
    while data:
        head, end, data = data.partition(b"\r\n\r\n")
        if not end:
            raise Broken("an answer ends in its headers: %r" % head[:200])
        lines = head.split(b"\r\n")
        match = re.fullmatch(rb"HTTP/1\.[01] (\d{3}) [ -~]*", lines[0])
        if not match:
            raise Broken("no status line: %r" % lines[0][:200])
        headers = collections.defaultdict(list)
        for line in lines[1:]:
            name, colon, value = line.partition(b":")
            if not colon or not re.fullmatch(rb"[a-z0-9-]+", name.lower()) or re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", value):
                raise Broken("no header line: %r" % line[:200])
            headers[name.decode().lower()].append(value.strip().decode("latin-1"))
        status = int(match[1])
        if status < 200:
            continue
        method = methods.pop(0) if methods else None
        body = b""
        if method != "HEAD" and status not in (204, 304):
            if headers.get("transfer-encoding") == ["chunked"]:
                body, data = read_chunks(data)
            else:
                length = int(headers.get("content-length", ["0"])[0])
                body, data = data[:length], data[length:]
                if len(body) != length:
                    raise Broken("an answer ends after %d of %d bytes" % (len(body), length))
        answers.append(Answer(status, headers, body))
    return answers


def read_chunks(data):
    body = b""
    while True:
        size, end, data = data.partition(b"\r\n")
        if not end:
            raise Broken("an answer ends between two chunks")
        length = int(size, 16)
        if len(data) < length + 2:
            raise Broken("an answer ends in a chunk")
        body, data = body + data[:length], data[length + 2 :]
        if length == 0:
            return body, data


def check(answer, is_head):
    """What holds for every answer."""
    ids = answer.headers.get("x-request-id", [])
    if len(ids) != 1 or not REQUEST_ID.match(ids[0]):
        raise Broken("X-Request-Id is %r in a %d" % (ids, answer.status))
    if answer.status >= 500:
        raise Broken("a %d: %r" % (answer.status, answer.body[:500]))
    if answer.status < 400 or is_head:
        return
    try:
        error = json.loads(answer.body)["error"]
    except (ValueError, KeyError, TypeError) as bad:
        raise Broken("a %d without an envelope: %r" % (answer.status, answer.body[:500])) from bad
    if not {"code", "message", "request_id", "doc_url"} <= set(error) or error["request_id"] != ids[0]:
        raise Broken("an envelope of another kind: %r" % (error,))


# --- Requests ---------------------------------------------------------------------------------------------------------


class Maker:
    """Makes requests that are wrong in one way, or in several. Each way is a method that begins with `wrong_`."""

    def __init__(self, dice, key):
        self.dice, self.key = dice, key
        self.ways = [getattr(self, name) for name in dir(self) if name.startswith("wrong_")]

    def make(self):
        """The name of the way, the bytes to send, and the methods of the requests in them as far as that can be said."""
        way = self.dice.choice(self.ways)
        data = way()
        methods = []
        if way.__name__ == "wrong_method" and data.startswith(b"HEAD "):
            methods = ["HEAD"]
        return way.__name__[6:], data, methods

    def body(self):
        event = {"action": "user.login", "actor_id": "u-%d" % self.dice.randrange(100), "metadata": {"n": self.dice.randrange(10**6)}}
        return json.dumps(event).encode()

    def target(self):
        return self.dice.choice(("/v1/events", "/v1/events/batch", "/v1/events/verify", "/v1/actions", "/operator/v1/tenants", "/healthz", "/openapi.json"))

    def request(self, method="POST", target="/v1/events", headers=(), body=None, length=None, version="HTTP/1.1", key=True):
        """A request; a body has its true length unless another one is given."""
        body = self.body() if body is None else body
        lines = [b"%s %s %s" % (raw(method), raw(target), raw(version)), b"Host: log.example"]
        if key:
            lines.append(b"Authorization: Bearer " + self.key.encode())
        lines += [raw(line) for line in headers]
        if length is None and method in ("POST", "PATCH", "PUT"):
            length = len(body)
        if length is not None:
            lines.append(b"Content-Length: " + raw(str(length)))
        return b"\r\n".join(lines) + b"\r\n\r\n" + body

    def noise(self, most):
        return self.dice.randbytes(self.dice.randrange(1, most))

    # Framing.

    def wrong_length(self):
        body = self.body()
        true = len(body)
        length = self.dice.choice((true - 1, true + 1, 0, true * 2, -1, "+%d" % true, "0x%x" % true, "%d, %d" % (true, true), "%d,%d" % (true, true + 1), "", " ", "ten", 2**63, 2**64, 10**30, "%d\t" % true, 262145))
        return self.request(body=body, length=length)

    def wrong_length_twice(self):
        body = self.body()
        second = self.dice.choice((len(body), len(body) + 1, 0))
        return self.request(body=body, headers=["Content-Length: %d" % second])

    def wrong_end(self):
        whole = self.request(target=self.dice.choice(("/v1/events", "/v1/events/batch")))
        return whole[: self.dice.randrange(1, len(whole))]

    def wrong_chunks(self):
        body = self.body()
        pieces = []
        while body:
            size = self.dice.randrange(1, 30)
            pieces.append(body[:size])
            body = body[size:]
        bad = self.dice.choice(("none", "size", "short", "long", "line", "end", "extension", "trailer", "huge", "negative", "garbage"))
        out = b""
        for at, piece in enumerate(pieces):
            size = b"%x" % len(piece)
            if at == len(pieces) // 2:
                size = {
                    "size": b"zz", "short": b"1", "long": b"fff", "huge": b"f" * self.dice.randrange(15, 40), "negative": b"-1",
                    "extension": size + b";" + b"x" * self.dice.randrange(1, 40000), "garbage": self.noise(20),
                }.get(bad, size)
            out += size + (b"" if bad == "line" and at == 0 else b"\r\n") + piece + b"\r\n"
        if bad != "end":
            out += b"0\r\n" + (b"X-Trailer: " + b"y" * self.dice.randrange(40000) + b"\r\n" if bad == "trailer" else b"") + b"\r\n"
        return self.request(headers=["Transfer-Encoding: chunked"], body=out, length="").replace(b"Content-Length: \r\n", b"")

    def wrong_coding(self):
        coding = self.dice.choice(("gzip, chunked", "chunked, chunked", "chunked, identity", "identity", "gzip", "xchunked", "chunked ", "CHUNKED", "\x0bchunked", ""))
        return self.request(headers=["Transfer-Encoding: " + coding])

    def wrong_content_coding(self):
        return self.request(headers=["Content-Encoding: " + self.dice.choice(("gzip", "br", "identity, gzip", "", "IDENTITY", "x" * 300))])

    # The head.

    def wrong_method(self):
        method = self.dice.choice(("HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "FOO", "post", "G" * 9000, "GE T", "", "G\x00T", "PRI", "M-SEARCH", "GÉT", "{}"))
        return self.request(method=method, target=self.target(), body=b"", length=self.dice.choice((None, 0)))

    def wrong_version(self):
        version = self.dice.choice(("HTTP/0.9", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "HTTP/3.14", "http/1.1", "HTTP/1.1 x", "", "HTTP/1.", "ICY/1.1"))
        return self.request(version=version)

    def wrong_path(self):
        path = self.dice.choice((
            "/v1/events/%00", "/v1/events/%2e%2e/actions", "/v1/../v1/events", "/v1//events", "//v1/events", "/v1/events%2fbatch", "/v1/%65vents",
            "/v1/events/%c0%af", "/v1/events/%252e%252e", "/v1/events/%zz", "/v1/events/%", "/V1/EVENTS", "/v1/events;x=1", "/v1/events/..;/verify",
            "http://log.example/v1/events", "http://", "*", "log.example:443", "/v1/events#fragment", "\\v1\\events", "/v1/events/\x00", "/v1/events/\xff\xfe",
            "/v1/events/ 1", "/v1/events/\t", "/v1/events/%0d%0aX-Injected:%201", "/docs/errors/../../v1/events", "/docs/errors/%3Cscript%3E", "/docs/%00",
            "/operator/v1/tenants/%00", "/operator/v1//", "/operator/v1/../../v1/events", "", "?", "v1/events", "/" * 5000, "/v1/events/" + "x" * self.dice.randrange(60000),
        ))
        return self.request(method=self.dice.choice(("GET", "POST", "PATCH")), target=path, body=b"", length=0)

    def wrong_query(self):
        pairs = ["limit=1", "limit=1", "limit=", "limit=%00", "limit=1e3", "limit=" + "9" * self.dice.randrange(1, 5000), "cursor=%ff", "cursor=" + "0" * 26, "action=%", "action=%f", "action=%zz",
                 "action=a%0d%0ab", "date_from=0000-00-00", "date_to=9999-12-31", "date_from=-001-01-01", "from_seq=-0", "to_seq=0", "from_seq=1_000", "%6cimit=1", "=", "&&", "a;b", "actor_id=%ed%a0%80", "actor_id=\xc3\xa9",
                 "resource[]=1", "resource=%F0%9F%98%80", "x" * self.dice.randrange(1, 3000)]
        query = "&".join(self.dice.choices(pairs, k=self.dice.choice((1, 2, 3, 50))))
        path = self.dice.choice(("/v1/events", "/v1/events/verify", "/v1/events/01ARZ3NDEKTSV4RRFFQ69G5FAV", "/v1/actions", "/operator/v1/tenants"))
        return self.request(method="GET", target=path + "?" + query, body=b"")

    def wrong_header(self):
        line = self.dice.choice((
            "no colon here", ": no name", "Bad Name: x", "X-Bad\x00: x", "X-Nul: a\x00b", "X-Folded: a\r\n b", "X-Cr: a\rb", "X-Lf: a\nX-Injected: b", "X-High: \xff\xfe", "X-\xc3\xa9: x",
            "X-Tab:\tx\t", "X-Empty:", "X" * 9000 + ": x", "Host: a\r\nHost: b", "Host: \x00", "Connection: close, keep-alive, x", "Connection: upgrade\r\nUpgrade: h2c", "Expect: 100-continue",
            "Expect: nonsense", "Accept: text/html", "X-Request-Id: req_00000000000000000000000000", "X-Forwarded-For: 1.2.3.4", "Content-Type: application/xml", "Content-Type: \xff", "Range: bytes=0-1",
            "If-None-Match: *", "TE: trailers", "Idempotency-Key: ", "Idempotency-Key: " + "k" * 256, "Idempotency-Key: a b", "Idempotency-Key: a\r\nIdempotency-Key: b", "Idempotency-Key: \xc3\xa9",
        ))
        return self.request(headers=[line])

    def wrong_host(self):
        hosts = self.dice.choice((b"", b"Host: a\r\nHost: a\r\n", b"Host: a\r\nHost: b\r\n", b"Host:\r\n", b"Host: \xff\r\n"))
        version = self.dice.choice(("HTTP/1.1", "HTTP/1.1", "HTTP/1.0"))
        return self.request(target=self.target(), version=version).replace(b"Host: log.example\r\n", hosts)

    def wrong_announcement(self):
        """A body that is announced and sent all the same, or not sent."""
        whole = self.request(headers=["Expect: 100-continue"], key=self.dice.choice((True, False)))
        return self.dice.choice((whole, whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"))

    def wrong_forwarded(self):
        hop = lambda: self.dice.choice(("1.2.3.4", "1.2.3.4:5", "[::1]:5", "::1", "unknown", "", " ", "\xff", "1" * 300))
        return self.request(headers=["X-Forwarded-For: " + ",".join(hop() for _ in range(self.dice.choice((1, 3, 2000))))])

    def wrong_many_headers(self):
        return self.request(headers=["X-%d: %s" % (n, "y" * self.dice.randrange(30)) for n in range(self.dice.choice((20, 95, 96, 100, 101, 500)))])

    def wrong_huge_header(self):
        return self.request(headers=["X-Huge: " + "y" * self.dice.choice((8192, 16000, 60000, 65000, 65536, 70000, 200000))])

    def wrong_authorization(self):
        line = self.dice.choice((
            "Authorization: Bearer", "Authorization: Bearer ", "Authorization: bearer  " + self.key + "  ", "Authorization: Basic dTpw", "Authorization: Bearer " + self.key[:-1], "Authorization: Bearer at_live_",
            "Authorization: Bearer at_live_\xff", "Authorization: Bearer " + "at_live_" + "x" * 9000, "Authorization:\tBearer\t" + self.key, "Authorization: " + self.key, "Authorization: Bearer %s\r\nAuthorization: Bearer %s" % (self.key, self.key),
            "Authorization: Bearer " + self.key.swapcase(), "",
        ))
        headers = [line] if line else []
        return self.request(target=self.target(), method=self.dice.choice(("GET", "POST")), headers=headers, key=False)

    def wrong_lines(self):
        """Line ends of other systems, and none."""
        return self.request().replace(b"\r\n", self.dice.choice((b"\n", b"\r", b"\n\r", b"\r\r\n", b"\r\n\r\n", b"")), self.dice.choice((1, 2, -1)))

    # The body.

    def wrong_body(self):
        depth = self.dice.choice((10, 1000, 60000))
        body = self.dice.choice((
            b"", b" ", b"null", b"[]", b"\"x\"", b"{", b"{}", b"\xef\xbb\xbf" + self.body(), self.body().decode().encode("utf-16"), b"\x00" + self.body(), self.body() + b"\x00", self.body() + self.body(),
            b'{"action":"user.login","metadata":' + b'{"a":' * depth, b'{"action":"user.login","metadata":{"a":' + b"[" * depth + b"]" * depth + b"}}", b'{"action":"\xff"}', b'{"action":"user.login","metadata":{"a":"\xed\xa0\x80"}}',
            b'{"action":"user.login","actor_id":"\\ud800"}', b'{"action":"user.login","actor_id":"\\u0000"}', b'{"action":"user.login","action":"user.login"}', b'{"action":"user.login","metadata":{"n":1e999999,"m":-0,"k":0.1e-9}}',
            b'{"action":"user.login","metadata":{"n":01}}', b'{"action":"user.login",}', b"{'action':'user.login'}", b'{"action":"a\nb"}', b'{"action":"user.login","metadata":{"a":NaN}}', b'{"action":"user.login"}//', b"9" * 100000,
            b'{"action":"user.login","metadata":{"x":"' + b"y" * self.dice.choice((262000, 262144, 300000)) + b'"}}', b'{"events":[' + b",".join([b"{}"] * self.dice.choice((0, 1, 100, 101, 5000))) + b"]}",
            b'{"events":[{"action":"user.login"}],"events":[]}', b'{"events":{}}', b"action=user.login", b"<event/>", self.noise(300),
        ))
        return self.request(target=self.dice.choice(("/v1/events", "/v1/events/batch")), body=body)

    def wrong_byte_of_body(self):
        body = bytearray(self.body())
        body[self.dice.randrange(len(body))] = self.dice.randrange(256)
        return self.request(body=bytes(body))

    # Everything.

    def wrong_bytes(self):
        data = bytearray(self.request(target=self.target()))
        for _ in range(self.dice.choice((1, 2, 10))):
            at = self.dice.randrange(len(data) + 1)
            do = self.dice.randrange(4)
            if do == 0 and at < len(data):
                data[at] ^= 1 << self.dice.randrange(8)
            elif do == 1:
                data[at:at] = self.noise(20)
            elif do == 2:
                del data[at : at + self.dice.randrange(20)]
            else:
                data[at:at] = data[at : at + self.dice.randrange(50)]
        return bytes(data) or b"x"

    def wrong_protocol(self):
        return self.dice.choice((
            self.noise(3000), b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + self.noise(200), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"SSH-2.0-x\r\n", b"\r\n" * 50, b"GET\r\n\r\n", b" ", b"\x00" * 100,
            "".join(self.dice.choices(string.printable, k=500)).encode(),
        ))

    def wrong_pipeline(self):
        """A good request, and something behind it that must not become part of it."""
        good = self.request()
        behind = self.dice.choice((self.noise(200), self.wrong_bytes(), self.wrong_length(), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 20, b"0\r\n\r\n", good[: len(good) // 2]))
        return good + behind


def raw(text):
    """Text as the bytes it stands for, so that `\\xff` is one byte."""
    return text if isinstance(text, bytes) else text.encode("latin-1", "replace")


# --- The run ----------------------------------------------------------------------------------------------------------


def run(address, key, count, seed, alive, say):
    """Sends this many; returns what happened. `alive` fails when the server has ended."""
    maker = Maker(random.Random(seed), key)
    seen, statuses, resets, began = collections.Counter(), collections.Counter(), 0, time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        for first in range(0, count, 10 * AT_A_TIME):
            cases = [(number, *maker.make()) for number in range(first, min(count, first + 10 * AT_A_TIME))]
            for (number, way, data, methods), exchanged in zip(cases, pool.map(lambda case: tried(address, case[2]), cases)):
                seen[way] += 1
                try:
                    if isinstance(exchanged, Exception):
                        raise exchanged
                    for answer in read_answers(exchanged[0], methods):
                        check(answer, methods == ["HEAD"])
                        statuses[answer.status] += 1
                except (Broken, OSError) as error:
                    raise Broken("case %d of seed %d (%s): %s\nsent: %r" % (number, seed, way, error, data[:2000])) from error
                resets += exchanged[1]
            alive()
            if first // 1000 != (first + len(cases)) // 1000:
                say("%d malformed requests in %d s" % (first + len(cases), time.monotonic() - began))
    missing = {way.__name__[6:] for way in maker.ways} - set(seen)
    if count >= 1000 and missing:
        raise Broken("never tried: %s" % ", ".join(sorted(missing)))
    return statuses, resets


def tried(address, data):
    try:
        return exchange(address, data)
    except (Broken, OSError) as error:
        return error
