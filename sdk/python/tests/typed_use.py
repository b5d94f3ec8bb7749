"""How applications use the types: checked by mypy --strict, and by `check` against the installed wheel."""

from typing import Any, Dict, List, Optional

from sealog import (
    AsyncClient,
    Audit,
    ChainResult,
    Client,
    Receipt,
    SealogError,
    StoredEvent,
    context,
    verify_events,
)
from sealog.middleware import SealogMiddleware
from sealog.testing import Recorder


def on_error(error: SealogError, event: Dict[str, Any]) -> None:
    print(error.code, event["action"])


def use(client: Client) -> None:
    receipt: Receipt = client.log("user.login", actor_id="u-17", metadata={"mfa": True})
    seq: int = receipt.chain_seq or 0  # absent where a proxy removes headers
    hash_: Optional[str] = receipt.hash
    client.enqueue({"action": "user.logout", "actor_id": "u-17"})
    pending: int = client.flush(10) + seq
    events: List[StoredEvent] = list(client.events(action="user.login"))
    result: ChainResult = verify_events(events, [(seq, hash_ or "")])
    report: Audit = client.audit()
    print(pending, result.valid, report.all_there)


async def use_async(client: AsyncClient) -> None:
    receipt: Receipt = await client.log("user.login")
    async for event in client.events():
        print(event["action"], receipt.log_id)


def main() -> None:
    with Recorder(on_error=on_error) as client, context(actor_id="u-17"):
        client.log("user.login")
        client.assert_logged("user.login", actor_id="u-17")
    print(SealogMiddleware)


if __name__ == "__main__":
    main()
