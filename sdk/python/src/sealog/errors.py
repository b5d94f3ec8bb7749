"""Errors, the same in every client library: sdk/suite/README.md, section 1."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Type


class SealogError(Exception):
    """Base of all errors. Decide by the type or by `code`; `str(error)` is for people."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: Optional[int] = None,
        request_id: Optional[str] = None,
        doc_url: Optional[str] = None,
        suggestion: Optional[str] = None,
        field: Optional[str] = None,
        retry_after_s: Optional[float] = None,
    ) -> None:
        super().__init__(message)
        self.message, self.code, self.status, self.request_id = message, code, status, request_id
        self.doc_url, self.suggestion, self.field, self.retry_after_s = (
            doc_url,
            suggestion,
            field,
            retry_after_s,
        )

    def __str__(self) -> str:
        details = [self.code]
        details += ["request " + self.request_id] if self.request_id else []
        details += ["did you mean %r?" % self.suggestion] if self.suggestion else []
        details += [self.doc_url] if self.doc_url else []
        return "%s (%s)" % (self.message, ", ".join(details))

    def __reduce__(self) -> Any:  # keyword-only arguments would break pickling, and with it process pools
        return _restore, (type(self), self.message, self.as_dict())

    def as_dict(self) -> Dict[str, Any]:
        """The members that have a value, with the type."""
        names = ("message", "code", "status", "request_id", "doc_url", "suggestion", "field", "retry_after_s")
        values = {name: getattr(self, name) for name in names}
        return {
            "type": type(self).__name__,
            **{name: value for name, value in values.items() if value is not None},
        }


def _restore(cls: Type[SealogError], message: str, members: Mapping[str, Any]) -> SealogError:
    return cls(message, **{name: value for name, value in members.items() if name not in ("type", "message")})


class AuthError(SealogError):
    """401: the API key is unknown, revoked or expired."""


class SubscriptionError(SealogError):
    """402: the trial has ended."""


class ActionError(SealogError):
    """The action is unknown, not part of the plan, or lacks a required field."""


class IdempotencyConflict(SealogError):
    """409: the idempotency key was used for another event."""


class RateLimited(SealogError):
    """429. `retry_after_s` is what the server asked for."""


class NotFound(SealogError):
    """404: there is no such event, or no such path."""


class ValidationError(SealogError):
    """The event or an option is wrong. `field` names it."""


class ServerError(SealogError):
    """5xx."""


class TransportError(SealogError):
    """No answer, or one that does not come from Sealog."""


class QueueFull(SealogError):
    """The queue or the spool has no room. The event was not accepted."""


class Closed(SealogError):
    """The client was closed before the event was sent."""


class SpoolError(SealogError):
    """The spool cannot be written or read. The event was not accepted."""


def error_of(status: int, error: Mapping[str, Any], retry_after_s: Optional[float]) -> SealogError:
    """The error of an answer that has an error object. Members may be missing or of another type."""

    def text(name: str) -> Optional[str]:
        value = error.get(name)
        return value if isinstance(value, str) else None

    code = text("code") or ""
    kinds: Dict[int, Type[SealogError]] = {
        401: AuthError,
        402: SubscriptionError,
        404: NotFound,
        429: RateLimited,
    }
    kind = kinds.get(status, ServerError if status >= 500 else ValidationError)
    if code.startswith(("action/", "framework/")):
        kind = ActionError
    elif code.startswith("event/idempotency_key"):
        kind = IdempotencyConflict
    return kind(
        text("message") or "the service answered %d" % status,
        code=code,
        status=status,
        request_id=text("request_id"),
        doc_url=text("doc_url"),
        suggestion=text("suggestion"),
        retry_after_s=retry_after_s,
    )


def bad_option(name: str, problem: str) -> ValidationError:
    return ValidationError("%s: %s" % (name, problem), code="client/invalid_option", field=name)
