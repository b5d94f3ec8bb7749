"""The middlewares in real FastAPI, Starlette and Django. sdk/python/check installs them."""

import asyncio
import importlib.util
import json
import sys
import types
import unittest

from . import KEY  # noqa: F401  sets the path
from sealog.middleware import SealogMiddleware
from sealog.testing import Recorder

MISSING = [name for name in ("django", "fastapi", "starlette") if importlib.util.find_spec(name) is None]
TRACE = "00-%s-%s-01" % ("a" * 32, "b" * 16)
PROXIES = ["127.0.0.0/8"]


def expected(number):
    return {
        "action": "document.updated",
        "resource": str(number),
        "actor_id": "u-%d" % number,
        "metadata": {"ip_address": "203.0.113.%d" % number, "request_id": "req-%d" % number},
    }


@unittest.skipIf(MISSING, "not installed: %s" % ", ".join(MISSING))
class Asgi(unittest.TestCase):
    """20 requests at a time, whose bodies arrive in pieces: no event gets the context of another one."""

    def setUp(self):
        self.client = Recorder()
        self.addCleanup(self.client.close)

    async def post(self, app, path, number):
        pieces = [b'{"number": ', b"%d}" % number]
        status = []

        async def receive():
            await asyncio.sleep(0.01 * (number % 3))
            if not pieces:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

        async def send(message):
            status.append(message.get("status"))

        headers = {
            "content-type": "application/json",
            "x-forwarded-for": "203.0.113.%d" % number,
            "x-request-id": "req-%d" % number,
            "traceparent": TRACE,
            "x-user": "u-%d" % number,
        }
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 5000 + number),
            "server": ("127.0.0.1", 80),
        }
        await app(scope, receive, send)
        return status[0]

    def check(self, app, path):
        async def run():
            return await asyncio.gather(*(self.post(app, path, number) for number in range(1, 21)))

        self.assertEqual(asyncio.run(run()), [200] * 20)
        found = sorted(self.client.recorded, key=lambda event: int(event["resource"]))
        self.assertEqual(found, [expected(number) for number in range(1, 21)])

    def authenticated(self):
        from starlette.authentication import AuthCredentials, AuthenticationBackend, BaseUser
        from starlette.middleware.authentication import AuthenticationMiddleware

        class User(BaseUser):
            def __init__(self, name):
                self.name = name

            is_authenticated = True

            @property
            def identity(self):
                return self.name

        class Backend(AuthenticationBackend):
            async def authenticate(self, conn):
                await asyncio.sleep(0.005)
                return AuthCredentials(["authenticated"]), User(conn.headers["x-user"])

        return AuthenticationMiddleware, Backend()

    def test_fastapi_with_async_and_blocking_handlers(self):
        from fastapi import Body, FastAPI

        app, client = FastAPI(), self.client
        authentication, backend = self.authenticated()
        app.add_middleware(authentication, backend=backend)
        app.add_middleware(SealogMiddleware, trusted_proxies=PROXIES)

        @app.post("/async")
        async def handle(number: int = Body(embed=True)):
            await asyncio.sleep(0.005)
            client.log("document.updated", resource=str(number))

        @app.post("/blocking")  # FastAPI runs it on another thread
        def handle_blocking(number: int = Body(embed=True)):
            client.log("document.updated", resource=str(number))

        for path in ("/async", "/blocking"):
            with self.subTest(path):
                self.client.clear()
                self.check(app, path)

    def test_starlette(self):
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.responses import PlainTextResponse
        from starlette.routing import Route

        async def handle(request):
            number = (await request.json())["number"]
            self.client.log("document.updated", resource=str(number))
            return PlainTextResponse("")

        authentication, backend = self.authenticated()
        stack = [
            Middleware(SealogMiddleware, trusted_proxies=PROXIES),
            Middleware(authentication, backend=backend),
        ]
        self.check(Starlette(routes=[Route("/", handle, methods=["POST"])], middleware=stack), "/")


@unittest.skipIf(MISSING, "not installed: %s" % ", ".join(MISSING))
class Django(unittest.TestCase):
    """Sync and async views, through the whole stack of middlewares, with sessions."""

    @classmethod
    def setUpClass(cls):
        import django
        from django.conf import settings
        from django.http import HttpResponse
        from django.urls import path

        def log(request):
            request.session["seen"] = True
            if request.session.session_key is None:
                request.session.save()
            cls.session_key = request.session.session_key
            cls.client.log("document.updated", resource=str(json.loads(request.body)["number"]))
            return HttpResponse("")

        async def log_async(request):
            await asyncio.sleep(0.005)
            return log(request)

        def authenticate(get_response):
            def handle(request):
                name = request.headers.get("X-User")
                request.user = types.SimpleNamespace(is_authenticated=bool(name), pk=name)
                return get_response(request)

            return handle

        site = types.ModuleType("site_of_the_test")
        site.urlpatterns, site.authenticate = [path("sync", log), path("async", log_async)], authenticate
        sys.modules[site.__name__] = site
        settings.configure(
            SECRET_KEY="x",
            ALLOWED_HOSTS=["*"],
            ROOT_URLCONF=site.__name__,
            SESSION_ENGINE="django.contrib.sessions.backends.cache",
            SEALOG_TRUSTED_PROXIES=PROXIES,
            MIDDLEWARE=[
                "django.contrib.sessions.middleware.SessionMiddleware",
                site.__name__ + ".authenticate",
                "sealog.middleware.django_middleware",
            ],
        )
        django.setup()

    def setUp(self):
        type(self).client = Recorder()
        self.addCleanup(self.client.close)

    def arguments(self, number):
        headers = {"X-Forwarded-For": "203.0.113.%d" % number, "X-Request-Id": "req-%d" % number}
        headers.update({"X-User": "u-%d" % number, "traceparent": TRACE})
        return {"data": {"number": number}, "content_type": "application/json", "headers": headers}

    def check(self, event, number):
        self.assertRegex(event.pop("session_id"), "^s_[0-9a-f]{32}$")
        self.assertNotIn(self.session_key, str(event))
        self.assertEqual(event, expected(number))

    def test_sync_and_async_views_of_the_blocking_handler(self):
        from django.test import Client

        for number, view in enumerate(("/sync", "/async"), 1):
            with self.subTest(view):
                self.client.clear()
                self.assertEqual(Client().post(view, **self.arguments(number)).status_code, 200)
                self.check(self.client.recorded[0], number)

    def test_sync_and_async_views_of_the_async_handler(self):
        from django.test import AsyncClient

        async def run(view):
            posts = (AsyncClient().post(view, **self.arguments(number)) for number in range(1, 21))
            return [answer.status_code for answer in await asyncio.gather(*posts)]

        for view in ("/sync", "/async"):
            with self.subTest(view):
                self.client.clear()
                self.assertEqual(asyncio.run(run(view)), [200] * 20)
                for event in sorted(self.client.recorded, key=lambda event: int(event["resource"])):
                    self.check(event, int(event["resource"]))
                self.assertEqual(len({event["resource"] for event in self.client.recorded}), 20)


if __name__ == "__main__":
    unittest.main()
