"""The scripted server of the behaviour suite: a Sealog that misbehaves as a scenario says. README.md,
section 4.

Sockets are used directly, because no HTTP library can reset a connection in the middle of an answer.
"""

import base64
import functools
import http.client
import json
import socket
import struct
import sys
import threading
import time
from hashlib import sha256
from pathlib import Path
from urllib.parse import parse_qs, unquote

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import sealog_trust  # noqa: E402  trees, proofs and signatures
import sealog_verify  # noqa: E402  the hash of an event, and the time that an id carries

TENANT, PROJECT = "018f3c5e-7a10-4b2d-9e44-5a617c02d831", "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d"
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
REASONS = {
    200: "OK",
    202: "Accepted",
    307: "Temporary Redirect",
    429: "Too Many Requests",
    503: "Service Unavailable",
}
ACTIONS = {
    "user.login": [],
    "user.logout": [],
    "document.created": [],
    "document.shared": [],
    "payment.failed": ["reason"],
}
FIELDS = (
    "action",
    "actor_id",
    "actor_type",
    "resource",
    "resource_type",
    "session_id",
    "ts_client",
    "metadata",
)


def refusal(status, code, message, **more):
    error = {
        "code": code,
        "message": message,
        "request_id": "req_01M7CYVHQ1GR40M30E209183GM",
        "doc_url": "/docs/errors/" + code,
    }
    return status, {}, json.dumps({"error": {**error, **more}}).encode()


def sealed(event):
    """The event with its hash, and its text. `hash` is its last field."""
    text = json.dumps({**event, "hash": "0" * 64}, separators=(",", ":"), ensure_ascii=False).encode()
    hash_ = next(sealog_verify.read_events(text)).computed
    return {**event, "hash": hash_}, text[: -len('"}') - 64] + hash_.encode() + b'"}'


# The log of the vectors: the seed of its key, and what an application has from its operator.
LOG_KEY = "PRIVATE+KEY+log.example+1cc758f9+" + "AQEB" * 11
VKEY = "log.example+1cc758f9+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c"
SALTS = [(0, 0, bytes(range(16)))]  # the root of the tree of salts


@functools.lru_cache(maxsize=64)  # a signature takes Python some milliseconds
def signed(text):
    return sealog_trust.sign_note(LOG_KEY, text)


