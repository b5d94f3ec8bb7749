"""The queue's events, in memory or in a spool directory. sdk/suite/README.md, section 5, has the format.

Both stores hand out one batch at a time. Callers hold the queue's lock, so nothing here is locked against
threads; a spool is locked against other processes.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import zlib
from array import array
from collections import deque
from typing import Callable, Deque, Dict, Iterator, List, NamedTuple, Optional, Set

from ._core import Batch, new_key
from .errors import QueueFull, SpoolError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Warn = Callable[[str, str], None]
_HEADER = "H sealog-spool 1"
_FILE_BYTES = 8 << 20
_NAME_MS_MAX = 9_999_999_999_999  # a name has room for 13 digits
_NAME = re.compile(r"\d{13}-[0-9a-f]{16}\.spool")


class Limits(NamedTuple):
    batch_events: int
    batch_bytes: int
    queue_events: int
    queue_bytes: int
    spool_bytes: int
    hold_after_ms: int


class HeldBatch(NamedTuple):
    """Events that are not sent until the application decides: `client.release(held.id, "send")`."""

    id: str
    reason: str
    events: List[bytes]


class MemoryStore:
    """A queue that ends with its process."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.queue: Deque[bytes] = deque()
        self.queued_bytes = 0  # not yet in a batch
        self.count = self.bytes = 0  # until they ended
        self.adopted = self.newly_held = 0  # only a spool has any

    def refusal(self, size: int) -> Optional[QueueFull]:
        """Why there is no room for an event of this size now. Raises it if there never will be."""
        limits = self.limits
        if size > limits.queue_bytes:
            raise _never("queue", "queue_max_bytes", limits.queue_bytes)
        if self.count >= limits.queue_events:
            return _full("queue", "queue_max_events", limits.queue_events)
        if self.bytes + size > limits.queue_bytes:
            return _full("queue", "queue_max_bytes", limits.queue_bytes)
        return None

    def put(self, event: bytes, now_ms: int) -> None:
        self.queue.append(event)
        self.queued_bytes += len(event) + 1
        self.count += 1
        self.bytes += len(event)

    @property
    def is_batch_full(self) -> bool:
        return len(self.queue) >= self.limits.batch_events or self.queued_bytes >= self.limits.batch_bytes

    @property
    def has_leftovers(self) -> bool:
        """Whether there is something to send that need not wait for the interval."""
        return False

    @property
    def has_queued(self) -> bool:
        return bool(self.queue)

    def take(self, now_ms: int) -> Optional[Batch]:
        events: List[bytes] = []
        room = self.limits.batch_bytes - 14  # {"events":[]}
        while self.queue and len(events) < self.limits.batch_events:
            room -= len(self.queue[0]) + 1
            if room < 0 and events:
                break
            events.append(self.queue.popleft())
            self.queued_bytes -= len(events[-1]) + 1
        return Batch(new_key(), events) if events else None

    def split(self, batch: Batch) -> None:
        batch.split = True

    def end(self, batch: Batch, index: int) -> None:
        self.count -= 1
        self.bytes -= len(batch.events[index])

    def end_all(self, batch: Batch) -> None:
        pass

    def close(self) -> Iterator[bytes]:
        """The events that no batch has."""
        yield from self.queue
        self.queue.clear()


def _full(what: str, option: str, limit: int) -> QueueFull:
    message = "the %s is full: %s is %d; raise it, or wait for the service" % (what, option, limit)
    return QueueFull(message, code="client/%s_full" % what)


def _never(what: str, option: str, limit: int) -> QueueFull:
    return QueueFull(
        "the event is larger than %s (%d); raise it" % (option, limit), code="client/%s_full" % what
    )


