"""Runs every Python example of docs/sdk-python.md and of the README, each as a program of its own."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

from . import KEY, ROOT
from server import ACTIONS, Server, Service


class Examples(unittest.TestCase):
    def run_page(self, page, at_least, replace=lambda code, url: code):
        blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
        self.assertGreaterEqual(len(blocks), at_least)
        names = re.findall(r'(?:log|enqueue)\(\s*"([a-z.]+)"', "".join(blocks))
        with tempfile.TemporaryDirectory() as folder, Server([], Service(KEY)) as server:
            for name in set(names) - {"user.logn"}:
                self.addCleanup(ACTIONS.pop, name, None) if name not in ACTIONS else None
                ACTIONS.setdefault(name, [])
            environment = {**os.environ, "SEALOG_URL": server.url, "SEALOG_API_KEY": KEY}
            environment["PYTHONPATH"] = str(ROOT / "sdk/python/src")
            program = os.environ.get("SEALOG_BIN")
            if program:
                command = [os.path.abspath(program), "actions", "--emit", "py", "--output", "actions.py"]
                subprocess.run(command, cwd=folder, env=environment, check=True)
            for number, block in enumerate(blocks, 1):
                if "import actions" in block and not program:
                    continue
                with self.subTest("%s, example %d" % (page, number)):
                    code = replace(block, server.url)
                    command = [sys.executable, "-W", "error", "-c", code]  # `import actions`: from the folder
                    done = subprocess.run(
                        command,
                        cwd=folder,
                        env=environment,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT,
                        timeout=60,
                    )
                    self.assertEqual(done.returncode, 0, done.stdout.decode() + block)
                    if number == 1 and "print(receipt" in block:
                        self.assertRegex(done.stdout.decode(), r"^[0-9A-Z]{26} \d+ [0-9a-f]{64}\n$")
            self.assertEqual(
                server.service.stored().count("document/249"),
                1 if "document/{number}" in "".join(blocks) else 0,
            )

    def test_the_page_in_the_documentation(self):
        self.run_page("docs/sdk-python.md", 12)

    def test_the_readme(self):
        def replace(code, url):
            self.assertIn("https://sealog.example.org", code)
            return (
                code.replace("https://sealog.example.org", url).replace("at_live_…", KEY)
                + "assert receipt.chain_seq == 1"
            )

        self.run_page("sdk/python/README.md", 1, replace)

    def test_the_line_in_the_readme_of_the_project(self):
        (line,) = re.findall(r"^\| \[Python\].*\| `(.*)` \|$", (ROOT / "README.md").read_text(), re.M)
        with Server([], Service(KEY)) as server:
            environment = {**os.environ, "SEALOG_URL": server.url, "SEALOG_API_KEY": KEY}
            environment["PYTHONPATH"] = str(ROOT / "sdk/python/src")
            code = "from sealog import Client\nassert %s.chain_seq == 1" % line
            subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)


if __name__ == "__main__":
    unittest.main()
