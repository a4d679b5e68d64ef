"""The sanitized build has all of the C code that the installed one has."""

from tests.fuzz.sanitized import ROOT, native_modules


def test_every_c_file_is_built_with_sanitizers() -> None:
    built = {source for native in native_modules() for source in native.sources}
    assert built == {path.relative_to(ROOT).as_posix() for path in (ROOT / "src").rglob("*.c")}
