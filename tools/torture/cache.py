"""A disk that forgets what it was not told to flush, one that refuses a write, and one that is slow."""

import os
import subprocess
import time

from .bench import Store, Writer
from .common import KNOWN, Failed, child_limits, say, wait_until
from .disk import KINDS, CrashStates, FuseDisk, moments
from .faults import read_trace, retried
from .power import after_recovery
from .volume import Volume


def cache_loss(bench, tally, dice, fs="ext4", states=40, shape="large", seconds=1.5, mutant=None, kinds=KINDS):
    """Rebuilds the disk as a power cut can leave it that also takes what is in the device's cache, and checks each of these states."""
    disk = FuseDisk(bench, fs)
    base = Store(os.path.join(disk.volume.path, "store"), shape)
    # The ledger must be there before the first write is recorded.
    ledger_path = os.path.join(bench.home, "run-%d.out" % (bench.numbers + 1))
    open(ledger_path, "wb").close()
    disk.record(ledger_path)
    writer = Writer(bench, base, mutant=mutant)
    writer.wait(b"acked", 120)
    time.sleep(seconds)
    complaint = writer.complaint()
    writer.kill()
    if complaint:
        tally.problem("stuck", "the writer said: %s" % complaint[:500])
    writes = disk.recorded()
    disk.volume.unmount()
    flushes = sum(offset is None for _, offset, _ in writes)
    plan = moments(writes, states, kinds, dice)
    image = Volume(fs, bench.home, "state-%d" % bench.next_number())
    os.mkdir(image.path)
    bench.volumes.append(image)
    crash, caught = CrashStates(disk.base, writes, image.image), 0
    for number, (moment, kind) in enumerate(plan, 1):
        known = crash.build(moment, kind, dice)
        image.mount()
        store = Store(os.path.join(image.path, "store"), shape)
        store.runs = number  # Its writer must not send what was sent before.
        # Sent is sent; acknowledged is only what was so by then.
        store.ledger.read(writer.name + ".out", known)
        tally.counts["acked"] += len(store.ledger.acked)
        held = store.check(tally)
        held &= after_recovery(bench, store, tally, mutant)
        image.unmount()
        tally.counts["states"] += 1
        if not held:
            say("did not hold: %s, moment %d of %d, what was not flushed: %s" % (fs, moment, len(writes), kind))
            caught += 1
            if mutant:
                break
            tally.say_problems()
            store.keep(bench.home)
            raise Failed
        if number % 20 == 0:
            say("state %d of %d on %s: lost %d" % (number, states, fs, len(tally.lost)))
    bench.volumes.remove(image)
    os.remove(image.image)
    bench.discard(writer)
    disk.drop()
    say("recorded %d writes and %d flushes" % (len(writes) - flushes, flushes))
    return caught


def refused_write(bench, tally, dice, fs="ext4", mutant=None):
    """The disk refuses one block with events in it, once. What the kernel had dropped then must not be missing later. Whether that held."""
    disk = FuseDisk(bench, fs)
    known = len(tally.problems)
    store = Store(os.path.join(disk.volume.path, "store"))
    writer = Writer(bench, store, mutant=mutant)
    trace = writer.name + ".trace"
    writer.wait(b"acked", 50)
    tracer = subprocess.Popen(
        ["strace", "-f", "-qq", "-y", "-o", trace, "-e", "trace=pwrite64,fdatasync", "-p", str(writer.process.pid)],
        stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=child_limits, start_new_session=True,
    )
    KNOWN.add(tracer.pid)
    wait_until(lambda: read_trace(trace), 10)
    time.sleep(dice.random() * 0.2)
    disk.tell("refuse", b'"actor_id":"c'.hex(), 1)
    if not wait_until(lambda: disk.tell("refused") == 1, 10):
        tally.problem("stuck", "no write reached the disk")
    time.sleep(0.3)  # It has some time to do something wrong.
    text = writer.complaint()
    writer.cut(disk.volume)
    writer.end(tally)
    tracer.wait(10)
    for _ in range(retried(read_trace(trace))):
        tally.problem("retried", "a segment was synced again after that had failed")
    if not mutant and "sync" not in text and "error" not in text.lower():
        tally.problem("wrong", "the writer did not notice: %s" % text[:300])
    disk.volume.power_on()
    store.check(tally)
    after_recovery(bench, store, tally, mutant)
    tally.counts["refused"] += 1
    bench.discard(writer)
    disk.drop()
    return len(tally.problems) == known
