"""The one thing that pyproject.toml can't say: a C extension that is built where a compiler is, and missed nowhere."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "streamhouse.format._records",
            sources=["src/streamhouse/format/_records.c", "src/streamhouse/format/_record_codec.c"],
            depends=["src/streamhouse/format/_records.h"],
            extra_compile_args=["-O3"],
            optional=True,
        )
    ]
)
