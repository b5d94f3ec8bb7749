"""What was sent, what was acknowledged, and what must therefore be there.

Everything is read with tools/sealog_verify.py, which shares no code with the store.
"""

import collections
import json
import os
import re
import statistics
import sys

from .common import ROOT, say

sys.path.insert(0, os.path.join(ROOT, "tools"))
import sealog_verify  # noqa: E402

NONCE = re.compile(rb'"action":"(?:a\.b|user\.login)","actor_id":"([cls][0-9]+t[0-9]+n[0-9]+)"')
RECORD = re.compile(rb'"action":"sealog\.[a-z_]+",.*"record_id":"([0-9a-f-]{36})"', re.DOTALL)
WORDS = re.compile(r"([cls])[0-9]+t([0-9]+)n([0-9]+)")
ULID = str.maketrans("0123456789ABCDEFGHJKMNPQRSTVWXYZ", "0123456789abcdefghijklmnopqrstuv")


def ulid(text):
    return int(text.translate(ULID), 32)


def request_of(shape, n):
    """How many events the n-th request of a thread has, and how long their padding is: the rules of examples/hammer.rs."""
    if shape == "c":
        return (20 if n % 7 == 0 else 1), n % 400
    if n % 8 == 0:
        return 100, 1500 + n * 37 % 4000
    if n % 8 == 2:
        return 100, n % 100
    if n % 8 == 5:
        return 1, (128 << 10) + n * 101 % 100_000
    return 1, n % 400


def texts_of(action, nonce, count, pad):
    text = b'"action":"%s","actor_id":"%s","resource":"r/%%d","metadata":{"pad":"%s"}}' % (action, nonce, b"x" * pad)
    return [text % i for i in range(count)]


class Ledger:
    """What one store's writers sent and what was acknowledged to them."""

    def __init__(self):
        self.sent, self.acked = set(), {}
        # The texts of the service's own records, in order, as the last check found them.
        self.records = []

    def read(self, path, known=None):
        """Takes in what a hammer said. If `known` is given, only what was acknowledged in so many bytes counts as that."""
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")[:-1]  # What follows the last line feed was cut off.
        end = 0
        for line in lines:
            end += len(line) + 1
            kind, *words = line.decode("ascii").split(" ")
            if kind == "sent":
                self.sent.add(words[0])
            elif kind == "acked" and (known is None or end <= known):
                self.acked[words[0]] = (int(words[1]), words[2], [ulid(word) for word in words[3:]])

    def mode(self, nonce):
        """The log that a request goes to, by its place in sealog_verify.MODES."""
        return int(int(WORDS.fullmatch(nonce)[2]) % 4 == 3)

    def expected(self, nonce):
        """Mode, tenant, project, flags of the frame, and the texts."""
        shape, thread, n = WORDS.fullmatch(nonce).groups()
        thread, n = int(thread), int(n)
        count, pad = request_of(shape, n)
        place = (self.mode(nonce), bytes([1] * 16), bytes([thread % 3 + 1] * 16), int(n % 2 == 0))
        return place, texts_of(b"a.b", nonce.encode(), count, pad)

    def keep(self, home, name):
        with open(os.path.join(home, name + ".ledger.json"), "w", encoding="ascii") as file:
            json.dump({"sent": sorted(self.sent), "acked": self.acked}, file)


class Tally:
    """What was found so far, over all stores of a run."""

    def __init__(self):
        self.lost, self.problems, self.counts = set(), [], collections.Counter()
        self.restarts = []

    def problem(self, kind, text):
        self.counts[kind] += 1
        self.problems.append("%s: %s" % (kind, text))

    def say_problems(self, since=0):
        for problem in self.problems[since : since + 3]:
            say("    " + problem[:500].replace("\n", " "))
        if len(self.problems) > since + 3:
            say("    and %d more" % (len(self.problems) - since - 3))

    def line(self, **more):
        counts = {kind: self.counts[kind] for kind in ("dup", "wrong", "invalid", "stuck")}
        words = {**more, "acked": self.counts["acked"], "lost": len(self.lost), **counts}
        words["torn_tails"] = self.counts["torn_tails"]
        if self.restarts:
            words["restart_ms_median"] = round(1000 * statistics.median(self.restarts))
            words["restart_ms_max"] = round(1000 * max(self.restarts))
        return " ".join("%s=%s" % word for word in words.items())


