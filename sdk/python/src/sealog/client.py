"""The blocking client, and everything that it shares with the asyncio client."""

from __future__ import annotations

import difflib
import hashlib
import hmac
import json
import logging
import os
import re
import signal
import ssl
import time
from types import FrameType, TracebackType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, Type, TypeVar, Union

from . import _context, _core
from ._core import Audit, Operation, Policy, Receipt, Verification, Wait, new_key
from ._event import encode, wrong
from ._http import Address, Http
from ._queue import Queue
from ._spool import HeldBatch, Limits, MemoryStore, SpoolStore
from .errors import ActionError, Closed, SealogError, TransportError, bad_option
from .receipts import Receipts
from .verify import Proofs, StoredEvent

T = TypeVar("T")
C = TypeVar("C", bound="Client")
AnyEvent = Mapping[str, Any]  # `Event` is one, too
OnReceipt = Callable[[Receipt, Dict[str, Any]], None]
OnError = Callable[[SealogError, Dict[str, Any]], None]
logger = logging.getLogger("sealog")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")


def pseudonymize(key: Union[str, bytes], value: str) -> str:
    """A stable pseudonym of a value, the same in every client library. Without the key it cannot be
    guessed."""
    secret = key.encode() if isinstance(key, str) else key
    if not secret:
        raise bad_option("key", "must not be empty")
    return "ps_" + hmac.new(secret, value.encode(), hashlib.sha256).hexdigest()[:32]


