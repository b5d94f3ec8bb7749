"""Offline verification: the vectors, and the texts of events in pages."""

import importlib.machinery
import importlib.util
import json
import unittest

from . import ROOT
from sealog import verify_events
from sealog._sealed import Unreadable, canonical
from sealog.verify import page_of


class Vectors(unittest.TestCase):
    def test_the_hashing_code_is_that_of_the_tool(self):
        loader = importlib.machinery.SourceFileLoader("sync_sealed", str(ROOT / "sdk/python/sync_sealed"))
        spec = importlib.util.spec_from_loader("sync_sealed", loader)
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        self.assertEqual(module.TARGET.read_text(), module.sealed(), "run sdk/python/sync_sealed")

    def test_chains(self):
        for case in json.loads((ROOT / "vectors/chains.json").read_text())["cases"]:
            with self.subTest(case["name"]):
                result = verify_events(case["events"], case.get("expect", []))._asdict()
                del result["message"]
                found = {name: value for name, value in result.items() if value is not None}
                self.assertEqual(
                    found, {name: value for name, value in case["result"].items() if value is not None}
                )

    def test_canonical_text(self):
        for case in json.loads((ROOT / "vectors/metadata.json").read_text())["cases"]:
            text = case.get("input") or "".join(part * times for part, times in case.get("input_parts", []))
            if "canonical" not in case:
                continue
            with self.subTest(case["name"]):
                data = text.encode("utf-8", "surrogatepass")
                if case["canonical"] is None:
                    self.assertRaises(Unreadable, canonical, data)
                else:
                    self.assertEqual(canonical(data).decode("utf-8", "surrogatepass"), case["canonical"])


class Pages(unittest.TestCase):
    def test_events_of_a_page_keep_their_text(self):
        events, members = page_of(
            b' {"has_more" : false, "events" : [ {"a":1.0,"b":[1,{"x":"]"}]} , {"c":12345678901234567890.10} ], "z":1}'
        )
        self.assertEqual(
            [event.text for event in events],
            [b'{"a":1.0,"b":[1,{"x":"]"}]}', b'{"c":12345678901234567890.10}'],
        )
        self.assertIs(members["has_more"], False)

    def test_an_empty_page_has_no_events(self):
        self.assertEqual(page_of(b'{"events":[],"has_more":false}')[0], [])

    def test_other_answers_are_no_page(self):
        for body in (b"[]", b"<html>", b'{"events":{}}', b"{}", b'{"events":[1]}'):
            with self.subTest(body):
                self.assertRaises(ValueError, page_of, body)

    def test_a_head_must_have_its_form(self):
        self.assertRaisesRegex(ValueError, "SEQ:HASH", verify_events, [], ["5:xyz"])


if __name__ == "__main__":
    unittest.main()
