"""The spool's files: size, rotation, failing writes. The suite has the rest."""

import errno
import os
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

from . import KEY
from sealog import Client, SpoolError
from sealog._core import deliver
from sealog._spool import Limits, SpoolStore
from server import Server, Service


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.warnings = []
        self.now_ms = 1_700_000_000_000

    def store(self, spool_bytes=1 << 20, batch_events=100):
        limits = Limits(batch_events, 1_900_000, 10, 10, spool_bytes, 86_100_000)
        store = SpoolStore(
            self.folder.name,
            limits,
            False,
            lambda: self.now_ms,
            lambda code, message: self.warnings.append(code),
        )
        store.adopt()
        return store

    def names(self):
        return sorted(os.listdir(self.folder.name))

    def take_all(self, store):
        found = []
        while True:
            batch = store.take(1_700_000_000_000)
            if batch is None:
                return found
            found.append((batch.key, batch.events))
            for index in range(len(batch.events)):
                store.end(batch, index)
            store.end_all(batch)

    def test_files_are_readable_by_their_owner_only(self):
        store = self.store()
        store.put(b"{}", 1_700_000_000_000)
        self.assertEqual(os.stat(Path(self.folder.name) / self.names()[0]).st_mode & 0o777, 0o600)
        list(store.close())

    def test_order_is_kept_over_files_and_settled_files_are_deleted(self):
        store = self.store(spool_bytes=1 << 20)
        events = [b'{"n":%d,"t":"%s"}' % (number, b"x" * 1000) for number in range(500)]
        for event in events:
            self.assertIsNone(store.refusal(len(event)))
            store.put(event, 1_700_000_000_000)
        self.assertGreater(len(self.names()), 2)
        found = self.take_all(store)
        self.assertEqual([event for _, batch in found for event in batch], events)
        self.assertEqual(len({key for key, _ in found}), len(found))
        self.assertEqual(len(self.names()), 1)
        list(store.close())
        self.assertEqual(self.names(), [])

    def test_files_sort_by_age_within_a_millisecond_and_behind_a_clock_that_was_set_back(self):
        events = [b'{"n":%d,"t":"%s"}' % (number, b"x" * 1000) for number in range(200)]
        for half in (events[:100], events[100:]):
            store = self.store(spool_bytes=1 << 20)
            store.file_bytes = 4096
            for event in half:
                store.put(event, self.now_ms)
            store.forget()
            self.now_ms -= 3_600_000
        self.assertGreater(len(self.names()), 20)
        found = [event for _, batch in self.take_all(self.store()) for event in batch]
        self.assertEqual([events.index(event) for event in found], list(range(200)))

    def test_a_name_never_gets_a_fourteenth_digit(self):
        self.now_ms = 9_999_999_999_999
        store = self.store()
        store.file_bytes = 0
        for number in range(2):
            store.put(b"%d" % number, self.now_ms)
        store.forget()
        self.assertEqual({name[:14] for name in self.names()}, {"9999999999999-"})

    def test_a_file_that_is_settled_is_cut_so_that_a_spool_never_fills_up(self):
        store = self.store(spool_bytes=200_000)
        for _ in range(20):
            for number in range(10):
                self.assertIsNone(store.refusal(10_000))
                store.put(b"x" * 10_000, 1_700_000_000_000)
            self.take_all(store)
        self.assertLessEqual(store.total_bytes, 200_000)
        list(store.close())

    def test_the_spool_refuses_at_its_bound_and_not_before(self):
        store = self.store(spool_bytes=20_000)
        while store.refusal(1000) is None:
            store.put(b"x" * 1000, 1_700_000_000_000)
        self.assertLessEqual(store.total_bytes, 20_000)
        self.assertGreater(store.total_bytes, 20_000 - 2 * 1100)
        list(store.close())

    def test_a_batch_gets_the_same_bytes_and_key_after_a_crash(self):
        store = self.store(batch_events=3)
        for number in range(5):
            store.put(b"%d" % number, 1_700_000_000_000)
        first = store.take(1_700_000_000_000)
        store.forget()  # as a dead process does: the files stay as they are
        found = self.take_all(self.store(batch_events=2))
        self.assertEqual(found[0], (first.key, first.events))
        self.assertEqual([event for _, batch in found for event in batch], [b"0", b"1", b"2", b"3", b"4"])

    def test_a_file_in_use_is_not_taken_over(self):
        store = self.store()
        store.put(b"{}", 1_700_000_000_000)
        other = self.store()
        self.assertEqual(self.take_all(other), [])
        store.forget()
        other.adopt()
        self.assertEqual([events for _, events in self.take_all(other)], [[b"{}"]])

    def test_a_failing_write_refuses_the_event_and_harms_no_other(self):
        store = self.store()
        store.put(b"1", 1_700_000_000_000)
        real = os.write
        with mock.patch(
            "os.write", lambda fd, data: real(fd, data[:7])
        ):  # the disk is full in the middle of a record
            with self.assertRaisesRegex(SpoolError, "spool_dir.*No space"):
                store.put(b"2", 1_700_000_000_000)
        with mock.patch("os.write", side_effect=OSError(errno.EIO, "broken")):
            self.assertRaises(SpoolError, store.put, b"3", 1_700_000_000_000)
        store.put(b"4", 1_700_000_000_000)
        store.forget()
        self.assertEqual([event for _, batch in self.take_all(self.store()) for event in batch], [b"1", b"4"])
        self.assertEqual(self.warnings, [])

    def test_a_batch_that_cannot_be_recorded_is_not_sent(self):
        store = self.store()
        store.put(b"1", 1_700_000_000_000)
        with mock.patch("os.write", side_effect=OSError(errno.ENOSPC, "full")):
            self.assertRaises(SpoolError, store.take, 1_700_000_000_000)
        self.assertEqual([events for _, events in self.take_all(store)], [[b"1"]])

    def test_every_cut_of_a_file_keeps_the_records_before_it(self):
        store = self.store()
        for number in range(4):
            store.put(b'{"n":%d}' % number, 1_700_000_000_000)
        store.forget()
        path = Path(self.folder.name) / self.names()[0]
        data = path.read_bytes()
        for length in range(len(data) + 1):
            for name in self.names():
                os.unlink(Path(self.folder.name) / name)
            path.write_bytes(data[:length])
            events = [event for _, batch in self.take_all(self.store()) for event in batch]
            whole = [line[9:].split(b" ", 3)[3] for line in data[:length].split(b"\n")[1:-1]]
            self.assertEqual(events, whole, length)

    def test_every_damaged_byte_loses_at_most_its_record_and_sends_nothing_that_may_have_been_sent(self):
        store = self.store()
        for number in range(3):
            store.put(b'{"n":%d}' % number, 1_700_000_000_000)
        store.forget()
        path = Path(self.folder.name) / self.names()[0]
        data = path.read_bytes()
        for place in range(len(data)):
            for name in self.names():
                os.unlink(Path(self.folder.name) / name)
            path.write_bytes(data[:place] + bytes([data[place] ^ 0x15]) + data[place + 1 :])
            store = self.store()
            sent = [event for _, batch in self.take_all(store) for event in batch]
            held = [event for one in store.list_held() for event in one.events]
            kept = [b'{"n":%d}' % number for number in range(3)]
            self.assertGreaterEqual(
                len(sent) + len(held), 1 if data[place : place + 1] == b"\n" else 2, place
            )
            self.assertEqual(held + sent, [event for event in kept if event in held + sent], place)
            self.assertTrue(self.warnings)
            store.forget()


