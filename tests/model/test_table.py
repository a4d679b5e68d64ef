"""Table: where files of tables may lie."""

import pytest

from streamhouse.model.table import is_under


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/data", "/data"),
        ("/data/", "/data"),
        ("/data/orders", "/data/"),
        ("/data/2026-*/{a,b}", "/data"),
        ("file:/data/orders", "/data"),
        ("file:///data/orders", "/data"),
        ("/data/orders", "file:///data"),
        ("s3a://lake/raw/orders", "s3a://lake/raw"),
    ],
)
def test_a_path_below_the_root_may_be_named(path: str, root: str) -> None:
    assert is_under(path, root)


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("", "/data"),
        ("/etc/passwd", "/data"),
        ("/database", "/data"),
        ("data/orders", "/data"),
        ("data/orders", "data"),
        ("/data/../etc", "/data"),
        ("/data/{a,../../etc}", "/data"),
        ("/{data,etc}/x", "/data"),
        ("/data/.\\./etc/passwd", "/data"),
        ("/data/\\.\\./etc/passwd", "/data"),
        ("/data/{/.,x}./etc/passwd", "/data"),
        ("/data/.{./etc/passwd,x}", "/data"),
        ("/data/{x{/.,y},z}./etc/passwd", "/data"),
        ("/data/{x,y}{/.,z}./etc", "/data"),
        ("/data/{a/b,c}", "/data"),
        ("/data/a}{/.,x}./etc", "/data"),
        ("/data/%2e%2E/etc", "/data"),
        ("/data/.\t./etc", "/data"),
        ("file:///etc/passwd", "/data"),
        ("file://host/data/x", "/data"),
        ("s3a://other/raw", "s3a://lake/raw"),
        ("s3a://lake/rawest", "s3a://lake/raw"),
        ("/data/x", ""),
        ("hdfs:///data/x", "/data"),
    ],
)
def test_a_path_elsewhere_may_not(path: str, root: str) -> None:
    assert not is_under(path, root)
