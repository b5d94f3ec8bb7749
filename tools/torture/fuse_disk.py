#!/usr/bin/env python3
"""One file that a loop device can stand on, served through /dev/fuse: a disk that records, refuses and delays.

It speaks the kernel's own protocol (linux/fuse.h), so that nothing has to be installed for it. Every write that reaches it
came from the block layer, and every fsync is a flush of the device's cache. A process of its own: the kernel waits for it
while the experiment mounts and unmounts.

Commands on standard input, one JSON array a line, each answered by a line:
  ["record", LEDGER]  keep every write and flush from now on, with the length of the file LEDGER when it arrived
  ["save", FILE]      stop keeping, and write what was kept (pickle): [(ledger_length, offset or None, data), ...]
  ["refuse", HEX, N]  refuse writes that contain these bytes with EIO, N times; "" is in every write
  ["delay", SECONDS]  let every flush take this long
  ["refused"]         how many writes were refused
"""

import ctypes
import errno
import json
import os
import pickle
import struct
import sys
import threading
import time

IN, OUT = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ")
ATTR = struct.Struct("<6Q10I")
RW = struct.Struct("<QQII")
LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS, RELEASE = 1, 2, 3, 4, 14, 15, 16, 17, 18
FSYNC, FLUSH, INIT, OPENDIR, RELEASEDIR, ACCESS, INTERRUPT, DESTROY, BATCH_FORGET = 20, 25, 26, 27, 29, 34, 36, 38, 42
ROOT_NODE, FILE_NODE = 1, 2
NAME = b"disk.img"
WRITE_MAX = 1 << 20
BUFFER = WRITE_MAX + (64 << 10)
DIRECT_IO = 1
# ASYNC_READ, BIG_WRITES, MAX_PAGES
FLAGS = 1 << 0 | 1 << 5 | 1 << 22


class Disk:
    def __init__(self, image):
        self.fd = os.open(image, os.O_RDWR)
        self.size = os.fstat(self.fd).st_size
        self.lock = threading.Lock()
        self.kept, self.ledger = None, None
        self.pattern, self.refusals, self.refused, self.delay = b"", 0, 0, 0.0

    def keep(self, offset, data):
        if self.kept is not None:
            # Whoever was answered before this arrived was told so by what the disk had by then.
            self.kept.append((os.stat(self.ledger).st_size, offset, data))

    def write(self, offset, data):
        with self.lock:
            if self.refusals and self.pattern in data:
                self.refusals -= 1
                self.refused += 1
                return errno.EIO
            self.keep(offset, data)
            os.pwrite(self.fd, data, offset)
        return 0

    def flush(self):
        # It covers what arrived before it, not what arrives while it takes its time.
        with self.lock:
            self.keep(None, b"")
        if self.delay:
            time.sleep(self.delay)

    def command(self, name, *words):
        with self.lock:
            if name == "record":
                self.kept, self.ledger = [], words[0]
            elif name == "save":
                kept, self.kept = self.kept, None
                with open(words[0], "wb") as file:
                    pickle.dump(kept, file)
            elif name == "refuse":
                self.pattern, self.refusals = bytes.fromhex(words[0]), words[1]
            elif name == "delay":
                self.delay = words[0]
            elif name == "refused":
                return self.refused
        return True


def attributes(disk, node):
    if node == ROOT_NODE:
        return ATTR.pack(node, 0, 0, 0, 0, 0, 0, 0, 0, 0o040755, 2, 0, 0, 0, 4096, 0)
    return ATTR.pack(node, disk.size, disk.size >> 9, 0, 0, 0, 0, 0, 0, 0o100600, 1, 0, 0, 0, 4096, 0)


def answer(disk, opcode, node, body):
    """Error number and content of the answer to a request."""
    if opcode == INIT:
        return 0, struct.pack("<IIIIHHIIHHII24x", 7, 31, 0, FLAGS, 64, 48, WRITE_MAX, 1, WRITE_MAX >> 12, 0, 0, 0)
    if opcode == LOOKUP:
        if node != ROOT_NODE or body.rstrip(b"\0") != NAME:
            return errno.ENOENT, b""
        return 0, struct.pack("<QQQQII", FILE_NODE, 0, 3600, 3600, 0, 0) + attributes(disk, FILE_NODE)
    if opcode in (GETATTR, SETATTR):
        return 0, struct.pack("<QII", 3600, 0, 0) + attributes(disk, node)
    if opcode in (OPEN, OPENDIR):
        return 0, struct.pack("<QII", 1, DIRECT_IO if node == FILE_NODE else 0, 0)
    if opcode == READ:
        _, offset, size, _ = RW.unpack_from(body)
        return 0, os.pread(disk.fd, size, offset)
    if opcode == WRITE:
        _, offset, size, _ = RW.unpack_from(body)
        return disk.write(offset, bytes(body[40 : 40 + size])), struct.pack("<II", size, 0)
    if opcode == FSYNC:
        disk.flush()
        return 0, b""
    if opcode == STATFS:
        return 0, struct.pack("<5Q4I24x", disk.size >> 12, 0, 0, 1, 0, 4096, 255, 4096, 0)
    if opcode in (RELEASE, RELEASEDIR, FLUSH, ACCESS, DESTROY):
        return 0, b""
    return errno.ENOSYS, b""


def serve(disk, fuse):
    while True:
        try:
            request = memoryview(os.read(fuse, BUFFER))
        except InterruptedError:
            continue
        except OSError as error:
            if error.errno == errno.ENOENT:  # The request was interrupted before it was read.
                continue
            return  # unmounted
        _, opcode, unique, node, *_ = IN.unpack_from(request)
        if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
            continue
        failed, content = answer(disk, opcode, node, bytes(request[IN.size :]))
        content = b"" if failed else content
        try:
            os.write(fuse, OUT.pack(OUT.size + len(content), -failed, unique) + content)
        except OSError as error:
            if error.errno != errno.ENOENT:
                return


def main():
    image, path = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(1, 9)  # It ends with whoever started it.
    disk, fuse = Disk(image), os.open("/dev/fuse", os.O_RDWR)
    options = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % fuse
    if libc.mount(b"torture", path.encode(), b"fuse", 0, options):
        sys.exit("cannot mount: %s" % os.strerror(ctypes.get_errno()))
    # Two, so that a flush that takes its time does not hold up what is written meanwhile.
    for _ in range(2):
        threading.Thread(target=serve, args=(disk, fuse), daemon=True).start()
    print("true", flush=True)
    for line in sys.stdin:
        print(json.dumps(disk.command(*json.loads(line))), flush=True)
    libc.umount2(path.encode(), 2)  # MNT_DETACH


if __name__ == "__main__":
    main()
