"""The behaviour suite that all client libraries share. SEALOG_BIN names a server to run it against, too."""

import os
import subprocess
import sys
import unittest

from . import ROOT


class Suite(unittest.TestCase):
    def run_suite(self, *driver_options, server=None, only=()):
        options = [
            *(["--server", server] if server else []),
            *(part for name in only for part in ("--only", name)),
        ]
        runner = [sys.executable, str(ROOT / "sdk/suite/run.py"), *options, "--"]
        # -S: the driver needs no site-packages, and starts in half of the time.
        command = [*runner, sys.executable, "-S", str(ROOT / "sdk/python/tests/driver.py"), *driver_options]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout.decode())

    def test_the_blocking_client_passes(self):
        self.run_suite()

    def test_the_asyncio_client_passes(self):
        # Its queue and spool are those of the blocking client; the rest has another way to the network.
        parts = ("log", "http", "before_send", "bad_", "preflight", "context", "full_", "close", "flush")
        self.run_suite(
            "--async", only=(*parts, "list", "read", "catalog", "verify", "audit", "proof", "survives", "synced")
        )

    @unittest.skipUnless(os.environ.get("SEALOG_BIN"), "SEALOG_BIN names no server")
    def test_the_blocking_client_passes_against_a_real_server(self):
        self.run_suite(server=os.environ["SEALOG_BIN"])

    def test_the_runner_notices_a_driver_that_is_wrong(self):
        runner = [
            sys.executable,
            str(ROOT / "sdk/suite/run.py"),
            "--only",
            "pseudonymize",
            "--",
            sys.executable,
            "-S",
            "-c",
        ]
        for code, said in [
            # It stays until it has been asked; one that has ended is the next case.
            ("print('hello', flush=True); input()", "hello"),
            ("pass", "the driver has ended"),
            ('import sys\nfor line in sys.stdin: print(\'{"id": 1, "ok": "ps_0"}\', flush=True)', "ps_0"),
            (
                'import sys\nfor line in sys.stdin: print(\'{"id": 1, "error": {"code": "x"}}\', flush=True)',
                "failed with",
            ),
        ]:
            with self.subTest(said):
                done = subprocess.run([*runner, code], stdout=subprocess.PIPE, timeout=60)
                self.assertEqual(done.returncode, 1)
                self.assertIn("FAILED pseudonymize_is_the_same_everywhere", done.stdout.decode())
                self.assertIn(said, done.stdout.decode())


if __name__ == "__main__":
    unittest.main()
