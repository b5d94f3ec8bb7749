"""The asyncio client. It runs the same operations as `Client`; the queue is the same, with its own thread."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, AsyncIterator, Callable, Dict, List, Optional, Type, TypeVar, Union

from . import _core
from ._core import Audit, Operation, Receipt, Verification, Wait
from ._event import encode
from ._http import AsyncHttp
from .client import Base, Event
from .errors import TransportError
from .verify import StoredEvent

T = TypeVar("T")


class AsyncClient(Base):
    """Logs, reads and verifies events with asyncio. Options are those of `Client`.

    Callbacks run on the sender's thread, since they must also run when no event loop does.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._async_http = self._make_http()

    def _make_http(self) -> AsyncHttp:
        return AsyncHttp(self.address, self._timeout, self._tls)

    async def log(self, event: Union[str, Event], *, idempotency_key: Optional[str] = None, **fields: Any) -> Receipt:
        """Logs one event. Returns when it is on stable storage; raises SealogError if it is not."""
        return await self._run(self._log_operation(event, fields, idempotency_key))

    async def enqueue(self, event: Union[str, Event], **fields: Any) -> None:
        """Queues one event. Waits only if the queue is full and on_full is "block", or for a synced spool."""
        if self._catalog:
            body = await self._run(self._enqueue_operation(event, fields))
        else:
            body = encode(self._merge(event, fields)[0])
        if self._queue.may_wait(len(body)):
            await self._apart(lambda: self._queue.enqueue(body))
        else:
            self._queue.enqueue(body)

    async def flush(self, timeout: Optional[float] = None) -> int:
        """Waits until what is queued now has ended. Returns the number of events that have not."""
        return await self._apart(lambda: self._queue.flush(timeout))

    async def close(self, timeout: Optional[float] = 30.0) -> int:
        """Sends what is queued and ends the client. Returns the number of events that were not sent."""
        pending = await self._apart(lambda: self._queue.close(timeout))
        await self._async_http.close()
        self._http.close()
        self._receipts.close()
        return pending

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()

    def events(self, *, limit: int = 100, **filters: Optional[str]) -> AsyncIterator[StoredEvent]:
        """All events, newest first, page by page: `async for event in client.events(action="user.login")`."""
        return self._events(_core.check_filters(filters), limit)

    async def _events(self, filters: Dict[str, object], limit: int) -> AsyncIterator[StoredEvent]:
        cursor: Optional[str] = None
        while True:
            found, cursor = await self._run(_core.page(filters, limit, cursor, self._policy))
            for event in found:
                yield event
            if cursor is None:
                return

    async def get(self, log_id: str) -> StoredEvent:
        """One event. Raises NotFound."""
        return await self._run(_core.get(log_id, self._policy))

    async def actions(self) -> List[Dict[str, Any]]:
        """The catalog of actions."""
        return await self._run(_core.actions(self._policy))

    async def verify(self, from_seq: int = 1, to_seq: Optional[int] = None) -> Verification:
        """Lets the service verify its chain."""
        return await self._run(_core.verify(from_seq, to_seq, self._policy))

    async def audit(self) -> Audit:
        """Reads every event back for which there is a receipt, recomputes its hash and compares."""
        return await self._run(self._audit_operation())

    @staticmethod
    async def _apart(call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(None, call)

    async def _run(self, operation: Operation[T]) -> T:
        reply: Optional[_core.Answer] = None
        failure: Optional[TransportError] = None
        while True:
            try:
                step = operation.throw(failure) if failure else operation.send(reply)
            except StopIteration as stop:
                result: T = stop.value
                return result
            reply = failure = None
            if isinstance(step, Wait):
                await asyncio.sleep(step.seconds)
                continue
            try:
                reply = await self._async_http.exchange(step)
            except TransportError as error:
                failure = error
