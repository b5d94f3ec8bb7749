"""The queue: callbacks, the end of a process, forks. What the suite cannot see from outside."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

from . import KEY, ROOT
from sealog import Client, Closed, QueueFull, ServerError
from sealog.testing import Recorder
from server import Server, Service


class Callbacks(unittest.TestCase):
    def test_a_callback_that_fails_ends_nothing_else(self):
        seen = []

        def on_receipt(receipt, event):
            seen.append(event["resource"])
            raise RuntimeError("broken")

        with self.assertLogs("sealog", "ERROR"), Recorder(on_receipt=on_receipt) as client:
            for number in range(3):
                client.enqueue("user.login", resource=str(number))
            self.assertEqual(client.flush(10), 0)
        self.assertEqual(seen, ["0", "1", "2"])

    def test_without_on_error_an_error_is_logged_with_its_event(self):
        client = Recorder(max_attempts=1)
        client.fail_with(500)
        with self.assertLogs("sealog", "ERROR") as logs:
            client.enqueue("user.login", resource="the-lost-one")
            client.flush(10)
        self.assertIn("the-lost-one", logs.output[0])

    def test_a_callback_may_enqueue_and_never_waits_for_itself(self):
        raised = []

        def on_receipt(receipt, event):
            try:
                for _ in range(3):
                    client.enqueue("user.logout")
            except QueueFull as error:
                raised.append(error)

        client = Recorder(on_receipt=on_receipt, queue_max_events=2)
        client.enqueue("user.login")
        self.assertEqual(client.flush(10), 0)
        self.assertTrue(raised)
        client._on_receipt = None
        client.close()

    def test_events_of_many_threads_are_all_recorded_in_the_order_of_each(self):
        client = Recorder(queue_max_events=50)
        threads = [
            threading.Thread(
                target=lambda n=n: [
                    client.enqueue("user.login", actor_id=str(n), resource=str(i)) for i in range(200)
                ]
            )
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        events = client.recorded
        for number in range(4):
            self.assertEqual(
                [e["resource"] for e in events if e["actor_id"] == str(number)], [str(i) for i in range(200)]
            )

    def test_log_raises_and_records_nothing_while_the_service_fails(self):
        client = Recorder(max_attempts=2)
        client.fail_with(503)
        self.assertRaises(ServerError, client.log, "user.login")
        client.fail_with(None)
        client.log("user.login")
        client.assert_logged("user.login")

    def test_a_defect_ends_no_sender_and_no_event_in_silence(self):
        errors = []
        client = Recorder(on_error=lambda error, event: errors.append((error.code, event["resource"])))
        with self.assertLogs("sealog", "ERROR"):
            with mock.patch.object(client._service, "_accept", side_effect=ZeroDivisionError):
                client.enqueue("user.login", resource="r1")
                self.assertEqual(client.flush(10), 0)
        client.enqueue("user.login", resource="r2")
        self.assertEqual([event["resource"] for event in client.recorded], ["r2"])
        self.assertEqual(errors, [("client/internal", "r1")])
        client.close()

    def test_a_receipt_that_cannot_be_kept_is_reported_and_the_event_still_ends(self):
        seen = []
        with tempfile.TemporaryDirectory() as folder:
            client = Recorder(
                receipts=folder + "/r", on_receipt=lambda receipt, event: seen.append(receipt.chain_seq)
            )
            with mock.patch("sealog.receipts.os.write", side_effect=OSError("full")), self.assertLogs(
                "sealog", "ERROR"
            ):
                client.log("user.login")
                client.enqueue("user.login")
                self.assertEqual(client.flush(10), 0)
            self.assertEqual((seen, client.audit().dropped), ([2], 2))
            client.close()

    def test_enqueue_that_waits_for_room_ends_with_closed(self):
        client = Recorder(
            queue_max_events=1, max_attempts=1000, retry_base=0.01, on_error=lambda error, event: None
        )
        client.fail_with(503)
        client.enqueue("user.login")
        raised = []

        def wait():
            try:
                client.enqueue("user.logout")
            except Closed as error:
                raised.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.05)  # a shorter pause tests less, and fails nothing
        client.close(0.05)
        thread.join(10)
        self.assertEqual(len(raised), 1)


PROGRAM = """
import os, signal, sys, threading, time
sys.path.insert(0, %r)
import sealog
client = sealog.Client(%r, url=sys.argv[1], flush_interval=60, spool_dir=sys.argv[2] or None)
"""


class Processes(unittest.TestCase):
    def setUp(self):
        self.server = Server([], Service(KEY)).__enter__()
        self.addCleanup(self.server.__exit__)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def start(self, code, spool="", **options):
        program = PROGRAM % (str(ROOT / "sdk/python/src"), KEY) + code
        return subprocess.Popen([sys.executable, "-c", program, self.server.url, spool], **options)

    def stored(self):
        return self.server.service.stored()

    def test_events_are_sent_at_the_end_of_the_program(self):
        self.start("client.enqueue('user.login', resource='r1')").wait(30)
        self.assertEqual(self.stored(), ["r1"])

    def test_events_are_sent_at_an_exception(self):
        process = self.start("client.enqueue('user.login', resource='r1'); 1 / 0", stderr=subprocess.DEVNULL)
        self.assertEqual((process.wait(30), self.stored()), (1, ["r1"]))

    def test_events_are_sent_at_sigterm_and_the_signal_still_ends_the_program(self):
        code = "client.close_on_signal(); client.enqueue('user.login', resource='r1'); print('ready', flush=True); time.sleep(60)"
        process = self.start(code, stdout=subprocess.PIPE)
        process.stdout.readline()
        process.terminate()
        self.assertEqual((process.wait(30), self.stored()), (-signal.SIGTERM, ["r1"]))
        process.stdout.close()

    def test_a_forked_child_sends_its_own_events_only(self):
        code = """
client.enqueue('user.login', resource='parent')
child = os.fork()
if not child:
    client.enqueue('user.login', resource='child')
    sys.exit(0)
os.waitpid(child, 0)
"""
        for spool in ("", str(Path(self.folder.name) / "spool")):
            with self.subTest(spool=bool(spool)):
                before = len(self.stored())
                self.assertEqual(self.start(code, spool).wait(30), 0)
                self.assertEqual(sorted(self.stored()[before:]), ["child", "parent"])
        self.assertEqual(os.listdir(Path(self.folder.name) / "spool"), [])

    def test_a_child_that_lives_on_does_not_hold_the_parents_spool(self):
        spool = str(Path(self.folder.name) / "spool")
        code = """
client.enqueue('user.login', resource='parent')
if not os.fork():
    print('ready', flush=True)
    sys.stdin.read()
    os._exit(0)
time.sleep(60)
"""
        process = self.start(code, spool, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process.stdout.readline()
        process.kill()
        process.wait()
        with Client(KEY, url=self.server.url, spool_dir=spool) as client:
            self.assertEqual(client.flush(10), 0)
        self.assertEqual(self.stored(), ["parent"])
        process.stdin.close()
        process.stdout.close()


if __name__ == "__main__":
    unittest.main()
