"""Client of Sealog, the tamper-evident audit log."""

from typing import TYPE_CHECKING

from ._context import context
from ._core import Audit, Receipt, Verification
from ._event import Event
from ._http import VERSION as __version__
from ._spool import HeldBatch
from .client import Client, pseudonymize
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
from .verify import ChainResult, ProofResult, StoredEvent, verify_events, verify_proof

if TYPE_CHECKING:
    from .aio import AsyncClient

__all__ = [
    "ActionError",
    "AsyncClient",
    "Audit",
    "AuthError",
    "ChainResult",
    "Client",
    "Closed",
    "Event",
    "HeldBatch",
    "IdempotencyConflict",
    "NotFound",
    "ProofResult",
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
    "verify_proof",
]


def __getattr__(name: str) -> object:
    """Loads AsyncClient, and with it asyncio, only where it is used: asyncio is a third of the time to
    import."""
    if name == "AsyncClient":
        from .aio import AsyncClient

        return AsyncClient
    raise AttributeError("module %r has no attribute %r" % (__name__, name))
