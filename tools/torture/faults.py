"""Faults in system calls, injected by strace: killed at, or failed, the k-th call of each kind."""

import collections
import contextlib
import os
import re
import shutil
import signal
import subprocess
import time

from .bench import START_SECONDS, Writer
from .common import KNOWN, CannotRun, Failed, child_limits, reap, say
from .oracle import sealog_verify
from .power import remove

FAULTS_PER_STORE = 6

# A question mark: not every machine has this call.
CALLS = {
    "pwrite64": "pwrite64",
    "fdatasync": "fdatasync",
    "openat": "openat",
    "rename": "?rename,?renameat,renameat2",
    "fsync": "fsync",
    "ftruncate": "ftruncate",
    "mkdir": "?mkdir,mkdirat",
    "pread64": "pread64",
}
# The plus: from this call on, for as long as the process lives.
ACTIONS = ("signal=SIGKILL", "error=EIO", "error=ENOSPC", "error=EDQUOT", "error=EINTR", "error=EIO+", "error=ENOSPC+")
# What cannot be read once may be readable the next time, or not for as long as this process lives.
READ_ACTIONS = ("signal=SIGKILL", "error=EIO", "error=EIO+", "error=EINTR")
# The loader and the standard library make these calls, too, on files that are not the store's.
NOT_ONLY_ON_THE_STORE = ("openat", "pread64")
# When: on a new store from the first call on; on one that was killed, through its recovery; once it accepts events.
PHASES = ("new", "restart", "running")
# Files that are written on the side, by threads that would hardly be the first to make their k-th call.
ASIDE = {
    "next.seg": ("openat", "pwrite64", "fdatasync", "rename"),
    "idx": ("openat", "pwrite64", "fdatasync", "rename"),
    "mark": ("pwrite64", "fdatasync"),
}
K_MAX, K_MAX_ASIDE, K_MAX_SAMPLE = 40, 3, 4

Fault = collections.namedtuple("Fault", "call action phase files k")


def kinds_of(only):
    kinds = [
        (call, action, phase, None)
        for call in CALLS
        for action in (READ_ACTIONS if call == "pread64" else ACTIONS)
        for phase in PHASES
        if (call, phase) != ("pread64", "new")  # There is nothing to read.
    ]
    kinds += [
        (call, action, "running", name) for name, calls in ASIDE.items() for call in calls for action in ACTIONS[:3]
    ]
    return [kind for kind in kinds if only in (None, kind[0])]


def all_faults(only):
    """Every kind at its first call, then at its second, and so on. Sending False back ends the kind: it was not reached."""
    kinds = kinds_of(only)
    for k in range(1, K_MAX + 1):
        for kind in list(kinds):
            if k > K_MAX_ASIDE and kind[3]:
                kinds.remove(kind)
            elif (yield Fault(*kind, k)) is False:
                kinds.remove(kind)


def some_faults(only, dice):
    """A sample of them in any order, for a run that has no time for all."""
    kinds = kinds_of(only)
    while True:
        yield Fault(*dice.choice(kinds), dice.randint(1, K_MAX_SAMPLE))


def paths_of(store, files):
    """The files of a store, those that are there and those that can come, for strace -P. All, or of one kind."""
    paths = [store.path] + [os.path.join(store.path, name) for name in ("LOCK", "FORMAT", "FORMAT.tmp", "index.salt", "index.salt.tmp")]
    for mode in sealog_verify.MODES:
        log = os.path.join(store.path, mode)
        there = [int(name[:8]) for name in (os.listdir(log) if os.path.isdir(log) else ()) if name.endswith(".log")]
        names = ["mark", "mark.tmp", "next.seg"]
        for number in range(1, max(there, default=0) + 12):
            names += ["%08d.%s" % (number, kind) for kind in ("log", "idx", "idx.tmp")]
        paths += [log] + [os.path.join(log, name) for name in names]
    if files is None:
        return paths
    return [path for path in paths for name in [os.path.basename(path)] if files == name or files in name.split(".")]


def strace(store, fault, trace):
    command = ["strace", "-f", "-qq", "-y", "-o", trace, "-e", "trace=" + CALLS[fault.call]]
    if fault.call in NOT_ONLY_ON_THE_STORE or fault.files:
        for path in paths_of(store, fault.files):
            command += ["-P", path]
    action, last = fault.action.rstrip("+"), "+" if fault.action.endswith("+") else ""
    return command + ["-e", "inject=%s:%s:when=%d%s" % (CALLS[fault.call], action, fault.k, last)]


