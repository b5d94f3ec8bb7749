"""Driver of the behaviour suite: sdk/suite/README.md, section 2. With --async it drives AsyncClient."""

import datetime
import json
import sys
import threading
import time
from pathlib import Path

if "--installed" not in sys.argv:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
import sealog  # noqa: E402
from sealog.middleware import TrustedProxies  # noqa: E402

ASYNC = "--async" in sys.argv
if ASYNC:
    import asyncio
SECONDS = ("retry_base", "retry_budget", "timeout", "flush_interval", "adopt_interval", "hold_after")
LOOP = asyncio.new_event_loop() if ASYNC else None


def cycle():
    value = {}
    value["self"] = value
    return value


SPECIAL = {
    "nan": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "date": lambda: datetime.datetime(2026, 11, 18, 1, 2, 3),
    "bytes": lambda: b"\x00\x01",
    "function": lambda: print,
    "cycle": cycle,
    "lone_surrogate": lambda: "a\ud800b",
}


def remove_secret(event):
    event = dict(event)
    event["metadata"] = {name: value for name, value in event.get("metadata", {}).items() if name != "secret"}
    return event


def fail(event):
    raise RuntimeError("broken")


HOOKS = {"remove_secret": remove_secret, "none": lambda event: None, "fail": fail}


def special(value):
    if isinstance(value, dict):
        if "$special" in value:
            return SPECIAL[value["$special"]]()
        return {name: special(part) for name, part in value.items()}
    return [special(part) for part in value] if isinstance(value, list) else value


class Driver:
    def __init__(self):
        self.client, self.changed = None, threading.Condition()
        self.seen = {"receipts": [], "errors": [], "warnings": []}
        self.background = {}

    def note(self, kind, value):
        with self.changed:
            self.seen[kind].append(value)
            self.changed.notify_all()

    def run(self, result):
        return asyncio.run_coroutine_threadsafe(result, LOOP).result() if ASYNC else result

    def do_new(self, options):
        options = dict(options)
        for name in SECONDS:
            if name + "_ms" in options:
                options[name] = options.pop(name + "_ms") / 1000
        offset = options.pop("clock_offset_ms", 0) / 1000
        if "before_send" in options:
            options["before_send"] = HOOKS[options["before_send"]]
        self.client = (sealog.AsyncClient if ASYNC else sealog.Client)(
            now=lambda: time.time() + offset,
            on_receipt=lambda receipt, event: self.note(
                "receipts", {**receipt._asdict(), "resource": event.get("resource")}
            ),
            on_error=lambda error, event: self.note(
                "errors", {"resource": event.get("resource"), "error": error.as_dict()}
            ),
            on_warning=lambda code, message: self.note("warnings", code),
            **options,
        )

    def do_log(self, event, key=None, context=None, traceparent=None):
        fields = dict(context or {}, **({"traceparent": traceparent} if traceparent else {}))

        async def log():
            with sealog.context(**fields):
                return await self.client.log(special(event), idempotency_key=key)

        if ASYNC:
            return self.run(log())._asdict()
        with sealog.context(**fields):
            return self.client.log(special(event), idempotency_key=key)._asdict()

    def do_enqueue(self, event=None, events=None, context=None):
        async def enqueue(one):
            with sealog.context(**(context or {})):
                await self.client.enqueue(one)

        for one in events or [event]:
            if ASYNC:
                self.run(enqueue(special(one)))
            else:
                with sealog.context(**(context or {})):
                    self.client.enqueue(special(one))

    def do_flush(self, timeout_ms):
        return {"pending": self.run(self.client.flush(timeout_ms / 1000))}

    def do_close(self, timeout_ms):
        return {"pending": self.run(self.client.close(timeout_ms / 1000))}

    def do_collect(self, until=None):
        with self.changed:
            enough = lambda: all(
                len(self.seen[kind]) >= count for kind, count in (until or {}).items()
            )  # noqa: E731
            self.changed.wait_for(enough, 10)
            seen, self.seen = self.seen, {"receipts": [], "errors": [], "warnings": []}
        return seen

    def do_is_pending(self, name, for_ms):
        self.background[name][0].join(for_ms / 1000)
        return {"pending": self.background[name][0].is_alive()}

    def do_join(self, name):
        thread, result = self.background[name]
        thread.join()
        if "raised" in result:
            raise result["raised"]
        return result["ok"]

    def do_held(self):
        read = lambda text: json.loads(text).get("resource")  # noqa: E731
        return [
            {"id": one.id, "reason": one.reason, "resources": [read(e) for e in one.events]}
            for one in self.client.held()
        ]

    def do_release(self, held, choice):
        self.client.release(held, choice)

    def do_audit(self):
        report = self.run(self.client.audit())
        return {**report._asdict(), "all_there": report.all_there}

    def do_list(self, filters=None, limit=100):
        events = self.client.events(limit=limit, **(filters or {}))

        async def collect():
            return [event async for event in events]

        return {"resources": [event.get("resource") for event in (self.run(collect()) if ASYNC else events)]}

    def do_get(self, log_id):
        return dict(self.run(self.client.get(log_id)))

    def do_actions(self):
        return {"total": len(self.run(self.client.actions()))}

    def do_verify(self, from_seq=1, to_seq=None):
        return self.run(self.client.verify(from_seq, to_seq))._asdict()

    def do_verify_events(self, texts, heads=()):
        return sealog.verify_events(texts, heads)._asdict()

    def do_verify_proof(self, text, proof, vkey=None):
        return sealog.verify_proof(text, proof, vkey)._asdict()

    def do_pseudonymize(self, key, value):
        return sealog.pseudonymize(key, value)

    def do_client_address(self, peer, forwarded, trusted):
        return TrustedProxies(trusted).client_address(peer, forwarded)

    def step(self, do, background=None, **arguments):
        method = getattr(self, "do_" + do)
        if background is None:
            return method(**arguments)
        result = {}

        def work():
            try:
                result["ok"] = method(**arguments)
            except sealog.SealogError as error:
                result["raised"] = error

        self.background[background] = threading.Thread(target=work, daemon=True), result
        self.background[background][0].start()
        return None


def main():
    if ASYNC:
        threading.Thread(target=LOOP.run_forever, daemon=True).start()
    driver = Driver()
    for line in sys.stdin:
        step = json.loads(line)
        number = step.pop("id")
        try:
            answer = {"id": number, "ok": driver.step(**step)}
        except sealog.SealogError as error:
            answer = {"id": number, "error": error.as_dict()}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