class TappedLog(sealog_verify.Log):
    """The verifier's own reader of a log; the tap is shown each frame that it yields."""

    tap, opened = None, []

    def __init__(self, *args):
        super().__init__(*args)
        TappedLog.opened.append(self)

    def frames(self):
        for frame, records in super().frames():
            # Without a check under way it is the verifier's own reader and nothing else.
            if TappedLog.tap:
                TappedLog.tap(self.mode, frame, records)
            yield frame, records


sealog_verify.Log = TappedLog
sealog_verify.progress = lambda count: None


def is_system(project):
    """A project whose id is a UUID of version 8 is reserved for what is changed of its tenant (docs/format.md)."""
    return project[6] >> 4 == 8


def check(path, ledger, tally):
    """Reads a store as it lies there and compares it with its ledger. Whether everything held."""
    found, before, last, sealed = {}, (len(tally.lost), len(tally.problems)), {}, set()
    ledger.records = []

    def tap_system(records):
        """The service's own records of what was changed: each is sealed once, whatever happened."""
        for record in records:
            ledger.records.append(record.text.decode())
            match = RECORD.match(record.text)
            if not match:
                tally.problem("wrong", "a system chain has what is no record: %r" % record.text[:200])
            elif match[1] in sealed:
                tally.problem("dup", "the record %s is there twice" % match[1].decode())
            else:
                sealed.add(match[1])

    def tap(mode, frame, records):
        if is_system(frame.project):
            return tap_system(records)
        match = NONCE.match(records[0].text)
        if not match:
            return tally.problem("wrong", "an event that the writer never sends: %r" % records[0].text[:200])
        nonce = match[1].decode()
        if nonce not in ledger.sent:
            return tally.problem("wrong", "%s is there but was never sent" % nonce)
        place, texts = ledger.expected(nonce)
        if place != (mode, frame.tenant, frame.project, frame.flags) or texts != [record.text for record in records]:
            tally.problem("wrong", "%s is not there as it was sent" % nonce)
        if nonce in found:
            tally.problem("dup", "%s is there twice" % nonce)
        ids = [int.from_bytes(record.log_id, "big") for record in records]
        chain = (mode, frame.tenant, frame.project)
        # Ids begin with the time, so this is also the order of times, whatever the clock did.
        if sorted({last.get(chain, -1), *ids}) != [last.get(chain, -1), *ids]:
            tally.problem("wrong", "%s has an id that is not behind the one before it" % nonce)
        last[chain] = ids[-1]
        found[nonce] = (frame.first_seq, records[-1].hash.hex(), ids)

    TappedLog.tap, TappedLog.opened = tap, []
    try:
        report = sealog_verify.verify_data(path, None)
    except (sealog_verify.Unreadable, OSError) as error:
        # A store that was cut off while it was being made has nothing in it; then nothing may have been acknowledged.
        if ledger.acked:
            tally.problem("invalid", str(error))
    else:
        if not report["valid"]:
            broken = [chain for chain in report["chains"] if not chain["valid"]]
            tally.problem("invalid", json.dumps(broken + report["damage"]))
        tally.counts["torn_tails"] += sum("Torn tail" in note for note in report["notes"])
        acked_modes = {ledger.mode(nonce) for nonce in ledger.acked}
        for log in TappedLog.opened:
            # A log's mark is written, whole, before the log accepts anything. Without one, a cut tail would pass for valid.
            if not log.mark.segment and log.mode in acked_modes:
                tally.problem("invalid", "%s has no mark that the verifier can read" % os.path.basename(log.path))
    for nonce, acked in ledger.acked.items():
        if found.get(nonce) != acked and (path, nonce) not in tally.lost:
            tally.lost.add((path, nonce))
            there = "chain_seq %d, hash %s" % found[nonce][:2] if nonce in found else "nothing"
            text = "lost: %s was acknowledged with chain_seq %d, hash %s, %d log_ids; there is %s"
            tally.problems.append(text % (nonce, *acked[:2], len(acked[2]), there))
    return before == (len(tally.lost), len(tally.problems))
