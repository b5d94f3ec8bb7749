"""Where receipts are kept for audit(): in memory, or in a file that outlives the process."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import deque
from typing import Deque, Iterable, Iterator, Optional

from ._core import Receipt
from .errors import bad_option

_MEMORY_MAX = 10_000
_NAMES = ("log_id", "chain_seq", "hash", "request_id")
logger = logging.getLogger("sealog")


class Receipts:
    """Keeps the newest 10,000, or all of them in the file `path`: one JSON object for each line."""

    def __init__(self, path: Optional[str] = None) -> None:
        self._path, self._lock = path, threading.Lock()
        self._memory: Deque[Receipt] = deque(maxlen=_MEMORY_MAX)
        self.dropped = 0
        self._fd = -1
        if path is not None:
            try:
                self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise bad_option("receipts", "cannot open the file: %s" % error) from None

    def add(self, receipts: Iterable[Receipt]) -> None:
        with self._lock:
            if self._path is None:
                for receipt in receipts:
                    self.dropped += len(self._memory) == _MEMORY_MAX
                    self._memory.append(receipt)
                return
            lines = [
                "%s\n" % json.dumps({name: getattr(receipt, name) for name in _NAMES}) for receipt in receipts
            ]
            try:
                os.write(self._fd, "".join(lines).encode())
            except OSError as error:  # The event is stored; only its audit is not possible. audit() says so.
                self.dropped += len(lines)
                logger.error("cannot write a receipt to %s: %s; audit() will not cover it", self._path, error)

    def __iter__(self) -> Iterator[Receipt]:
        if self._path is None:
            with self._lock:
                kept = list(self._memory)
            yield from kept
            return
        with open(self._path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    values = json.loads(line)
                    number = values["chain_seq"]
                    number = int(number) if number is not None else None
                    yield Receipt(values["log_id"], number, values["hash"], values["request_id"])
                except (ValueError, TypeError, KeyError):
                    continue  # a write that a crash interrupted; its event is still in the spool

    def close(self) -> None:
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
