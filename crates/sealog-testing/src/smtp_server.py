"""A mail server for the tests, a process of its own: aiosmtpd on a port of this machine.

    smtp_server.py PORT [CERTIFICATE KEY]

Each line of standard input is an order, answered by the line {"did": ...}: `accept` takes every mail, `answer 451 later` answers every mail with that, `hold` lets
mails wait for their answer until the next order. What comes in goes out as a line of JSON, with the answer that it gets. With a certificate the server offers STARTTLS and asks for a user and a password, which may be any.
It ends when its input does.
"""

import asyncio
import email
import email.policy
import json
import logging
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult

ACCEPTED = "250 OK"
answer = ACCEPTED
willing = asyncio.Event()


def say(**line):
    print(json.dumps(line), flush=True)


def part(message, kind):
    found = message.get_body(preferencelist=(kind,))
    return found.get_content().replace("\r\n", "\n") if found else None


class Handler:
    async def handle_DATA(self, server, session, envelope):
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        say(
            answer=answer,
            sender=envelope.mail_from,
            recipients=envelope.rcpt_tos,
            headers=[[name.lower(), str(value)] for name, value in message.items()],
            body=part(message, "plain"),
            html=part(message, "html"),
            user=session.auth_data.login.decode() if session.authenticated else None,
            encrypted=session.ssl is not None,
        )
        await willing.wait()
        return answer


def anybody(server, session, envelope, mechanism, login):
    return AuthResult(success=True, auth_data=login)


def smtp(tls):
    options = {"tls_context": tls, "require_starttls": True, "auth_required": True} if tls else {}
    return SMTP(Handler(), hostname="mail.test", authenticator=anybody, **options)


async def main():
    global answer
    tls = None
    if len(sys.argv) > 2:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(sys.argv[2], sys.argv[3])
    loop = asyncio.get_running_loop()
    # The test holds the port by a socket that does not listen, so that a server that is dead for a while gets it back.
    await loop.create_server(lambda: smtp(tls), "127.0.0.1", int(sys.argv[1]), reuse_port=True)
    willing.set()
    say(did="listen")
    while order := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        answer = order.removeprefix("answer ") if order.startswith("answer ") else ACCEPTED
        willing.clear() if order == "hold" else willing.set()
        say(did=order)


# What goes wrong in a connection is for the test to see at the other end.
logging.disable()
asyncio.run(main())
