"""HTTP/1.1 over blocking sockets; the parser also serves the asyncio streams of aio.py.

The standard http.client cannot bound the time of a whole answer: each byte that drips in extends its
time-out.
"""

from __future__ import annotations

import re
import select
import socket
import ssl
import sys
import threading
import time
from typing import Generator, List, Optional, Tuple
from urllib.parse import urlsplit

from ._core import Answer, Request, bad_answer
from .errors import SealogError, TransportError, bad_option

VERSION = "0.1.0"
_BODY_MAX = 64 << 20  # twice the largest page
IDLE_MAX = 8  # connections that are kept

# What the parser asks for: a line, so many bytes, or everything up to the end of the connection.
LINE, REST = -1, -2
Parser = Generator[int, bytes, Tuple[Answer, bool]]


class Address:
    """Where the service is, from the url option."""

    def __init__(self, url: str, api_key: str) -> None:
        if not isinstance(url, str) or not re.match(r"https?://", url):
            raise bad_option(
                "url", "must begin with http:// or https://, for example https://sealog.example.org"
            )
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise bad_option("url", str(error)) from None
        if not parts.hostname or re.search(r"[^!-~]", url):
            raise bad_option("url", "has no host, or a character that an address cannot have")
        if parts.username is not None or parts.query or parts.fragment:
            raise bad_option("url", "must have no user, query or fragment; the key belongs into api_key")
        self.tls, self.host = parts.scheme == "https", parts.hostname
        self.port = port or (443 if self.tls else 80)
        self._prefix = parts.path.rstrip("/")
        host = "[%s]" % self.host if ":" in self.host else self.host
        python = "%d.%d" % sys.version_info[:2]
        self._head = (
            "Host: %s\r\nAuthorization: Bearer %s\r\nUser-Agent: sealog-python/%s (Python %s)\r\n"
            % (
                host if self.port in (80, 443) else "%s:%d" % (host, self.port),
                api_key,
                VERSION,
                python,
            )
        )

    def bytes_of(self, request: Request) -> bytes:
        head = "%s %s%s HTTP/1.1\r\n%s" % (request.method, self._prefix, request.path, self._head)
        for name, value in request.headers.items():
            head += "%s: %s\r\n" % (name, value)
        if request.method == "POST":
            head += "Content-Length: %d\r\n" % len(request.body)
        return head.encode("latin-1") + b"\r\n" + request.body

    def failure(self, error: BaseException) -> TransportError:
        """What to tell of a failed exchange."""
        where = "%s port %d" % (self.host, self.port)
        if isinstance(error, socket.timeout):
            message = "%s gave no complete answer in time; see the timeout option" % where
            return TransportError(message, code="client/timeout")
        if isinstance(error, ssl.SSLCertVerificationError):
            message = "the certificate of %s cannot be verified: %s; see the ca_file option"
            return TransportError(message % (where, error.verify_message), code="client/tls")
        if isinstance(error, ssl.SSLError) and not isinstance(
            error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)
        ):
            message = "TLS with %s failed (%s); if it does not speak TLS, use an http:// url"
            return TransportError(message % (where, error.reason or error), code="client/tls")
        message = "no complete answer from %s: %s" % (where, error or type(error).__name__)
        return TransportError(message, code="client/connection")


class Cut(OSError):
    """The connection ended within an answer. `stale`: before its first byte."""

    def __init__(self, stale: bool) -> None:
        super().__init__("the connection was closed")
        self.stale = stale


def cut(rest: bytes, started: bool) -> Exception:
    if rest[:1] in (b"\x15", b"\x16"):  # a TLS record: an alert, which is what such a port answers to HTTP
        return TransportError("the port speaks TLS; use an https:// url", code="client/tls")
    return Cut(stale=not started)


def response() -> Parser:
    """Parses one answer. Returns it, and whether the connection can take another request."""
    while True:
        line = yield LINE
        match = re.match(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])[ \r\n]", line)
        if not match:
            raise bad_answer("the server does not speak HTTP", 0)
        status, headers = int(match[2]), {}
        while True:
            line = yield LINE
            if line in (b"\r\n", b"\n"):
                break
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        if status >= 200:
            break  # otherwise: 100 Continue and the like
    keep = match[1] == b"1" and headers.get("connection", "").lower() != "close"
    length = headers.get("content-length", "")
    if status in (204, 304):
        body = b""
    elif headers.get("transfer-encoding", "").lower() == "chunked":
        body = yield from _chunks(status)
    elif length.isdigit():
        if int(length) > _BODY_MAX:
            raise bad_answer("the answer has %s bytes" % length, status)
        body = yield int(length)
    else:
        body, keep = (yield REST), False
    return Answer(status, headers, body), keep


