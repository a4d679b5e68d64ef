"""Google Cloud Storage's XML API before a real S3 server: what `gs://` needs where Google can't be reached.

    async with GoogleFront(server) as google:           # `server`: a `RealS3` with the bucket
        environment = {"GOOGLE_BASE_URL": google.endpoint, "GOOGLE_BEARER_TOKEN": TOKEN}

By hand, for `make test-store`: `python -m tests.support.proxies.google_storage FOLDER` starts both servers, prints the
variables to export, and ends with SIGTERM or Ctrl-C.

Bytes, ranges, races and durability are the S3 server's. The language is Google's, as its reference has it: bearer
tokens, `x-goog-if-generation-match`, generations, error bodies, deletes of what isn't there, no create-only by
`If-None-Match` (which there is for reading), and requests that are signed as for S3. It also is the machine's own token
service, where agents in Google's cloud get theirs.
"""

import asyncio
import calendar
import email.utils
import hashlib
import hmac
import json
import re
import signal
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode
from xml.sax.saxutils import escape

from streamhouse.dev.s3 import S3Server
from tests.support.proxies.http import HttpFront, Reply, Request
from tests.support.s3 import RealS3

TOKEN: Final = "ya29.a-token-of-the-machine"
EMULATOR_TOKEN: Final = "emulator"
"""What the store's client sends where it was told of an emulator."""
BUCKET: Final = "records"
_METADATA: Final = "/computeMetadata/v1/instance/service-accounts/default/token"
_CONTENTS: Final = re.compile(r"<Contents>.*?</Contents>", re.DOTALL)
_MESSAGES: Final = {
    "AuthenticationRequired": "Authentication required.",
    "InvalidArgument": "Invalid argument.",
    "InvalidRange": "The requested range cannot be satisfied.",
    "NoSuchBucket": "The specified bucket does not exist.",
    "NoSuchKey": "The specified key does not exist.",
    "PreconditionFailed": "At least one of the pre-conditions you specified did not hold.",
}