class Synced(unittest.TestCase):
    def test_events_are_synced_before_enqueue_returns_only_if_asked_for(self):
        for sync in (False, True):
            with self.subTest(sync), tempfile.TemporaryDirectory() as folder, Server(
                [], Service(KEY)
            ) as server:
                with mock.patch("sealog._spool._sync") as synced:
                    client = Client(KEY, url=server.url, spool_dir=folder, spool_sync=sync, flush_interval=60)
                    client.enqueue("user.login")
                    self.assertEqual(synced.call_count, 2 if sync else 0)  # the header and the event
                    client.close()

    def test_closing_waits_until_the_spool_has_settled_the_last_batch(self):
        def slowly(*args):
            yield from deliver(*args)
            time.sleep(0.05)  # the last receipt has come, and the spool has not heard of it

        with Server([], Service(KEY)) as server, tempfile.TemporaryDirectory() as folder:
            with mock.patch("sealog._queue.deliver", slowly):
                client = Client(KEY, url=server.url, spool_dir=folder)
                client.enqueue("user.login")
                self.assertEqual(client.close(), 0)
            self.assertEqual(os.listdir(folder), [])

    def test_a_flush_leaves_the_room_that_its_events_took(self):
        def slowly(*args):
            yield from deliver(*args)
            time.sleep(0.05)  # as above

        with Server([], Service(KEY)) as server, tempfile.TemporaryDirectory() as folder:
            with mock.patch("sealog._queue.deliver", slowly):
                limits = {"spool_max_bytes": 4000, "on_full": "error"}
                with Client(KEY, url=server.url, spool_dir=folder, **limits) as client:
                    for _ in range(3):
                        client.enqueue("user.login", metadata={"t": "x" * 2500})
                        self.assertEqual(client.flush(), 0)


if __name__ == "__main__":
    unittest.main()