def _chunks(status: int) -> Generator[int, bytes, bytes]:
    parts: List[bytes] = []
    left = _BODY_MAX
    while True:
        size_text = (yield LINE).split(b";")[0].strip()
        if not re.fullmatch(rb"[0-9a-fA-F]{1,8}", size_text) or int(size_text, 16) > left:
            raise bad_answer("the answer has a bad chunk", status)
        size = int(size_text, 16)
        left -= size
        if size:
            parts.append((yield size))
        while (yield LINE) not in (b"\r\n", b"\n"):
            pass  # trailers
        if not size:
            return b"".join(parts)


class _Connection:
    """A blocking connection whose reads share one deadline."""

    def __init__(self, address: Address, tls: Optional[ssl.SSLContext], deadline: float) -> None:
        self.socket = socket.create_connection(
            (address.host, address.port), max(deadline - time.monotonic(), 0.001)
        )
        self.buffer, self.used, self.started = bytearray(), False, False
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls:
                self.socket = tls.wrap_socket(self.socket, server_hostname=address.host)
        except BaseException:
            self.socket.close()
            raise

    @property
    def is_idle(self) -> bool:
        """Whether nothing has arrived since the last answer. The end of the connection is something, too."""
        if self.buffer:
            return False
        if not hasattr(select, "poll"):  # Windows
            return not select.select([self.socket], [], [], 0)[0]
        poll = select.poll()  # unlike select, for any number of open files
        poll.register(self.socket, select.POLLIN)
        return not poll.poll(0)

    def exchange(self, request: bytes, deadline: float) -> Tuple[Answer, bool]:
        self.started = False
        try:
            self.socket.settimeout(_left(deadline))
            self.socket.sendall(request)
        except ConnectionError:
            pass  # the server may have answered before it stopped reading; if not, the first read says so
        parser = response()
        wanted = next(parser)
        try:
            while True:
                wanted = parser.send(self._read(wanted, deadline))
        except StopIteration as stop:
            result: Tuple[Answer, bool] = stop.value
            return result

    def _read(self, wanted: int, deadline: float) -> bytes:
        while True:
            if wanted == LINE:
                taken = self.buffer.find(b"\n") + 1
            else:
                taken = wanted if 0 <= wanted <= len(self.buffer) else 0
            if taken or wanted == 0:
                break
            if len(self.buffer) > (65_536 if wanted == LINE else _BODY_MAX):
                raise bad_answer("the answer is too long", 0)
            self.socket.settimeout(_left(deadline))
            try:
                data = self.socket.recv(262_144)
            except ConnectionError as error:
                raise Cut(stale=not self.started) from error
            if not data and wanted != REST:
                raise cut(bytes(self.buffer), self.started)
            if not data:
                taken = len(self.buffer)
                break
            self.started = True
            self.buffer += data
        piece = bytes(self.buffer[:taken])
        del self.buffer[:taken]
        return piece


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise socket.timeout()
    return left


class Http:
    """A pool of kept connections. Threads may share it."""

    def __init__(self, address: Address, timeout_s: float, tls: Optional[ssl.SSLContext]) -> None:
        self.address, self.timeout_s, self.tls = address, timeout_s, tls
        self._idle: List[_Connection] = []
        self._lock = threading.Lock()

    def exchange(self, request: Request) -> Answer:
        """One attempt. Raises TransportError."""
        deadline, data = time.monotonic() + self.timeout_s, self.address.bytes_of(request)
        connection: Optional[_Connection] = None
        while True:
            try:
                connection = self._take() or _Connection(self.address, self.tls, deadline)
                answer, keep = connection.exchange(data, deadline)
            except (OSError, SealogError) as error:  # socket.timeout and SSLError are OSErrors
                if connection:
                    connection.socket.close()
                    if connection.used and isinstance(error, Cut) and error.stale:
                        connection = None  # the server closed an idle connection: no fault, and no attempt
                        continue
                raise error if isinstance(error, SealogError) else self.address.failure(error) from None
            self._give_back(connection, keep)
            return answer

    def _take(self) -> Optional[_Connection]:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None or connection.is_idle:
                return connection
            connection.socket.close()

    def _give_back(self, connection: _Connection, keep: bool) -> None:
        connection.used = True
        with self._lock:
            if keep and len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
                return
        connection.socket.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.socket.close()
