"""The recorder for tests of applications, and the middlewares."""

import asyncio
import sys
import types
import unittest
from unittest import mock

from . import KEY  # noqa: F401  sets the path
from sealog import ValidationError, context
from sealog.middleware import SealogMiddleware, django_middleware
from sealog.testing import AsyncRecorder, Recorder


class Recording(unittest.TestCase):
    def setUp(self):
        self.client = Recorder()
        self.addCleanup(self.client.close)

    def test_events_of_log_and_enqueue_are_recorded_in_order(self):
        self.client.log("user.login", actor_id="u-1", metadata={"mfa": True, "n": 1})
        self.client.enqueue({"action": "user.logout", "actor_id": "u-1"})
        self.assertEqual([event["action"] for event in self.client.recorded], ["user.login", "user.logout"])
        self.client.assert_logged("user.login", actor_id="u-1", metadata={"mfa": True})
        self.client.assert_logged(actor_id="u-1", count=2)
        self.client.clear()
        self.client.assert_nothing_logged()

    def test_a_failed_assertion_shows_what_was_recorded(self):
        self.client.log("user.login", actor_id="u-1")
        for wanted in ({"actor_id": "u-2"}, {"metadata": {"a": 1}}, {"count": 2}):
            with self.subTest(wanted), self.assertRaisesRegex(AssertionError, '"actor_id": "u-1"'):
                self.client.assert_logged("user.login", **wanted)
        self.assertRaises(AssertionError, self.client.assert_nothing_logged)

    def test_bad_events_fail_as_with_the_real_client(self):
        self.assertRaises(ValidationError, self.client.log, "user.login", metadata={"a": float("nan")})
        self.client.assert_nothing_logged()

    def test_the_asyncio_recorder_records_the_same(self):
        async def use():
            async with AsyncRecorder() as client:
                await client.log("user.login", actor_id="u-1")
                await client.enqueue("user.logout", actor_id="u-1")
                self.assertEqual(await client.flush(10), 0)
                client.assert_logged(actor_id="u-1", count=2)

        asyncio.run(use())

    def test_inner_contexts_win_and_end(self):
        with context(actor_id="outer", metadata={"a": 1, "b": 1}):
            with context(actor_id="inner", metadata={"b": 2}):
                self.client.log("user.login", metadata={"c": 3})
            self.client.log("user.logout")
        self.client.log("user.logout", resource="after")
        inner, outer, after = self.client.recorded
        self.assertEqual((inner["actor_id"], inner["metadata"]), ("inner", {"a": 1, "b": 2, "c": 3}))
        self.assertEqual((outer["actor_id"], outer["metadata"]), ("outer", {"a": 1, "b": 1}))
        self.assertEqual(after, {"action": "user.logout", "resource": "after"})

    def test_a_context_refuses_what_is_no_field(self):
        with self.assertRaises(ValidationError) as caught, context(actor="u-1"):
            pass
        self.assertEqual(caught.exception.field, "actor")

    def test_before_send_sees_no_absent_field_and_does_not_change_the_callers_dict(self):
        seen, mine = [], {"password": "x", "a": 1}

        def before_send(event):
            seen.append(sorted(event))
            event["metadata"].pop("password")
            return event

        client = Recorder(before_send=before_send)
        client.log("user.login", metadata=mine)
        self.assertEqual((seen, mine), ([["action", "metadata"]], {"password": "x", "a": 1}))
        client.assert_logged(metadata={"password": None, "a": 1})
        client.close()

    def test_trace_ids_are_in_metadata_only_if_switched_on(self):
        with context(traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"):
            self.client.log("user.login")
            traced = Recorder(trace_metadata=True)
            traced.log("user.login")
        self.assertNotIn("metadata", self.client.recorded[0])
        self.assertEqual(
            traced.recorded[0]["metadata"],
            {"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7"},
        )
        traced.close()


class User:
    is_authenticated, pk = True, 17


class Asgi(unittest.TestCase):
    def call(self, headers, peer="10.0.0.1", user=None, **options):
        client = Recorder()

        async def app(scope, receive, send):
            scope["user"] = user  # authentication runs inside
            client.log("user.login")

        scope = {"type": "http", "headers": headers, "client": (peer, 1234)}
        asyncio.run(SealogMiddleware(app, **options)(scope, None, None))
        client.close()
        return client.recorded[0]

    def test_actor_address_and_request_id_come_from_the_request(self):
        event = self.call(
            [(b"x-request-id", b"abc"), (b"X-Forwarded-For", b"192.0.2.7")],
            user=User(),
            trusted_proxies=["10.0.0.0/8"],
        )
        self.assertEqual(
            event,
            {
                "action": "user.login",
                "actor_id": "17",
                "metadata": {"ip_address": "192.0.2.7", "request_id": "abc"},
            },
        )

    def test_a_forwarded_address_of_an_unknown_peer_is_ignored(self):
        event = self.call([(b"x-forwarded-for", b"192.0.2.7")])
        self.assertEqual(event, {"action": "user.login", "metadata": {"ip_address": "10.0.0.1"}})

    def test_actor_and_session_can_be_chosen(self):
        event = self.call([], actor=lambda scope: "a-1", session=lambda scope: "s-1")
        self.assertEqual((event["actor_id"], event["session_id"]), ("a-1", "s-1"))

    def test_other_scopes_pass_through(self):
        seen = []

        async def app(scope, receive, send):
            seen.append(scope["type"])

        asyncio.run(SealogMiddleware(app)({"type": "lifespan"}, None, None))
        self.assertEqual(seen, ["lifespan"])


class Django(unittest.TestCase):
    def setUp(self):
        conf = types.ModuleType("django.conf")
        conf.settings = types.SimpleNamespace(SEALOG_TRUSTED_PROXIES=["127.0.0.1"])
        patch = mock.patch.dict(sys.modules, {"django": types.ModuleType("django"), "django.conf": conf})
        patch.start()
        self.addCleanup(patch.stop)
        self.client = Recorder()
        self.addCleanup(self.client.close)
        self.request = types.SimpleNamespace(
            headers={"X-Request-Id": "abc", "X-Forwarded-For": "192.0.2.7"},
            META={"REMOTE_ADDR": "127.0.0.1"},
            user=User(),
            session=types.SimpleNamespace(session_key="secret-session-key"),
        )

    def check(self):
        event = self.client.recorded[0]
        self.assertEqual(event["metadata"], {"ip_address": "192.0.2.7", "request_id": "abc"})
        self.assertEqual(event["actor_id"], "17")
        self.assertRegex(event["session_id"], "^s_[0-9a-f]{32}$")
        self.assertNotIn("secret", event["session_id"])

    def test_sync_views_have_the_context(self):
        handle = django_middleware(lambda request: self.client.log("user.login") and "response")
        self.assertEqual(handle(self.request), "response")
        self.check()

    def test_async_views_have_the_context(self):
        async def view(request):
            self.client.log("user.login")
            return "response"

        self.assertEqual(asyncio.run(django_middleware(view)(self.request)), "response")
        self.check()

    def test_anonymous_users_are_no_actor(self):
        self.request.user = types.SimpleNamespace(is_authenticated=False, pk=None, id=5)
        django_middleware(lambda request: self.client.log("user.login"))(self.request)
        self.assertNotIn("actor_id", self.client.recorded[0])


if __name__ == "__main__":
    unittest.main()
