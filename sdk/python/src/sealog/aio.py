"""The asyncio client. It runs the same operations as `Client`; the queue is the same, with its own thread."""

from __future__ import annotations

import asyncio
import socket
import ssl
from types import TracebackType
from typing import Any, AsyncIterator, Callable, Dict, List, Optional, Tuple, Type, TypeVar, Union

from . import _core
from ._core import Answer, Audit, Operation, Receipt, Request, Verification, Wait, bad_answer
from ._event import encode
from ._http import IDLE_MAX, LINE, REST, Address, Cut, cut, response
from .client import AnyEvent, Base
from .errors import TransportError
from .verify import StoredEvent

T = TypeVar("T")
A = TypeVar("A", bound="AsyncClient")


class AsyncHttp:
    """The same on asyncio streams. A connection belongs to the event loop that opened it."""

    def __init__(self, address: Address, timeout_s: float, tls: Optional[ssl.SSLContext]) -> None:
        self.address, self.timeout_s, self.tls = address, timeout_s, tls
        self._idle: Dict[
            asyncio.AbstractEventLoop, List[Tuple[asyncio.StreamReader, asyncio.StreamWriter]]
        ] = {}

    async def exchange(self, request: Request) -> Answer:
        try:
            return await asyncio.wait_for(self._exchange(self.address.bytes_of(request)), self.timeout_s)
        except asyncio.TimeoutError:
            raise self.address.failure(socket.timeout()) from None
        except (OSError, asyncio.IncompleteReadError) as error:  # SSLError is an OSError, and a ValueError
            raise self.address.failure(error) from None
        except ValueError:  # of StreamReader.readline
            raise bad_answer("the answer is too long", 0) from None

    async def _exchange(self, data: bytes) -> Answer:
        idle = self._idle.setdefault(asyncio.get_running_loop(), [])
        while True:
            stream = idle.pop() if idle else None
            used = stream is not None
            if stream and stream[0].at_eof():
                stream[1].close()
                continue
            address = self.address
            reader, writer = stream or await asyncio.open_connection(address.host, address.port, ssl=self.tls)
            try:
                answer, keep = await self._converse(reader, writer, data)
            except BaseException as error:
                writer.close()
                if used and isinstance(error, Cut) and error.stale:
                    continue
                raise
            if keep and len(idle) < IDLE_MAX:
                idle.append((reader, writer))
            else:
                writer.close()
            return answer

    @staticmethod
    async def _converse(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes
    ) -> Tuple[Answer, bool]:
        try:
            writer.write(data)
            await writer.drain()
        except ConnectionError:
            pass  # the server may have answered before it stopped reading
        parser, started = response(), False
        wanted = next(parser)
        try:
            while True:
                if wanted == LINE:
                    try:
                        piece = await reader.readline()
                    except ConnectionError as error:
                        raise Cut(stale=not started) from error
                    if not piece.endswith(b"\n"):
                        raise cut(piece, started or bool(piece))
                elif wanted == REST:
                    piece = await reader.read(-1)
                else:
                    piece = await reader.readexactly(wanted)
                started = True
                wanted = parser.send(piece)
        except StopIteration as stop:
            result: Tuple[Answer, bool] = stop.value
            return result

    async def close(self) -> None:
        for _, writer in self._idle.pop(asyncio.get_running_loop(), []):
            writer.close()


class AsyncClient(Base):
    """Logs, reads and verifies events with asyncio. Options are those of `Client`.

    Callbacks run on the sender's thread, since they must also run when no event loop does.
    """

    def _open(self) -> None:
        self._async_http = self._make_http()

    def _make_http(self) -> AsyncHttp:
        return AsyncHttp(self.address, self._timeout, self._tls)

    async def log(
        self,
        event: Union[str, AnyEvent],
        *,
        actor_id: Optional[str] = None,
        resource: Optional[str] = None,
        metadata: Optional[Dict[str, Any]] = None,
        actor_type: Optional[str] = None,
        resource_type: Optional[str] = None,
        severity: Optional[str] = None,
        session_id: Optional[str] = None,
        ts_client: Optional[str] = None,
        idempotency_key: Optional[str] = None,
    ) -> Receipt:
        """Logs one event. Returns when it is on stable storage; raises SealogError if it is not."""
        fields = {
            "actor_id": actor_id,
            "resource": resource,
            "metadata": metadata,
            "actor_type": actor_type,
            "resource_type": resource_type,
            "severity": severity,
            "session_id": session_id,
            "ts_client": ts_client,
        }
        return await self._run(self._log_operation(event, fields, idempotency_key))

    async def enqueue(
        self,
        event: Union[str, AnyEvent],
        *,
        actor_id: Optional[str] = None,
        resource: Optional[str] = None,
        metadata: Optional[Dict[str, Any]] = None,
        actor_type: Optional[str] = None,
        resource_type: Optional[str] = None,
        severity: Optional[str] = None,
        session_id: Optional[str] = None,
        ts_client: Optional[str] = None,
    ) -> None:
        """Queues one event. Waits only if the queue is full and on_full is "block", or for a synced spool."""
        fields = {
            "actor_id": actor_id,
            "resource": resource,
            "metadata": metadata,
            "actor_type": actor_type,
            "resource_type": resource_type,
            "severity": severity,
            "session_id": session_id,
            "ts_client": ts_client,
        }
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

    async def __aenter__(self: A) -> A:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
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
        """Reads every event back for which there is a receipt, recomputes its hash and compares. Where the
        server publishes proofs, it asks for that of each event and checks it."""
        return await self._run(self._audit_operation())

    @staticmethod
    async def _apart(call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(None, call)

    async def _run(self, operation: Operation[T]) -> T:
        reply: Optional[Answer] = None
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