class SpooledBatch(Batch):
    """`numbers` are the events that it was made of; those that ended since are in `ended`."""

    def __init__(self, journal: "Journal", numbers: List[int], ms: int, key: str) -> None:
        super().__init__(key, [])
        self.journal, self.numbers, self.ms, self.released = journal, numbers, ms, False
        self.ended: Set[int] = set()

    @property
    def left(self) -> List[int]:
        return [number for number in self.numbers if number not in self.ended]

    def load(self) -> bool:
        """Reads the events. Those that ended are empty if the batch is split, because only the others are
        sent."""
        texts = [self.journal.read(number) for number in self.numbers]
        if None in texts:
            return False
        self.events = [
            b"" if self.split and number in self.ended else text or b""
            for number, text in zip(self.numbers, texts)
        ]
        return True


class Journal:
    """One spool file, locked by this process."""

    def __init__(self, path: str, fd: int) -> None:
        self.path, self.fd, self.size = path, fd, 0
        self.base = 1  # number of the event whose offset is offsets[0]
        self.offsets = array("Q")  # 0: damaged
        self.settled: Set[int] = set()  # numbers from `done` on
        self.done = 1  # every event below is settled
        self.cursor = 1  # every event below is in a batch, or was
        self.suspect = 0  # events below may have been sent under a key that was lost
        self.batches: List[SpooledBatch] = []

    @property
    def end(self) -> int:
        return self.base + len(self.offsets)

    @property
    def is_settled(self) -> bool:
        return self.done >= self.end

    def append(self, content: bytes, sync: bool = False) -> int:
        """Returns the offset of the record. It is written whole or not at all."""
        line = b"%08x %s\n" % (zlib.crc32(content), content)
        try:
            written = os.write(self.fd, line)
            if written != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if sync:
                _sync(self.fd)
        except OSError as error:
            try:
                os.ftruncate(self.fd, self.size)
            except OSError:
                pass  # the reader cuts it
            raise SpoolError("cannot write the spool (spool_dir): %s" % error, code="client/spool") from None
        offset = self.size
        self.size += len(line)
        return offset

    def add(self, event: bytes, now_ms: int, sync: bool) -> None:
        self.offsets.append(self.append(b"E %d %d %s" % (self.end, now_ms, event), sync))

    def read(self, number: int) -> Optional[bytes]:
        if not self.base <= number < self.end:
            return None
        offset = self.offsets[number - self.base]
        try:
            line = os.pread(self.fd, 2048, offset) if offset else b""
            while line and b"\n" not in line:
                more = os.pread(self.fd, 65_536, offset + len(line))
                if not more:
                    return None
                line += more
        except OSError:
            return None  # as good as damaged: its batch is held
        content = line[9:].split(b"\n", 1)[0]
        if not line or b"%08x" % zlib.crc32(content) != line[:8]:
            return None
        return content.split(b" ", 3)[3]

    def is_open(self, number: int) -> bool:
        """Whether the event exists and is not settled."""
        exists = self.done <= number < self.end and self.offsets[number - self.base] != 0
        return exists and number not in self.settled

    def settle(self, first: int, count: int) -> None:
        self.settled.update(number for number in range(first, first + count) if number >= self.done)
        while self.done < self.end and (self.done in self.settled or not self.offsets[self.done - self.base]):
            self.settled.discard(self.done)
            self.done += 1

    def cut(self) -> None:
        """Drops what is settled; only if everything is."""
        header = len(_HEADER) + 10
        try:
            os.ftruncate(self.fd, header)
        except OSError:
            return  # it stays as it is, settled
        self.base, self.size, self.offsets = self.end, header, array("Q")
        self.done = self.cursor = self.base

    def load(self, warn: Warn) -> bool:
        """Reads the file. Returns False if it is of another version."""
        damaged = b""
        with open(os.dup(self.fd), "rb") as file:
            file.seek(0)
            for line in file:
                if not line.endswith(b"\n"):  # an interrupted write
                    damaged += line
                    os.ftruncate(self.fd, self.size)
                    break
                offset, self.size = self.size, self.size + len(line)
                content = line[9:-1]
                sound = line[8:9] == b" " and b"%08x" % zlib.crc32(content) == line[:8]
                if not offset and sound and content != _HEADER.encode():
                    warn("client/spool_version", "%s is a spool of another version; left alone" % self.path)
                    return False
                if not sound or not self._apply(content, offset):
                    damaged += line
                    self.suspect = self.end
        os.lseek(self.fd, 0, os.SEEK_END)
        self.batches = [batch for batch in self.batches if batch.left]
        for batch in self.batches:
            self.cursor = max(self.cursor, batch.numbers[-1] + 1)
        if damaged:
            with open(self.path + ".damaged", "ab") as copy:
                copy.write(damaged)
            warn(
                "client/spool_damaged",
                "%d bytes of %s are damaged; copied to %s.damaged" % (len(damaged), self.path, self.path),
            )
        return True

    def _apply(self, content: bytes, offset: int) -> bool:
        kind, _, rest = content.partition(b" ")
        try:
            if kind == b"E":
                number = int(rest.split(b" ", 1)[0])
                if not self.offsets:
                    self.base = self.done = self.cursor = number
                if number < self.end:
                    return False
                self.offsets.extend([0] * (number - self.end))  # numbers in between were damaged
                self.offsets.append(offset)
            elif kind == b"B":
                first, count, ms, key = rest.split(b" ", 3)
                numbers = [n for n in range(int(first), int(first) + int(count)) if self.is_open(n)]
                taken = set(numbers)
                self.batches = [batch for batch in self.batches if not taken.intersection(batch.left)]
                if numbers:
                    self.batches.append(SpooledBatch(self, numbers, int(ms), key.decode("ascii")))
            elif kind == b"S":
                for batch in self.batches:
                    batch.split = batch.split or batch.numbers[0] == int(rest)
            elif kind == b"D":
                first, count = rest.split(b" ")
                self.settle(int(first), int(count))
                for batch in self.batches:
                    batch.ended.update(n for n in batch.numbers if int(first) <= n < int(first) + int(count))
            else:
                return kind == b"H"
        except ValueError:
            return False
        return True