class Service:
    """As much of Sealog as the scenarios need, in memory: seals, replays, lists, verifies, proves."""

    def __init__(self, key):
        self.key, self.events, self.answers, self.count, self.lock = key, [], {}, 0, threading.Lock()
        self.published = 0  # so many events are in the chain's published tree

    def publish(self, count):
        with self.lock:
            if len(self.events) < count:
                return False
            self.published = count
            return True

    def vkey(self):
        return VKEY

    def answer(self, method, path, headers, body):
        path, _, query = path.partition("?")
        if headers.get("authorization") != "Bearer " + self.key:
            return refusal(401, "auth/key_not_found", "there is no such key")
        with self.lock:
            if method == "POST" and path in ("/v1/events", "/v1/events/batch"):
                return self.accept(path, headers, body)
            if path == "/v1/events":
                return self.page({name: values[0] for name, values in parse_qs(query).items()})
            if path == "/v1/events/verify":
                return self.verify({name: int(values[0]) for name, values in parse_qs(query).items()})
            if path == "/v1/actions":
                actions = [{"action": name, "required_fields": need} for name, need in ACTIONS.items()]
                return 200, {}, json.dumps({"actions": actions, "total": len(actions)}).encode()
            if path == "/tlog/v1/chain/proof":
                return self.prove({name: values[0] for name, values in parse_qs(query).items()})
            if path.startswith("/v1/events/"):
                wanted = unquote(path[len("/v1/events/") :]).upper()
                found = [text for event, text in self.events if event["log_id"] == wanted]
                return (
                    (200, {}, found[0]) if found else refusal(404, "read/not_found", "there is no such event")
                )
        return refusal(404, "request/not_found", "there is no such path")

    def accept(self, path, headers, body):
        key, fingerprint = headers.get("idempotency-key"), sha256(path.encode() + b"\n" + body).digest()
        if key in self.answers:
            earlier, answer = self.answers[key]
            if earlier != fingerprint:
                return refusal(409, "event/idempotency_key_conflict", "the key was used for another request")
            return answer[0], {**answer[1], "Idempotency-Replayed": "true"}, answer[2]
        sent = json.loads(body)
        events = sent["events"] if path.endswith("batch") else [sent]
        if len(events) > 100 or len(body) > (2_097_152 if path.endswith("batch") else 262_144):
            return refusal(413, "validation/body_too_large", "too large")
        for index, event in enumerate(events):
            where = "event[%d]: " % index if path.endswith("batch") else ""
            if event.get("action") not in ACTIONS:
                return refusal(422, "action/invalid", where + "unknown action", suggestion="user.login")
            if [name for name in ACTIONS[event["action"]] if name not in event.get("metadata", {})]:
                return refusal(422, "action/missing_required_fields", where + "a field is missing")
        new = [self.seal(event) for event in events]
        request_id = "req_" + self.ulid(int(time.time() * 1000))
        if path.endswith("batch"):
            numbers = "%d-%d" % (new[0]["chain_seq"], new[-1]["chain_seq"])
            answer = {"log_ids": [event["log_id"] for event in new], "request_id": request_id}
        else:
            numbers, answer = str(new[0]["chain_seq"]), {"log_id": new[0]["log_id"], "request_id": request_id}
        receipt = {"Sealog-Chain-Seq": numbers, "Sealog-Hash": new[-1]["hash"]}
        result = 202, receipt, json.dumps(answer).encode()
        if key:
            self.answers[key] = fingerprint, result
        return result

    def seal(self, event):
        before = self.events[-1][0] if self.events else {"hash": "0" * 64, "chain_seq": 0, "ms": 0}
        ms = max(int(time.time() * 1000), before["ms"])
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000)) + ".%03dZ" % (ms % 1000)
        new = {"log_id": self.ulid(ms), "tenant_id": TENANT, "project_id": PROJECT, "schema_version": 1}
        new.update({name: event[name] for name in FIELDS if event.get(name) is not None})
        new.update(timestamp=stamp, chain_seq=before["chain_seq"] + 1, prev_hash=before["hash"])
        new, text = sealed(new)
        self.events.append(({**new, "ms": ms}, text))
        return new

    def ulid(self, ms):
        self.count += 1  # the random part counts up, so that ids grow within a millisecond
        number = (ms << 80) | self.count
        return "".join(CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))

    def page(self, query):
        chosen = [
            pair
            for pair in reversed(self.events)
            if all(pair[0].get(n) == query[n] for n in FIELDS if n in query)
        ]
        start, limit = int(query.get("cursor", "0")), int(query.get("limit", "50"))
        texts, rest = [text for _, text in chosen[start : start + limit]], len(chosen) > start + limit
        tail = b',"next_cursor":"%d","has_more":true}' % (start + limit) if rest else b',"has_more":false}'
        return 200, {}, b'{"events":[' + b",".join(texts) + b"]" + tail

    def verify(self, query):
        first = query.get("from_seq", 1)
        last = min(query.get("to_seq", first + 999), first + 999, len(self.events))
        checked = max(last - first + 1, 0)
        result = {"valid": True, "checked": checked, "first_seq": first, "last_seq": max(last, first - 1)}
        return 200, {}, json.dumps(result).encode()

    def prove(self, query):
        """The file of docs/format.md, 8.6. The store log has three entries; the middle one has the head of
        this chain, beside that of another. It keeps this size, so it is another log after each publication."""
        trust = sealog_trust
        seqs = [event["chain_seq"] for event, _ in self.events if event["log_id"] == query.get("log_id")]
        if self.key.startswith("at_test_") or query.get("format") != "tlog-proof" or not seqs:
            return refusal(404, "tlog/not_found", "no signed tree has it")
        if seqs[0] > self.published:
            return refusal(404, "tlog/not_yet", "the next snapshot will have it")
        events = [trust.read_event(text.decode()) for _, text in self.events[: self.published]]
        salts = [trust.salt_of(SALTS, event["chain_seq"]) for event in events]
        private = [trust.commitment(*pair) for pair in zip(salts, events)]
        tree = trust.Tree([trust.leaf_hash(trust.leaf_of(*pair)) for pair in zip(events, private)])
        tag, blind = trust.tag_of(events[0], "live"), b"\x10" * 16
        head = tag, trust.hidden_head(self.published, tree.root(0, self.published), blind)
        beside = bytes([tag[0] ^ 128]) + tag[1:], b"\7" * 32  # differs in the first bit
        time_ms = 1_794_657_660_000
        entries = ["sealog/other/v1\n", trust.heads_text(time_ms, trust.trie_root([head, beside])), "sealog/other/v1\n"]
        log = trust.Tree([trust.leaf_hash(entry.encode()) for entry in entries])
        lines = ["sealog/event-proof/v1", "mode live", "seq %d" % seqs[0], "salt " + salts[seqs[0] - 1].hex()]
        lines += ["size %d" % self.published, *map(trust.b64, tree.inclusion(seqs[0] - 1, self.published))]
        lines += ["", "time %d" % time_ms, "blind " + blind.hex(), trust.b64(trust.trie_leaf(*beside)), ""]
        extra = base64.b64encode("\n".join(lines).encode()).decode()
        file = ["c2sp.org/tlog-proof@v1", "extra " + extra, "index 1", *map(trust.b64, log.inclusion(1, 3)), "", ""]
        note = signed("log.example\n3\n%s\n" % trust.b64(log.root(0, 3)))
        return 200, {"Content-Type": "text/plain; charset=utf-8"}, ("\n".join(file) + note).encode()

    def stored(self):
        with self.lock:
            return [event.get("resource") for event, _ in self.events]