class GoogleFront(HttpFront):
    """`knows` says whether a bearer token is good; of itself it knows those above."""

    def __init__(
        self, server: S3Server, *, knows: Callable[[str], bool] | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(server.port, tls=tls)
        self._signer = Signer(server)
        self._knows = knows or {TOKEN, EMULATOR_TOKEN}.__contains__
        self.token_life_s = 3599
        self.tokens_given = 0
        self.requests: list[Request] = []

    async def answer(self, request: Request) -> Reply:
        if request.path == _METADATA and request.headers.get("metadata-flavor") == "Google":
            self.tokens_given += 1
            given = {"access_token": TOKEN, "expires_in": self.token_life_s, "token_type": "Bearer"}
            return Reply(headers={"content-type": "application/json"}, body=json.dumps(given).encode())
        self.requests.append(request)
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind != "AWS4-HMAC-SHA256" and not (kind == "Bearer" and self._knows(token)):
            return _error(401, "AuthenticationRequired")
        _, bucket, key = (*request.path.split("/", 2), "")[:3]
        return await (self._object(request, bucket, key) if key else self._list(request, bucket))

    async def _object(self, request: Request, bucket: str, key: str) -> Reply:
        match request.method:
            case "PUT":
                return await self._put(request, bucket, key)
            case "DELETE":
                if (result := await self._ask("HEAD", bucket, key)).status != 200:
                    return _error(result.status, "NoSuchKey")  # S3 says 204
                return _translated(await self._ask("DELETE", bucket, key))
            case "GET" | "HEAD":
                expected = {name: request.headers[name] for name in ("range",) if name in request.headers}
                return _translated(await self._ask(request.method, bucket, key, headers=expected))
            case _:
                return _error(405, "MethodNotAllowed")

    async def _put(self, request: Request, bucket: str, key: str) -> Reply:
        generation = request.headers.get("x-goog-if-generation-match")
        if generation not in (None, "0"):
            return _error(400, "InvalidArgument")  # no one here writes over what is there
        expected = {"if-none-match": "*"} if generation == "0" else {}
        while True:
            reply = await self._ask("PUT", bucket, key, headers=expected, body=request.body)
            if reply.status != 409:  # two writes met, which Google tells nobody of
                return _translated(reply)

    async def _list(self, request: Request, bucket: str) -> Reply:
        query = request.query
        if request.method != "GET" or query.get("list-type") != "2":
            return _error(400, "InvalidArgument")
        reply = await self._ask("GET", bucket, "", query=query)
        if reply.status != 200:
            return _translated(reply)
        text = _CONTENTS.sub(lambda result: _contents(result[0]), reply.body.decode())
        text = text.replace("http://s3.amazonaws.com/doc/2006-03-01/", "http://doc.s3.amazonaws.com/2006-03-01")
        return Reply(headers={"content-type": "application/xml; charset=UTF-8"}, body=text.encode())

    async def _ask(
        self,
        method: str,
        bucket: str,
        key: str,
        *,
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> Reply:
        path = f"/{bucket}/{key}" if key else f"/{bucket}"
        return await self.pass_on(self._signer.sign(method, path, query or {}, headers or {}, body))


class Signer:
    """Requests that an S3 server takes: AWS's signature, version 4, of the head; bodies on loopback are not signed."""

    def __init__(self, server: S3Server) -> None:
        self._key_id = server.environment["AWS_ACCESS_KEY_ID"]
        self._secret = server.environment["AWS_SECRET_ACCESS_KEY"]
        self._region = server.environment["AWS_REGION"]
        self._host = server.endpoint.partition("://")[2]

    def sign(self, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes) -> Request:
        at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        scope = f"{at[:8]}/{self._region}/s3/aws4_request"
        signed = headers | {"host": self._host, "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": at}
        names = ";".join(sorted(signed))
        target, requests = quote(path, safe="/-_.~"), urlencode(sorted(query.items()), quote_via=quote, safe="-_.~")
        lines = [method, target, requests, *(f"{name}:{signed[name]}" for name in sorted(signed)), "", names]
        whole = "\n".join([*lines, signed["x-amz-content-sha256"]])
        text = "\n".join(["AWS4-HMAC-SHA256", at, scope, hashlib.sha256(whole.encode()).hexdigest()])
        key = f"AWS4{self._secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        signed["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self._key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
        signed["content-length"] = str(len(body))
        return Request(method=method, target=f"{target}?{requests}" if requests else target, headers=signed, body=body)


def _translated(reply: Reply) -> Reply:
    """An answer about an object, in Google's words."""
    if reply.status >= 300:
        code = re.search(rb"<Code>(\w+)</Code>", reply.body)
        return _error(reply.status, code[1].decode() if code else "NoSuchKey")
    kept = ("content-range", "content-type", "etag", "last-modified", "date")
    headers = {name: reply.headers[name] for name in kept if name in reply.headers}
    changed = headers.get("last-modified") or headers.get("date") or email.utils.formatdate(usegmt=True)
    generation = calendar.timegm(email.utils.parsedate(changed) or ()) * 1_000_000
    headers |= {"x-goog-generation": str(generation), "x-goog-metageneration": "1", "x-goog-storage-class": "STANDARD"}
    return Reply(status=reply.status, headers=headers, body=reply.body, length=reply.length)


def _error(status: int, code: str) -> Reply:
    text = (
        "<?xml version='1.0' encoding='UTF-8'?>"
        f"<Error><Code>{code}</Code><Message>{escape(_MESSAGES.get(code, code))}</Message>"
        "<Details>of this request</Details></Error>"
    )
    return Reply(status=status, headers={"content-type": "application/xml; charset=UTF-8"}, body=text.encode())


def _contents(text: str) -> str:
    """One object of a listing: Google's has no owner, and its generation."""
    text = re.sub(r"<Owner>.*?</Owner>|<StorageClass>.*?</StorageClass>", "", text, flags=re.DOTALL)
    return text.replace("</Key>", "</Key><Generation>1</Generation><MetaGeneration>1</MetaGeneration>", 1)


async def _serve(folder: Path) -> None:
    with RealS3(folder) as server:
        server.create_bucket(BUCKET)
        async with GoogleFront(server) as google:
            settings = {"STREAMHOUSE_TEST_STORE": f"gs://{BUCKET}/by-hand", "GOOGLE_BASE_URL": google.endpoint}
            for name, value in (settings | {"GOOGLE_BEARER_TOKEN": TOKEN}).items():
                sys.stdout.write(f"export {name}={value}\n")
            sys.stdout.flush()
            ended = asyncio.Event()
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, ended.set)
            await ended.wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