class Base:
    """Options, checks and callbacks. `Client` and `AsyncClient` add the I/O."""

    def __init__(
        self,
        api_key: Optional[str] = None,
        *,
        url: Optional[str] = None,
        on_receipt: Optional[OnReceipt] = None,
        on_error: Optional[OnError] = None,
        on_warning: Optional[Callable[[str, str], None]] = None,
        before_send: Optional[Callable[[Dict[str, Any]], Optional[AnyEvent]]] = None,
        spool_dir: Union[str, "os.PathLike[str]", None] = None,
        spool_sync: bool = False,
        spool_max_bytes: int = 268_435_456,
        queue_max_events: int = 10_000,
        queue_max_bytes: int = 33_554_432,
        on_full: str = "block",
        batch_max_events: int = 100,
        batch_max_bytes: int = 1_900_000,
        flush_interval: float = 1.0,
        max_attempts: int = 5,
        retry_base: float = 1.0,
        retry_budget: float = 60.0,
        timeout: float = 30.0,
        ca_file: Optional[str] = None,
        receipts: Union[str, "os.PathLike[str]", None] = None,
        vkey: Optional[str] = None,
        check_actions: bool = False,
        trace_metadata: bool = False,
        exit_timeout: float = 5.0,
        hold_after: float = 86_100.0,
        adopt_interval: float = 10.0,
        now: Callable[[], float] = time.time,
        transport: Optional[Http] = None,
    ) -> None:
        """Times are in seconds. `url` and `api_key` default to SEALOG_URL and SEALOG_API_KEY. `vkey` is the
        key of the server's log, for audit()."""
        key = api_key if api_key is not None else os.environ.get("SEALOG_API_KEY", "")
        url = url if url is not None else os.environ.get("SEALOG_URL", "http://127.0.0.1:8080")
        if not isinstance(key, str) or not re.fullmatch(r"at_(live|test)_[0-9A-Za-z]{49}", key):
            problem = "must be at_live_ or at_test_ and 49 letters or digits; copy the whole key, or set SEALOG_API_KEY"
            raise bad_option("api_key", problem)
        if on_full not in ("block", "error"):
            raise bad_option("on_full", 'must be "block" or "error"')
        bounds: List[Tuple[str, float, float, float]] = [
            ("batch_max_events", batch_max_events, 1, 100),
            ("batch_max_bytes", batch_max_bytes, 1, 2_097_152),
            ("queue_max_events", queue_max_events, 1, 1e9),
            ("queue_max_bytes", queue_max_bytes, 1, 1e12),
            ("spool_max_bytes", spool_max_bytes, 1, 1e15),
            ("max_attempts", max_attempts, 1, 1000),
            ("retry_base", retry_base, 0, 3600),
            ("retry_budget", retry_budget, 0, 86_400),
            ("flush_interval", flush_interval, 0, 86_400),
            ("timeout", timeout, 0.001, 86_400),
            ("exit_timeout", exit_timeout, 0, 86_400),
            ("hold_after", hold_after, 0, 86_400),
            ("adopt_interval", adopt_interval, 0.001, 86_400),
        ]
        for name, value, least, most in bounds:
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
                raise bad_option(name, "must be between {:,} and {:,}".format(least, most))
        Proofs(vkey)
        self._vkey = vkey
        self.address = Address(url, key)
        self._tls: Optional[ssl.SSLContext] = None
        if self.address.tls:
            try:
                self._tls = ssl.create_default_context(cafile=ca_file)
            except OSError as error:
                raise bad_option("ca_file", "cannot read it: %s" % error) from None
        elif not re.match(r"localhost\Z|127\.|::1\Z", self.address.host) and transport is None:
            logger.warning(
                "url is http://: the API key and all events cross the network readable; use https://"
            )
        self._is_test = key.startswith("at_test_")
        self._on_receipt, self._on_error, self._on_warning = on_receipt, on_error, on_warning
        self._before_send, self._trace_metadata = before_send, trace_metadata
        self._warned_incomplete = False
        self._policy, self._timeout = Policy(max_attempts, retry_base, retry_budget), timeout
        self._catalog = Catalog(self._policy) if check_actions else None
        self._receipts = Receipts(os.fspath(receipts) if receipts is not None else None)
        self._http = transport or Http(self.address, timeout, self._tls)
        numbers = batch_max_events, batch_max_bytes, queue_max_events, queue_max_bytes, spool_max_bytes
        limits = Limits(*numbers, int(hold_after * 1000))

        def now_ms() -> int:
            return int(now() * 1000)

        store: Union[MemoryStore, SpoolStore] = MemoryStore(limits)
        if spool_dir is not None:
            store = SpoolStore(os.fspath(spool_dir), limits, spool_sync, now_ms, self._warn)
        self._queue = Queue(
            store,
            self._http.exchange,
            self._policy,
            self._end,
            self._warn,
            self._warn_incomplete,
            now_ms,
            flush_interval,
            adopt_interval,
            on_full == "block",
            exit_timeout,
        )
        self._open()

    def _open(self) -> None:
        """For what else a client needs."""

    def held(self) -> List[HeldBatch]:
        """Batches of the spool that wait for a decision, because their keys may have expired."""
        return self._queue.held()

    def release(self, id: str, choice: str) -> None:
        """Sends a held batch under a new key ("send": it may be stored twice), or ends it ("drop")."""
        self._queue.release(id, choice)

    # --- For the clients ---

    def _merge(
        self, event: Union[str, AnyEvent], fields: Dict[str, Any]
    ) -> Tuple[Dict[str, Any], Dict[str, str]]:
        """The event with the context's fields, after before_send; and the headers of its request."""
        if self._queue.is_closed:
            raise Closed("the client is closed", code="client/closed")
        if isinstance(event, str):
            merged = {"action": event, **fields}
        elif isinstance(event, Mapping):
            merged = dict(event)
            for name, value in fields.items():
                if value is not None:
                    merged[name] = value
        else:
            raise wrong("event", "must be an action or a dict, not %s" % type(event).__name__)
        traceparent = _context.apply(merged)
        headers = (
            {"traceparent": traceparent}
            if traceparent and re.fullmatch(r"[0-9a-f-]{55,}", traceparent)
            else {}
        )
        if headers and self._trace_metadata:
            _, trace_id, span_id = str(traceparent).split("-")[:3]
            merged["metadata"] = {"trace_id": trace_id, "span_id": span_id, **(merged.get("metadata") or {})}
        if self._before_send:
            merged = self._call_before_send(merged)
        actor = merged.get("actor_id")
        if self._is_test and isinstance(actor, str) and "@" in actor and _EMAIL.fullmatch(actor):
            advice = "actor_id looks like an e-mail address; send an internal id, or pseudonymize() it"
            self._warn("client/personal_data", advice)
        return merged, headers

    def _call_before_send(self, event: Dict[str, Any]) -> Dict[str, Any]:
        assert self._before_send
        given = {name: value for name, value in event.items() if value is not None}
        if isinstance(given.get("metadata"), dict):
            given["metadata"] = dict(given["metadata"])  # the application's own dict stays as it is
        try:
            result = self._before_send(given)
        except Exception as error:
            raise wrong("before_send", "failed with %r; the event was not logged" % error) from error
        if not isinstance(result, Mapping):
            raise wrong("before_send", "must return the event; it returned %s" % type(result).__name__)
        return dict(result)

    def _end(self, event: bytes, result: Union[Receipt, SealogError]) -> None:
        """Reports the end of a queued event."""
        if isinstance(result, Receipt):
            self._receipts.add([result])
            if self._on_receipt:
                self._on_receipt(result, json.loads(event))
        elif self._on_error:
            self._on_error(result, json.loads(event))
        else:
            text = event[:2000].decode("utf-8", "replace")
            logger.error("an event was not logged: %s; set on_error to handle it. Event: %s", result, text)

    def _warn(self, code: str, message: str) -> None:
        logger.warning("%s [%s]", message, code)
        if self._on_warning:
            try:
                self._on_warning(code, message)
            except Exception:
                logger.exception("on_warning failed")

    def _warn_incomplete(self) -> None:
        if not self._warned_incomplete:
            self._warned_incomplete = True
            message = "a receipt lacks chain_seq or hash; let your proxy pass Sealog-Chain-Seq and Sealog-Hash"
            self._warn("client/incomplete_receipt", message)

    def _log_operation(
        self, event: Union[str, AnyEvent], fields: Dict[str, Any], key: Optional[str]
    ) -> Operation[Receipt]:
        merged, headers = self._merge(event, fields)
        if key is not None and not re.fullmatch(r"[!-~]{1,255}", key):
            raise bad_option("idempotency_key", "must have 1 to 255 characters from ! to ~")
        body = encode(merged)
        if self._catalog:
            yield from self._catalog.check(merged)
        request = _core.post_one(body, key or new_key(), headers)
        receipt = yield from _core.log(request, self._policy, self._warn_incomplete)
        self._receipts.add([receipt])
        return receipt

    def _enqueue_operation(self, event: Union[str, AnyEvent], fields: Dict[str, Any]) -> Operation[bytes]:
        merged, _ = self._merge(event, fields)
        body = encode(merged)
        if self._catalog:
            yield from self._catalog.check(merged)
        return body

    def _audit_operation(self) -> Operation[Audit]:
        # Test chains have no trees. Two audits share nothing: the server may have begun another log.
        proofs = Proofs(self._vkey, are_published=not self._is_test)
        return _core.audit(self._receipts, self._receipts.dropped, proofs, self._warn, self._policy)


