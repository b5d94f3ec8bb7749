"""A server in trouble: a full disk, one that goes read-only, stalls or loses writes, clocks that jump, storms of retries, a second process."""

import glob
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import threading
import time

from .bench import Writer
from .common import KNOWN, CannotRun, child_limits, run, wait_until
from .disk import FuseDisk
from .faults import read_trace
from .oracle import Tally, sealog_verify
from .service import (
    NETWORK, Clients, Connection, Refused, Request, Service, ServiceStore, begin, prepare,
)

GO_ON_SECONDS = 30
# A drain that was refused tries again within a minute.
DRAIN_SECONDS = 90


def end(bench, service, store, tally, dice, volume=None):
    """The server is killed, everything is read as it lies there, and the next start must have it all."""
    service.kill()
    if volume:
        volume.power_on()
    store.check(tally)
    bench.discard(service)
    after = begin(bench, store, tally, dice)
    if after:
        after.kill(signal.SIGTERM)
        store.check(tally)
        bench.discard(after)


def goes_on(clients, tally, what):
    """Whether events are accepted again."""
    since = clients.acked()
    began = time.monotonic()
    if not wait_until(lambda: clients.acked() > since + 5, GO_ON_SECONDS):
        tally.problem("stuck", "%s: no events are accepted; %s" % (what, clients.service.complaint()))
    return time.monotonic() - began


def refuses(clients, tally, what):
    """Until requests are refused and none is acknowledged any more: each of the two logs has room of its own."""
    if not wait_until(lambda: sum(clients.refusals.values()) >= 20, GO_ON_SECONDS):
        tally.problem("stuck", "%s: nothing is refused" % what)
    until, since = time.monotonic() + GO_ON_SECONDS, None
    while since != clients.acked():
        if time.monotonic() > until:
            tally.problem("wrong", "%s: events are still acknowledged" % what)
            break
        since = clients.acked()
        time.sleep(1)
    for refusal in list(clients.refusals):
        if not refusal.startswith("500 event/write_failed"):
            tally.problem("wrong", "%s: refused with %s" % (what, refusal))


def can_read(service, store, tally, what):
    """Reads and verification go on."""
    connection, ledger = Connection(service.address), store.ledger
    try:
        for place, key, _ in ledger.chains:
            _, page = connection.send("GET", "/v1/events?limit=5", key)
            _, verdict = connection.send("GET", "/v1/events/verify", key)
            if not verdict["valid"] or not page:
                tally.problem("wrong", "%s: reads do not go on" % what)
    except (Refused, *NETWORK) as error:
        tally.problem("wrong", "%s: reads do not go on: %s" % (what, error))
    finally:
        connection.close()


def drained(store):
    """Whether every record of a change is in a system chain by now."""
    database = sqlite3.connect("file:%s?mode=ro" % os.path.join(store.path, "control.db"), uri=True)
    try:
        return database.execute("SELECT count(*) FROM pending").fetchone()[0] == 0
    finally:
        database.close()


def unrecorded(ledger):
    """The acknowledged changes that no system chain has, and those that are not in the order in which they were made."""
    places = {}
    for place, text in enumerate(ledger.records):
        record = json.loads("{%s" % text.lstrip("{"))
        places[record["action"], record["resource"].rpartition("/")[2]] = place
    made = [places.get(("sealog.key_created", key)) for key in ledger.made]
    revoked = [(places.get(("sealog.key_created", key)), places.get(("sealog.key_revoked", key))) for key in ledger.revoked]
    missing = made.count(None) + sum(None in pair for pair in revoked)
    known = [place for place in made if place is not None]
    disordered = (known != sorted(known)) + sum(None not in pair and pair[0] > pair[1] for pair in revoked)
    return missing, disordered


def disk_full(bench, tally, dice, fs="ext4"):
    """What an operator changes meanwhile is refused, or it is recorded in the system chain once there is room."""
    volume = bench.volume(fs, 320 << 20)
    store = ServiceStore(os.path.join(volume.path, "data"))
    service = begin(bench, store, tally, dice)
    filler = os.path.join(volume.path, "filler")
    free = shutil.disk_usage(volume.path).free
    with open(filler, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free - (12 << 20)))
    clients = Clients(service, store, tally)
    refuses(clients, tally, "full disk")
    tally.counts["free_kib"] = shutil.disk_usage(volume.path).free >> 10
    if service.is_ready():
        tally.problem("wrong", "full disk: /readyz is green")
    can_read(service, store, tally, "full disk")
    os.remove(filler)
    tally.counts["resumed_ms"] = round(1000 * goes_on(clients, tally, "room again"))
    clients.join()
    if not wait_until(lambda: drained(store), DRAIN_SECONDS, pause=0.2):
        tally.problem("stuck", "room again: records of changes are not appended; %s" % service.complaint())
    end(bench, service, store, tally, dice)
    missing, disordered = unrecorded(store.ledger)
    if missing or disordered:
        tally.problem("wrong", "of %d keys made, %d records are missing, %d out of order" % (len(store.ledger.made), missing, disordered))
    tally.counts["recorded"] = len(store.ledger.records)
    bench.drop(volume)


