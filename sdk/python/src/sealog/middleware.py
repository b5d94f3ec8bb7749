"""Context for web frameworks, without importing them: pure ASGI (Starlette, FastAPI) and Django.

    app.add_middleware(SealogMiddleware, trusted_proxies=["10.0.0.0/8"])          # Starlette, FastAPI
    MIDDLEWARE = [..., "sealog.middleware.django_middleware"]                      # Django

Django reads the proxies from settings.SEALOG_TRUSTED_PROXIES.
"""

from __future__ import annotations

import inspect
from typing import Any, Awaitable, Callable, Dict, Iterable, List, MutableMapping, Optional

from ._context import TrustedProxies, context, request_fields, session_digest

__all__ = ["SealogMiddleware", "TrustedProxies", "django_middleware"]

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]
Getter = Callable[[Any], Optional[str]]


def _user_id(user: Any) -> Optional[str]:
    if user is None or getattr(user, "is_authenticated", True) is False:
        return None
    for name in ("identity", "pk", "id"):
        try:
            value = getattr(user, name, None)
        except NotImplementedError:  # Starlette's BaseUser.identity
            continue
        if value is not None:
            return str(value)
    return None


class SealogMiddleware:
    """ASGI middleware. `actor` and `session` get the scope; by default the actor is the id of
    scope["user"]."""

    def __init__(
        self,
        app: App,
        *,
        trusted_proxies: Iterable[str] = (),
        actor: Optional[Getter] = None,
        session: Optional[Getter] = None,
    ) -> None:
        self.app, self.proxies = app, TrustedProxies(trusted_proxies)
        self.actor = actor or (lambda scope: _user_id(scope.get("user")))
        self.session = session

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        headers: Dict[str, List[str]] = {}
        for name, value in scope.get("headers", ()):
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        client = scope.get("client")
        fields = request_fields(self.proxies, client[0] if client else None, headers)
        # Read when an event is logged: the authentication runs inside of this middleware and fills the scope.
        fields["actor_id"] = lambda: self.actor(scope)
        if self.session:
            session = self.session
            fields["session_id"] = lambda: session(scope)
        with context(**fields):
            await self.app(scope, receive, send)


def django_middleware(get_response: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Django middleware, for sync and async views."""
    from django.conf import settings  # type: ignore[import-not-found,import-untyped,unused-ignore]

    proxies = TrustedProxies(getattr(settings, "SEALOG_TRUSTED_PROXIES", ()))

    def fields_of(request: Any) -> Dict[str, Any]:
        headers = {name.lower(): [value] for name, value in request.headers.items()}
        fields = request_fields(proxies, request.META.get("REMOTE_ADDR"), headers)
        fields["actor_id"] = lambda: _user_id(getattr(request, "user", None))
        fields["session_id"] = lambda: session_digest(
            getattr(getattr(request, "session", None), "session_key", None)
        )
        return fields

    if inspect.iscoroutinefunction(get_response):

        async def handle(request: Any) -> Any:
            with context(**fields_of(request)):
                return await get_response(request)

        return handle

    def handle_sync(request: Any) -> Any:
        with context(**fields_of(request)):
            return get_response(request)

    return handle_sync


# Django's marks for middleware that serves both kinds of views.
django_middleware.sync_capable = True  # type: ignore[attr-defined]
django_middleware.async_capable = True  # type: ignore[attr-defined]
