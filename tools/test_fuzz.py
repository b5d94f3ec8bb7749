"""The fuzzer's own eyes: an answer that breaks a rule must be noticed, or a run without findings says nothing."""

import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "fuzz"))

import malformed  # noqa: E402  (found through the line above)

ID = "req_01ARZ3NDEKTSV4RRFFQ69G5FAV"
ENVELOPE = '{"error":{"code":"a/b","message":"m","request_id":"%s","doc_url":"u"}}' % ID


def answer(status, body="", headers=("x-request-id: " + ID,), length=None):
    lines = ["HTTP/1.1 %d Reason" % status, *headers, "content-length: %d" % (len(body) if length is None else length)]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


def check(data, methods=()):
    for one in malformed.read_answers(data, methods):
        malformed.check(one, list(methods) == ["HEAD"])


class Answers(unittest.TestCase):
    def test_good_answers_pass(self):
        check(answer(200) + answer(404, ENVELOPE))
        check(answer(405, length=100), methods=["HEAD"])
        check(b"HTTP/1.1 100 Continue\r\n\r\n" + answer(202))
        check(b"HTTP/1.1 200 OK\r\nx-request-id: %s\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" % ID.encode())

    def test_bad_answers_are_noticed(self):
        for what, data in {
            "no id": answer(200, headers=()),
            "another kind of id": answer(200, headers=("x-request-id: 1",)),
            "two ids": answer(200, headers=("x-request-id: " + ID,) * 2),
            "a server error": answer(500, ENVELOPE),
            "no envelope": answer(404, "not found"),
            "an envelope without its fields": answer(404, '{"error":{"code":"a/b"}}'),
            "another id in the envelope": answer(404, ENVELOPE.replace("FAV", "FAW")),
            "a body that is cut": answer(200, "x", length=2),
            "headers that are cut": answer(200)[:-3],
            "an injected line": answer(200, headers=("x-request-id: " + ID, "no colon")),
            "what is no answer": b"hello\r\n\r\n",
            "a second answer that is wrong": answer(200) + answer(200, headers=()),
        }.items():
            with self.subTest(what), self.assertRaises(malformed.Broken):
                check(data)


class Requests(unittest.TestCase):
    def test_every_way_is_tried_and_a_seed_repeats_them(self):
        first, second = (malformed.Maker(random.Random(1), "at_live_key") for _ in range(2))
        made = [first.make() for _ in range(1500)]
        self.assertEqual(made, [second.make() for _ in range(1500)])
        self.assertEqual({way for way, _, _ in made}, {way.__name__[6:] for way in first.ways})


if __name__ == "__main__":
    unittest.main()