def read_only(bench, tally, dice):
    """The device takes no more writes; ext4 gives up its journal and makes itself read-only under the server."""
    disk = FuseDisk(bench, "ext4", ",errors=remount-ro")
    store = ServiceStore(os.path.join(disk.volume.path, "data"))
    service = begin(bench, store, tally, dice)
    clients = Clients(service, store, tally)
    wait_until(lambda: clients.acked() > 50, GO_ON_SECONDS)
    disk.tell("refuse", "", 1 << 40)
    refuses(clients, tally, "read-only")
    if service.is_ready():
        tally.problem("wrong", "read-only: /readyz is green")
    clients.join()
    service.kill()
    disk.tell("refuse", "", 0)
    end(bench, service, store, tally, dice, disk.volume)
    disk.drop()


def slow_disk(bench, tally, dice, stall=12):
    """Every flush takes half a second; then one takes longer than a request may wait."""
    disk = FuseDisk(bench, "ext4")
    store = ServiceStore(os.path.join(disk.volume.path, "data"))
    service = begin(bench, store, tally, dice)
    clients = Clients(service, store, tally, threads=16)
    disk.tell("delay", 0.25)
    goes_on(clients, tally, "slow disk")
    disk.tell("delay", stall)
    time.sleep(1)
    disk.tell("delay", 0)
    time.sleep(stall)
    goes_on(clients, tally, "after a stall")
    tally.counts["resident_mib"] = service.resident_kib() >> 10
    if tally.counts["resident_mib"] > 512:
        tally.problem("wrong", "slow disk: %d MiB of memory" % tally.counts["resident_mib"])
    clients.join()
    end(bench, service, store, tally, dice)
    disk.drop()


def short_writes(bench, tally, dice, fs="ext4"):
    """Files may not grow beyond a limit: the write that reaches it is cut short, the next one fails."""
    volume = bench.volume(fs, 512 << 20)
    for limit in (200 << 10, 300 << 10, 700 << 10, (1 << 20) + 1):
        store = bench.store(volume)

        def limited(limit=limit):
            child_limits()
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            # The ledger is longer than that, and goes through a pipe.
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        writer = PipedWriter(bench, store, limited)
        wait_until(lambda: writer.process.poll() is not None, 3)
        writer.end(tally)
        store.check(tally)
        after = Writer(bench, store)
        if not after.wait(b"acked", 20) or after.complaint():
            tally.problem("stuck", "after short writes: %s" % after.complaint()[:500])
        after.end(tally)
        store.check(tally)
        bench.discard(after)
        tally.counts["limits"] += 1
    bench.drop(volume)


class PipedWriter:
    """A hammer whose ledger goes through a pipe, since a limit on the length of files holds for it as well."""

    def __init__(self, bench, store, preexec):
        self.store, self.path = store, os.path.join(bench.home, "run-%d.out" % bench.next_number())
        command = [bench.programs.get("hammer"), store.path, str(store.runs)]
        store.runs += 1
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=preexec,
            start_new_session=True,
        )
        KNOWN.add(self.process.pid)
        bench.running.append(self)
        self.copier = threading.Thread(target=self.copy)
        self.copier.start()

    def copy(self):
        with open(self.path, "wb") as file:
            shutil.copyfileobj(self.process.stdout, file)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.copier.join()

    def end(self, tally):
        self.kill()
        self.store.ledger.read(self.path)
        tally.counts["acked"] += len(self.store.ledger.acked)