class Upstream:
    """A real Sealog in place of Service. The key of the scenario is replaced by one of its own project."""

    def __init__(self, address, key):
        self.address, self.key = address, key

    def publish(self, count):
        """Whether a signed snapshot has so many events of the chain."""
        authorization = {"authorization": "Bearer " + self.key}
        status, _, body = self.answer("GET", "/tlog/v1/chain", authorization, b"")
        return status == 200 and json.loads(body)["published_size"] >= count

    def vkey(self):
        _, _, body = self.answer("GET", "/tlog/v1/store/keys", {}, b"")
        return next(key["vkey"] for key in json.loads(body)["keys"] if key["role"] == "log")

    def answer(self, method, path, headers, body):
        connection = http.client.HTTPConnection(self.address, timeout=20)
        drop = ("host", "connection", "content-length", "transfer-encoding")
        connection.request(method, path, body or None, {n: v for n, v in headers.items() if n not in drop})
        response = connection.getresponse()
        data = response.read()
        connection.close()
        drop = ("content-length", "connection", "transfer-encoding", "content-type")
        return response.status, {n: v for n, v in response.getheaders() if n.lower() not in drop}, data

    def stored(self):
        events, cursor = [], ""
        while True:
            _, _, body = self.answer(
                "GET", "/v1/events?limit=100" + cursor, {"authorization": "Bearer " + self.key}, b""
            )
            page = json.loads(body)
            events += page["events"]
            if not page["has_more"]:
                return [
                    event.get("resource") for event in sorted(events, key=lambda event: event["chain_seq"])
                ]
            cursor = "&cursor=" + page["next_cursor"]


