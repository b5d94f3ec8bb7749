"""Tests of sealog_verify.py. Everything is built by hand here: chains with hashlib, segments with struct.

    python3 -m unittest discover -s tools -p 'test_*.py'
"""

import gzip
import hashlib
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

TOOLS = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, TOOLS)
import sealog_verify as sv  # noqa: E402

TENANT, PROJECT, OTHER = (str(uuid.UUID(int=n)) for n in (0xA1 << 120 | 1, 0xB2 << 120 | 2, 0xC3 << 120 | 3))
ZEROS = "0" * 64
DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
START_MS = 1767225599999  # 2025-12-31T23:59:59.999Z, so that chains cross a year's end


def ulid(ms, low=0):
    value = ms << 80 | low
    return "".join(DIGITS[value >> shift & 31] for shift in range(125, -1, -5))


def time_text(ms):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000)) + ".%03dZ" % (ms % 1000)


def event(seq, prev_hash, ms=None, payload=(), **fields):
    """A stored event as a dict of raw texts, so that numbers and odd strings stay as they are."""
    ms = START_MS + seq if ms is None else ms
    raw = {
        "log_id": '"%s"' % ulid(ms, seq), "tenant_id": '"%s"' % TENANT, "project_id": '"%s"' % PROJECT,
        "schema_version": "1", "action": '"user.login"', "category": '"auth"', "actor_id": '"u_%d"' % seq,
        "resource": '"session/1"', "metadata": '{"n":%d.0,"t":"\u00e9"}' % seq, "timestamp": '"%s"' % time_text(ms),
        "chain_seq": str(seq), "prev_hash": '"%s"' % prev_hash,
    }  # fmt: skip
    raw.update(fields)
    keys = ("log_id", "tenant_id", "action", "actor_id", "resource", "metadata")
    text = "{" + ",".join('"%s":%s' % (key, dict(payload).get(key, raw.get(key) or "null")) for key in keys) + "}"
    raw["hash"] = '"%s"' % hashlib.sha256((prev_hash + text + str(ms)).encode()).hexdigest()
    return raw


def chain(count, **fields):
    events, prev_hash = [], ZEROS
    for seq in range(1, count + 1):
        events.append(event(seq, prev_hash, **fields))
        prev_hash = events[-1]["hash"].strip('"')
    return events


def text(raw):
    return "{" + ",".join('"%s":%s' % pair for pair in raw.items() if pair[1] is not None) + "}"


def hash_of(raw):
    return raw["hash"].strip('"')


def check(events, expect=()):
    data = "\n".join(e if isinstance(e, str) else text(e) for e in events).encode()
    verdict = sv.Chain(expect)
    for e in sv.oldest_first(sv.read_events(data)):
        if not verdict.add(e):
            break
    return verdict.result()


