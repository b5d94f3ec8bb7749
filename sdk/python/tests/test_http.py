"""HTTP: forms of answers that proxies send, for both clients."""

import asyncio
import shutil
import ssl
import subprocess
import tempfile
import unittest
from unittest import mock

from . import KEY
from sealog import AsyncClient, Client, TransportError, context
from server import Server, Service

GOOD = b'{"actions":[{"action":"a"}],"total":1}'


def raw(*parts):
    return [{"raw": b"".join(parts).decode("latin-1"), "times": 0}]


def chunked(*chunks):
    return (
        b"".join(b"%x;ext=1\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\nTrailer: x\r\n\r\n"
    )


class Answers(unittest.TestCase):
    def client(self, **options):
        client = Client(KEY, **options)
        self.addCleanup(client.close)
        return client

    def read(self, script, **options):
        """What both clients make of an answer to a read; they must agree."""
        with Server(script, Service(KEY)) as server:
            options = {"url": server.url, "max_attempts": 1, "timeout": 5, **options}

            async def use():
                async with AsyncClient(KEY, **options) as client:
                    return await client.actions()

            results = []
            for call in (lambda: asyncio.run(use()), lambda: self.client(**options).actions()):
                try:
                    results.append(call())
                except TransportError as error:
                    results.append((error.code, error.status))
            self.assertEqual(results[0], results[1])
            return results[0]

    def test_chunks_are_put_together(self):
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.assertEqual(self.read(raw(head, chunked(GOOD[:7], GOOD[7:]))), [{"action": "a"}])

    def test_a_body_without_a_length_ends_with_the_connection(self):
        self.assertEqual(self.read(raw(b"HTTP/1.0 200 OK\r\n\r\n", GOOD)), [{"action": "a"}])

    def test_interim_answers_are_skipped(self):
        final = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(GOOD)
        self.assertEqual(
            self.read(raw(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", final, GOOD)), [{"action": "a"}]
        )

    def test_nonsense_is_a_bad_answer_or_no_answer(self):
        chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        for parts, code in [
            ((b"SSH-2.0-OpenSSH_9.6\r\n",), "client/bad_answer"),
            ((b"HTTP/1.1 2x0 OK\r\n\r\n",), "client/bad_answer"),
            ((chunks, b"zz\r\n"), "client/bad_answer"),
            ((chunks, b"fffffff\r\n"), "client/bad_answer"),
            ((b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",), "client/bad_answer"),
            ((b"HTTP/1.1 200 OK\r\nX: ", b"x" * 200_000), "client/bad_answer"),
            ((b"HTTP/1.1 200 OK\r\nContent-Le",), "client/connection"),
            ((chunks, b"10\r\nabc"), "client/connection"),
            ((b"",), "client/connection"),
        ]:
            with self.subTest(parts[-1][:30]):
                self.assertEqual(self.read(raw(*parts))[0], code)

    def test_a_certificate_that_cannot_be_verified_is_refused(self):
        error = ssl.SSLCertVerificationError(1, "self-signed")
        error.verify_message = "self-signed certificate"
        with mock.patch("sealog._http.socket.create_connection", side_effect=error):
            client = self.client(url="https://sealog.example", max_attempts=3)
            with self.assertRaisesRegex(TransportError, "certificate.*self-signed.*ca_file"):
                client.actions()

    def test_a_ca_file_must_exist(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(Exception, "ca_file"):
            Client(KEY, url="https://sealog.example", ca_file=folder + "/no.pem")

    def test_a_path_in_the_url_is_kept(self):
        with Server([{"status": 200, "json": {"actions": []}}], Service(KEY)) as server:
            self.client(url=server.url + "/behind/a/proxy/").actions()
            self.assertEqual(server.requests[0]["path"], "/behind/a/proxy/v1/actions")

    def test_a_connection_that_closes_while_it_is_taken_is_replaced(self):
        with Server([{"fault": "close_after"}], Service(KEY)) as server:
            client = self.client(url=server.url, max_attempts=1)
            with mock.patch("sealog._http._Connection.is_idle", True):
                client.log("user.login")
                self.assertEqual(client.log("user.login").chain_seq, 2)

    def test_connections_are_kept(self):
        with Server([], Service(KEY)) as server:
            client = self.client(url=server.url)
            for _ in range(3):
                client.log("user.login")
            self.assertEqual(len({request["connection"] for request in server.requests}), 1)

    def test_a_line_break_cannot_get_into_a_header(self):
        with Server([], Service(KEY)) as server:
            client = self.client(url=server.url)
            self.assertRaisesRegex(
                Exception, "idempotency_key", client.log, "user.login", idempotency_key="a\r\nX: b"
            )
            with context(traceparent="x\r\nEvil: 1"):
                client.log("user.login")
            self.assertNotIn("evil", server.requests[0]["headers"])


@unittest.skipUnless(shutil.which("openssl"), "there is no openssl to make a certificate")
class Tls(unittest.TestCase):
    def test_both_clients_speak_tls_with_a_known_ca_and_refuse_an_unknown_one(self):
        server = Server([], Service(KEY))
        with tempfile.TemporaryDirectory() as folder:
            request = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
            files = [
                "-addext",
                "subjectAltName=DNS:localhost",
                "-keyout",
                folder + "/key",
                "-out",
                folder + "/cert",
            ]
            subprocess.run([*request.split(), *files], check=True, stderr=subprocess.DEVNULL)
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(folder + "/cert", folder + "/key")
            server.listener = tls.wrap_socket(
                server.listener, server_side=True, do_handshake_on_connect=False
            )
            server.__enter__()
            self.addCleanup(server.__exit__)
            url = server.url.replace("http://127.0.0.1", "https://localhost")

            async def use(**options):
                async with AsyncClient(KEY, url=url, max_attempts=1, **options) as client:
                    return await client.log("user.login")

            with Client(KEY, url=url, max_attempts=1, ca_file=folder + "/cert") as client:
                self.assertEqual(client.log("user.login").chain_seq, 1)
                client.enqueue("user.login")
                self.assertEqual(client.flush(10), 0)
            self.assertEqual(len({request["connection"] for request in server.requests}), 1)
            self.assertEqual(asyncio.run(use(ca_file=folder + "/cert")).chain_seq, 3)
            with Client(KEY, url=url, max_attempts=1) as client, self.assertRaises(TransportError) as caught:
                client.log("user.login")
            self.assertEqual(caught.exception.code, "client/tls")
            with self.assertRaises(TransportError) as caught:
                asyncio.run(use())
            self.assertEqual(caught.exception.code, "client/tls")


if __name__ == "__main__":
    unittest.main()
