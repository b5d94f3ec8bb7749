"""A client for tests of applications: it checks events as the real one does and keeps them in memory.

client = Recorder()
sign_in(client, user)                                    # the code under test
client.assert_logged("user.login", actor_id="u-17")
"""

from __future__ import annotations

import hashlib
import json
import threading
from typing import Any, Dict, List, Mapping, Optional

from ._core import Answer, Request
from ._http import Address, Http
from .aio import AsyncClient, AsyncHttp
from .client import Client

_KEY = "at_test_" + "0" * 49
_IDS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class _Service(Http):
    """Answers in place of the network."""

    def __init__(self) -> None:
        super().__init__(Address("http://127.0.0.1", _KEY), 1.0, None)
        self.events: List[Dict[str, Any]] = []
        self.answers: Dict[str, Answer] = {}
        self.failure: Optional[Answer] = None
        self.lock = threading.Lock()

    def exchange(self, request: Request) -> Answer:
        with self.lock:
            if self.failure:
                return self.failure
            if request.method != "POST":
                return Answer(
                    404, {}, b'{"error":{"code":"read/not_found","message":"a Recorder only records"}}'
                )
            key = request.headers["Idempotency-Key"]
            if key not in self.answers:
                self.answers[key] = self._accept(request)
            return self.answers[key]

    def _accept(self, request: Request) -> Answer:
        body, single = json.loads(request.body), request.path == "/v1/events"
        events = [body] if single else body["events"]
        first = len(self.events) + 1
        ids = [self._log_id(first + i) for i in range(len(events))]
        self.events += events
        answer = {"log_id": ids[0]} if single else {"log_ids": ids}
        numbers = str(first) if single else "%d-%d" % (first, len(self.events))
        headers = {"sealog-chain-seq": numbers, "sealog-hash": hashlib.sha256(request.body).hexdigest()}
        return Answer(202, headers, json.dumps({**answer, "request_id": "req_recorder"}).encode())

    @staticmethod
    def _log_id(number: int) -> str:
        return "".join(_IDS[number >> shift & 31] for shift in range(125, -1, -5))


class _AsyncService(AsyncHttp):
    def __init__(self, service: _Service) -> None:
        super().__init__(service.address, 1.0, None)
        self._service = service

    async def exchange(self, request: Request) -> Answer:
        return self._service.exchange(request)


class _Assertions:
    _service: _Service

    def _settle(self) -> None:
        raise NotImplementedError

    @property
    def recorded(self) -> List[Dict[str, Any]]:
        """The recorded events as they would have been sent, in order."""
        self._settle()
        return list(self._service.events)

    def clear(self) -> None:
        """Forgets all events."""
        self._settle()
        self._service.events.clear()

    def fail_with(self, status: Optional[int], code: str = "server/internal") -> None:
        """Answers every request with this error, to test an outage. None: answers normally again."""
        body = json.dumps({"error": {"code": code, "message": "fail_with(%s)" % status}}).encode()
        self._service.failure = Answer(status, {}, body) if status is not None else None

    def logged(self, action: Optional[str] = None, **fields: Any) -> List[Dict[str, Any]]:
        """The events with this action and these fields. Of `metadata`, the given members are compared."""
        wanted = {**({"action": action} if action else {}), **fields}
        return [
            event
            for event in self.recorded
            if all(_fits(event.get(name), want) for name, want in wanted.items())
        ]

    def assert_logged(self, action: Optional[str] = None, *, count: int = 1, **fields: Any) -> None:
        """Fails unless exactly `count` recorded events fit."""
        found = len(self.logged(action, **fields))
        if found != count:
            lines = (
                "\n".join("  " + json.dumps(event, ensure_ascii=False) for event in self.recorded) or "  none"
            )
            wanted = " ".join(([action] if action else []) + ["%s=%r" % pair for pair in fields.items()])
            raise AssertionError(
                "expected %d events with %s, found %d. Recorded:\n%s" % (count, wanted, found, lines)
            )

    def assert_nothing_logged(self) -> None:
        self.assert_logged(count=0)


def _fits(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return all(_fits(found.get(name), part) for name, part in wanted.items())
    return bool(found == wanted)


class Recorder(_Assertions, Client):
    """A `Client` that records. Options are those of `Client`; `api_key` is a test key unless given."""

    def __init__(self, api_key: str = _KEY, **options: Any) -> None:
        self._service = _Service()
        fast = {"flush_interval": 0.0, "retry_base": 0.001}
        super().__init__(api_key, url="http://127.0.0.1", transport=self._service, **{**fast, **options})

    def _settle(self) -> None:
        self.flush(10)


class AsyncRecorder(_Assertions, AsyncClient):
    """An `AsyncClient` that records."""

    def __init__(self, api_key: str = _KEY, **options: Any) -> None:
        self._service = _Service()
        fast = {"flush_interval": 0.0, "retry_base": 0.001}
        super().__init__(api_key, url="http://127.0.0.1", transport=self._service, **{**fast, **options})

    def _make_http(self) -> AsyncHttp:
        return _AsyncService(self._service)

    def _settle(self) -> None:
        self._queue.flush(10)


__all__ = ["AsyncRecorder", "Recorder"]
