"""The behaviour suite that all client libraries share. SEALOG_BIN names a server to run it against, too."""

import os
import subprocess
import sys
import unittest

from . import ROOT


class Suite(unittest.TestCase):
    def run_suite(self, *driver_options, server=None, only=()):
        options = [*(["--server", server] if server else []), *(part for name in only for part in ("--only", name))]
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
        self.run_suite("--async", only=(*parts, "list", "read", "catalog", "verify", "audit", "survives", "synced"))

    @unittest.skipUnless(os.environ.get("SEALOG_BIN"), "SEALOG_BIN names no server")
    def test_the_blocking_client_passes_against_a_real_server(self):
        self.run_suite(server=os.environ["SEALOG_BIN"])


if __name__ == "__main__":
    unittest.main()
