"""The behaviour suite that all client libraries share. SEALOG_BIN names a server to run it against, too."""

import os
import subprocess
import sys
import unittest

from . import ROOT


class Suite(unittest.TestCase):
    def run_suite(self, *driver_options, server=None):
        runner = [sys.executable, str(ROOT / "sdk/suite/run.py"), *(["--server", server] if server else []), "--"]
        command = [*runner, sys.executable, str(ROOT / "sdk/python/tests/driver.py"), *driver_options]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout.decode())

    def test_the_blocking_client_passes(self):
        self.run_suite()

    def test_the_asyncio_client_passes(self):
        self.run_suite("--async")

    @unittest.skipUnless(os.environ.get("SEALOG_BIN"), "SEALOG_BIN names no server")
    def test_the_blocking_client_passes_against_a_real_server(self):
        self.run_suite(server=os.environ["SEALOG_BIN"])


if __name__ == "__main__":
    unittest.main()