def run(*args, stdin=b""):
    command = [sys.executable, os.path.join(TOOLS, "sealog_verify.py"), *args]
    done = subprocess.run(command, input=stdin, capture_output=True)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Scanner(unittest.TestCase):
    def same(self, given, want=None):
        got = sv.canonical(given if isinstance(given, bytes) else given.encode())
        want = given if want is None else want
        self.assertEqual(got, want if isinstance(want, bytes) else want.encode())
        self.assertEqual(sv.canonical(got), got, "canonical text is its own canonical text")

    def refused(self, given, offset=None):
        with self.assertRaises(sv.Unreadable, msg=repr(given[:80])) as caught:
            sv.canonical(given if isinstance(given, bytes) else given.encode())
        if offset is not None:
            self.assertEqual(caught.exception.offset, offset)

    def test_every_escape_has_one_spelling(self):
        self.same(r'"\"\\\/\b\f\n\r\t"', r'"\"\\/\b\f\n\r\t"')
        self.same(r'"\u0022\u005C\u002f\u0008\u000C\u000a\u000D\u0009"', r'"\"\\/\b\f\n\r\t"')
        for code in range(0x20):
            short = {8: r"\b", 9: r"\t", 10: r"\n", 12: r"\f", 13: r"\r"}.get(code, "\\u%04x" % code)
            self.same('"\\u%04X"' % code, '"%s"' % short)
        self.same(r'"\u007f\u00e9\u20AC\uFFFF\u2028"', '"\x7f\u00e9\u20ac\uffff\u2028"')
        self.same(r'{"\u0061":"\u0041"}', '{"a":"A"}')

    def test_surrogate_pairs_become_characters(self):
        self.same(r'"\ud83d\ude00\uD83D\uDE00"', '"\U0001f600\U0001f600"')
        self.same(r'"\ud800\udc00\udbff\udfff"', '"\U00010000\U0010ffff"')

    def test_lone_surrogates_stay_escapes_in_lower_case(self):
        self.same(r'"\uD83D"', r'"\ud83d"')
        self.same(r'"\uDE00\uD83D"', r'"\ude00\ud83d"')
        self.same(r'"\uD83D\uD83D\uDE00"', '"\\ud83d\U0001f600"')
        self.same(r'"\uD83Dx\uDE00"', r'"\ud83dx\ude00"')
        self.same(r'"\uD83D\\uDE00"', r'"\ud83d\\uDE00"')
        self.same(r'"\uD83D\n\uDE00"', r'"\ud83d\n\ude00"')

    def test_bad_escapes_are_refused_where_they_stand(self):
        for bad in (r"\x41", r"\u12", r"\u12G4", r"\U0041", r"\'", r"\a", r"\0", "\\\u00e9", r"\u+041", r"\u 041"):
            self.refused('"ab%s"' % bad, 3)
        self.refused('"abc\\"', 0)
        self.refused('"abc', 0)

    def test_control_characters_in_strings_are_refused(self):
        for code in range(0x20):
            self.refused('"a%sb"' % chr(code))
            self.refused('"a\\%sb"' % chr(code))
        self.same('"\x7f\x80"')

    def test_numbers_keep_their_literal(self):
        for good in "0 -0 1 -1 10 1.0 1.50 0.1 -0.0 1e5 1E5 1e+5 1e-05 0e0 1.5E+10 12345678901234567890 1e999".split():
            self.same(good)
            self.same("[%s , %s]" % (good, good), "[%s,%s]" % (good, good))
        self.same("9" * 10000)

    def test_other_numbers_are_refused(self):
        bad = "01 -01 1. .5 - 1e 1e+ +1 00 0x1 1.e5 1.5. --1 1_0 NaN Infinity -Infinity 1e1.5 \u0661"
        for number in bad.split() + ["- 1", "1 2"]:
            self.refused(number)
            self.refused("[%s]" % number)
            self.refused('{"a":%s}' % number)

    def test_literals(self):
        self.same(" [ true , false , null ] ", "[true,false,null]")
        for bad in ("True", "nul", "nulll", "truefalse", "undefined", "'a'", "", " ", "// x", "/* */ 1", "1 //"):
            self.refused(bad)

    def test_white_space_outside_strings_goes(self):
        self.same(' {\r\n\t"a b" : [ 1 , { } , [ ] , "  " ] } \n', '{"a b":[1,{},[],"  "]}')
        for bad in ("\x0b1", "\x0c1", "\u00a01", "1\u2028", "\ufeff1", "1\0"):
            self.refused(bad)

    def test_order_and_duplicates_of_keys_stay(self):
        self.same('{"b":1,"a":2,"10":3,"9":4,"b":5,"":{"__proto__":null}}')

    def test_commas_and_brackets(self):
        bad = '[1,] [,1] [,] [1,,2] {"a":1,} {,} {"a"} {"a":} {:1} {"a":1,,"b":2} {a:1} {1:1} [1 {"a":1 [1} {"a":1] ]'
        for given in bad.split() + ["[1 2]", '{"a":1 "b":2}', "[", "{", '{"a"', "}", "[]]", "{}{}", "[] []", ",", ":"]:
            self.refused(given)

    def test_text_that_is_not_utf_8_is_refused(self):
        for bad in (b"\x80", b"\xc3", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff", b"\xe2\x82"):
            self.refused(b'"ab' + bad + b'"', 3)
            self.refused(b'{"ab' + bad + b'":1}', 4)
            self.refused(bad)
        self.same(b'"\xf4\x8f\xbf\xbf"')

    def test_120000_levels(self):
        depth = 120000
        for opening, middle, closing in (("[", "", "]"), ('{"a":', "1", "}"), ('[{"k":', "null", "}]")):
            self.same(opening * depth + middle + closing * depth)
        self.refused("[" * depth)
        self.refused("[" * depth + "]" * (depth + 1))

    def test_60000_keys(self):
        members = ['"key%d" : "v\\u00e9%d"' % (n % 50000, n) for n in range(60000)]
        begun = time.monotonic()
        got = sv.canonical(("{" + ", ".join(members) + "}").encode())
        self.assertLess(time.monotonic() - begun, 10)
        want = [member.replace(" : ", ":").replace("\\u00e9", "\u00e9") for member in members]
        self.assertEqual(got.decode(), "{" + ",".join(want) + "}")

    def test_long_strings_take_linear_time(self):
        begun = time.monotonic()
        self.same('"' + r"\u0001" * 500000 + '"')
        self.refused('"' + r"\\" * 500000)
        self.refused('"' + "a" * 5000000)
        self.refused(" " * 5000000)
        self.refused("[" + "1" * 5000000 + "x")
        self.assertLess(time.monotonic() - begun, 20)

    def test_agrees_with_the_json_module_where_that_loses_nothing(self):
        rng = random.Random(7)

        def value(depth):
            kind = rng.randrange(7 if depth else 5)
            if kind == 5:
                return [value(depth - 1) for _ in range(rng.randrange(4))]
            if kind == 6:
                return {word(): value(depth - 1) for _ in range(rng.randrange(4))}
            return (word(), rng.randrange(-(10**20), 10**20), True, False, None)[kind]

        def word():
            return "".join(rng.choice('aZ/"\\\b\t\n\x01\x1f\x7f\u00e9\u2028\U0001f600 ') for _ in range(rng.randrange(8)))

        for _ in range(500):
            given = value(5)
            want = json.dumps(given, ensure_ascii=False, separators=(",", ":"))
            self.same(json.dumps(given, indent=rng.choice((None, 1))), want)


class Events(unittest.TestCase):
    def broken(self, result, at, reason, checked, raw=None):
        got = {key: result.get(key) for key in ("valid", "broken_at", "last_seq", "reason", "checked")}
        self.assertEqual(got, {"valid": False, "broken_at": at, "last_seq": at, "reason": reason, "checked": checked})
        if raw:
            self.assertEqual(result["broken_hash"], raw if isinstance(raw, str) else hash_of(raw))

    def test_a_hash_known_from_elsewhere(self):
        # Written out in full, so that the rule stands here without any code in between.
        given = (
            ZEROS + '{"log_id":"01KDVDN9ZZ0000000000000001","tenant_id":"a1000000-0000-0000-0000-000000000001",'
            '"action":"user.login","actor_id":null,"resource":null,"metadata":null}1767225599999'
        )
        want = hashlib.sha256(given.encode()).hexdigest()
        line = (
            '{"log_id":"01KDVDN9ZZ0000000000000001","tenant_id":"a1000000-0000-0000-0000-000000000001",'
            '"project_id":"b2000000-0000-0000-0000-000000000002","schema_version":1,"action":"user.login",'
            '"timestamp":"2025-12-31T23:59:59.999Z","chain_seq":1,"prev_hash":"%s","hash":"%s"}' % (ZEROS, want)
        )
        self.assertEqual(ulid(START_MS, 1), "01KDVDN9ZZ0000000000000001")
        self.assertTrue(check([line])["valid"])

    def test_a_sound_chain(self):
        result = check(chain(5))
        self.assertEqual([result[k] for k in ("valid", "checked", "first_seq", "last_seq")], [True, 5, 1, 5])
        self.assertNotIn("reason", result)

    def test_absent_and_null_are_the_same(self):
        for absent in (None, "null"):
            self.assertTrue(check(chain(2, actor_id=absent, resource=absent, metadata=absent))["valid"])

    def test_awkward_metadata_survives(self):
        awkward = '{"a":1.0,"a":-0,"b":1e5,"c":12345678901234567890,"d":"\\ud800","e":"\\u0000\\n/\u2028"}'
        self.assertTrue(check(chain(2, metadata=awkward))["valid"])
        deep = "{" + '"a":{' * 50000 + "}" * 50000 + "}"
        self.assertTrue(check(chain(1, metadata=deep))["valid"])

    def test_a_reindented_event_is_restored(self):
        raw = event(1, ZEROS, metadata='{ "a" : [ 1.0 ,\n "\\u00e9\\/" ] }', payload={"metadata": '{"a":[1.0,"\u00e9/"]}'})
        self.assertTrue(check(["{\n  " + text(raw)[1:-1].replace(',"', ',\n  "') + "\n}\n"])["valid"])

    def test_tampering_with_what_is_hashed(self):
        changes = {
            "action": '"user.logout"', "actor_id": '"u_x"', "resource": None, "metadata": '{"n":3,"t":"\u00e9"}',
            "timestamp": '"%s"' % time_text(START_MS), "hash": '"%s"' % ("ab" * 32),
            "log_id": '"%s"' % ulid(START_MS + 3, 99),
        }  # fmt: skip
        for field, value in changes.items():
            events = chain(4)
            events[2][field] = value
            with self.subTest(field):
                self.broken(check(events), 3, "hash", 3, events[2])

    def test_a_resealed_event_breaks_the_next_link(self):
        events = chain(4)
        events[1] = event(2, hash_of(events[0]), action='"user.deleted"')
        self.broken(check(events), 3, "link", 3, events[2])

    def test_first_event_must_link_to_zeros(self):
        self.broken(check([event(1, "1" * 64)]), 1, "link", 1)

    def test_gaps_repeats_and_disorder(self):
        e = chain(5)
        self.broken(check([e[0], e[1], e[3], e[4]]), 4, "gap", 3, e[3])
        self.broken(check([e[4], e[3], e[1], e[0]]), 4, "gap", 3, e[3])  # newest first, with a hole
        self.broken(check([e[0], e[1], e[1], e[2]]), 2, "gap", 3, e[1])
        self.broken(check([e[0], e[2], e[1]]), 3, "gap", 2, e[2])
        self.broken(check([e[4], e[3], e[2], e[4]]), 4, "gap", 2, e[3])  # falls, but not throughout
        self.broken(check([event(0, ZEROS)]), 0, "gap", 1)
        self.broken(check([event(-3, ZEROS, log_id='"%s"' % ulid(START_MS))]), 1, "malformed", 1)

    def test_newest_first_is_turned_round(self):
        result = check(chain(5)[::-1])
        self.assertEqual([result[k] for k in ("valid", "first_seq", "last_seq")], [True, 1, 5])

    def test_another_chain(self):
        for field in ("tenant_id", "project_id"):
            events = chain(3)
            events[1][field] = '"%s"' % OTHER
            self.broken(check(events), 2, "chain", 2, events[1])

    def test_order(self):
        first = event(1, ZEROS)
        same_id = event(2, hash_of(first), ms=START_MS + 1, log_id=first["log_id"])
        self.broken(check([first, same_id]), 2, "order", 2, same_id)
        other_time = event(2, hash_of(first), log_id='"%s"' % ulid(START_MS + 3))
        self.broken(check([first, other_time]), 2, "order", 2)
        same_ms = event(2, hash_of(first), ms=START_MS + 1)
        self.assertTrue(check([first, same_ms])["valid"])

    def test_expected_heads(self):
        e = chain(5)
        heads = [(seq + 1, hash_of(raw)) for seq, raw in enumerate(e)]
        self.assertTrue(check(e, heads)["valid"])
        self.broken(check(e, [(3, "ab" * 32)]), 3, "head", 3, e[2])
        self.broken(check(e[:3], heads[3:]), 4, "tail", 3, heads[3][1])
        self.broken(check(e[:3], heads[4:]), 4, "tail", 3, heads[4][1])
        self.broken(check([], heads[1:2]), 1, "tail", 0, heads[1][1])

    def test_part_of_a_chain(self):
        e = chain(5)
        self.assertTrue(check(e[2:])["valid"])
        self.assertEqual(check(e[2:])["first_seq"], 3)
        self.assertTrue(check(e[2:], [(2, hash_of(e[1]))])["valid"])
        self.broken(check(e[2:], [(2, "ab" * 32)]), 3, "link", 1, e[2])
        early = check(e[2:], [(1, "ab" * 32)])
        self.assertTrue(early["valid"])
        self.assertIn("NOT CHECKED", early["message"])

    def test_the_first_reason_wins(self):
        e = chain(3)
        e[1].update(project_id='"%s"' % OTHER, chain_seq="7", action='"x"')
        self.broken(check(e, [(2, "ab" * 32)]), 7, "chain", 2)
        e[1].update(project_id='"%s"' % PROJECT)
        self.broken(check(e, [(2, "ab" * 32)]), 7, "gap", 2)
        e[1].update(chain_seq="2", prev_hash='"%s"' % ZEROS)
        self.broken(check(e, [(2, "ab" * 32)]), 2, "link", 2)
        e[1].update(prev_hash=e[0]["hash"], log_id=e[0]["log_id"])
        self.broken(check(e, [(2, "ab" * 32)]), 2, "hash", 2)

    def test_malformed_events(self):
        changes = {
            "log_id": ('"%s"' % ulid(START_MS).lower(), '"x"', "1", None, '"8' + "0" * 25 + '"'),
            "tenant_id": ('"%s"' % TENANT.upper(), None, "null"), "project_id": ('""', None),
            "action": ("null", None, "1"), "actor_id": ("1", "{}"), "resource": ("[]",), "metadata": ("[]", '"x"', "1"),
            "timestamp": (
                None, "1", '"2026-02-29T00:00:00.000Z"', '"2026-01-01T24:00:00.000Z"', '"2026-01-01T00:00:60.000Z"',
                '"2026-01-01T00:00:00Z"', '"2026-01-01T00:00:00.0000Z"', '"2026-01-01 00:00:00.000Z"',
                '"2026-01-01T00:00:00.000+00:00"', '"0000-01-01T00:00:00.000Z"',
            ),
            "prev_hash": ('"%s"' % ("AB" * 32), '"%s"' % ("ab" * 31), None),
            "hash": ('"%s"' % ("AB" * 32), '"%s"' % ("ab" * 33), None, "null"),
            "chain_seq": (None, '"2"', "2.0", "2e0", "null", "9" * 5000),
        }  # fmt: skip
        for field, values in changes.items():
            for value in values:
                events = chain(3)
                events[1][field] = value
                with self.subTest(field, value=value):
                    self.broken(check(events), 2, "malformed", 2)
        self.broken(check([text(event(1, ZEROS)), "{}"]), 2, "malformed", 2)
        self.broken(check(["{}"]), 1, "malformed", 1)

    def test_a_field_that_stands_twice(self):
        events = chain(3)
        for field in ("hash", "metadata", "chain_seq", "h\\u0061sh"):
            doubled = text(events[1])[:-1] + ',"%s":%s}' % (field, events[1].get(field, '"x"'))
            self.broken(check([events[0], doubled, events[2]]), 2, "malformed", 2)
        harmless = text(events[1])[:-1] + ',"country":"DE","country":"FR"}'
        self.assertTrue(check([events[0], harmless, events[2]])["valid"])


class Forms(unittest.TestCase):
    def seqs(self, given):
        return [e.seq for e in sv.read_events(given.encode())]

    def setUp(self):
        self.e = [text(raw) for raw in chain(6)]

    def page(self, *numbers, more="true"):
        events = ",".join(self.e[n - 1] for n in numbers)
        return '{"events":[%s],"next_cursor":"x\\"]}","has_more":%s}' % (events, more)

    def test_every_form(self):
        e, page = self.e, self.page
        self.assertEqual(self.seqs("\n".join(e)), [1, 2, 3, 4, 5, 6])
        self.assertEqual(self.seqs("\r\n\n" + "\r\n".join(e) + "\n\n"), [1, 2, 3, 4, 5, 6])
        self.assertEqual(self.seqs("".join(e)), [1, 2, 3, 4, 5, 6])
        self.assertEqual(self.seqs("[" + ",".join(e) + "]"), [1, 2, 3, 4, 5, 6])
        self.assertEqual(self.seqs(page(6, 5) + page(4, 3) + "\n" + page(2, 1, more="false")), [6, 5, 4, 3, 2, 1])
        self.assertEqual(self.seqs("[%s,%s]" % (page(6, 5), page(4))), [6, 5, 4])
        self.assertEqual(self.seqs(e[0] + page(2) + "[" + e[2] + "]" + e[3] + page() + "[]"), [1, 2, 3, 4])
        self.assertEqual(self.seqs('{"has_more":false , "x":{"events":[1]}, "events" : [ %s ] }' % e[0]), [1])
        self.assertEqual(self.seqs(""), [])

    def test_pretty_printed(self):
        pages = self.page(2, 1).replace(",", " ,\n  ").replace(":[", " : [\n")
        self.assertEqual(self.seqs(pages + "\n" + pages), [2, 1, 2, 1])

    def test_what_is_not_events(self):
        e = self.e[0]
        for bad in (
            "1", '"x"', "null", e + ",", e + "]", "[" + e, "[" + e + ",]", "[" + e + " " + e + "]", "[1]", "[null]", e[:-1],
            '{"events":[' + e + "]", '{"events":[' + e + ",]}", '{"events":[' + e + ']"a":1}', '{"events":[],}', "\ufeff" + e,
            '{"events":[],"events":[%s]}' % e, '{"events":[],' + e[1:], e[:-1] + ',"events":[]}', "]", "}",
        ):  # fmt: skip
            with self.subTest(bad[:60]), self.assertRaises(sv.Unreadable):
                self.seqs(bad)

    def test_deep_arrays_do_not_recurse(self):
        self.assertEqual(self.seqs("[" * 100000 + self.e[0] + "]" * 100000), [1])


class CommandLine(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = scratch.name
        self.raw = chain(7)
        self.lines = "".join(text(raw) + "\n" for raw in self.raw).encode()

    def file(self, name, data):
        path = os.path.join(self.dir, name)
        with open(path, "wb") as out:
            out.write(data)
        return path

    def test_valid_is_0(self):
        code, out, err = run(self.file("a", self.lines))
        self.assertEqual((code, err), (0, ""))
        self.assertIn("7:" + hash_of(self.raw[-1]), out)
        code, out, _ = run("--json", "-", stdin=self.lines)
        self.assertEqual(code, 0)
        result = json.loads(out)
        self.assertEqual([result[k] for k in ("valid", "checked", "first_seq", "last_seq")], [True, 7, 1, 7])

    def test_broken_is_10(self):
        path = self.file("a", self.lines.replace(b'"u_5"', b'"u_6"'))
        code, out, err = run(path)
        self.assertEqual((code, err), (10, ""))
        self.assertIn("chain_seq 5 (hash)", out)
        code, out, _ = run("--json", path)
        result = json.loads(out)
        self.assertEqual((code, result["broken_at"], result["reason"], result["checked"]), (10, 5, "hash", 5))
        self.assertEqual(result["broken_hash"], hash_of(self.raw[4]))

    def test_unreadable_is_2_with_file_and_offset(self):
        path = self.file("cut", self.lines[:-20])
        code, out, err = run(path)
        self.assertEqual((code, out), (2, ""))
        self.assertRegex(err, re.escape(path) + r": byte \d+: ")
        code, _, err = run(self.file("utf", b'{"a":"\xff"}'))
        self.assertEqual(code, 2)
        self.assertIn("byte 6", err)
        self.assertEqual(run(os.path.join(self.dir, "none"))[0], 2)
        self.assertEqual(run(self.dir)[0], 2)

    def test_usage_is_2(self):
        for args in ((), ("--expect", "x", "-"), ("--expect", "0:" + ZEROS, "-"), ("--what",), ("--data", "x", "-")):
            self.assertEqual(run(*args)[0], 2, args)
        self.assertEqual(run("--data", self.dir, "--export", "not-a-uuid")[0], 2)
        code, out, _ = run("--help")
        self.assertEqual(code, 0)
        self.assertIn("exit codes", out)

    def test_expect(self):
        head = "7:" + hash_of(self.raw[-1])
        self.assertEqual(run("--expect", head, "--expect", "2:" + hash_of(self.raw[1]), "-", stdin=self.lines)[0], 0)
        cut = b"".join(self.lines.splitlines(True)[:5])
        code, out, _ = run("--json", "--expect", head, "-", stdin=cut)
        self.assertEqual((code, json.loads(out)["reason"], json.loads(out)["broken_at"]), (10, "tail", 6))

    def test_no_events(self):
        self.assertEqual(run("-")[0], 2)
        self.assertEqual(run("-", stdin=b'{"events":[],"has_more":false}')[0], 2)
        code, out, _ = run("--json", "--expect", "3:" + ZEROS, "-")
        result = json.loads(out)
        self.assertEqual((code, result["reason"], result["broken_at"], result["checked"]), (10, "tail", 1, 0))

    def test_gzip(self):
        packed = gzip.compress(self.lines)
        self.assertEqual(run("-", stdin=packed)[0], 0)
        self.assertEqual(run(self.file("a.ndjson", packed))[0], 0)
        self.assertEqual(run("-", stdin=gzip.compress(self.lines[:1000]) + gzip.compress(self.lines[1000:]))[0], 0)
        self.assertEqual(run(self.file("cut.gz", packed[:-10]))[0], 2)
        self.assertEqual(run(self.file("bad.gz", packed[:50] + b"xxxx" + packed[54:]))[0], 2)

    def test_newest_first_pages_in_several_files(self):
        lines = [text(raw) for raw in self.raw[::-1]]
        one = '{"events":[%s],"next_cursor":"c","has_more":true}' % ",".join(lines[:3])
        two = '{\n "events": [\n%s\n ],\n "has_more": false\n}\n' % ",\n".join(lines[3:])
        files = self.file("1.json", one.encode()), self.file("2.json.gz", gzip.compress(two.encode()))
        self.assertEqual(run(*files)[0], 0)
        self.assertEqual(run(*files[::-1])[0], 10)
        self.assertEqual(run("-", stdin=(one + two).encode())[0], 0)

    def test_vectors(self):
        result = {"valid": True, "checked": 7, "first_seq": 1, "last_seq": 7}
        events = self.lines.decode().splitlines()
        deep = hashlib.sha256(b"[" * 9 + b"]" * 9).hexdigest()
        metadata = [
            {"name": "plain", "input": ' {"a": 1.0}', "canonical": '{"a":1.0}'},
            {"name": "not JSON", "input": "[1,]", "canonical": None},
            {"name": "deep", "input_parts": [["[", 9], ["]", 9]], "canonical_sha256": deep},
        ]
        chains = [
            {"name": "sound", "events": events, "result": result},
            {"name": "newest first", "events": events[::-1], "expect": ["7:" + hash_of(self.raw[-1])], "result": result},
        ]
        self.file("metadata.json", json.dumps({"cases": metadata}).encode())
        self.file("chains.json", json.dumps({"cases": chains}).encode())
        code, out, _ = run("--vectors", self.dir)
        self.assertEqual((code, out), (0, "5 passed, 0 failed\n"))
        metadata[0]["canonical"], metadata[1]["canonical"], metadata[2]["canonical_sha256"] = None, "[1]", ZEROS
        chains[0]["result"] = dict(result, last_seq=8)
        self.file("metadata.json", json.dumps({"cases": metadata}).encode())
        self.file("chains.json", json.dumps({"cases": chains}).encode())
        code, out, _ = run("--vectors", self.dir)
        self.assertEqual((code, len(out.splitlines())), (10, 5))
        self.assertTrue(out.endswith("1 passed, 4 failed\n"))
        self.assertEqual(run("--vectors", os.path.join(self.dir, "none"))[0], 2)


# --- A small writer of data directories, from docs/format.md and apart from the reader's code ------------


def slow_crc(data, crc=0):
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Writer:
    """Writes the log of one mode. A group is a list of frames, a frame a list of (project, raw event)."""

    crc = staticmethod(slow_crc)

    def __init__(self, path, mode=0):
        self.path, self.mode, self.number, self.commit = path, mode, 0, 0
        self.data, self.running, self.heads = b"", 0, {}
        os.makedirs(path)

    def file(self, number):
        return os.path.join(self.path, "%08d.log" % number)

    def begin(self, origin=0, length=None, running=None):
        """A new segment; length and running stand in the header in place of what was written before it."""
        self.close()
        before = (self.number, len(self.data) if length is None else length, self.running if running is None else running)
        self.number += 1
        self.salt = hashlib.sha256(b"salt %d %d" % (self.mode, self.number)).digest()[:16]
        header = b"SEALOGSG" + struct.pack("<IBBHQ", 1, self.mode, origin, 0, self.number) + self.salt
        header += struct.pack("<QQQQI", self.commit + 1, START_MS, *before) + bytes(48)
        self.data, self.running = header + struct.pack("<I", self.crc(header)), 0

    def close(self, padding=0):
        if self.number:
            with open(self.file(self.number), "wb") as out:
                out.write(self.data + bytes(padding))

    def group(self, frames, idempotency=False, annotations=b""):
        self.commit, begin = self.commit + 1, len(self.data)
        for events in frames:
            self.frame(events, begin, idempotency, annotations)

    def frame(self, events, begin, idempotency, annotations):
        project = uuid.UUID(events[0]["project_id"].strip('"')).bytes
        tenant = uuid.UUID(events[0]["tenant_id"].strip('"')).bytes
        first, pos, records, sums = int(events[0]["chain_seq"]), len(self.data), b"", b""
        for seq, raw in enumerate(events, first):
            value = 0
            for digit in raw["log_id"].strip('"'):
                value = value << 5 | DIGITS.index(digit)
            log_id, hash_ = value.to_bytes(16, "big"), bytes.fromhex(hash_of(raw))
            fields = ",".join('"%s":%s' % (k, raw.get(k) or "null") for k in ("action", "actor_id", "resource", "metadata"))
            body = log_id + bytes.fromhex(raw["prev_hash"].strip('"')) + hash_ + annotations + (fields + "}").encode()
            body = struct.pack("<II", len(body) + 12, len(annotations)) + body
            sums += struct.pack("<I", self.crc(self.salt + tenant + project + struct.pack("<Q", seq) + body))
            records += body + sums[-4:]
            self.heads[tenant, project] = (seq, log_id, hash_)
        if idempotency:
            body = hashlib.sha256(b"key").digest() + hashlib.sha256(b"body").digest() + bytes(16)
            sums += struct.pack("<I", self.crc(self.salt + struct.pack("<Q", pos) + body))
            records += body + sums[-4:]
        header = b"SLFR" + struct.pack("<IBBHIQQ", 88 + len(records), 1, idempotency, len(events), pos - begin, self.commit, pos)
        header += tenant + project + struct.pack("<QQI", first, START_MS, 0)
        header += struct.pack("<I", self.crc(self.salt + header))
        self.data += header + records
        self.running = self.crc(header[-4:] + sums, self.running)

    def mark(self, *records):
        """Each record: (commit, segment, offset, heads)."""
        data = b"SEALOGMK" + struct.pack("<II", 1, self.mode)
        for commit, segment, offset, heads in records or [(self.commit, self.number, len(self.data), self.heads)]:
            body = struct.pack("<QQQQIIQQ", commit, segment, offset, START_MS, 0, len(heads), 0, 0)
            for (tenant, project), (seq, log_id, hash_) in heads.items():
                body += tenant + project + struct.pack("<Q", seq) + log_id + hash_
            data += struct.pack("<II", len(body) + 8, self.crc(body)) + body
        with open(os.path.join(self.path, "mark"), "wb") as out:
            out.write(data)


class Store(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = os.path.join(scratch.name, "data")
        os.makedirs(os.path.join(self.dir, "test"))
        with open(os.path.join(self.dir, "FORMAT"), "w") as out:
            out.write("sealog embedded 1\n")
        self.e, self.o = chain(12), chain(3, project_id='"%s"' % OTHER)
        e, o = self.e, self.o
        self.log = log = Writer(os.path.join(self.dir, "live"))
        log.begin()
        log.group([e[0:1], o[0:2]])
        log.group([e[1:4]], idempotency=True)
        log.begin()
        self.second = len(log.data)  # where the first frame of segment 2 is
        log.group([e[4:5]])
        log.group([e[5:6], e[6:8]], annotations=b"\1\0\0\0\0" b"\1\4\0auth\7\x09\x00192.0.2.1\x09\3\0K\xc3\xb6")
        log.begin()
        log.group([e[8:10]])
        self.before_last = len(log.data)
        log.group([e[10:11], o[2:3], e[11:12]], idempotency=True)
        log.close(padding=5000)
        log.mark()

    def verify(self, *args):
        code, out, err = run("--data", self.dir, "--json", *args)
        return code, json.loads(out) if out else err

    def change(self, number, offset, value=None):
        with open(self.log.file(number), "r+b") as file:
            file.seek(offset)
            old = file.read(1)
            file.seek(offset)
            file.write(bytes([old[0] ^ 1]) if value is None else value)

    def damage(self, *args):
        code, report = self.verify(*args)
        self.assertEqual((code, report["valid"]), (10, False))
        return report["damage"], report

    def test_a_sound_store(self):
        code, report = self.verify()
        self.assertEqual((code, report["valid"], report["checked"], report["damage"]), (0, True, 15, []))
        got = [(c["mode"], c["tenant_id"], c["project_id"], c["events"], c["head"]) for c in report["chains"]]
        heads = ["%d:%s" % (n, hash_of(raw[-1])) for n, raw in ((12, self.e), (3, self.o))]
        self.assertEqual(got, [("live", TENANT, PROJECT, 12, heads[0]), ("live", TENANT, OTHER, 3, heads[1])])
        code, out, err = run("--data", self.dir)
        self.assertEqual((code, err), (0, ""))
        self.assertIn(PROJECT + "  12 events  head " + heads[0], out)
        code, out, _ = run("--data", os.path.join(self.dir, "live"))  # one log directory
        self.assertEqual(code, 0)

    def test_live_and_test_chains_of_a_project_are_apart(self):
        os.rmdir(os.path.join(self.dir, "test"))
        log = Writer(os.path.join(self.dir, "test"), mode=1)
        log.begin()
        log.group([self.e[:2]])
        log.close()
        log.mark()
        code, report = self.verify()
        counts = [(c["mode"], c["events"]) for c in report["chains"]]
        self.assertEqual((code, counts), (0, [("live", 12), ("live", 3), ("test", 2)]))
        code, out, _ = run("--data", self.dir, "--export", PROJECT, "--mode", "test")
        self.assertEqual((code, len(out.splitlines())), (0, 2))
        os.rename(os.path.join(self.dir, "test"), os.path.join(self.dir, "x"))
        os.rename(os.path.join(self.dir, "live"), os.path.join(self.dir, "test"))
        os.rename(os.path.join(self.dir, "x"), os.path.join(self.dir, "live"))
        self.assertEqual(self.verify()[0], 10, "a log in the other mode's place")

    def drop(self, drops=(), system=True, first=2, anchor=None):
        """A test log whose first segment was dropped, with four events in it; a system chain with records of drops."""
        os.rmdir(os.path.join(self.dir, "test"))
        log = Writer(os.path.join(self.dir, "test"), mode=1)
        log.begin()
        log.group([self.e[:4]])
        log.begin()
        log.group([self.e[4:9]])
        log.close()
        log.mark()
        os.remove(log.file(1))
        last = anchor or self.e[3]
        value = 0
        for digit in last["log_id"].strip('"'):
            value = value << 5 | DIGITS.index(digit)
        body = struct.pack("<QQII", 1, START_MS, 1, 0) + uuid.UUID(TENANT).bytes + uuid.UUID(PROJECT).bytes
        body += struct.pack("<Q", int(last["chain_seq"])) + value.to_bytes(16, "big") + bytes.fromhex(hash_of(last))
        with open(os.path.join(log.path, "dropped"), "wb") as out:
            out.write(b"SEALOGDR" + struct.pack("<II", 1, slow_crc(body)) + body)
        if system:
            fields = {"project_id": '"0190c6a5-0000-8000-8000-000000000001"', "action": '"sealog.test_events_dropped"'}
            named = [{"project_id": PROJECT, "mode": "test", "last_seq": seq, "last_hash": hash_} for seq, hash_ in drops]
            self.log.group([chain(1, metadata=json.dumps({"dropped": named}), **fields)])
            self.log.close()
            self.log.mark()
        return log

    def test_a_drop_that_is_recorded_is_no_break(self):
        self.drop([(4, hash_of(self.e[3]))])
        code, report = self.verify()
        self.assertEqual((code, report["damage"], report["notes"]), (0, [], []))
        self.assertEqual([c["first_seq"] for c in report["chains"] if c["mode"] == "test"], [5])

    def test_a_step_of_a_larger_drop_is_covered_by_its_record(self):
        self.drop([(7, hash_of(self.e[6]))])
        self.assertEqual(self.verify()[0], 0)

    def test_a_drop_without_its_record_is_a_finding(self):
        for drops in ([], [(3, hash_of(self.e[2]))], [(4, hash_of(self.e[2]))]):
            with self.subTest(drops):
                self.setUp()
                self.drop(drops)
                damage, report = self.damage()
                self.assertIn("up to 4 are said to be dropped, and the system chain has no record", damage[0]["message"])
                self.assertTrue(all(c["valid"] for c in report["chains"]))

    def test_only_the_test_chain_has_the_stores_own_word(self):
        self.drop(system=False)
        for args in ((), ("--mode", "test")):
            code, report = self.verify(*args)
            self.assertEqual(code, 0)
            self.assertEqual(report["notes"][-1], "test: Project %s: dropped up to 4, by the store's own word." % PROJECT)

    def test_a_drop_that_does_not_fit_to_what_is_kept_is_a_break(self):
        self.drop([(4, hash_of(self.e[3]))], anchor=self.e[2])
        code, report = self.verify()
        self.assertEqual(code, 10)
        self.assertEqual([c["reason"] for c in report["chains"] if not c["valid"]], ["gap"])
        self.setUp()
        self.drop([(12, hash_of(self.e[11]))], anchor=self.e[11])
        self.assertIn("beyond its head in the mark", self.damage()[0][0]["message"])

    def test_a_live_log_drops_nothing(self):
        log = self.drop([(4, hash_of(self.e[3]))])
        shutil.copy(os.path.join(log.path, "dropped"), os.path.join(self.dir, "live"))
        self.assertIn("which a live log never has", self.damage()[0][0]["message"])

    def test_a_damaged_file_of_drops_is_named(self):
        log = self.drop([(4, hash_of(self.e[3]))])
        with open(os.path.join(log.path, "dropped"), "r+b") as out:
            out.seek(50)
            out.write(b"?")
        self.assertIn("`dropped` is damaged", self.damage()[0][0]["message"])

    def test_export(self):
        code, out, err = run("--data", self.dir, "--export", PROJECT.upper())
        self.assertEqual(code, 0)
        lines = out.splitlines()
        keys = ["log_id", "tenant_id", "project_id", "schema_version", "action", "actor_id", "resource", "metadata"]
        keys += ["timestamp", "chain_seq", "prev_hash", "hash"]
        self.assertEqual(list(json.loads(lines[0])), keys)
        rich = json.loads(lines[6])
        self.assertEqual(list(rich)[4:12], "action category actor_id resource ip_address city metadata timestamp".split())
        self.assertEqual((rich["category"], rich["ip_address"], rich["city"]), ("auth", "192.0.2.1", "K\u00f6"))
        for line, raw in zip(lines, self.e):
            wanted = {key: value for key, value in raw.items() if key != "category"}
            for key, value in wanted.items():
                self.assertIn('"%s":%s' % (key, value), line)
        head = "12:" + hash_of(self.e[-1])
        self.assertEqual(run("--expect", head, "-", stdin=out.encode())[0], 0)
        self.assertEqual(run("--data", self.dir, "--export", TENANT)[0], 2)
        self.assertEqual(run("--data", self.dir, "--export", PROJECT, "--mode", "test")[0], 2)

    def test_absent_fields_are_not_exported(self):
        log = Writer(os.path.join(self.dir, "x"))
        log.begin()
        log.group([chain(2, actor_id=None, resource=None, metadata=None)])
        log.close()
        code, out, _ = run("--data", log.path, "--export", PROJECT)
        self.assertEqual(code, 0)
        self.assertNotIn("null", out)
        self.assertEqual(run("-", stdin=out.encode())[0], 0)

    def test_a_torn_tail_is_no_break(self):
        log = self.log
        log.mark((log.commit - 1, 3, self.before_last, {}))
        whole = len(log.data)
        for cut in (self.before_last + 2, self.before_last + 50, whole - 1, whole - 300):
            with open(log.file(3), "wb") as out:
                out.write(log.data[:cut] + bytes(1000 if cut % 2 else 0))
            code, report = self.verify()
            self.assertEqual((code, report["damage"]), (0, []), cut)
            self.assertIn("Torn tail in segment 3", report["notes"][0])
        for cut in range(self.before_last, whole + 1, 37):  # wherever the crash came
            with open(log.file(3), "wb") as out:
                out.write(log.data[:cut])
            self.assertEqual(self.run_here()[0], 0, cut)
        with open(log.file(3), "wb") as out:  # Of the last group, the first frame is missing, the others are there.
            out.write(log.data[: self.before_last] + bytes(200) + log.data[self.before_last + 200 :])
        code, report = self.verify()
        self.assertEqual((code, report["checked"]), (0, 12))
        self.assertIn("offset %d" % self.before_last, report["notes"][0])

    def test_the_same_is_damage_if_the_mark_covers_it(self):
        log = self.log
        log.mark((log.commit, 3, len(log.data), {}))
        with open(log.file(3), "wb") as out:
            out.write(log.data[:-1])
        damage, _ = self.damage()
        self.assertEqual(damage[0]["segment"], 3)
        self.assertGreater(damage[0]["offset"], self.before_last)
        for cut in range(128, len(log.data), 37):
            with open(log.file(3), "wb") as out:
                out.write(log.data[:cut])
            self.assertEqual(self.run_here()[0], 10, cut)

    def test_a_clean_cut_before_the_mark(self):
        log = self.log
        with open(log.file(3), "wb") as out:
            out.write(log.data[: self.before_last])
        damage, report = self.damage()
        self.assertEqual((damage[0]["segment"], damage[0]["offset"]), (3, self.before_last))
        self.assertEqual([(c["reason"], c["broken_at"]) for c in report["chains"]], [("tail", 11), ("tail", 3)])
        self.assertEqual(report["chains"][0]["broken_hash"], hash_of(self.e[-1]))
        os.remove(os.path.join(log.path, "mark"))  # Without the mark nothing can tell; that is said.
        code, report = self.verify()
        self.assertEqual((code, report["checked"]), (0, 12))
        self.assertIn("no mark", report["notes"][0])

    def test_a_flipped_byte_anywhere_is_found(self):
        self.log.close()
        for number in (1, 2, 3):
            size = os.path.getsize(self.log.file(number))
            for offset in list(range(0, 216, 3)) + list(range(216, size, 41)) + [size - 1]:
                self.change(number, offset)
                code, report = self.run_here()
                self.assertEqual(code, 10, (number, offset))
                self.assertEqual(report["damage"][0]["segment"], number, (number, offset))
                self.change(number, offset)
        self.assertEqual(self.run_here()[0], 0)

    def run_here(self):
        report = sv.verify_data(self.dir, None)
        return (0 if report["valid"] else 10), report

    def test_a_flipped_byte_in_the_middle(self):
        self.change(2, self.second + 200)
        damage, report = self.damage()
        self.assertEqual([(d["segment"], d["offset"]) for d in damage], [(2, self.second)])
        self.assertIn("chain_seq 5", damage[0]["message"])
        self.assertEqual([c["valid"] for c in report["chains"]], [False, True])
        self.assertEqual((report["chains"][0]["reason"], report["chains"][0]["broken_at"]), ("gap", 6))

    def test_damage_in_the_last_segment_with_a_later_group_behind_it(self):
        os.remove(os.path.join(self.log.path, "mark"))
        for value in (None, bytes(60)):  # a bit, and a stretch of zeros, which looks like the end of the log
            self.log.close()
            self.change(3, 128, value)
            damage, report = self.damage()
            self.assertEqual([(d["segment"], d["offset"]) for d in damage], [(3, 128)])
            self.assertEqual(report["checked"], 13)

    def test_a_deleted_segment(self):
        for number in (1, 2):
            os.rename(self.log.file(number), self.log.file(number) + ".away")
            damage, report = self.damage()
            self.assertEqual([(d["segment"], d["message"]) for d in damage], [(number, "the segment is missing")])
            os.rename(self.log.file(number) + ".away", self.log.file(number))
        os.remove(self.log.file(3))
        damage, report = self.damage()
        self.assertIn("mark", damage[0]["message"])
        self.assertEqual(report["chains"][0]["reason"], "tail")

    def test_a_mark_ahead_of_the_log(self):
        log = self.log
        ahead = {key: (seq + 1, log_id, b"\xab" * 32) for key, (seq, log_id, _) in log.heads.items()}
        log.mark((log.commit, 3, len(log.data), log.heads), (log.commit, 3, len(log.data), ahead))
        code, report = self.verify()
        self.assertEqual((code, report["damage"]), (10, []))
        self.assertEqual([(c["reason"], c["broken_at"]) for c in report["chains"]], [("tail", 13), ("tail", 4)])
        self.assertEqual(report["chains"][0]["broken_hash"], "ab" * 32)
        other = {key: (seq, log_id, b"\xab" * 32) for key, (seq, log_id, _) in log.heads.items()}
        log.mark((log.commit, 3, len(log.data), other))
        code, report = self.verify()
        breaks = [(c["reason"], c["broken_at"]) for c in report["chains"]]
        self.assertEqual((code, breaks), (10, [("head", 12), ("head", 3)]))
        gone = {(bytes(16), bytes(16)): (4, bytes(16), b"\xab" * 32)}
        log.mark((log.commit, 3, len(log.data), gone))
        code, report = self.verify()
        self.assertEqual((code, report["chains"][0]["reason"], report["chains"][0]["broken_at"]), (10, "tail", 1))

    def test_a_bad_record_ends_the_mark(self):
        path = os.path.join(self.log.path, "mark")
        with open(path, "ab") as out:
            out.write(struct.pack("<II", 64, 12345) + bytes(56))
        code, report = self.verify()
        self.assertEqual(code, 0)
        self.assertIn("incomplete record", report["notes"][0])
        with open(path, "r+b") as out:
            out.write(b"X")
        self.assertEqual(self.verify()[0], 10)

    def test_a_bad_record_before_a_good_one_is_damage(self):
        log = self.log
        log.mark((1, log.number, 128, {}), (log.commit, log.number, len(log.data), log.heads))
        self.assertEqual(self.verify()[0], 0)
        with open(os.path.join(log.path, "mark"), "r+b") as out:
            out.seek(16 + 20)
            out.write(b"X")
        self.assertEqual(self.verify()[0], 10)

    def test_superseded_bytes_do_not_count(self):
        log, before = self.log, self.before_last
        running = self.running_of_first_group()
        log.commit -= 1  # As after a crash: the last group is written again into a new segment.
        log.begin(origin=1, length=before, running=running)
        log.group([self.e[10:11], self.o[2:3], self.e[11:12]])
        log.close()
        code, report = self.verify()
        self.assertEqual((code, report["checked"], report["damage"]), (0, 15, []))
        with open(log.file(3), "r+b") as out:  # what stands there does not matter, nor whether it is there
            out.seek(before)
            out.write(b"\xff" * 100)
        self.assertEqual(self.verify()[0], 0)
        os.truncate(log.file(3), before)
        self.assertEqual(self.verify()[0], 0)
        os.truncate(log.file(3), before - 1)
        self.assertEqual(self.damage()[0][0]["segment"], 3)

    def running_of_first_group(self):
        data = self.log.data[128 : self.before_last]
        size = struct.unpack_from("<I", data, 88)[0]
        second = 88 + size
        return slow_crc(data[84:88] + data[second - 4 : second] + data[-4:])

    def test_a_replaced_frame_fails_the_running_checksum(self):
        # A segment that is sound in itself, but not the one that its successor was written behind.
        log = Writer(os.path.join(self.dir, "x"))
        log.begin()
        log.group([self.e[0:2]])
        log.begin(running=log.running ^ 1)
        log.group([self.e[2:3]])
        log.close()
        report = sv.verify_data(log.path, None)
        self.assertEqual([d["segment"] for d in report["damage"]], [1])
        self.assertIn("running checksum", report["damage"][0]["message"])

    def test_a_tampered_event_with_right_checksums(self):
        self.e[4]["action"] = '"user.logout"'
        log = Writer(os.path.join(self.dir, "x"))
        log.begin()
        log.group([self.e])
        log.close()
        report = sv.verify_data(log.path, None)
        self.assertEqual((report["damage"], report["valid"]), ([], False))
        self.assertEqual((report["chains"][0]["broken_at"], report["chains"][0]["reason"]), (5, "hash"))

    def test_a_stored_chain_begins_at_1(self):
        log = Writer(os.path.join(self.dir, "x"))
        log.begin()
        log.group([self.e[2:5]])
        log.close()
        report = sv.verify_data(log.path, None)
        self.assertEqual((report["chains"][0]["broken_at"], report["chains"][0]["reason"]), (3, "gap"))

    def test_a_forged_frame_inside_a_payload_is_not_taken(self):
        # Without the salt a client cannot make a checksum that fits.
        forged = b"SLFR" + struct.pack("<IBBHIQQ", 88, 1, 0, 1, 0, 9, 400) + bytes(48)
        forged += struct.pack("<I", slow_crc(forged))
        self.assertIsNone(sv.frame_header(bytes(400) + forged, 400, sv.crc32c(self.log.salt)))

    def test_prepared_segments_have_no_content(self):
        for name in ("next.seg", "00000004.log"):
            with open(os.path.join(self.log.path, name), "wb") as out:
                out.write(bytes(4096))
        code, report = self.verify()
        self.assertEqual((code, report["checked"]), (0, 15))

    def test_what_is_not_a_store(self):
        self.assertEqual(run("--data", os.path.join(self.dir, "none"))[0], 2)
        self.assertEqual(run("--data", os.path.join(self.dir, "test"))[0], 2)
        with open(os.path.join(self.dir, "FORMAT"), "w") as out:
            out.write("sealog embedded 2\n")
        code, _, err = run("--data", self.dir)
        self.assertEqual(code, 2)
        self.assertIn("sealog embedded 2", err)

    def test_crc32c(self):
        self.assertEqual(sv.crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(sv.crc32c(b""), 0)
        self.assertEqual(sv.crc32c(bytes(32)), 0x8A9136AA)
        data = random.Random(1).getrandbits(8 * 999).to_bytes(999, "big")
        for cut in (0, 1, 2, 3, 4, 5, 500, 999):
            self.assertEqual(sv.crc32c(data[cut:], sv.crc32c(data[:cut])), slow_crc(data))


if __name__ == "__main__":
    unittest.main()
