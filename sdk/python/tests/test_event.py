"""Events: what is accepted, and which field is named if not."""

import decimal
import json
import pickle
import unittest

from . import KEY  # noqa: F401  sets the path
from sealog import ValidationError
from sealog._event import encode
from sealog.errors import RateLimited, error_of


class Events(unittest.TestCase):
    def field_of(self, **event):
        with self.assertRaises(ValidationError) as caught:
            encode({"action": "user.login", **event})
        return caught.exception.field

    def test_absent_fields_are_not_sent(self):
        self.assertEqual(encode({"action": "a", "actor_id": None, "metadata": None}), b'{"action":"a"}')

    def test_text_is_sent_as_utf_8_without_white_space(self):
        body = encode({"action": "a", "metadata": {"x": ["é", "\U0001f600", "\x00\n"], "y": {"z": 1.0}}})
        self.assertEqual(
            body.decode(), '{"action":"a","metadata":{"x":["é","\U0001f600","\\u0000\\n"],"y":{"z":1.0}}}'
        )

    def test_texts_have_at_most_255_characters(self):
        encode({"action": "a" * 255, "session_id": "\U0001f600" * 255})
        self.assertEqual(self.field_of(session_id="x" * 256), "session_id")
        self.assertEqual(self.field_of(action="x" * 256), "action")

    def test_events_have_at_most_262144_bytes(self):
        overhead = len(encode({"action": "a", "metadata": {"t": ""}}))
        encode({"action": "a", "metadata": {"t": "x" * (262_144 - overhead)}})
        with self.assertRaisesRegex(ValidationError, r"262,145 bytes.*metadata\.t"):
            encode({"action": "a", "metadata": {"t": "x" * (262_145 - overhead)}})

    def test_the_path_of_a_bad_value_is_named(self):
        self.assertEqual(self.field_of(metadata={"a": [{"b": decimal.Decimal(1)}]}), "metadata.a[0].b")
        self.assertEqual(self.field_of(metadata={"a": {1, 2}}), "metadata.a")
        self.assertEqual(self.field_of(metadata={"a": {("x", 1): 2}}), "metadata.a")
        self.assertEqual(self.field_of(metadata={"a": {"\ud800": 2}}), "metadata.a")
        self.assertEqual(self.field_of(metadata={"a": 10**5000}), "metadata.a")

    def test_deep_nesting_is_an_error_or_is_sent_but_never_a_crash(self):
        value = {}
        for _ in range(100_000):
            value = {"a": value}
        self.assertTrue(self.field_of(metadata=value).startswith("metadata.a.a"))

    def test_keys_that_are_numbers_become_texts(self):
        self.assertEqual(
            json.loads(encode({"action": "a", "metadata": {1: 2, None: 3}}))["metadata"], {"1": 2, "null": 3}
        )


class Errors(unittest.TestCase):
    def test_members_of_another_type_are_ignored(self):
        error = error_of(422, {"code": "x/y", "message": 5, "request_id": [], "suggestion": None}, None)
        self.assertEqual(
            error.as_dict(),
            {"type": "ValidationError", "code": "x/y", "status": 422, "message": "the service answered 422"},
        )

    def test_errors_can_be_pickled(self):
        error = pickle.loads(
            pickle.dumps(error_of(429, {"code": "rate/limit_exceeded", "message": "slow"}, 2.0))
        )
        self.assertIsInstance(error, RateLimited)
        self.assertEqual((error.retry_after_s, str(error)), (2.0, "slow (rate/limit_exceeded)"))


if __name__ == "__main__":
    unittest.main()