def read_trace(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def retried(trace):
    """Writes and syncs of a segment that came after one of the same kind on it had failed."""
    failed, under_way, again = set(), {}, 0
    for line in trace.splitlines():
        thread, _, rest = line.partition(" ")
        begun = re.match(r"\s*(pwrite64|fdatasync)\(\d+<([^>]*\.log)>", rest)
        if begun:
            under_way[thread] = begun.groups()
            again += begun.groups() in failed
        over = "resumed" in line or begun
        # An interrupted call has done nothing and says so; to make it again is what everyone does.
        if over and thread in under_way and re.search(r"= -1 (?!EINTR)E", line):
            failed.add(under_way[thread])
    return again


def run_fault(bench, volume, store, fault, tally, cut):
    """One run of the writer with a fault in it, and its end by that or by a kill or a power cut. Whether the fault was reached."""
    tracer = None
    if fault.phase == "running":
        writer = Writer(bench, store)
        trace = writer.name + ".trace"
        if not writer.wait(b"acked"):
            tally.problem("stuck", "%s: the writer said: %s" % (fault, writer.complaint()[:500]))
        tracer = subprocess.Popen(
            strace(store, fault, trace) + ["-p", str(writer.process.pid)],
            stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=child_limits, start_new_session=True,
        )
        KNOWN.add(tracer.pid)
    else:
        trace = os.path.join(bench.home, "run-%d.trace" % (bench.numbers + 1))
        # -D: the writer is this program's child, and strace a grandchild, which ends with the writer.
        # Not with --seccomp-bpf: strace then loses the signals that it should inject.
        writer = Writer(bench, store, [*strace(store, fault, trace), "-D"])
    kills, reached, until = fault.action.startswith("signal"), False, None
    patience = 2.6 if fault.files == "mark" else 0.7
    try:
        while True:
            ended = writer.process.poll() is not None
            writer.look()
            now = time.monotonic()
            if not kills and not reached and "(INJECTED)" in read_trace(trace):
                # It has some time to do something wrong.
                reached, until = True, now + 0.05
            if until is None and writer.ready_after is not None:
                until = now + patience
            if ended or now > (until or writer.started + START_SECONDS):
                break
            time.sleep(0.005)
        if kills:
            reached = ended and writer.process.returncode == -signal.SIGKILL
        elif ended:
            reached = "(INJECTED)" in read_trace(trace)
        if cut:
            writer.cut(volume)
        writer.end(tally)
        if tracer:
            with contextlib.suppress(subprocess.TimeoutExpired):
                tracer.wait(5)  # It ends with the writer.
    finally:
        if tracer:
            tracer.kill()
            tracer.wait()
    reap()
    if reached:
        again = retried(read_trace(trace)) if not kills else 0
        for _ in range(again):
            tally.problem("retried", "%s: a segment was written or synced again after that had failed" % (fault,))
    elif ended:
        tally.problem("stuck", "%s was not reached, and the writer ended: %s" % (fault, writer.complaint()[:500]))
    return reached, writer


def faults(bench, tally, dice, fs="ext4", limit=300, only=None, sample=False, keep_going=False):
    """How many faults of each kind were injected."""
    if not shutil.which("strace"):
        raise CannotRun("strace is missing (Debian: apt-get install strace)")
    volume, hits, reach = bench.volume(fs), collections.Counter(), collections.Counter()
    store, age, plan = None, 0, some_faults(only, dice) if sample else all_faults(only)
    with contextlib.suppress(StopIteration):
        fault = next(plan)
        while sum(hits.values()) < limit:
            # With one segment, the k-th read soon is one of events that no mark covers yet.
            small = fault.phase == "new" or (fault.phase, fault.call) == ("restart", "pread64")
            if store is None or small or age >= FAULTS_PER_STORE and fault.phase == "running":
                if store:
                    remove(store)
                store, age = bench.store(volume), 0
                if fault.phase == "restart":
                    first = Writer(bench, store)
                    first.wait(b"acked", 20)
                    first.end(tally)
                    bench.discard(first)
            age += 1
            known = len(tally.problems)
            cut = dice.random() < 0.5  # The power goes with the fault, or after the start that follows it.
            reached, writer = run_fault(bench, volume, store, fault, tally, cut)
            if cut:
                volume.power_on()
            if reached:
                hits[fault.action] += 1
                reach[fault.phase, fault.call, fault.files or "any file", fault.action] += 1
                store.check(tally)
                after = Writer(bench, store)
                if not after.wait(b"acked", 20) or after.complaint():
                    tally.problem("stuck", "after %s the writer said: %s" % (fault, after.complaint()[:500]))
                if not cut:
                    after.cut(volume)
                after.end(tally)
                tally.restarts += [after.ready_after] if after.ready_after else []
                if not cut:
                    volume.power_on()
                store.check(tally)
                bench.discard(after)
                if sum(hits.values()) % 25 == 0:
                    text = "fault %d, at call %d: acked %d, lost %d"
                    say(text % (sum(hits.values()), fault.k, tally.counts["acked"], len(tally.lost)))
            elif fault.k == 1 and fault.phase != "running" and not sample:
                raise CannotRun("strace injects nothing here: %s was not reached" % (fault,))
            if len(tally.problems) > known:
                say("did not hold: %s, the power cut %s" % (fault, "with it" if cut else "after the next start"))
                tally.say_problems(known)
                store.keep(bench.home)
                tally.counts["failed"] += 1
                store = None  # It stays as it is.
                if not keep_going:
                    raise Failed
            bench.discard(writer)
            fault = plan.send(reached)
    for phase, call, files in sorted({kind[:3] for kind in reach}):
        actions = READ_ACTIONS if call == "pread64" else ACTIONS
        counts = " ".join("%s %d" % (action.partition("=")[2], reach[phase, call, files, action]) for action in actions)
        say("%-8s %-10s %-9s %s" % (phase, call, files, counts))
    bench.drop(volume)
    return hits
