"""What every answer must be like, for schemathesis. It checks by itself that answers are as the document says and that none is a 5xx."""

import atexit
import json
import os
import re
import threading

import schemathesis
from schemathesis import HookContext

REQUEST_ID = re.compile(r"^req_[0-7][0-9A-HJKMNP-TV-Z]{25}$")

# A request that fits its schema may still be refused for what no schema can say: a name that is not registered, a cursor of another list,
# two parameters that do not go together, a time before 1970, a name that is taken, a chain with all the tokens that it may have,
# the path of a tile, in which each number has one spelling.
BEYOND_SCHEMAS = (
    ("action/invalid", ""),
    ("action/requires_framework", ""),
    ("action/missing_required_fields", ""),
    ("read/invalid_params", 'query parameter "cursor" is not a cursor of this list'),
    ("read/invalid_params", 'query parameter "to_seq" must not be below from_seq'),
    ("read/invalid_params", 'query parameter "to" must not be below from'),
    ("read/invalid_params", 'query parameter "index" must be below size'),
    ("read/invalid_params", 'query parameter "seq" is missing, and log_id, too'),
    ("read/invalid_params", 'query parameter "seq" must not be given with log_id'),
    ("read/invalid_params", "the path of a tile: "),
    ("validation/invalid_field", "action is already registered"),
    ("validation/invalid_field", "action is already an action of the catalog"),
    ("validation/invalid_field", "action must not contain control characters"),
    ("validation/invalid_field", "action must not begin with the reserved prefix"),
    ("validation/invalid_field", "email is already a member of this tenant"),
    ("validation/invalid_field", "name belongs to another active token of this chain"),
    ("validation/invalid_field", "name cannot be given: the chain has"),
    ("validation/invalid_field", "trial_ends_at must be an ISO 8601 time"),
    ("validation/invalid_field", "expires_at must be an ISO 8601 time"),
)
EXAMPLE_KEY = "6f1c1d3e-0b52-4a43-9a3e-7b1f0a9d2c55"
ACTIONS = ("user.login", "document.shared", "payment.processed", "config.changed", "hipaa.phi_access", "nonsense")


class Count:
    """How many requests were answered; written to a file at the end, since schemathesis runs in a process of its own."""

    def __init__(self):
        self.lock, self.requests, self.statuses = threading.Lock(), 0, {}
        atexit.register(self.write)

    def add(self, status):
        with self.lock:
            self.requests += 1
            self.statuses[status] = self.statuses.get(status, 0) + 1

    def write(self):
        path = os.environ.get("SEALOG_FUZZ_COUNT")
        if path:
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"requests": self.requests, "statuses": self.statuses}, file)


COUNT = Count()


@schemathesis.hook
def after_call(context: HookContext, case, response):
    COUNT.add(response.status_code)


@schemathesis.hook
def before_call(context: HookContext, case, kwargs):
    """Takes requests further than the first rule that a guess would break. What is wrong on purpose stays wrong."""
    if case.operation.label not in ("POST /v1/events", "POST /v1/events/batch", "POST /ingest/json"):
        return
    # The example's key comes up again and again, and is a conflict from the second time on.
    name = next((name for name in case.headers or () if name.lower() == "idempotency-key"), None)
    if name and case.headers[name] == EXAMPLE_KEY and COUNT.requests % 4:
        case.headers[name] = "%s-%d" % (EXAMPLE_KEY, COUNT.requests)
    body = case.body if isinstance(case.body, dict) else {}
    events = body.get("events") if "batch" in case.operation.label else [body]
    if isinstance(case.body, list):
        events = case.body
    for event in events if isinstance(events, list) else ():
        if isinstance(event, dict) and isinstance(event.get("action"), str) and 0 < len(event["action"]) <= 255:
            dice = sum(event["action"].encode("utf-8", "surrogatepass")) + len(event)
            if dice % 4:
                event["action"] = ACTIONS[dice // 4 % len(ACTIONS)]


@schemathesis.hook
def filter_failure(context: HookContext, failure, case, response):
    """Whether a failure is one."""
    # Items are taken or refused one by one there: the schema of the body does not say which status that is.
    if "/ingest/" in case.operation.label and failure.title in ("Schema-valid request rejected", "Schema-violating request accepted"):
        return False
    if failure.title != "Schema-valid request rejected":
        return True
    error = response.json()["error"]
    return not any(error["code"] == code and beginning in error["message"] for code, beginning in BEYOND_SCHEMAS)


@schemathesis.check
def request_id(ctx, response, case):
    ids = response.headers.get("x-request-id", [])
    assert len(ids) == 1 and REQUEST_ID.match(ids[0]), "X-Request-Id is %r" % (ids,)


@schemathesis.check
def envelope(ctx, response, case):
    # A 503 of /readyz is no error of a request.
    if response.status_code < 400 or response.status_code == 503 or case.method.upper() == "HEAD":
        return
    body = json.loads(response.content)
    assert list(body) == ["error"], body
    error = body["error"]
    assert {"code", "message", "request_id", "doc_url"} <= set(error), error
    assert all(isinstance(value, str) and value for name, value in error.items() if name != "items"), error
    for item in error.get("items", []):
        assert {"index", "code", "message", "doc_url"} <= set(item), error
    assert error["request_id"] == response.headers["x-request-id"][0], error
    assert error["doc_url"].endswith("/errors/" + error["code"]), error
