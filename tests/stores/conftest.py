"""What the tests of stores share: one S3 server for all of them."""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.s3 import RealS3

BUCKET: Final = "records"


@pytest.fixture(scope="session")
def real_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealS3]:
    with RealS3(tmp_path_factory.mktemp("s3")) as server:
        server.create_bucket(BUCKET)
        yield server