class Catalog:
    """The actions that the service knows, for the check before sending."""

    def __init__(self, policy: Policy) -> None:
        self._policy, self._actions, self._read_at = policy, None, float("-inf")  # type: Policy, Any, float

    def check(self, event: Mapping[str, Any]) -> Operation[None]:
        known = self._actions
        if (known is None or event["action"] not in known) and time.monotonic() - self._read_at > 60:
            self._read_at = time.monotonic()
            try:
                found = yield from _core.actions(self._policy)
                known = self._actions = {action.get("action"): action for action in found}
            except SealogError as error:
                logger.warning("cannot read the catalog, actions are not checked: %s", error)
        if known is None:
            return
        action = known.get(event["action"])
        if action is None:
            near = difflib.get_close_matches(event["action"], [name for name in known if name], 1, 0)
            message = "action: %r is not in the catalog" % event["action"]
            suggestion = near[0] if near else None
            raise ActionError(message, code="action/invalid", field="action", suggestion=suggestion)
        for name in action.get("required_fields") or ():
            if (event.get("metadata") or {}).get(name) is None:
                message = "metadata.%s: is required by %s" % (name, event["action"])
                raise ActionError(message, code="action/missing_required_fields", field="metadata." + name)


class Client(Base):
    """Logs, reads and verifies events. One client serves all threads of a process; close it at the end.

    client = Client("at_live_…", url="https://sealog.example.org")
    receipt = client.log("user.login", actor_id="u-17", resource="session/1")
    """

    def log(
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
        return self._run(self._log_operation(event, fields, idempotency_key))

    def enqueue(
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
        """Queues one event and returns at once. It ends as a receipt in on_receipt or an error in
        on_error."""
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
            self._queue.enqueue(self._run(self._enqueue_operation(event, fields)))
        else:
            self._queue.enqueue(encode(self._merge(event, fields)[0]))

    def flush(self, timeout: Optional[float] = None) -> int:
        """Waits until what is queued now has ended. Returns the number of events that have not."""
        return self._queue.flush(timeout)

    def close(self, timeout: Optional[float] = 30.0) -> int:
        """Sends what is queued and ends the client. Returns the number of events that were not sent: they
        are in the spool, or were reported to on_error."""
        pending = self._queue.close(timeout)
        self._http.close()
        self._receipts.close()
        return pending

    def __enter__(self: C) -> C:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def close_on_signal(self, *signals: int) -> None:
        """Closes the client when one of these signals (by default SIGTERM) arrives, then does what was done
        before. Call it from the main thread."""
        for number in signals or (signal.SIGTERM,):
            before = signal.getsignal(number)

            def handle(received: int, frame: Optional[FrameType], before: Any = before) -> None:
                self.close(5.0)
                if callable(before):
                    before(received, frame)
                elif before != signal.SIG_IGN:
                    signal.signal(received, signal.SIG_DFL)
                    os.kill(os.getpid(), received)

            signal.signal(number, handle)

    def events(self, *, limit: int = 100, **filters: Optional[str]) -> Iterator[StoredEvent]:
        """All events, newest first, page by page. Filters: action, actor_id, resource, date_from, date_to."""
        return self._events(_core.check_filters(filters), limit)

    def _events(self, filters: Dict[str, object], limit: int) -> Iterator[StoredEvent]:
        cursor: Optional[str] = None
        while True:
            found, cursor = self._run(_core.page(filters, limit, cursor, self._policy))
            yield from found
            if cursor is None:
                return

    def get(self, log_id: str) -> StoredEvent:
        """One event. Raises NotFound."""
        return self._run(_core.get(log_id, self._policy))

    def actions(self) -> List[Dict[str, Any]]:
        """The catalog of actions."""
        return self._run(_core.actions(self._policy))

    def verify(self, from_seq: int = 1, to_seq: Optional[int] = None) -> Verification:
        """Lets the service verify its chain. verify_events() does it without trust in the service."""
        return self._run(_core.verify(from_seq, to_seq, self._policy))

    def audit(self) -> Audit:
        """Reads every event back for which there is a receipt, recomputes its hash and compares. Where the
        server publishes proofs, it asks for that of each event and checks it."""
        return self._run(self._audit_operation())

    def _run(self, operation: Operation[T]) -> T:
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
                time.sleep(step.seconds)
                continue
            try:
                reply = self._http.exchange(step)
            except TransportError as error:
                failure = error
