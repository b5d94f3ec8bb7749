"""Power cuts at random moments, and kills, again and again on one file system: the store under the hammer."""

import os
import shutil
import statistics
import time

from .bench import Writer
from .common import Failed, say

# Then a new store is begun on the same file system, so that checking does not take ever longer.
CUTS_PER_STORE = {"small": 10, "large": 3}


def power_cuts(bench, tally, dice, fs="ext4", cuts=50, shape="small", seconds=0.2, mutant=None):
    """How many cuts showed that something did not hold. Without a mutant the first one ends it."""
    volume, stores, store, caught = bench.volume(fs), [], None, 0
    for cut in range(1, cuts + 1):
        if store is None or store.runs >= CUTS_PER_STORE[store.shape]:
            kind = dice.choice(("small", "large")) if shape == "mixed" else shape
            store = bench.store(volume, kind)
            stores.append(store)
        writer = Writer(bench, store, mutant=mutant)
        usual = statistics.median(tally.restarts) if tally.restarts else 0.02
        if not mutant and dice.random() < 0.2:  # during start-up
            time.sleep(dice.random() * usual)
        elif writer.wait(b"ready"):
            # A small store is cut where a large one is only beginning.
            time.sleep(0.005 + dice.random() * (seconds if store.shape == "small" else max(seconds, 0.5)))
        alive, complaint = writer.process.poll() is None, writer.complaint()
        writer.cut(volume)
        time.sleep(dice.random() * 0.02)  # It may do what it likes now.
        writer.look()
        writer.end(tally)
        volume.power_on()
        if writer.ready_after is not None:
            tally.restarts.append(writer.ready_after)
        if complaint or not alive:
            tally.problem("stuck", "before cut %d the writer said: %s" % (cut, complaint[:500]))
        held = store.check(tally)
        bench.discard(writer)
        if mutant:
            caught += not held
            if not held:
                break
            continue
        if tally.problems:
            store.keep(bench.home)
            raise Failed
        tally.counts["rolls"] += rolls(store)
        if cut % 10 == 0 or cut == cuts:
            say("cut %d of %d on %s: acked %d, lost %d" % (cut, cuts, fs, tally.counts["acked"], len(tally.lost)))
    if not mutant:
        # Each store was last read before its recovery. Once more, all of them, after it.
        for store in stores:
            after_recovery(bench, store, tally)
    bench.drop(volume)
    return caught


def rolls(store):
    """Segments that were begun in this run, beside the first of each log."""
    logs = [os.path.join(store.path, mode) for mode in ("live", "test")]
    names = [name for log in logs if os.path.isdir(log) for name in os.listdir(log) if name.endswith(".log")]
    before, store.segments = getattr(store, "segments", 0), len(names)
    return max(0, len(names) - before - 2)


def after_recovery(bench, store, tally, mutant=None):
    """Starts the writer on what a fault has left, and reads everything once more."""
    writer = Writer(bench, store, mutant=mutant)
    if not (writer.wait(b"acked", 20) and not writer.complaint()):
        tally.problem("stuck", "at the next start the writer said: %s" % writer.complaint()[:500])
    if writer.ready_after:
        tally.restarts.append(writer.ready_after)
    writer.end(tally)
    held = store.check(tally)
    bench.discard(writer)
    return held


def remove(store):
    shutil.rmtree(store.path, ignore_errors=True)
