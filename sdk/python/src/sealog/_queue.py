"""The queue and its sender: one thread, one batch in flight, so that order is kept.

A thread serves the asyncio client, too. It sends while the event loop is busy, and after the loop has ended.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from typing import Callable, List, Optional, Set, Union

from ._core import Answer, Batch, Operation, Policy, Receipt, Request, Wait, deliver, is_temporary
from ._spool import HeldBatch, MemoryStore, SpooledBatch, SpoolStore, Warn
from .errors import Closed, QueueFull, SealogError, SpoolError, TransportError, bad_option

logger = logging.getLogger("sealog")
End = Callable[[bytes, Union[Receipt, SealogError]], None]
_open_queues: "weakref.WeakSet[Queue]" = weakref.WeakSet()


class _Stopped(BaseException):
    """Leaves the delivery of a batch; the reason is in the queue's state."""


class Queue:
    def __init__(
        self,
        store: Union[MemoryStore, SpoolStore],
        exchange: Callable[[Request], Answer],
        policy: Policy,
        end: End,
        warn: Warn,
        on_incomplete: Callable[[], None],
        now_ms: Callable[[], int],
        flush_interval_s: float,
        adopt_interval_s: float,
        blocks: bool,
        exit_timeout_s: float,
    ) -> None:
        self._store, self._exchange, self._policy, self._end, self._warn = store, exchange, policy, end, warn
        self._now_ms, self._blocks, self._exit_timeout_s = now_ms, blocks, exit_timeout_s
        self._on_incomplete = on_incomplete
        self._flush_interval_s, self._adopt_interval_s = flush_interval_s, adopt_interval_s
        self._begin()
        if isinstance(store, SpoolStore):
            with self._lock:
                store.adopt()
                self._count_store()
                self._start_thread()
        _open_queues.add(self)

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._work = threading.Condition(self._lock)  # for the sender
        self._news = threading.Condition(self._lock)  # for callers that wait for room or for the end
        self._abort = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._since: Optional[float] = None  # when the oldest event came that no batch has
        self._urgent = 0  # calls that wait for events to be sent
        self._put = self._ended = 0
        self._closing = self._closed = False
        self._batch: Optional[Batch] = None
        self._reported: Set[int] = set()  # indexes of the batch in flight
        self._adopt_at = time.monotonic() + self._adopt_interval_s
        self._inline_until: Optional[float] = None

    # --- For the client ---

    def enqueue(self, event: bytes) -> None:
        with self._lock:
            self._check_open()
            refusal = self._store.refusal(len(event))
            if refusal:
                self._wait_for_room(len(event), refusal)
            self._store.put(event, self._now_ms())
            self._put += 1
            if self._thread is None:
                self._start_thread()
            if self._since is None:
                self._since = time.monotonic()
                self._work.notify()
            elif self._store.is_batch_full:
                self._work.notify()

    def may_wait(self, size: int) -> bool:
        """Whether enqueue could wait, for room or for a sync. An event loop must not."""
        with self._lock:
            synced = isinstance(self._store, SpoolStore) and self._store.sync
            return synced or self._blocks and self._store.refusal(size) is not None

    def flush(self, timeout_s: Optional[float]) -> int:
        """Waits until the events that are queued now have ended. Returns how many have not."""
        with self._lock:
            target = self._put
            if threading.current_thread() is not self._thread:  # a callback would wait for itself
                self._wait(
                    lambda: self._closed or self._ended >= target and not self._is_settling, timeout_s
                )
            return max(target - self._ended, 0)

    @property
    def _is_settling(self) -> bool:
        """Whether the events of the batch in flight have all ended. Until the spool has settled the batch,
        they take room there."""
        return self._batch is not None and len(self._reported) == len(self._batch.events)

    def close(self, timeout_s: Optional[float]) -> int:
        with self._lock:
            if self._closed:
                return 0
            self._closing = True
            self._work.notify()
            self._news.notify_all()
            if self._thread is None or not self._thread.is_alive():
                self._drain_here(timeout_s)
            elif threading.current_thread() is not self._thread:
                self._wait(lambda: self._ended >= self._put and self._batch is None, timeout_s)
            pending = max(self._put - self._ended, 0)
            self._closed = True
            self._abort.set()
            left = self._unreported()
            left += self._store.close()
            self._work.notify_all()
            self._news.notify_all()
        for event in left:
            self._report(
                event, Closed("the client was closed before the event was sent", code="client/closed")
            )
        _open_queues.discard(self)
        return pending

    @property
    def is_closed(self) -> bool:
        return self._closed or self._closing

    def held(self) -> List[HeldBatch]:
        with self._lock:
            return self._store.list_held() if isinstance(self._store, SpoolStore) else []

    def release(self, name: str, choice: str) -> None:
        if choice not in ("send", "drop"):
            raise bad_option("choice", 'must be "send" or "drop"')
        with self._lock:
            self._check_open()
            if not isinstance(self._store, SpoolStore) or name not in self._store.held:
                raise bad_option("id", "%r is not held" % name)
            count = len(self._store.held[name].left)
            dropped = self._store.release(name, choice)
            self._put += count
            self._work.notify()
        for event in dropped:
            self._report(event, Closed("the application dropped the event", code="client/dropped"))
            self._count_end()

    # --- Waiting ---

    def _check_open(self) -> None:
        if self._closing:
            raise Closed("the client is closed", code="client/closed")

    def _wait_for_room(self, size: int, refusal: QueueFull) -> None:
        if not self._blocks or threading.current_thread() is self._thread:  # a callback would wait for itself
            raise refusal
        self._wait(lambda: self._closing or self._store.refusal(size) is None, None)
        self._check_open()

    def _wait(self, condition: Callable[[], bool], timeout_s: Optional[float]) -> None:
        self._urgent += 1
        self._work.notify()
        try:
            self._news.wait_for(condition, timeout_s)
        finally:
            self._urgent -= 1

    # --- The sender ---

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name="sealog-sender", daemon=True)
        try:
            thread.start()
            self._thread = thread
        except RuntimeError:
            pass  # the interpreter is ending: close() sends what there is

    def _drain_here(self, timeout_s: Optional[float]) -> None:
        if self._ended < self._put:
            self._inline_until = time.monotonic() + (timeout_s if timeout_s is not None else 1e9)
            self._run()

    def _run(self) -> None:
        while True:
            try:
                with self._lock:
                    self._batch = batch = self._next_batch()
                    self._reported = set()
            except Exception:  # a defect must not end the sender: events would wait for ever
                logger.exception("the sender failed; trying again")
                self._abort.wait(self._policy.retry_base_s)
                continue
            if batch is None:
                return
            try:
                self._drive(
                    deliver(
                        batch,
                        self._policy,
                        self._end_of(batch),
                        self._split_of(batch),
                        self._on_incomplete,
                        self._keep_of(batch),
                    )
                )
            except _Stopped:
                pass
            except SpoolError as error:  # the split cannot be recorded; the batch is tried again
                self._warn(error.code, str(error))
                self._abort.wait(self._policy.retry_base_s)
            except Exception as error:
                logger.exception("the sender failed; %d events are concerned", len(batch.events))
                self._give_up(batch, error)
            with self._lock:
                self._batch = None
                if not self._closed:
                    self._store.end_all(batch)
                    self._count_store()
                self._news.notify_all()

    def _give_up(self, batch: Batch, error: Exception) -> None:
        """Ends what a defect left open. A spool sends it again."""
        if isinstance(self._store, SpoolStore):
            self._abort.wait(self._policy.retry_base_s)
            return
        end = self._end_of(batch)
        for index in sorted(set(range(len(batch.events))) - self._reported):
            end(index, TransportError("the client failed: %r" % error, code="client/internal"))

    def _next_batch(self) -> Optional[Batch]:
        """Waits for a batch that is due. None: the queue is closed and empty."""
        store = self._store
        while not self._closed:
            now = time.monotonic()
            if self._inline_until and now > self._inline_until:
                return None
            if isinstance(store, SpoolStore) and now >= self._adopt_at and not self._closing:
                self._adopt_at = now + self._adopt_interval_s
                store.adopt()
                self._count_store()
            due = self._since + self._flush_interval_s if self._since is not None else None
            urgent = self._urgent or self._closing or store.is_batch_full or store.has_leftovers
            pause: Optional[float] = None
            if store.has_queued and (urgent or due is not None and due <= now):
                try:
                    batch = store.take(self._now_ms())
                    self._since = now - self._flush_interval_s if store.has_queued else None
                    self._count_store()
                    if batch:
                        return batch
                    continue
                except SpoolError as error:
                    self._warn(error.code, str(error))
                    pause = self._policy.retry_base_s
            elif self._closing:
                return None
            elif due is not None:
                pause = due - now
            if isinstance(store, SpoolStore):
                pause = min(self._adopt_interval_s, pause) if pause is not None else self._adopt_interval_s
            self._work.wait(pause)
        return None

    def _drive(self, operation: Operation[None]) -> None:
        reply: Optional[Answer] = None
        failure: Optional[TransportError] = None
        while True:
            try:
                step = operation.throw(failure) if failure else operation.send(reply)
            except StopIteration:
                return
            reply = failure = None
            if self._closed or self._inline_until and time.monotonic() > self._inline_until:
                raise _Stopped
            if isinstance(step, Wait):
                self._abort.wait(step.seconds)
                continue
            try:
                reply = self._exchange(step)
            except TransportError as error:
                failure = error

    def _end_of(self, batch: Batch) -> Callable[[int, Union[Receipt, SealogError]], None]:
        def end(index: int, result: Union[Receipt, SealogError]) -> None:
            with self._lock:
                if self._closed:
                    raise _Stopped
                if isinstance(batch, SpooledBatch) and batch.numbers[index] in batch.ended:
                    return
                self._reported.add(index)
            self._report(batch.events[index], result)
            with self._lock:
                if not self._closed:
                    self._store.end(batch, index)
            self._count_end()

        return end

    def _split_of(self, batch: Batch) -> Callable[[], None]:
        def split() -> None:
            with self._lock:
                if self._closed:
                    raise _Stopped
                self._store.split(batch)

        return split

    def _keep_of(self, batch: Batch) -> Optional[Callable[[SealogError, int], None]]:
        """With a spool: what happens after a failed attempt that is no fault of the events."""
        store = self._store
        if not isinstance(store, SpoolStore) or not isinstance(batch, SpooledBatch):
            return None
        warned: List[str] = []

        def on_failure(error: SealogError, attempt: int) -> None:
            serious = not is_temporary(error) or attempt == self._policy.max_attempts
            if serious and error.code not in warned:
                warned.append(error.code)
                message = "cannot send: %s; %d events stay in the spool, trying again"
                self._warn(error.code, message % (error, self._put - self._ended))
            with self._lock:
                if self._closed:
                    raise _Stopped
                if abs(self._now_ms() - batch.ms) >= store.limits.hold_after_ms:
                    store.hold(batch, "age")
                    raise _Stopped

        return on_failure

    # --- Ends ---

    def _report(self, event: bytes, result: Union[Receipt, SealogError]) -> None:
        try:
            self._end(event, result)
        except Exception:
            logger.exception("a callback failed; the event itself has ended as reported")

    def _count_end(self) -> None:
        with self._lock:
            self._ended += 1
            self._news.notify_all()

    def _count_store(self) -> None:
        """Takes over what the store found or held."""
        self._put += self._store.adopted
        self._ended += self._store.newly_held
        self._store.adopted = self._store.newly_held = 0
        self._news.notify_all()

    def _unreported(self) -> List[bytes]:
        batch = self._batch
        if batch is None or isinstance(self._store, SpoolStore):
            return []
        return [event for index, event in enumerate(batch.events) if index not in self._reported]

    def after_fork(self) -> None:
        """The child has neither the thread nor the parent's events."""
        if isinstance(self._store, SpoolStore):
            self._store.forget()
        else:
            self._store = MemoryStore(self._store.limits)
        closed = self._closed or self._closing
        self._begin()
        self._closing = self._closed = closed

    def at_exit(self) -> None:
        pending = self.close(self._exit_timeout_s)
        if pending and isinstance(self._store, SpoolStore):
            logger.warning("%d events are not sent yet; they stay in the spool", pending)


@atexit.register
def _close_all() -> None:
    for queue in list(_open_queues):
        queue.at_exit()


def _forked() -> None:
    for queue in list(_open_queues):
        queue.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