def lost_writes(bench, tally, dice, fs="ext4", count=4):
    """A disk that says that it has written what it has not. Nothing can prevent that; it must be found and never be taken for valid."""
    if not shutil.which("strace"):
        raise CannotRun("strace is missing (Debian: apt-get install strace)")
    volume = bench.volume(fs, 1 << 30)
    for _ in range(count):
        store, own = bench.store(volume), Tally()
        writer = Writer(bench, store)
        writer.wait(b"acked", 50)
        logs = glob.glob(os.path.join(store.path, "*", "*.log"))
        command = ["strace", "-f", "-qq", "-y", "-o", writer.name + ".trace", "-e", "trace=pwrite64"]
        for path in logs:
            command += ["-P", path]
        # The first 64 bytes are reported as written and are not; the rest is then written behind them.
        command += ["-e", "inject=pwrite64:retval=64:when=3", "-p", str(writer.process.pid)]
        tracer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=child_limits)
        KNOWN.add(tracer.pid)
        wait_until(lambda: "(INJECTED)" in read_trace(writer.name + ".trace"), 10)
        writer.look()
        writer.wait(b"acked", writer.lines[b"acked"] + 20, 5)  # So that what was lost has been acknowledged.
        writer.end(own)
        tracer.wait(5)
        store.check(own)
        tally.counts["acked"] += own.counts["acked"]
        tally.counts["losses"] += bool(own.lost)
        tally.counts["detected"] += bool(own.lost and own.counts["invalid"])
        if own.lost and not own.counts["invalid"]:
            tally.problem("wrong", "a lost write was not found: %d acknowledged requests are gone" % len(own.lost))
        # The store itself must not go on as if nothing were missing: it accepts nothing on top of a chain that it cannot prove.
        after = Writer(bench, store)
        after.wait(b"acked", 1000, 1)
        after.end(own)
        found = Tally()
        store.check(found)
        if own.lost and not found.counts["invalid"]:
            tally.problem("wrong", "after a start the loss cannot be seen any more")
        bench.discard(after)
        bench.discard(writer)
    if not tally.counts["losses"]:
        tally.problem("stuck", "no write was lost")
    bench.drop(volume)


def storm(bench, tally, dice, fs="ext4", keys=150, senders=16, seconds=2.0):
    """Many clients send the same requests at once with the same keys, half of them with another body; the server is killed in the middle."""
    volume = bench.volume(fs)
    store = ServiceStore(os.path.join(volume.path, "data"))
    service = begin(bench, store, tally, dice)
    ledger = store.ledger
    place, key, _ = ledger.chains[0]
    versions = {}
    for number in range(keys):
        nonce = "s0t%dn0" % number
        versions[nonce] = [Request(nonce, place, key, count, pad, True) for count, pad in ((1, 10), (1, 11))]
        ledger.requests[nonce] = versions[nonce][0]
        ledger.sent.add(nonce)
    winners, lock, over = {}, threading.Lock(), threading.Event()

    def send(connection, nonce, version):
        try:
            receipt, _ = versions[nonce][version].send(connection)
        except Refused as refused:
            if refused.status != 409:
                tally.problem("wrong", "storm: %s" % refused)
            return refused.code
        except NETWORK:
            return None
        with lock:
            if winners.setdefault(nonce, (version, receipt)) != (version, receipt):
                tally.problem("dup", "%s has two answers" % nonce)
        return "acked"

    def sender(seed):
        own, connection = random.Random(seed), Connection(service.address)
        while not over.is_set():
            send(connection, own.choice(list(versions)), own.randrange(2))
        connection.close()

    threads = [threading.Thread(target=sender, args=(dice.random(),)) for _ in range(senders)]
    for thread in threads:
        thread.start()
    time.sleep(seconds * dice.random())
    service.kill()
    over.set()
    for thread in threads:
        thread.join()
    bench.discard(service)
    service = begin_plain(bench, store, tally)
    connection = Connection(service.address)
    for nonce in versions:
        seen = [send(connection, nonce, version) for version in (0, 1)]
        if sorted(map(str, seen)) != ["acked", "event/idempotency_key_conflict"]:
            tally.problem("wrong", "storm: %s is answered with %s" % (nonce, seen))
    connection.close()
    service.kill()
    for nonce, (version, receipt) in winners.items():
        ledger.requests[nonce], ledger.acked[nonce] = versions[nonce][version], receipt
    tally.counts["acked"] += len(winners)
    store.check(tally)
    bench.discard(service)
    bench.drop(volume)


def begin_plain(bench, store, tally):
    service = Service(bench, store.path)
    if not service.wait():
        tally.problem("stuck", "the server did not start: %s" % service.log()[-1500:])
    prepare(service, store.ledger)
    return service


