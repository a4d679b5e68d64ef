"""TLS of gRPC: the certificate files as grpc wants them, and the certificate that a client has shown.

grpc makes its connections itself. What its library can't do is refused at the start, not passed over.
"""

from pathlib import Path
from typing import Any, Final

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from streamhouse.config.listener_spec import ListenerSpec
from streamhouse.errors import Misconfigured
from streamhouse.wire.tls import Certificate, ServerTls, TlsFiles

_KINDS: Final = {x509.RFC822Name: "email", x509.DNSName: "DNS", x509.UniformResourceIdentifier: "URI"}
"""Alternative names, as `SSLObject.getpeercert` calls them."""


def check_tls(files: TlsFiles, listener: ListenerSpec) -> None:
    """Raise `Misconfigured` for settings that grpc can't follow."""
    settings = files.settings
    if settings.tls_min_version != "1.2":
        raise Misconfigured(
            "gRPC always accepts TLS 1.2; set security.tls_min_version=1.2, or turn it off "
            "with grpc.protocol or grpc.listen"
        )
    if settings.tls_client_auth == "requested" and not listener.protocol.has_login:
        raise Misconfigured(
            "gRPC can't request certificates without requiring them; set security.tls_client_auth=required, or let "
            "clients of gRPC log in with grpc.protocol=SASL_SSL"
        )


def server_credentials(tls: ServerTls) -> Any:
    """TLS of the listeners; new files are used for connections that come after them."""
    files = tls.files
    has_changed = False

    def changed() -> None:
        nonlocal has_changed
        has_changed = True

    def fetch() -> Any:
        nonlocal has_changed
        if not has_changed:
            return None
        has_changed = False
        return _configuration(files)

    tls.on_reload(changed)
    is_required = files.settings.tls_client_auth == "required"
    return grpc.dynamic_ssl_server_credentials(_configuration(files), fetch, is_required)


def _configuration(files: TlsFiles) -> Any:
    settings = files.settings
    authorities = Path(settings.tls_ca).read_bytes() if settings.tls_ca else None
    pair = (_plain_key(files), Path(settings.tls_certificate).read_bytes())
    return grpc.ssl_server_certificate_configuration([pair], authorities)


def _plain_key(files: TlsFiles) -> bytes:
    key = Path(files.settings.tls_key).read_bytes()
    if not files.key_password:
        return key
    decrypted = load_pem_private_key(key, files.key_password.encode())
    return decrypted.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def certificate_of(context: Any) -> Certificate | None:
    """The certificate of a call's client, in the form of `SSLObject.getpeercert`."""
    shown = context.auth_context().get("x509_pem_cert")
    if not shown:
        return None
    certificate = x509.load_pem_x509_certificate(shown[0])
    subject = tuple(tuple((_long_name(each), each.value) for each in part) for part in certificate.subject.rdns)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    alternative = tuple((_KINDS[type(each)], each.value) for each in names if type(each) in _KINDS)
    return {"subject": subject, "subjectAltName": alternative}


def _long_name(attribute: x509.NameAttribute[Any]) -> str:
    """The name that OpenSSL has for it."""
    return "userId" if attribute.oid == x509.NameOID.USER_ID else str(attribute.oid._name)
