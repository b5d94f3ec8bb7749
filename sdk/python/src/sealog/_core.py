"""What a client does, without any I/O: every operation is a generator.

It yields a `Request` and is sent the `Answer` (or a TransportError is thrown into it), or yields a `Wait`
and is sent nothing. The blocking client and the asyncio client run the same generators, so they cannot
behave differently.
"""

from __future__ import annotations

import json
import random
import secrets
from email.utils import parsedate_to_datetime
from typing import (
    Any,
    Callable,
    Dict,
    Generator,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
    TypeVar,
    Union,
)
from urllib.parse import quote, urlencode

from .errors import (
    IdempotencyConflict,
    NotFound,
    SealogError,
    ServerError,
    TransportError,
    ValidationError,
    error_of,
)
from .verify import Proofs, StoredEvent, event_of, page_of

T = TypeVar("T")


class Request(NamedTuple):
    method: str
    path: str
    headers: Dict[str, str]
    body: bytes = b""


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class Wait(NamedTuple):
    seconds: float


Operation = Generator[Union[Request, Wait], Optional[Answer], T]


class Receipt(NamedTuple):
    """The service's word that an event is sealed. `hash` is absent for all but the last event of a batch.
    Where a proxy removes the headers of receipts, `chain_seq` and `hash` are absent."""

    log_id: str
    chain_seq: Optional[int]
    hash: Optional[str]
    request_id: Optional[str]
    replayed: bool = False


class Policy(NamedTuple):
    """When to try again."""

    max_attempts: int
    retry_base_s: float
    budget_s: float

    def delay_s(self, attempt: int, retry_after_s: Optional[float]) -> float:
        """Full jitter: clients that failed together do not come back together."""
        longest = self.retry_base_s * (8 if attempt < self.max_attempts else 60)
        jitter = random.uniform(0, min(longest, self.retry_base_s * 2 ** min(attempt - 1, 16)))
        return max(jitter, retry_after_s or 0.0)


def new_key() -> str:
    return "sdk_" + secrets.token_hex(16)


# --- One request ----------------------------------------------------------------------------------


def bad_answer(message: str, status: int) -> TransportError:
    advice = "; check the url option, or ask the operator of the proxy in between"
    return TransportError(message + advice, code="client/bad_answer", status=status)


def _retry_after_s(headers: Mapping[str, str]) -> Optional[float]:
    value = headers.get("retry-after", "").strip()
    if value.isdigit():
        return float(value[:9])
    try:  # A date is compared with the server's own: the clock of this machine may be wrong.
        gap = parsedate_to_datetime(value) - parsedate_to_datetime(headers["date"])
        return max(gap.total_seconds(), 0.0)
    except (KeyError, TypeError, ValueError, IndexError):
        return None


def problem_of(answer: Answer) -> Optional[SealogError]:
    """The error in an answer; None for a success."""
    status, headers, body = answer
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        where = headers.get("location", "another address")
        message = (
            "refused a redirect to %s, because the API key would leak; correct the url option" % where[:200]
        )
        return TransportError(message, code="client/redirect", status=status)
    try:
        error = json.loads(body)["error"]
        if isinstance(error, dict) and isinstance(error.get("code"), str):
            return error_of(status, error, _retry_after_s(headers))
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    if status == 429 or status >= 500:  # a proxy's page; the status says enough
        code = "rate/limit_exceeded" if status == 429 else "server/unavailable"
        return error_of(
            status, {"code": code, "message": "the server answered %d" % status}, _retry_after_s(headers)
        )
    return bad_answer("the answer with status %d does not come from Sealog" % status, status)


def is_temporary(error: SealogError) -> bool:
    if isinstance(error, TransportError):
        passing = error.status is None or error.status < 300 or error.status >= 500
        return (
            error.code in ("client/connection", "client/timeout")
            or error.code == "client/bad_answer"
            and passing
        )
    in_flight = error.code == "event/idempotency_key_in_flight"
    return isinstance(error, ServerError) or error.status == 429 or in_flight or (error.status or 0) >= 500


