"""TLS errors: why a connection to an agent failed, and what to do about it.

Certificate errors are those of `ssl`. If an address closed a plain connection, one TLS handshake after the failure
shows whether it expects TLS.
"""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from streamhouse.errors import Misconfigured

PROBE_TIMEOUT_S: Final = 2.0
_PLAIN_REPLIES: Final = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE")
_REFUSED_CERTIFICATES: Final = ("CERTIFICATE_REQUIRED", "UNKNOWN_CA", "BAD_CERTIFICATE", "HANDSHAKE_FAILURE")


def explain_tls(error: BaseException, address: str) -> Misconfigured | None:
    """The TLS error; None if the failure has another cause."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Misconfigured(_certificate(cause, address))
        if isinstance(cause, ssl.SSLError):
            return Misconfigured(_handshake(cause, address))
    return None


def _certificate(error: ssl.SSLCertVerificationError, address: str) -> str:
    why = error.verify_message or str(error)
    if "mismatch" in why or "not valid for" in why:
        return (
            f"the certificate of {address} is for another name; why={why.rstrip('.')};"
            " use a name that is in the certificate, or have the agent get one with this name"
        )
    if "expired" in why or "not yet valid" in why:
        return f"the certificate of {address} is not valid now; why={why}; renew it, or set the clock"
    return (
        f"the certificate of {address} is signed by an authority that is not known here; why={why};"
        " give the authority's file with --ca, STREAMHOUSE_CA or Credentials(ca=…)"
    )


def _handshake(error: ssl.SSLError, address: str) -> str:
    reason = error.reason or str(error)
    if any(word in reason for word in _PLAIN_REPLIES):
        return f"{address} doesn't speak TLS; why={reason}; use http://, and no --ca, if that is what you want"
    if any(word in reason for word in _REFUSED_CERTIFICATES):
        return f"{address} wants a certificate of the client that it trusts; why={reason}; give one with --cert, --key"
    return f"no TLS connection to {address}; why={reason}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


async def wants_tls(host: str, port: int) -> bool:
    """Whether the address accepts a TLS handshake. Nothing else is sent, and no certificate is trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLCertVerificationError:
        return True  # there was a certificate, and this context trusts none
    except (OSError, TimeoutError):
        return False
    writer.close()
    with suppress(OSError, TimeoutError):
        await writer.wait_closed()
    return True