def clocks(bench, tally, dice, fs="ext4"):
    """The clock jumps back and forth under a running server, and the next start has an earlier one."""
    found = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
    if not found:
        raise CannotRun("libfaketime is missing (Debian: apt-get install faketime)")
    volume = bench.volume(fs)
    store = ServiceStore(os.path.join(volume.path, "data"))
    clock = os.path.join(bench.home, "clock")

    def set_clock(offset):
        with open(clock + ".new", "w", encoding="ascii") as file:
            file.write(offset)
        os.replace(clock + ".new", clock)
        tally.counts["jumps"] += 1

    faked = {
        "LD_PRELOAD": found[0], "FAKETIME_TIMESTAMP_FILE": clock, "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_RESET": "1",
    }
    for offsets in (("+0", "-3600", "+0", "+3000", "-60"), ("-7200",)):
        set_clock(offsets[0])
        service = begin(bench, store, tally, dice, environment=faked)
        if service is None:
            return
        clients = Clients(service, store, tally, shape="c")
        for offset in offsets:
            set_clock(offset)
            goes_on(clients, tally, "the clock at %s s" % offset)
        for step in range(20):
            set_clock("-%.3f" % (step % 3 / 1000))
            time.sleep(0.01)
        clients.join()
        service.kill()
        store.check(tally)
        bench.discard(service)
    service = begin(bench, store, tally, dice)
    if service:
        service.kill()
        store.check(tally)
        bench.discard(service)
    bench.drop(volume)


def pause(bench, tally, dice, fs="ext4", seconds=3):
    """The process is stopped and goes on, as under a debugger or on a machine that is moved."""
    volume = bench.volume(fs)
    store = ServiceStore(os.path.join(volume.path, "data"))
    service = begin(bench, store, tally, dice)
    clients = Clients(service, store, tally)
    wait_until(lambda: clients.acked() > 50, GO_ON_SECONDS)
    service.process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    other = Service(bench, store.path)
    if other.wait(10):
        tally.problem("wrong", "a second server starts while the first is stopped")
    other.kill()
    bench.discard(other)
    service.process.send_signal(signal.SIGCONT)
    goes_on(clients, tally, "after a pause")
    clients.join()
    end(bench, service, store, tally, dice)
    bench.drop(volume)


def second_writer(bench, tally, dice, fs="ext4", mutant=None):
    """Another process on the same directory: by its name, through a bind mount, with its lock file gone. How many were refused."""
    volume = bench.volume(fs, 512 << 20)
    store, refused = bench.store(volume), 0
    first = Writer(bench, store, mutant=mutant)
    first.wait(b"acked", 20)
    bound = os.path.join(bench.home, "bound-%d" % bench.next_number())
    os.mkdir(bound)
    if run("mount", "--bind", store.path, bound)[0]:
        raise CannotRun("cannot bind a directory")
    try:
        tries = [("again", store.path), ("bound", bound), ("without LOCK", store.path), ("with another LOCK", store.path)]
        for how, path in tries:
            lock = os.path.join(store.path, "LOCK")
            if how.startswith("with") and os.path.exists(lock):
                os.remove(lock)
            if how == "with another LOCK":
                open(lock, "wb").close()
            store.path, home = path, store.path
            other = Writer(bench, store, mutant=mutant)
            store.path = home
            if not other.wait(b"acked", 1, 5) and other.process.poll() is not None:
                refused += 1
            else:
                tally.problem("wrong", "a second writer starts on a directory in use: %s" % how)
            other.end(tally)
            tally.counts["second"] += 1
            bench.discard(other)
    finally:
        run("umount", bound)
        os.rmdir(bound)
    first.end(tally)
    store.check(tally)
    bench.discard(first)
    bench.drop(volume)
    return refused


def rewritten_log(bench, tally, dice, fs="ext4", mutant=None):
    """After a kill the log is replaced by one that is valid in itself and longer. The mark knows better. Whether it was noticed."""
    volume = bench.volume(fs, 1 << 30)
    true, forged = bench.store(volume), bench.store(volume)
    for store, count in ((true, 200), (forged, 3000)):
        writer = Writer(bench, store, mutant=mutant)
        if not writer.wait(b"acked", count):
            tally.problem("stuck", "the writer said: %s" % writer.complaint()[:500])
            return True
        time.sleep(1.5)  # The mark is written once a second.
        writer.end(tally)
        bench.discard(writer)
    for mode in sealog_verify.MODES:
        mark = os.path.join(true.path, mode, "mark")
        shutil.copy(mark, os.path.join(forged.path, mode, "mark"))
    after = Writer(bench, forged, mutant=mutant)
    accepted = after.wait(b"acked", 200, 5)
    after.end(tally)
    bench.discard(after)
    if accepted:
        tally.problem("wrong", "a log that was rewritten is taken for the one that was acknowledged, and goes on")
    bench.drop(volume)
    return not accepted