class Server:
    """Answers by its script and records every request. Use as a context manager."""

    def __init__(self, script, service):
        self.service, self.requests, self.gates = service, [], {}
        self.changed, self.connections = threading.Condition(), []
        self.play(script)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()
        with self.changed:
            for gate in self.gates.values():
                gate.set()
            for connection in self.connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)  # wakes its thread, which closes it
                except OSError:
                    pass

    def play(self, script):
        with self.changed:
            self.script = [{"times": 1, **answer} for answer in script]
            for answer in script:
                if "gate" in answer:
                    self.gates.setdefault(answer["gate"], threading.Event())

    def open(self, gate):
        self.gates.setdefault(gate, threading.Event()).set()

    def wait_requests(self, count, seconds=10):
        with self.changed:
            return self.changed.wait_for(lambda: len(self.requests) >= count, seconds)

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.changed:
                self.connections.append(connection)
            threading.Thread(target=self.converse, args=(connection,), daemon=True).start()

    def converse(self, connection):
        reader = connection.makefile("rb")
        try:
            while self.exchange(connection, reader):
                pass
        except OSError:
            pass  # the client has gone, or a fault has ended the connection
        finally:
            reader.close()
            connection.close()

    def exchange(self, connection, reader):
        """One request and its answer. Returns whether the connection can take another one."""
        first = reader.readline(65_536)
        parts = first.decode("latin-1").split()
        if len(parts) != 3 or not parts[2].startswith("HTTP/"):
            if first:  # TLS on a port without it, for one
                self.record(b"", {"method": "?", "path": first[:8].hex(), "headers": {}, "body": b""})
                connection.sendall(
                    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )
            return False
        method, path, headers = parts[0], parts[1], {}
        while True:
            line = reader.readline(65_536)
            if line in (b"\r\n", b"\n", b""):
                break
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        request = {"method": method, "path": path, "headers": headers, "body": None}
        answer = self.take(path)
        if answer.get("fault") == "reset_in_request":
            self.record(connection, request)
            return self.reset(connection)
        request["body"] = body = self.body(reader, headers)
        self.record(connection, request)
        if "gate" in answer:
            self.gates[answer["gate"]].wait(30)
        status, extra, data = self.reply(answer, method, path, headers, body)
        return self.send(connection, answer, status, extra, data)

    @staticmethod
    def body(reader, headers):
        if headers.get("transfer-encoding", "").lower() != "chunked":
            return reader.read(int(headers.get("content-length", "0")))
        chunks = []
        while True:
            size = int(reader.readline().split(b";")[0], 16)
            chunks.append(reader.read(size))
            reader.readline()
            if not size:
                return b"".join(chunks)

    def take(self, path):
        with self.changed:
            for place, answer in enumerate(self.script):
                if path.startswith(answer.get("for", "")):
                    if answer["times"] == 1:
                        del self.script[place]
                    elif answer["times"]:
                        answer["times"] -= 1
                    return answer
            return {}

    def record(self, connection, request):
        with self.changed:
            at = time.monotonic() * 1000
            self.requests.append({**request, "at_ms": at, "connection": id(connection)})
            self.changed.notify_all()

    def reply(self, answer, method, path, headers, body):
        if "status" not in answer and "raw" not in answer or answer.get("store"):
            status, extra, data = self.service.answer(method, path, headers, body)
            if "replace" in answer:
                old, new = (text.encode() for text in answer["replace"])
                if old not in data:
                    raise AssertionError("the answer lacks %r" % old)
                data = data.replace(old, new)
            if "reseal" in answer:
                data = sealed({**json.loads(data), **answer["reseal"]})[1]
        if "status" in answer:
            status, extra = answer["status"], {}
            data = (
                json.dumps(answer["json"]).encode() if "json" in answer else answer.get("text", "").encode()
            )
        if "raw" in answer:
            status, extra, data = 0, {}, answer["raw"].encode("latin-1")
        removed = {name.lower() for name in answer.get("without", [])}
        extra = {name: value for name, value in extra.items() if name.lower() not in removed}
        return status, {**extra, **answer.get("headers", {})}, data

    def send(self, connection, answer, status, extra, data):
        fault = answer.get("fault")
        if "raw" in answer:
            connection.sendall(data)
            return False
        if fault == "reset":
            return self.reset(connection)
        names = {name.lower() for name in extra}
        head = "HTTP/1.1 %d %s\r\n" % (status, REASONS.get(status, "Answer"))
        if "content-type" not in names:
            head += "Content-Type: application/json\r\n"
        head += "".join("%s: %s\r\n" % pair for pair in extra.items())
        head = (head + "Content-Length: %d\r\n\r\n" % len(data)).encode("latin-1")
        if fault in ("reset_in_answer", "half_answer"):
            connection.sendall(head + data[: len(data) // 2])
            if fault == "half_answer":
                return False
            time.sleep(0.05)  # the client reads what there is; without the pause the reset would overtake it
            return self.reset(connection)
        if fault == "drip":
            for byte in head + data:
                connection.sendall(bytes([byte]))
                time.sleep(answer["drip_ms"] / 1000)
            return True
        connection.sendall(head + data)
        return fault != "close_after"

    @staticmethod
    def reset(connection):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False
