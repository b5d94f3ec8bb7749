"""The parts of scripts/torture that decide: what counts as lost, doubled or retried, and what a disk may forget."""

import os
import random
import struct
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from torture import disk, faults, oracle  # noqa: E402


class WhatADiskForgets(unittest.TestCase):
    # Ledger length, offset (None: a flush), data.
    WRITES = [(0, 0, b"a" * 512), (0, 512, b"b" * 512), (5, None, b""), (5, 0, b"c" * 1024), (9, 1024, b"d" * 512), (9, None, b"")]

    def state(self, at, kind, seed=1):
        with tempfile.TemporaryDirectory() as home:
            base, image = os.path.join(home, "base"), os.path.join(home, "image")
            with open(base, "wb") as file:
                file.truncate(2048)
            known = disk.CrashStates(base, self.WRITES, image).build(at, kind, random.Random(seed))
            with open(image, "rb") as file:
                return known, file.read()

    def test_what_was_flushed_is_there_in_every_state(self):
        for kind in disk.KINDS:
            for seed in range(20):
                _, image = self.state(3, kind, seed)
                self.assertEqual(image, b"a" * 512 + b"b" * 512 + b"\0" * 1024)

    def test_what_was_not_flushed_is_there_or_not(self):
        self.assertEqual(self.state(5, "none")[1], b"a" * 512 + b"b" * 512 + b"\0" * 1024)
        self.assertEqual(self.state(5, "all")[1], b"c" * 1024 + b"d" * 512 + b"\0" * 512)
        self.assertEqual({self.state(5, "subset", seed)[1][:1] for seed in range(20)}, {b"a", b"c"})
        torn = {self.state(5, "torn", seed)[1][:1024] for seed in range(40)}
        self.assertIn(b"a" * 512 + b"c" * 512, torn)
        self.assertIn(b"c" * 512 + b"b" * 512, torn)

    def test_only_answers_from_before_the_moment_count(self):
        self.assertEqual(self.state(2, "all")[0], 5)
        self.assertEqual(self.state(4, "all")[0], 9)

    def test_a_write_that_has_not_arrived_is_never_there(self):
        self.assertEqual(self.state(1, "all")[1], b"a" * 512 + b"\0" * 1536)


class WhenThePowerGoes(unittest.TestCase):
    def test_writes_are_torn_while_a_large_frame_is_under_way(self):
        frame = b"SLFR" + struct.pack("<IBBH", 100_000, 1, 0, 1) + bytes(500)
        small = b"SLFR" + struct.pack("<IBBH", 500, 1, 0, 1) + bytes(500)
        batch = b"SLFR" + struct.pack("<IBBH", 100_000, 1, 0, 100) + bytes(500)
        writes = [(0, 0, small), (0, None, b""), (0, 0, batch), (0, None, b""), (0, 0, frame), (0, 512, b"x"), (0, None, b"")]
        plan = disk.moments(writes + writes[:2], 40, ("none", "torn"), random.Random(1))
        self.assertEqual({moment for moment, kind in plan if kind == "torn"}, {5, 6})
        self.assertEqual(plan, sorted(plan))

    def test_a_missing_name_is_looked_for_shortly_after_a_segment_was_begun(self):
        header, frame, flush = (0, 0, b"SEALOGSG" + bytes(500)), (0, 512, b"SLFR"), (0, None, b"")
        writes = [frame, flush] * 50 + [header, flush] + [frame, flush] * 50
        plan = disk.moments(writes, 200, ("segment begun",), random.Random(1))
        self.assertEqual({moment for moment, _ in plan}, set(range(101, 101 + disk.AFTER_SEGMENT)))
        self.assertEqual(disk.survivors(writes[:3], "segment begun", random.Random(1)), [])

    def test_without_a_large_frame_any_moment_will_do(self):
        plan = disk.moments([(0, 0, b"x"), (0, None, b""), (0, 0, b"y")], 40, disk.KINDS, random.Random(1))
        self.assertEqual({kind for _, kind in plan}, set(disk.KINDS))


class WhatWasTriedAgain(unittest.TestCase):
    def test_a_sync_after_a_failed_one_of_the_same_file_counts(self):
        failed = '10 fdatasync(5</d/live/00000001.log>) = -1 EIO (Input/output error) (INJECTED)\n'
        again = '11 fdatasync(5</d/live/00000001.log>) = 0\n'
        other = '11 fdatasync(6</d/live/00000002.log>) = 0\n'
        self.assertEqual(faults.retried(failed), 0)
        self.assertEqual(faults.retried(failed + again), 1)
        self.assertEqual(faults.retried(again + failed), 0)
        self.assertEqual(faults.retried(failed + other), 0)

    def test_one_that_the_kernel_itself_failed_counts_too(self):
        begun = '10 fdatasync(5</d/live/00000001.log> <unfinished ...>\n'
        ended = '10 <... fdatasync resumed>) = -1 EIO (Input/output error)\n'
        again = '10 fdatasync(5</d/live/00000001.log>) = 0\n'
        self.assertEqual(faults.retried(begun + ended + again), 1)

    def test_an_interrupted_call_may_be_made_again(self):
        interrupted = '10 pwrite64(5</d/live/00000001.log>, "x", 1, 0) = -1 EINTR (Interrupted) (INJECTED)\n'
        self.assertEqual(faults.retried(interrupted + interrupted.replace("-1 EINTR", "1")), 0)


