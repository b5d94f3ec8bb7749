"""The server as its clients meet it: events, keys and retries over HTTP, with a ledger outside the file system under test."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import threading
import time
import uuid

from .bench import START_SECONDS, Store
from .common import KNOWN, child_limits, wait_until
from .oracle import Ledger, request_of, texts_of, ulid

TOKEN = "operator-of-the-torture"
SETTINGS = {
    "SEALOG_OPERATOR_TOKEN": TOKEN,
    # Every client here has the same address.
    "SEALOG_LIMITS_PER_IP_RPS": "0",
    "SEALOG_LIMITS_LIVE_RPS": "0",
    "SEALOG_LIMITS_TEST_RPS": "0",
}
# Nothing of the operating system says no to these; a server that does not answer is waited for this long.
ANSWER_SECONDS = 15
NETWORK = (OSError, http.client.HTTPException)


class Refused(Exception):
    """An answer that is no success: status and code."""

    def __init__(self, status, code):
        super().__init__("%d %s" % (status, code))
        self.status, self.code = status, code


class Connection:
    """One client's connection, made again when it is lost."""

    def __init__(self, address):
        self.address, self.connection = address, None

    def send(self, method, path, key, body=None, headers=()):
        if self.connection is None:
            host, port = self.address.rsplit(":", 1)
            self.connection = http.client.HTTPConnection(host, int(port), timeout=ANSWER_SECONDS)
        headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json", **dict(headers)}
        try:
            self.connection.request(method, path, body, headers)
            answer = self.connection.getresponse()
            content = answer.read()
        except BaseException:
            self.close()
            raise
        if answer.will_close:
            self.close()
        content = json.loads(content) if content else {}
        if answer.status >= 400:
            raise Refused(answer.status, content.get("error", {}).get("code", "") if isinstance(content, dict) else "")
        return answer, content

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None


