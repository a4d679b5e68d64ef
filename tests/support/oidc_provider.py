"""An OpenID provider on loopback, over https, with keys of its own: the authorization code flow with PKCE, and the flow
of a program with client credentials."""

import base64
import hashlib
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey

from tests.support.certificates import make_authority

CLIENT: Final = "the-console"
AUDIENCE: Final = "streamhouse"
USER: Final = "carol"
PROGRAM: Final = ("the-program", "a secret of the program")


class OidcProvider:
    def __init__(self, folder: Path) -> None:
        self.ca = folder / "provider-ca.pem"
        self.origin = ""
        self.requested: list[dict[str, str]] = []
        """Queries of the authorization endpoint."""
        self.exchanged: list[dict[str, str]] = []
        """Forms of the token endpoint."""
        self.error = ""
        """What the authorization endpoint answers instead of a code."""
        self._key = ECKey.generate_key("P-256", {"kid": "one", "use": "sig"})
        self._codes: dict[str, dict[str, str]] = {}
        self.audience = AUDIENCE
        """Of the tokens of programs."""

    @property
    def settings(self) -> dict[str, str]:
        return {
            "security.oauth_issuer": self.origin,
            "security.oauth_jwks_url": f"{self.origin}/keys",
            "security.oauth_audience": AUDIENCE,
            "security.oauth_ca": str(self.ca),
            "security.oauth_client_id": CLIENT,
            "security.oauth_authorize_url": f"{self.origin}/authorize",
            "security.oauth_token_url": f"{self.origin}/token",
        }

    def authorize(self, query: dict[str, str]) -> str:
        """Where the browser goes next: the user is logged in here already, and agrees."""
        self.requested.append(query)
        back = {"state": query["state"]}
        if self.error:
            back["error"] = self.error
        else:
            back["code"] = code = f"code-{len(self.requested)}"
            self._codes[code] = query
        return f"{query['redirect_uri']}?{urlencode(back)}"

    def tokens(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        self.exchanged.append(form)
        query = self._codes.pop(form.get("code", ""), None)
        if query is None or form["redirect_uri"] != query["redirect_uri"] or form["client_id"] != CLIENT:
            return 400, {"error": "invalid_grant"}
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != query["code_challenge"]:
            return 400, {"error": "invalid_grant"}
        return 200, {"token_type": "Bearer", "access_token": self.token(AUDIENCE), "id_token": self.token(CLIENT)}

    def program_token(self, authorization: str) -> tuple[int, dict[str, Any]]:
        """The token of a program that shows its id and secret."""
        if authorization != f"Basic {base64.b64encode(':'.join(PROGRAM).encode()).decode()}":
            return 401, {"error": "invalid_client"}
        return 200, {"token_type": "Bearer", "expires_in": 600, "access_token": self.token(self.audience)}

    def token(self, audience: str) -> str:
        claims = {"iss": self.origin, "aud": audience, "sub": USER, "exp": int(time.time()) + 600}
        return jwt.encode({"alg": "ES256", "kid": "one"}, claims, self._key, algorithms=["ES256"])

    @property
    def keys(self) -> dict[str, Any]:
        return {"keys": [self._key.as_dict(private=False)]}


@contextmanager
def running_provider(folder: Path) -> Iterator[OidcProvider]:
    make_authority(folder, "provider-ca").issue(folder, "provider")
    provider = OidcProvider(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = urlsplit(self.path)
            if address.path == "/keys":
                self._answer(200, provider.keys)
                return
            query = {name: values[0] for name, values in parse_qs(address.query).items()}
            self.send_response(302)
            self.send_header("location", provider.authorize(query))
            self.send_header("content-length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            if form.get("grant_type") == "client_credentials":
                self._answer(*provider.program_token(self.headers.get("authorization", "")))
            else:
                self._answer(*provider.tokens(form))

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "provider.pem", folder / "provider.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    provider.origin = f"https://localhost:{server.server_port}"
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