class WhatTheWriterSends(unittest.TestCase):
    def test_large_requests_are_large(self):
        sizes = {n % 8: sum(map(len, oracle.texts_of(b"a.b", b"l0t0n0", *oracle.request_of("l", n)))) for n in range(8)}
        self.assertGreaterEqual(sizes[0], 128 << 10)
        self.assertGreaterEqual(sizes[5], 128 << 10)
        self.assertEqual([oracle.request_of("l", n)[0] for n in (0, 2, 5)], [100, 100, 1])

    def test_no_request_is_larger_than_the_server_takes(self):
        for n in range(2000):
            count, pad = oracle.request_of("l", n)
            size = count * (10 + len(oracle.texts_of(b"user.login", b"s0t0n%d" % n, 1, pad)[0]))
            self.assertLess(size, (1 << 18) - 1000 if count == 1 else (2 << 20) - 1000)

    def test_a_ledger_that_was_cut_off_ends_with_its_last_whole_line(self):
        with tempfile.NamedTemporaryFile() as file:
            line = b"acked c0t0n1 7 %s 01ARZ3NDEKTSV4RRFFQ69G5FAV\n" % (b"ab" * 32)
            file.write(b"ready\nsent c0t0n1 1 false\n" + line + b"sent c0t0n2 1 tr")
            file.flush()
            ledger = oracle.Ledger()
            ledger.read(file.name)
            self.assertEqual(ledger.sent, {"c0t0n1"})
            self.assertEqual(ledger.acked["c0t0n1"][0], 7)
            before = oracle.Ledger()
            before.read(file.name, 30)
            self.assertEqual(before.acked, {})

    def test_the_services_own_records_are_told_by_their_project_and_have_an_id(self):
        # A UUID of version 8, and one of version 4.
        self.assertTrue(oracle.is_system(bytes.fromhex("00112233445586778899aabbccddeeff")))
        self.assertFalse(oracle.is_system(bytes.fromhex("00112233445546778899aabbccddeeff")))
        name, number = b'{"name":"a\nb","record_id":"414fd94a-0000-4000-8000-000000000001"}', b"414fd94a-0000-4000-8000-000000000001"
        text = b'"action":"sealog.tenant_created","actor_id":"host","resource":"tenant/x","metadata":' + name
        self.assertEqual(oracle.RECORD.match(text)[1], number)
        self.assertIsNone(oracle.RECORD.match(text.replace(b"sealog.", b"user.")))
        self.assertIsNone(oracle.NONCE.match(text))


class TheDisk(unittest.TestCase):
    def test_structures_are_those_of_the_kernel(self):
        from torture import fuse_disk

        self.assertEqual((fuse_disk.IN.size, fuse_disk.OUT.size, fuse_disk.ATTR.size), (40, 16, 88))
        with tempfile.NamedTemporaryFile() as image:
            image.truncate(4096)
            server = fuse_disk.Disk(image.name)
            self.assertEqual(len(fuse_disk.answer(server, fuse_disk.INIT, 1, b"")[1]), 64)
            self.assertEqual(len(fuse_disk.answer(server, fuse_disk.LOOKUP, 1, b"disk.img\0")[1]), 128)
            self.assertEqual(len(fuse_disk.answer(server, fuse_disk.GETATTR, 2, b"")[1]), 104)
            self.assertEqual(len(fuse_disk.answer(server, fuse_disk.STATFS, 1, b"")[1]), 80)
            write = struct.pack("<QQIIQII", 1, 512, 4, 0, 0, 0, 0) + b"data"
            self.assertEqual(fuse_disk.answer(server, fuse_disk.WRITE, 2, write)[0], 0)
            self.assertEqual(fuse_disk.answer(server, fuse_disk.READ, 2, write)[1], b"data")
            server.command("refuse", b"at".hex(), 1)
            self.assertNotEqual(fuse_disk.answer(server, fuse_disk.WRITE, 2, write)[0], 0)
            self.assertEqual(fuse_disk.answer(server, fuse_disk.WRITE, 2, write)[0], 0)
            os.close(server.fd)


if __name__ == "__main__":
    unittest.main()
