"""A disk whose writes can be recorded, refused and delayed, with a file system on it; and the states that a power cut can leave it in."""

import json
import os
import pickle
import struct
import subprocess
import sys

from .common import KNOWN, CannotRun, run
from .volume import Volume, make_image

DISK_BYTES = 512 << 20  # XFS asks for at least 300 MiB.
SECTOR = 512


class FuseDisk:
    """The process of fuse_disk.py, and the file system on its disk."""

    def __init__(self, bench, fs, options=""):
        if not os.path.exists("/dev/fuse"):
            raise CannotRun("/dev/fuse is missing: the kernel has no FUSE, or this container does not pass the device on")
        number = bench.next_number()
        self.bench, self.fs = bench, fs
        self.image = os.path.join(bench.home, "disk-%d.img" % number)
        self.base = os.path.join(bench.home, "disk-%d.base" % number)
        self.path = os.path.join(bench.home, "disk-%d" % number)
        os.mkdir(self.path)
        make_image(fs, self.image, DISK_BYTES)
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fuse_disk.py")
        self.process = subprocess.Popen(
            [sys.executable, program, self.image, self.path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )
        KNOWN.add(self.process.pid)
        bench.disks.append(self)
        if self.process.stdout.readline() != "true\n":
            raise CannotRun("no disk over FUSE: %s" % self.process.stderr.read().strip())
        self.volume = Volume(fs, bench.home, "mnt-%d" % number, "loop" + options)
        self.volume.image = os.path.join(self.path, "disk.img")
        os.mkdir(self.volume.path)
        bench.volumes.append(self.volume)
        self.volume.mount()

    def tell(self, *words):
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise CannotRun("the disk ended: %s" % self.process.stderr.read().strip())
        return json.loads(line)

    def record(self, ledger):
        """Keeps what is written from now on. What is there already stays as the base."""
        run("sync", "-f", self.volume.path)
        sparse_copy(self.image, self.base)
        return self.tell("record", ledger)

    def recorded(self):
        path = os.path.join(self.bench.home, "writes")
        self.tell("save", path)
        with open(path, "rb") as file:
            writes = pickle.load(file)
        os.remove(path)
        return writes

    def close(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def drop(self):
        """It is not needed any more."""
        self.volume.unmount()
        self.bench.volumes.remove(self.volume)
        self.close()
        self.bench.disks.remove(self)
        for path in (self.image, self.base):
            if os.path.exists(path):
                os.remove(path)


def sparse_copy(source, target):
    failed, text = run("cp", "--sparse=always", source, target)
    if failed:
        raise CannotRun("cannot copy an image: %s" % text)


def unflushed(writes, at):
    """The place behind the last flush before `at`, and so of the first write that a device may have lost."""
    return next((i + 1 for i in range(at - 1, -1, -1) if writes[i][1] is None), 0)


def survivors(writes, kind, dice):
    """What of the writes since the last flush is on the disk: (offset, data), in the order in which they came."""
    if kind in ("none", "segment begun"):
        return []
    if kind == "all":
        return [(offset, data) for _, offset, data in writes]
    if kind == "subset":
        return [(offset, data) for _, offset, data in writes if dice.random() < 0.5]
    # Torn: of every write any sectors.
    return [
        (offset + at, data[at : at + SECTOR])
        for _, offset, data in writes
        for at in range(0, len(data), SECTOR)
        if dice.random() < 0.5
    ]


KINDS = ("none", "all", "subset", "torn")


def has_large_frame(data):
    """Whether a frame with one large event begins in these bytes: all its lengths are in one sector, and most of it is not."""
    at = data.find(b"SLFR")
    while at >= 0 and at + 12 <= len(data):
        length, count = struct.unpack_from("<I2xH", data, at + 4)
        if count == 1 and length > 64 << 10:
            return True
        at = data.find(b"SLFR", at + 1)
    return False


# A segment's name is written with the file system's journal, which follows within a few groups of events.
AFTER_SEGMENT = 24


def moments(writes, states, kinds, dice):
    """When the power goes and what is left then, in order. What tears is best seen where something large was under way, and a
    name that is not on the disk shortly after a segment was begun ("segment begun": what was not flushed is lost)."""
    large, under_way, begun, since = [], False, [], AFTER_SEGMENT
    for at, (_, offset, data) in enumerate(writes):
        if under_way:
            large.append(at)
        under_way = offset is not None and (under_way or has_large_frame(data))
        if since < AFTER_SEGMENT:
            begun.append(at)
        since = 0 if offset is not None and data.startswith(b"SEALOGSG") else since + 1
    wanted = {"torn": large, "segment begun": begun}
    plan = []
    for number in range(states):
        kind = kinds[number % len(kinds)]
        moment = dice.choice(wanted.get(kind) or range(1, len(writes)))
        plan.append((moment, kind))
    return sorted(plan)


class CrashStates:
    """Rebuilds what the disk can hold if the power goes at a moment of a recording. Moments must be asked for in order."""

    def __init__(self, base, writes, image):
        self.base, self.writes, self.image, self.done = base, writes, image, 0

    def build(self, at, kind, dice):
        """The image of a power cut before the write `at` arrived. How much of the ledger was there by then."""
        flushed = unflushed(self.writes, at)
        apply(self.base, [(offset, data) for _, offset, data in self.writes[self.done : flushed] if offset is not None])
        self.done = max(self.done, flushed)
        sparse_copy(self.base, self.image)
        apply(self.image, survivors(self.writes[flushed:at], kind, dice))
        return self.writes[at][0]


def apply(image, writes):
    with open(image, "r+b") as file:
        for offset, data in writes:
            file.seek(offset)
            file.write(data)
