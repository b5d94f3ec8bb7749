"""Client of Sealog, the tamper-evident audit log."""

from ._core import Audit, Receipt, Verification
from ._http import VERSION as __version__
from ._spool import HeldBatch
from .aio import AsyncClient
from .client import Client, pseudonymize
from .context import context
from .errors import (
    ActionError,
    AuthError,
    Closed,
    IdempotencyConflict,
    NotFound,
    QueueFull,
    RateLimited,
    SealogError,
    ServerError,
    SpoolError,
    SubscriptionError,
    TransportError,
    ValidationError,
)
from .verify import ChainResult, StoredEvent, verify_events

__all__ = [
    "ActionError",
    "AsyncClient",
    "Audit",
    "AuthError",
    "ChainResult",
    "Client",
    "Closed",
    "HeldBatch",
    "IdempotencyConflict",
    "NotFound",
    "QueueFull",
    "RateLimited",
    "Receipt",
    "SealogError",
    "ServerError",
    "SpoolError",
    "StoredEvent",
    "SubscriptionError",
    "TransportError",
    "ValidationError",
    "Verification",
    "__version__",
    "context",
    "pseudonymize",
    "verify_events",
]