class Service:
    """A running `sealog serve`."""

    def __init__(self, bench, path, before=(), mutant=None, environment=(), preexec=child_limits):
        self.name = os.path.join(bench.home, "serve-%d" % bench.next_number())
        command = [*before, bench.programs.get("sealog", mutant is not None)]
        command += ["serve", "--listen", "127.0.0.1:0", "--data-dir", path]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SEALOG_")}
        chosen = {"SEALOG_MUTANT": mutant} if mutant else {}
        with open(self.name + ".err", "wb") as err:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err, start_new_session=True,
                env={**clean, **SETTINGS, **chosen, **dict(environment)}, preexec_fn=preexec, cwd=bench.home,
            )
        KNOWN.add(self.process.pid)
        bench.running.append(self)
        self.started, self.address, self.ready_after = time.monotonic(), None, None

    def log(self):
        with open(self.name + ".err", encoding="utf-8", errors="replace") as file:
            return file.read()

    def complaint(self):
        return "\n".join(line for line in self.log().splitlines() if '"level":"INFO"' not in line)[:1500]

    def is_listening(self):
        if self.address is None:
            for line in self.log().splitlines():
                with contextlib.suppress(ValueError, KeyError):
                    fields = json.loads(line)["fields"]
                    if fields["message"] == "listening":
                        self.address, self.ready_after = fields["address"], time.monotonic() - self.started
        return self.address is not None

    def wait(self, seconds=START_SECONDS):
        """Whether it listens in time."""
        wait_until(lambda: self.is_listening() or self.process.poll() is not None, seconds)
        return self.is_listening()

    def is_ready(self):
        """What /readyz says."""
        connection = Connection(self.address)
        try:
            connection.send("GET", "/readyz", "")
            return True
        except Refused:
            return False
        finally:
            connection.close()

    def kill(self, sign=signal.SIGKILL):
        if self.process.poll() is None:
            self.process.send_signal(sign)
        self.process.wait()

    def resident_kib(self):
        with open("/proc/%d/status" % self.process.pid, encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


class Request:
    """One request that can be sent again: everything about it is known beforehand."""

    def __init__(self, nonce, place, key, count, pad, keyed):
        self.nonce, self.key, self.keyed = nonce, key, keyed
        self.place = (*place, int(keyed))
        self.texts = texts_of(b"user.login", nonce.encode(), count, pad)
        events = b",".join(b"{" + text for text in self.texts)
        self.path = "/v1/events" if count == 1 else "/v1/events/batch"
        self.body = events if count == 1 else b'{"events":[' + events + b"]}"

    def send(self, connection, body=None):
        """The receipt: first chain_seq, hash, log_ids. And whether the answer was an earlier one."""
        headers = {"Idempotency-Key": self.nonce} if self.keyed else {}
        answer, content = connection.send("POST", self.path, self.key, body or self.body, headers)
        ids = content["log_ids"] if "log_ids" in content else [content["log_id"]]
        seq = int(answer.headers["Sealog-Chain-Seq"].split("-")[0])
        receipt = (seq, answer.headers["Sealog-Hash"], [ulid(id_) for id_ in ids])
        return receipt, answer.headers.get("Idempotency-Replayed") == "true"


class ServiceLedger(Ledger):
    """Also knows which keys were made and revoked."""

    def __init__(self):
        super().__init__()
        self.requests, self.lock = {}, threading.Lock()
        self.tenant, self.chains = None, []
        # By id; of revocations, those that were sent and those that were acknowledged.
        self.made, self.revoking, self.revoked = {}, set(), set()

    def mode(self, nonce):
        return self.requests[nonce].place[0]

    def expected(self, nonce):
        return self.requests[nonce].place, self.requests[nonce].texts

    def unanswered(self):
        return [request for nonce, request in self.requests.items() if request.keyed and nonce not in self.acked]


class ServiceStore(Store):
    def __init__(self, path):
        super().__init__(path, "large", ServiceLedger())

    def keep(self, home):
        super().keep(home)


def operator(connection, path, **fields):
    return connection.send("POST", "/operator/v1/" + path, TOKEN, json.dumps(fields) if fields else None)[1]


def prepare(service, ledger):
    """A tenant with two projects, and a live and a test key for each, if they are not there yet."""
    connection = Connection(service.address)
    try:
        if ledger.tenant is None:
            ledger.tenant = operator(connection, "tenants", name="torture")["tenant_id"]
        while len(ledger.chains) < 4:
            project = operator(connection, "tenants/%s/projects" % ledger.tenant, name="p")["project_id"]
            for number, mode in enumerate(("live", "test")):
                made = operator(connection, "projects/%s/keys" % project, name="k", mode=mode)
                place = (number, uuid.UUID(ledger.tenant).bytes, uuid.UUID(project).bytes)
                ledger.chains.append((place, made["key"], project))
    finally:
        connection.close()


class Clients:
    """Threads that send requests until they are told to stop, and one that makes and revokes keys."""

    def __init__(self, service, store, tally, threads=6, shape="l", operators=1):
        self.service, self.ledger, self.tally = service, store.ledger, tally
        self.over, self.shape, self.refusals = threading.Event(), shape, {}
        # What is answered now may be lost: see Volume.cut().
        self.late = threading.Event()
        cycle, store.runs = store.runs, store.runs + 1
        self.threads = [threading.Thread(target=self.send, args=(cycle, number)) for number in range(threads)]
        self.threads += [threading.Thread(target=self.operate) for _ in range(operators)]
        for thread in self.threads:
            thread.start()

    def acked(self):
        return len(self.ledger.acked)

    def send(self, cycle, thread):
        connection, n = Connection(self.service.address), 0
        place, key, _ = self.ledger.chains[thread % len(self.ledger.chains)]
        while not self.over.is_set():
            nonce = "s%dt%dn%d" % (cycle, thread, n)
            request = Request(nonce, place, key, *request_of(self.shape, n + thread), keyed=n % 2 == 0)
            n += 1
            with self.ledger.lock:
                self.ledger.requests[nonce] = request
                self.ledger.sent.add(nonce)
            try:
                receipt, replayed = request.send(connection)
            except Refused as refused:
                with self.ledger.lock:
                    self.refusals[str(refused)] = self.refusals.get(str(refused), 0) + 1
                self.over.wait(0.02)
            except NETWORK:
                self.over.wait(0.02)
            else:
                self.note(request, receipt, replayed)
        connection.close()

    def note(self, request, receipt, replayed):
        with self.ledger.lock:
            if self.late.is_set():
                return
            self.ledger.acked[request.nonce] = receipt
            self.tally.counts["acked"] += 1
            if replayed:
                self.tally.problem("wrong", "%s was answered as a repetition at its first try" % request.nonce)

    def operate(self):
        """Every key is made, used, and half of them revoked. What is acknowledged must be so for good."""
        connection, ledger = Connection(self.service.address), self.ledger
        while not self.over.is_set():
            try:
                project = ledger.chains[0][2]
                made = operator(connection, "projects/%s/keys" % project, name="k", mode="live")
                if self.late.is_set():
                    continue
                ledger.made[made["key_id"]] = made["key"]
                if len(ledger.made) % 2:
                    ledger.revoking.add(made["key_id"])
                    operator(connection, "keys/%s/revoke" % made["key_id"])
                    if not self.late.is_set():
                        ledger.revoked.add(made["key_id"])
            except (Refused, *NETWORK):
                self.over.wait(0.02)
            self.over.wait(0.01)
        connection.close()

    def join(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


def check_answers(service, store, tally, dice, sample=30):
    """What clients do after a fault: send again what was not answered, and look at what was. Whether everything held."""
    before, ledger = len(tally.problems), store.ledger
    connection = Connection(service.address)
    try:
        for request in ledger.unanswered():
            receipt, _ = request.send(connection)
            ledger.acked[request.nonce] = receipt
            tally.counts["resolved"] += 1
            tally.counts["acked"] += 1
        acked = [nonce for nonce in ledger.acked]
        for nonce in acked[-sample:] + dice.sample(acked, min(sample, len(acked))):
            request = ledger.requests[nonce]
            if request.keyed:
                receipt, replayed = request.send(connection)
                if not replayed or receipt != ledger.acked[nonce]:
                    tally.problem("dup", "%s was sent again with its key and got another answer" % nonce)
        for key_id, key in list(ledger.made.items())[-sample:]:
            try:
                connection.send("GET", "/v1/events?limit=1", key)
                seen = "works"
            except Refused as refused:
                seen = refused.code
            allowed = {"works"} if key_id not in ledger.revoking else {"auth/key_revoked"}
            if key_id in ledger.revoking and key_id not in ledger.revoked:
                allowed.add("works")
            if seen not in allowed:
                tally.problem("wrong", "key %s: %s, not %s" % (key_id, seen, " or ".join(allowed)))
            tally.counts["keys"] += 1
        for _, key, _ in ledger.chains:
            _, content = connection.send("GET", "/v1/events/verify", key)
            if not content["valid"]:
                tally.problem("invalid", "/v1/events/verify says %s" % content)
    except (Refused, *NETWORK) as error:
        tally.problem("stuck", "after the fault: %r; %s" % (error, service.complaint()))
    finally:
        connection.close()
    return len(tally.problems) == before


def begin(bench, path_or_store, tally, dice, **how):
    """A service on a store, ready for clients, with all questions about the time before answered."""
    service = Service(bench, path_or_store.path, **how)
    if not service.wait():
        tally.problem("stuck", "the server did not start: %s" % service.log()[-1500:])
        return None
    tally.restarts.append(service.ready_after)
    prepare(service, path_or_store.ledger)
    check_answers(service, path_or_store, tally, dice)
    return service


def service_cuts(bench, tally, dice, fs="ext4", cuts=10, seconds=1.5, mutant=None, **load):
    """Power cuts under a server with clients; the power also goes while it starts. How many cuts showed something."""
    volume, store, caught = bench.volume(fs), None, 0
    for cut in range(1, cuts + 1):
        if store is None or store.runs >= 4:
            store = ServiceStore(os.path.join(volume.path, "data-%d" % bench.next_number()))
        if store.runs and dice.random() < 0.2:
            service, clients = Service(bench, store.path, mutant=mutant), None
            time.sleep(dice.random() * 0.1)
        else:
            service = begin(bench, store, tally, dice, mutant=mutant)
            if service is None:
                break
            clients = Clients(service, store, tally, **load)
            time.sleep(0.05 + dice.random() * seconds)
        if clients:
            clients.late.set()
        volume.cut()
        if clients:
            clients.over.set()
        time.sleep(dice.random() * 0.02)
        service.kill()
        if clients:
            clients.join()
        volume.power_on()
        held = store.check(tally) and not tally.problems
        if not held:
            caught += 1
            if mutant:
                break
            store.keep(bench.home)
            return caught
        bench.discard(service)
    service = begin(bench, store, tally, dice, mutant=mutant)
    if service:
        service.kill(signal.SIGTERM)
        caught += not store.check(tally)
        bench.discard(service)
    bench.drop(volume)
    return caught