def is_about_the_event(error: SealogError) -> bool:
    """Whether the service judged the content of the request. Otherwise a spool keeps the events."""
    if isinstance(error, IdempotencyConflict):
        return not is_temporary(error)
    return error.status in (400, 403, 413, 422) and not isinstance(error, TransportError)


def attempts(
    request: Request,
    read: Callable[[Answer], T],
    policy: Policy,
    on_failure: Optional[Callable[[SealogError, int], None]] = None,
) -> Operation[T]:
    """Sends a request until it succeeds or the policy is exhausted. With on_failure (a spool) there is no
    bound but what on_failure raises; only errors about the event end it."""
    attempt, waited_s = 0, 0.0
    while True:
        attempt += 1
        try:
            answer = yield request
            assert answer is not None
            error = problem_of(answer)
            if error is None:
                return read(answer)
        except TransportError as failure:
            error = failure
        if on_failure:
            if is_about_the_event(error):
                raise error
            on_failure(error, attempt)
        elif attempt >= policy.max_attempts or not is_temporary(error):
            raise error
        delay_s = policy.delay_s(attempt, error.retry_after_s)
        if not on_failure and waited_s + delay_s > policy.budget_s:
            raise error
        yield Wait(delay_s)
        waited_s += delay_s


# --- Writing --------------------------------------------------------------------------------------


def _members(answer: Answer) -> Dict[str, Any]:
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise bad_answer("the answer with status %d is not JSON from Sealog" % answer.status, answer.status)
    return value


def receipts_of(answer: Answer, count: int, on_incomplete: Callable[[], None]) -> List[Receipt]:
    """The receipts of a batch, or of one event. on_incomplete: the ids prove that the events are stored, but
    something on the way has removed the rest."""
    body, headers = _members(answer), answer.headers
    ids = body.get("log_ids", [body.get("log_id")])
    number, _, _ = headers.get("sealog-chain-seq", "").partition("-")
    first = int(number) if number.isdigit() else None
    hash_ = headers.get("sealog-hash") or None
    complete = isinstance(ids, list) and len(ids) == count and all(isinstance(log_id, str) for log_id in ids)
    if answer.status != 202 or not complete:
        raise bad_answer("the answer with status %d has no receipt" % answer.status, answer.status)
    if first is None or hash_ is None:
        on_incomplete()
    request_id, replayed = body.get("request_id"), headers.get("idempotency-replayed") == "true"
    numbers = [None if first is None else first + i for i in range(count)]
    hashes = [None] * (count - 1) + [hash_]
    return [Receipt(*facts, request_id, replayed) for facts in zip(ids, numbers, hashes)]


def post_one(event: bytes, key: str, headers: Mapping[str, str] = {}) -> Request:
    content = {"Content-Type": "application/json", "Idempotency-Key": key}
    return Request("POST", "/v1/events", {**content, **headers}, event)


def post_batch(events: Iterable[bytes], key: str) -> Request:
    return post_one(b'{"events":[' + b",".join(events) + b"]}", key)._replace(path="/v1/events/batch")


def log(request: Request, policy: Policy, on_incomplete: Callable[[], None]) -> Operation[Receipt]:
    return (yield from attempts(request, lambda answer: receipts_of(answer, 1, on_incomplete)[0], policy))


class Batch:
    """Events that are sent under one key. `split`: event by event, under derived keys."""

    def __init__(self, key: str, events: List[bytes], split: bool = False) -> None:
        self.key, self.events, self.split = key, events, split


