"""Client of Sealog, the tamper-evident audit log."""

from .errors import SealogError, ValidationError
from .verify import ChainResult, StoredEvent, verify_events

__all__ = ["ChainResult", "SealogError", "StoredEvent", "ValidationError", "verify_events"]