def _sync(fd: int) -> None:
    getattr(os, "fdatasync", os.fsync)(fd)  # macOS lacks fdatasync


class SpoolStore:
    """A queue that outlives its process. Memory holds eight bytes for each event."""

    def __init__(
        self, directory: str, limits: Limits, sync: bool, now_ms: Callable[[], int], warn: Warn
    ) -> None:
        self.directory, self.limits, self.sync, self.now_ms, self.warn = directory, limits, sync, now_ms, warn
        self.journals: List[Journal] = []  # oldest first; events are added to `own`
        self.own: Optional[Journal] = None
        self.held: Dict[str, SpooledBatch] = {}
        self.reasons: Dict[str, str] = {}
        self.ignored: Set[str] = set()  # files of another version
        self.newest_ms = 0  # in the names of files that this process has held
        self.queued_events = self.queued_bytes = 0  # of `own`, not yet in a batch
        self.file_bytes = max(min(_FILE_BYTES, limits.spool_bytes // 8), 4096)
        if fcntl is None:
            raise SpoolError("spool_dir: a spool needs flock, which this system lacks", code="client/spool")
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            os.listdir(directory)
        except OSError as error:
            raise SpoolError(
                "spool_dir: cannot use %s: %s" % (directory, error), code="client/spool"
            ) from None
        self.adopted = self.newly_held = 0  # events that were taken over or held since the queue last asked

    # --- Files ---

    def adopt(self) -> None:
        """Takes over the files that dead processes left."""
        held = {os.path.basename(journal.path) for journal in self.journals}
        try:
            names = sorted(name for name in os.listdir(self.directory) if _NAME.fullmatch(name))
        except OSError:
            return  # tried again after the interval
        for name in names:
            if name in held or name in self.ignored:
                continue
            journal = self._open(os.path.join(self.directory, name))
            if journal is None:
                continue
            if journal.is_settled:
                self._remove(journal)
                continue
            self.newest_ms = max(self.newest_ms, int(name[:13]))
            place = len(self.journals) - 1 if self.own in self.journals else len(self.journals)
            self.journals.insert(max(place, 0), journal)
            self.adopted += sum(journal.is_open(number) for number in range(journal.done, journal.end))

    def _open(self, path: str) -> Optional[Journal]:
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_ino != os.stat(path).st_ino:
                raise FileNotFoundError
            journal = Journal(path, fd)
            if journal.load(self.warn):
                return journal
            self.ignored.add(os.path.basename(path))
        except OSError:
            pass  # another process holds it, or has just finished it
        os.close(fd)
        return None

    def _create(self) -> Journal:
        # A process that takes the files over sends them by name. Two files of one millisecond, or of a clock
        # that was set back, must not change places.
        self.newest_ms = min(max(self.now_ms(), self.newest_ms + 1), _NAME_MS_MAX)
        name = "%013d-%s.spool" % (self.newest_ms, secrets.token_hex(8))
        path = os.path.join(self.directory, name)
        try:
            fd = os.open(
                path + ".new", os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
            )
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                journal = Journal(path, fd)
                journal.append(_HEADER.encode(), self.sync)
                os.rename(path + ".new", path)
                if self.sync:
                    directory = os.open(self.directory, os.O_RDONLY)
                    try:
                        os.fsync(directory)
                    finally:
                        os.close(directory)
            except BaseException:
                os.close(fd)
                raise
        except OSError as error:
            raise SpoolError("spool_dir: cannot create %s: %s" % (path, error), code="client/spool") from None
        return journal

    def _remove(self, journal: Journal) -> None:
        try:
            os.unlink(journal.path)
        except OSError:
            pass  # it is settled: the next process removes it
        os.close(journal.fd)
        if journal in self.journals:
            self.journals.remove(journal)
        if journal is self.own:
            self.own = None

    def _tidy(self, journal: Journal) -> None:
        if not journal.is_settled:
            return
        if journal is not self.own:
            self._remove(journal)
        elif journal.size > 65_536:
            journal.cut()

    # --- The queue ---

    @property
    def total_bytes(self) -> int:
        return sum(journal.size for journal in self.journals)

    def refusal(self, size: int) -> Optional[QueueFull]:
        limit, record = self.limits.spool_bytes, size + 64
        if record > limit:
            raise _never("spool", "spool_max_bytes", limit)
        if self.total_bytes + record > limit and self.own and self.own.is_settled:
            self.own.cut()
        return _full("spool", "spool_max_bytes", limit) if self.total_bytes + record > limit else None

    def put(self, event: bytes, now_ms: int) -> None:
        if self.own is None or self.own.size > self.file_bytes and not self.own.is_settled:
            self.own = self._create()
            self.journals.append(self.own)
            self.queued_events = self.queued_bytes = 0
        self.own.add(event, now_ms, self.sync)
        self.queued_events += 1
        self.queued_bytes += len(event) + 1

    @property
    def is_batch_full(self) -> bool:
        return self.queued_events >= self.limits.batch_events or self.queued_bytes >= self.limits.batch_bytes

    @property
    def has_leftovers(self) -> bool:
        return any(j.batches or (j is not self.own and j.cursor < j.end) for j in self.journals)

    @property
    def has_queued(self) -> bool:
        return self.has_leftovers or self.queued_events > 0

    def take(self, now_ms: int) -> Optional[Batch]:
        for journal in list(self.journals):
            while True:
                batch = journal.batches.pop(0) if journal.batches else self._next(journal)
                if batch is None:
                    break
                reason = None
                if batch.numbers[0] < journal.suspect and not batch.released or not batch.load():
                    reason = "damaged"
                elif batch.ms and abs(now_ms - batch.ms) >= self.limits.hold_after_ms:
                    reason = "age"
                if reason:
                    self.hold(batch, reason)
                    continue
                if not batch.ms:
                    batch.ms = now_ms
                    try:
                        self._write_batch(batch)
                    except SpoolError:  # not sent without its record; tried again later
                        batch.ms = 0
                        journal.batches.insert(0, batch)
                        raise
                return batch
        return None

    def _next(self, journal: Journal) -> Optional[SpooledBatch]:
        """The next events of a file that no batch has. They get a key, but no record yet."""
        numbers: List[int] = []
        room = self.limits.batch_bytes - 14
        while journal.cursor < journal.end and len(numbers) < self.limits.batch_events:
            number = journal.cursor
            if journal.is_open(number):
                if numbers and number >= journal.suspect > numbers[0]:
                    break  # behind a damaged record nothing is in doubt
                room -= len(journal.read(number) or b"") + 1
                if room < 0 and numbers:
                    break
                numbers.append(number)
            journal.cursor += 1
        if journal is self.own:
            taken = sum(len(journal.read(number) or b"") + 1 for number in numbers)
            at_end = journal.cursor >= journal.end
            self.queued_events = 0 if at_end else max(self.queued_events - len(numbers), 1)
            self.queued_bytes = 0 if at_end else max(self.queued_bytes - taken, 0)
        return SpooledBatch(journal, numbers, 0, new_key()) if numbers else None

    def _write_batch(self, batch: SpooledBatch) -> None:
        first, count = batch.numbers[0], batch.numbers[-1] - batch.numbers[0] + 1
        record = "B %d %d %d %s" % (first, count, batch.ms, batch.key)
        batch.journal.append(record.encode("ascii"), self.sync)

    def split(self, batch: Batch) -> None:
        assert isinstance(batch, SpooledBatch)
        batch.journal.append(b"S %d" % batch.numbers[0], self.sync)
        batch.split = True

    def end(self, batch: Batch, index: int) -> None:
        assert isinstance(batch, SpooledBatch)
        batch.ended.add(batch.numbers[index])
        if batch.split:
            self._settle(batch, batch.numbers[index], 1)

    def end_all(self, batch: Batch) -> None:
        assert isinstance(batch, SpooledBatch)
        if not batch.split and not batch.left:
            self._settle(batch, batch.numbers[0], batch.numbers[-1] - batch.numbers[0] + 1)
        elif batch.left and batch not in self.held.values():
            batch.journal.batches.insert(0, batch)  # the next one again

    def _settle(self, batch: SpooledBatch, first: int, count: int) -> None:
        journal = batch.journal
        try:
            journal.append(b"D %d %d" % (first, count))
        except SpoolError as error:  # The events would be repeated under their keys after a restart: no harm.
            self.warn(error.code, str(error))
        journal.settle(first, count)
        self._tidy(journal)

    # --- Held batches ---

    def hold(self, batch: SpooledBatch, reason: str) -> None:
        name = "%s-%d" % (os.path.basename(batch.journal.path)[:-6], batch.numbers[0])
        self.held[name], self.reasons[name] = batch, reason
        self.newly_held += len(batch.left)
        message = (
            "%d events are held (%s): they may have been stored already; choose with client.release(%r, …)"
        )
        self.warn("client/held", message % (len(batch.left), reason, name))

    def list_held(self) -> List[HeldBatch]:
        read = [
            (name, [batch.journal.read(number) for number in batch.left]) for name, batch in self.held.items()
        ]
        return [HeldBatch(name, self.reasons[name], [text for text in texts if text]) for name, texts in read]

    def release(self, name: str, choice: str) -> List[bytes]:
        """Returns the events that were dropped."""
        batch = self.held.pop(name)
        del self.reasons[name]
        journal, left = batch.journal, batch.left
        if choice == "drop":
            events = [journal.read(number) or b"{}" for number in left]
            self._settle(batch, left[0], left[-1] - left[0] + 1)
            return events
        numbers = [number for number in left if journal.read(number) is not None]
        again = SpooledBatch(journal, numbers, self.now_ms(), new_key())
        self._write_batch(again)
        again.released = True
        journal.batches.append(again)
        return []

    def close(self) -> Iterator[bytes]:
        """Lets go of all files. What is not settled stays for the next process."""
        for journal in list(self.journals):
            if journal.is_settled:
                self._remove(journal)
            else:
                os.close(journal.fd)
        self.journals, self.own = [], None
        return iter(())

    def forget(self) -> None:
        """After a fork: the files are the parent's. Closing a copied descriptor does not free its lock."""
        for journal in self.journals:
            os.close(journal.fd)
        self.journals, self.own, self.held, self.reasons = [], None, {}, {}
        self.queued_events = self.queued_bytes = self.adopted = self.newly_held = 0