def deliver(
    batch: Batch,
    policy: Policy,
    end: Callable[[int, Union[Receipt, SealogError]], None],
    split: Callable[[], None],
    on_incomplete: Callable[[], None],
    on_failure: Optional[Callable[[SealogError, int], None]] = None,
) -> Operation[None]:
    """Sends a batch and calls end(index, result) once for each event. split() makes the decision to isolate
    durable, before the first event is sent alone: otherwise a batch that becomes valid later would be
    stored twice."""
    count = len(batch.events)
    if not batch.split:
        try:
            request = post_batch(batch.events, batch.key)
            receipts = yield from attempts(
                request, lambda answer: receipts_of(answer, count, on_incomplete), policy, on_failure
            )
        except SealogError as error:
            if not is_about_the_event(error) or isinstance(error, IdempotencyConflict):
                for index in range(count):
                    end(index, error)
                return
            split()
        else:
            for index, receipt in enumerate(receipts):
                end(index, receipt)
            return
    for index, event in enumerate(batch.events):
        if not event:
            continue  # ended before a restart
        request = post_one(event, "%s-%d" % (batch.key, index))
        try:
            read = lambda answer: receipts_of(answer, 1, on_incomplete)[0]  # noqa: E731
            end(index, (yield from attempts(request, read, policy, on_failure)))
        except SealogError as error:
            end(index, error)


# --- Reading --------------------------------------------------------------------------------------

FILTERS = ("action", "actor_id", "resource", "date_from", "date_to")


def _get(path: str, query: Mapping[str, object] = {}) -> Request:
    return Request("GET", path + ("?" + urlencode(query) if query else ""), {})


def check_filters(filters: Mapping[str, object]) -> Dict[str, object]:
    for name in filters:
        if name not in FILTERS:
            message = "%s: is not a filter; use one of %s" % (name, ", ".join(FILTERS))
            raise ValidationError(message, code="client/invalid_option", field=name)
    return {name: value for name, value in filters.items() if value is not None}


def page(
    filters: Mapping[str, object], limit: int, cursor: Optional[str], policy: Policy
) -> Operation[Tuple[List[StoredEvent], Optional[str]]]:
    """One page, and the cursor of the next one; None at the end."""
    query = {**filters, "limit": limit, **({"cursor": cursor} if cursor else {})}

    def read(answer: Answer) -> Tuple[List[StoredEvent], Optional[str]]:
        try:
            events, members = page_of(answer.body)
        except ValueError as error:
            raise bad_answer("the answer is not a page of events (%s)" % error, answer.status) from None
        if members.get("has_more") is not True:
            return events, None
        if not isinstance(members.get("next_cursor"), str):
            raise bad_answer("the page has no next_cursor", answer.status)
        return events, members["next_cursor"]

    return (yield from attempts(_get("/v1/events", query), read, policy))


def get(log_id: str, policy: Policy) -> Operation[StoredEvent]:
    def read(answer: Answer) -> StoredEvent:
        try:
            return event_of(answer.body)
        except ValueError as error:
            raise bad_answer("the answer is not an event (%s)" % error, answer.status) from None

    if not log_id:
        raise ValidationError("log_id: is empty", code="client/invalid_option", field="log_id")
    return (yield from attempts(_get("/v1/events/" + quote(log_id, safe="")), read, policy))


def actions(policy: Policy) -> Operation[List[Dict[str, Any]]]:
    def read(answer: Answer) -> List[Dict[str, Any]]:
        found = _members(answer).get("actions")
        if not isinstance(found, list) or not all(isinstance(action, dict) for action in found):
            raise bad_answer("the answer is not the catalog", answer.status)
        return found

    return (yield from attempts(_get("/v1/actions"), read, policy))


class Verification(NamedTuple):
    """The service's own verdict on its chain. verify_events() does not rely on it."""

    valid: bool
    checked: int
    first_seq: int
    last_seq: int
    broken_at: Optional[int] = None
    broken_hash: Optional[str] = None


def verify(from_seq: int, to_seq: Optional[int], policy: Policy) -> Operation[Verification]:
    """Window by window, until the chain or the range ends or a break is found."""

    def read(answer: Answer) -> Verification:
        body = _members(answer)
        try:
            checked, first, last = (int(body[name]) for name in ("checked", "first_seq", "last_seq"))
            broken_at, broken_hash = body.get("broken_at"), body.get("broken_hash")
            return Verification(bool(body["valid"]), checked, first, last, broken_at, broken_hash)
        except (KeyError, TypeError, ValueError):
            raise bad_answer("the answer is not a verification", answer.status) from None

    start, total, begin = from_seq, 0, None
    while True:
        query = {"from_seq": start, **({"to_seq": to_seq} if to_seq is not None else {})}
        window = yield from attempts(_get("/v1/events/verify", query), read, policy)
        total, begin = total + window.checked, window.first_seq if begin is None else begin
        whole = window._replace(checked=total, first_seq=begin)
        # The service cuts a window to 1,000 events; a shorter one has reached the end.
        at_end = window.last_seq - window.first_seq + 1 < 1000 or window.last_seq == to_seq
        if at_end or not window.valid:
            return whole
        start = window.last_seq + 1


