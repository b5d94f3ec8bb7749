"""Runs the tests of tools/go-proof: torchwood, which other people wrote, on the proofs of vectors/trust.

    python3 -m unittest discover -s tools -p 'test_*.py'

Where Go or a module is missing they are skipped, and the reason is printed.
"""

import functools
import os
import shutil
import subprocess
import sys
import unittest

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "go-proof")
# /usr/local/go is where the packages of go.dev put it. An older Go would download a newer one.
ENVIRONMENT = dict(
    os.environ, PATH=os.environ["PATH"] + ":/usr/local/go/bin", GOTOOLCHAIN="local", GOFLAGS="-mod=readonly -buildvcs=false"
)


def run(*command):
    return subprocess.run(command, cwd=FOLDER, env=ENVIRONMENT, capture_output=True, text=True)


@functools.lru_cache(maxsize=None)
def find_go():
    """Where Go is. None, and a line on standard error, if Go or a module cannot be had: after that every failure counts."""
    go = shutil.which("go", path=ENVIRONMENT["PATH"])
    problem = "there is no Go"
    if go:
        download = run(go, "mod", "download")
        problem = download.stderr if download.returncode else None
    if problem:
        print(f"SKIPPED: torchwood did NOT check the proofs of vectors/trust: {problem.strip()}", file=sys.stderr)
        return None
    return go


class Torchwood(unittest.TestCase):
    def test_torchwood_accepts_our_proofs_and_refuses_changed_ones(self):
        go = find_go()
        if not go:
            self.skipTest("Go or a module is missing")
        # Go would reuse a result although the vectors have changed.
        done = run(go, "test", "-count=1", "-v", "./...")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("--- PASS: "), 4, done.stdout)
        formatted = run(os.path.join(os.path.dirname(os.path.realpath(go)), "gofmt"), "-l", ".")
        self.assertEqual((formatted.returncode, formatted.stdout), (0, ""), formatted.stderr)


if __name__ == "__main__":
    unittest.main()
