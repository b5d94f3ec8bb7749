"""Offline verification: the vectors, and the texts of events in pages."""

import importlib.machinery
import importlib.util
import json
import unittest

from . import ROOT
from sealog import ValidationError, verify_events, verify_proof
from sealog._sealed import Unreadable, canonical
from sealog.verify import page_of


class Vectors(unittest.TestCase):
    def test_the_checks_are_those_of_the_tools(self):
        loader = importlib.machinery.SourceFileLoader("sync_sealed", str(ROOT / "sdk/python/sync_sealed"))
        spec = importlib.util.spec_from_loader("sync_sealed", loader)
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        for target, text in module.TARGETS.items():
            self.assertEqual(target.read_text(), text(), "run sdk/python/sync_sealed")

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


class Proofs(unittest.TestCase):
    def test_proofs_of_the_vectors_without_the_client(self):
        cases = json.loads((ROOT / "vectors/trust/proofs.json").read_text())["cases"]
        good, vkey = cases[0], cases[0]["policy"].split()[1]
        self.assertEqual(verify_proof(good["event"], good["proof"], vkey), (True, None, ""))
        self.assertEqual(verify_proof(good["event"].encode(), good["proof"].encode()).holds, True)
        result = verify_proof(good["event"].replace("203.0.113.9", "203.0.113.8"), good["proof"], vkey)
        self.assertEqual(result.reason, "root")
        self.assertEqual(verify_proof(good["event"].replace("{", '{"a":1,', 1), good["proof"]).reason, "annotations")

    def test_a_key_that_is_none_is_refused(self):
        for vkey in ("", "log.example", 5, b"log"):
            with self.subTest(vkey), self.assertRaisesRegex(ValidationError, "sealog trust vkey"):
                verify_proof("{}", "", vkey)


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