class Audit(NamedTuple):
    """What became of acknowledged events: lists of log_id. `dropped`: receipts that memory had no room
    for. Each event that was found as acknowledged counts once among the proofs: `proven` to be in a tree
    that the log's key signed; `unsigned`, the same without a key to check with; `not_yet` in a published
    tree; `no_proof` on this server; or `disproved`, which a warning explains."""

    checked: int
    missing: List[str]
    changed: List[str]
    moved: List[str]
    disproved: List[str]
    dropped: int = 0
    proven: int = 0
    unsigned: int = 0
    not_yet: int = 0
    no_proof: int = 0

    @property
    def all_there(self) -> bool:
        return not (self.missing or self.changed or self.moved or self.disproved)


def audit(
    receipts: Iterable[Receipt], dropped: int, proofs: Proofs, warn: Callable[[str, str], None], policy: Policy
) -> Operation[Audit]:
    """Reads each acknowledged event back and asks for its proof. A receipt without a hash is held by the
    event behind it in the batch: its prev_hash leads, link by link, to the hash that the batch's last
    receipt has."""
    report, outcomes = Audit(0, [], [], [], [], dropped), []
    before: Optional[Tuple[Receipt, StoredEvent]] = None
    for receipt in receipts:
        report = report._replace(checked=report.checked + 1)
        try:
            event = yield from get(receipt.log_id, policy)
        except NotFound:
            report.missing.append(receipt.log_id)
            before = None
            continue
        if before and before[0].hash is None and (before[0].chain_seq or 0) + 1 == receipt.chain_seq:
            if event.get("prev_hash") != before[1].get("hash") and before[0].log_id not in report.changed:
                report.changed.append(before[0].log_id)
        before = receipt, event
        if not event.is_sound or event.get("log_id") != receipt.log_id:
            report.changed.append(receipt.log_id)
        elif receipt.chain_seq is not None and event.get("chain_seq") != receipt.chain_seq:
            report.moved.append(receipt.log_id)
            before = None
        elif receipt.hash is not None and event.get("hash") != receipt.hash:
            report.changed.append(receipt.log_id)
        else:
            outcome, why = yield from _prove(event, proofs, policy)
            if outcome == "disproved":
                report.disproved.append(receipt.log_id)
                warn("client/disproved", "the proof of event %s does not hold: %s" % (receipt.log_id, why))
            else:
                outcomes.append(outcome)
    proven, unsigned, not_yet, no_proof = map(outcomes.count, ("proven", "unsigned", "not_yet", "no_proof"))
    return report._replace(proven=proven, unsigned=unsigned, not_yet=not_yet, no_proof=no_proof)


def _prove(event: StoredEvent, proofs: Proofs, policy: Policy) -> Operation[Tuple[str, str]]:
    """The name of a member of Audit, and for `disproved` the reason."""
    if not proofs.are_published:
        return "no_proof", ""
    query = {"log_id": event["log_id"], "format": "tlog-proof"}
    try:
        file = yield from attempts(_get("/tlog/v1/chain/proof", query), lambda answer: answer.body, policy)
    except SealogError as error:
        if error.code == "tlog/not_found":  # of an event that this server has just returned
            return "disproved", "the server says that no signed tree has it"
        if error.code not in ("tlog/not_yet", "tlog/pruned", "request/not_found"):
            raise
        proofs.are_published = error.code != "request/not_found"
        return ("not_yet" if error.code == "tlog/not_yet" else "no_proof"), ""
    result = proofs.check(event.text, file)
    if not result.holds:
        return "disproved", "%s (%s)" % (result.message, result.reason)
    return ("proven" if proofs.has_key else "unsigned"), ""
