#!/usr/bin/env python3
"""Writes the examples of the documentation as programs, and runs them against the scripted server.

docs.py FOLDER [COMMAND …]   FOLDER has a Cargo project; COMMAND runs one of its programs by its name.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "sdk/suite"))
from server import ACTIONS, Server, Service  # noqa: E402

KEY = "at_live_" + "A" * 49
PAGE = (ROOT / "docs" / "sdk-rust.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Around the line in the README of the project.
LINE = """use sealog_client::{Client, Event, Options};
let client = Client::new(Options::default())?;
let receipt = %s;
assert!(receipt.chain_seq.is_some());
"""


def blocks(text):
    return re.findall(r"^```rust\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def main() -> None:
    folder, command = Path(sys.argv[1]), sys.argv[2:]
    whole, *bodies = blocks(PAGE)
    (line,) = re.findall(r"^\| \[Rust\].*\| `(.*)` \|$", README, re.MULTILINE)
    bodies.append(LINE % line)
    if len(bodies) < 11 or "fn main" not in whole:
        raise SystemExit("found %d examples" % (len(bodies) + 1))
    functions = "".join(
        "async fn example%d() -> Result<(), Box<dyn std::error::Error>> {\n%s\nOk(())\n}\n" % (number, body)
        for number, body in enumerate(bodies)
    )
    calls = "".join("example%d().await?;\n" % number for number in range(len(bodies)))
    program = '%s#[tokio::main(flavor = "current_thread")]\nasync fn main() -> Result<(), Box<dyn std::error::Error>> {\n%sOk(())\n}\n'
    (folder / "src/bin").mkdir(exist_ok=True)
    (folder / "src/bin/whole.rs").write_text(whole, encoding="utf-8")
    (folder / "src/bin/bodies.rs").write_text(program % (functions, calls), encoding="utf-8")
    for name in re.findall(r'Event::new\("([a-z._]+)"\)', PAGE):
        if name != "user.logn":
            ACTIONS.setdefault(name, [])
    service = Service(KEY)
    with Server([], service) as server:
        environment = {**os.environ, "SEALOG_URL": server.url, "SEALOG_API_KEY": KEY}

        def run(name):
            return subprocess.run([*command, name], env=environment, cwd=folder, check=True, stdout=subprocess.PIPE)

        printed = run("whole").stdout.decode()
        if not re.fullmatch(r"[0-9A-Z]{26} 1 [0-9a-f]{64}\n", printed):
            raise SystemExit("the first example printed %r" % printed)
        run("bodies")
        if service.stored().count("document/249") != 1:
            raise SystemExit("the example with 250 events did not store its last one once")
    print("%d examples of docs/sdk-rust.md and the README run" % (len(bodies) + 1))


if __name__ == "__main__":
    main()
