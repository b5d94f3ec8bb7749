#!/usr/bin/env python3
"""The ledger: an application and the server are killed with SIGKILL again and again, and every event is
accounted for.

    SEALOG_BIN=path/to/sealog python3 sdk/python/tests/ledger.py [--app-kills 30] [--server-kills 20]

The application numbers its events, enqueues them with a spool, and writes each receipt to a file. At the
end: accepted events that are not stored (lost), events that are stored twice, events that never got a
receipt, receipts whose event is missing or another one, and pairs in the wrong order are counted. All must
be 0.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
from sealog import Client, verify_events  # noqa: E402

APPLICATION = """
import os, sys
sys.path.insert(0, %r)
from sealog import Client
url, folder = sys.argv[1:3]
accepted = os.open(folder + "/accepted", os.O_RDWR | os.O_CREAT | os.O_APPEND)
acknowledged = os.open(folder + "/acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
number = os.fstat(accepted).st_size // 8

def note(receipt, event):
    os.write(acknowledged, b"%%s %%d %%s\\n" %% (event["resource"].encode(), receipt.chain_seq, receipt.log_id.encode()))

client = Client(url=url, spool_dir=folder + "/spool", on_receipt=note, flush_interval=0.01, retry_base=0.02, timeout=3,
                queue_max_events=1000, spool_max_bytes=200_000)
if len(sys.argv) > 3:
    sys.exit(min(client.flush(60), 100))
while True:
    # A kill between the two lines leaves an accepted event without a note. The next process repeats
    # its number, so a number is unique only with its process.
    client.enqueue("document.updated", resource="%%d/%%d" %% (number, os.getpid()))
    os.write(accepted, b"%%7d\\n" %% os.getpid())
    number += 1
""" % str(Path(__file__).resolve().parents[1] / "src")

ZERO = (
    "lost",
    "twice",
    "never_acknowledged",
    "acknowledged_lost",
    "out_of_order",
    "not_sent",
    "left_in_spool",
)


class Sealog:
    """The real server on a fixed port, which can be killed and started again."""

    def __init__(self, program, folder):
        self.program, self.folder, self.port, self.process = program, Path(folder), 0, None

    def start(self):
        arguments = ["serve", "--listen", "127.0.0.1:%d" % self.port, "--data-dir", str(self.folder / "data")]
        rates = ["--limits-per-ip-rps", "0", "--limits-live-rps", "0"]
        with open(self.folder / "sealog.log", "wb") as log:
            clean = {name: value for name, value in os.environ.items() if not name.startswith("SEALOG_")}
            command = [self.program, *arguments, *rates]
            self.process = subprocess.Popen(command, cwd=self.folder, env=clean, stdout=log, stderr=log)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            text = (self.folder / "sealog.log").read_text()
            found = re.search(r"127\.0\.0\.1:([1-9]\d*)", text)
            if found:
                self.port = int(found[1])
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise SystemExit("the server did not start: " + (self.folder / "sealog.log").read_text()[-1000:])

    def kill(self):
        self.process.kill()
        self.process.wait()

    @property
    def url(self):
        return "http://127.0.0.1:%d" % self.port

    @property
    def key(self):
        return re.search(r"live key +(\S+)", (self.folder / "data/first-run.txt").read_text())[1]


def run(program, app_kills, server_kills, seed):
    """Returns the counts."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="sealog-ledger-") as folder:
        server = Sealog(program, folder)
        server.start()
        environment = {**os.environ, "SEALOG_API_KEY": server.key}

        def application(*more):
            command = [sys.executable, "-c", APPLICATION, server.url, folder, *more]
            return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)

        kills = ["app"] * app_kills + ["server"] * server_kills
        chance.shuffle(kills)
        app = application()
        try:
            for victim in kills:
                time.sleep(chance.uniform(0.1, 0.7))  # a random moment before a kill
                if victim == "server":
                    server.kill()
                    time.sleep(chance.uniform(0, 0.3))
                    server.start()
                else:
                    app.kill()
                    app.wait()
                    app = application()
            time.sleep(0.5)
            app.kill()
            app.wait()
            app = application("drain")
            not_sent = app.wait(120)
            return {
                **count(server, Path(folder), not_sent),
                "app_kills": app_kills + 1,
                "server_kills": server_kills,
            }
        finally:
            app.kill()
            app.wait()
            server.kill()


def count(server, folder, not_sent):
    with Client(server.key, url=server.url) as client:
        events = list(client.events())
        chain = verify_events(events)
    stored = [event["resource"] for event in reversed(events)]
    processes = (folder / "accepted").read_text().split()
    accepted = {"%d/%s" % pair for pair in enumerate(processes)}
    acknowledged = {}
    for line in (folder / "acknowledged").read_text().split("\n")[:-1]:
        resource, seq, log_id = line.split()
        acknowledged.setdefault(resource, set()).add((int(seq), log_id))
    sealed = {event["resource"]: (event["chain_seq"], event["log_id"]) for event in events}
    order = [int(resource.split("/")[0]) for resource in stored]
    left = [name for name in os.listdir(folder / "spool") if name.endswith(".spool")]
    return {
        "accepted": len(accepted),
        "stored": len(stored),
        "acknowledged": len(acknowledged),
        "lost": len(accepted - set(stored)),
        "twice": len(stored) - len(set(stored)),
        "never_acknowledged": len(accepted - set(acknowledged)),
        "acknowledged_lost": sum(
            values != {sealed.get(resource)} for resource, values in acknowledged.items()
        ),
        "out_of_order": sum(a > b for a, b in zip(order, order[1:])),
        "not_sent": not_sent,
        "left_in_spool": len(left),
        "chain_valid": chain.valid,
    }


def main():
    parser = argparse.ArgumentParser(
        description="Kill an application and its server, and account for every event"
    )
    parser.add_argument("--app-kills", type=int, default=30)
    parser.add_argument("--server-kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEALOG_SEED", time.time())))
    options = parser.parse_args()
    print("SEALOG_SEED=%d" % options.seed, flush=True)
    counts = run(
        os.path.abspath(os.environ["SEALOG_BIN"]), options.app_kills, options.server_kills, options.seed
    )
    print(json.dumps(counts))
    return 0 if counts["chain_valid"] and not any(counts[name] for name in ZERO) else 1


if __name__ == "__main__":
    sys.exit(main())
