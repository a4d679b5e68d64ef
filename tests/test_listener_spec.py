"""What the settings of listeners add up to."""

import pytest

from streamhouse.config.fields import Address
from streamhouse.config.listener_spec import ListenerProtocol, ListenerSpec, parse_listeners
from streamhouse.errors import Misconfigured


def parse(listen: str, advertise: str = "", protocol: str = "PLAINTEXT", host: str = "h") -> tuple[ListenerSpec, ...]:
    return parse_listeners(listen, advertise, protocol, section="kafka", host=host)


def test_one_address_is_one_listener() -> None:
    assert parse("127.0.0.1:9092", "kafka.example:9092", "SASL_SSL") == (
        ListenerSpec(
            name="DEFAULT",
            bind=Address("127.0.0.1", 9092),
            advertised=Address("kafka.example", 9092),
            protocol=ListenerProtocol.SASL_SSL,
        ),
    )


def test_several_listeners_have_names_protocols_and_addresses_of_their_own() -> None:
    internal, public = parse(
        "INTERNAL://0.0.0.0:9092, PUBLIC://[::]:9094", "PUBLIC://k-{ordinal}.example:9094", "PUBLIC:sasl_ssl", "sh-7"
    )
    assert (internal.name, internal.protocol, internal.advertised) == ("INTERNAL", ListenerProtocol.PLAINTEXT, None)
    assert (public.protocol, public.advertised) == (ListenerProtocol.SASL_SSL, Address("k-7.example", 9094))
    assert internal.is_exposed
    assert public.is_exposed


def test_no_address_is_no_listener() -> None:
    assert parse("") == ()


@pytest.mark.parametrize(
    ("listen", "advertise", "protocol", "why"),
    [
        ("127.0.0.1:1,127.0.0.1:2", "", "PLAINTEXT", "listeners need a name each"),
        ("A://127.0.0.1:1,A://127.0.0.1:2", "", "PLAINTEXT", "given twice"),
        ("lower://127.0.0.1:1", "", "PLAINTEXT", "capital letters"),
        ("A://nowhere", "", "PLAINTEXT", "HOST:PORT"),
        ("A://127.0.0.1:1", "B://x:1", "PLAINTEXT", "no listener has this name"),
        ("A://127.0.0.1:1", "", "B:SSL", "no listener has this name"),
        ("A://127.0.0.1:1", "", "TLS", "no such protocol"),
        ("A://127.0.0.1:1", "A://{host}-{ordinal}:1", "SSL", "no number at its end"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_is_allowed(
    listen: str, advertise: str, protocol: str, why: str
) -> None:
    with pytest.raises(Misconfigured, match=why):
        parse(listen, advertise, protocol)
