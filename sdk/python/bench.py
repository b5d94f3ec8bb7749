#!/usr/bin/env python3
"""What enqueue costs, as ratios in one run: to json.dumps of the same event, in memory and with a spool.

    python3 sdk/python/bench.py [--events 20000] [--check]

The service is a stand-in in this process, which answers at once (`--url` and SEALOG_API_KEY for a real
one). While enqueue is timed the sender is idle: it waits for flush, so its work is not counted as the
caller's. The rate of the whole way, queue to answer, is printed apart. --check fails if a ratio is over its
bound (3, and 10 with a spool).
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "src"))
from sealog.client import Client  # noqa: E402
from sealog.testing import Recorder  # noqa: E402

EVENT = {
    "action": "document.updated",
    "actor_id": "u-17",
    "resource": "document/42",
    "session_id": "s-9f2c81",
    "metadata": {
        "title": "Q3 report",
        "version": 12,
        "changed": ["title", "body"],
        "ip_address": "203.0.113.9",
        "size": 18_231.5,
    },
}


ROUNDS = 200


def round_us(call, count):
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count * 1e6


def enqueue_us(count, **options):
    """Microseconds of json.dumps and of enqueue, their ratio, and the events a second that the sender settles.

    Short rounds of both alternate, and the median of their ratios counts: a machine that others use is slow for
    a while, and then slow for both.
    """
    limits = {"queue_max_events": count * 2, "queue_max_bytes": 1 << 30, "spool_max_bytes": 1 << 30}
    client = Recorder(**{**limits, "flush_interval": 3600, **options})
    each, dumps, taken = count // ROUNDS, [], []
    try:
        with client._service.lock:  # the first request waits, and with it the sender
            for _ in range(ROUNDS):
                dumps.append(round_us(lambda: json.dumps(EVENT), each))
                taken.append(round_us(lambda: client.enqueue(EVENT), each))
        begin = time.perf_counter()
        assert client.flush(120) == 0
        rate = each * ROUNDS / (time.perf_counter() - begin)
    finally:
        client.close()
    ratio = statistics.median(two / one for one, two in zip(dumps, taken))
    return statistics.median(dumps), statistics.median(taken), ratio, rate


def memory_of(queue_events):
    """Bytes for a full queue whose service is down, and the bound that the options give."""
    client = Recorder(
        queue_max_events=queue_events, on_full="error", max_attempts=1000, on_error=lambda *_: None
    )
    tracemalloc.start()
    try:
        with client._service.lock:
            for _ in range(queue_events):
                client.enqueue(EVENT)
            used = tracemalloc.get_traced_memory()[0]
            for _ in range(queue_events):
                try:
                    client.enqueue(EVENT)
                except Exception:
                    pass
            more = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        client.close()
    return used, more


def main():
    parser = argparse.ArgumentParser(description="Measure enqueue against json.dumps")
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--check", action="store_true", help="fail if a ratio is over its bound")
    parser.add_argument("--url", help="also measure the rate against this service, with SEALOG_API_KEY")
    options = parser.parse_args()
    dumps, memory, ratio, memory_rate = enqueue_us(options.events)
    with tempfile.TemporaryDirectory() as folder:
        _, spool, spool_ratio, spool_rate = enqueue_us(options.events, spool_dir=folder)
    with tempfile.TemporaryDirectory() as folder:
        _, synced, _, _ = enqueue_us(max(options.events // 100, ROUNDS), spool_dir=folder, spool_sync=True)
    print("%-34s %8.2f us" % ("json.dumps of the event", dumps))
    print("%-34s %8.2f us  %5.2f times (bound 3)" % ("enqueue", memory, ratio))
    print("%-34s %8.2f us  %5.2f times (bound 10)" % ("enqueue with a spool", spool, spool_ratio))
    print("%-34s %8.2f us" % ("enqueue with a synced spool", synced))
    print("%-34s %8.0f events/s, with a spool %.0f" % ("sender, to a stand-in", memory_rate, spool_rate))
    used, more = memory_of(options.events)
    print(
        "%-34s %8.0f bytes for each event; after as many refused ones %.0f"
        % ("full queue", used / options.events, more / options.events)
    )
    if options.url:
        with Client(os.environ["SEALOG_API_KEY"], url=options.url) as client:
            begin = time.perf_counter()
            for _ in range(options.events):
                client.enqueue(EVENT)
            client.flush(120)
            print("%-34s %8.0f events/s" % ("service", options.events / (time.perf_counter() - begin)))
    return 1 if options.check and (ratio > 3 or spool_ratio > 10 or more > used * 1.1) else 0


if __name__ == "__main__":
    sys.exit(main())
