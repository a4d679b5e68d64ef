"""The one thing that pyproject.toml can't say: C extensions that are built where a compiler is, and missed nowhere."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "streamhouse.format._records",
            sources=[
                f"src/streamhouse/format/{name}.c"
                for name in (
                    "_record_scanner",
                    "_record_codec",
                    "_columnar_decoder",
                    "_columnar_encoder",
                    "_compaction_kernel",
                    "_key_filter",
                )
            ],
            depends=["src/streamhouse/format/_records.h", "src/streamhouse/format/_varint.h"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "streamhouse.format._schema_columns",
            sources=["src/streamhouse/format/_payload_decoder.c"],
            depends=["src/streamhouse/format/_varint.h"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
    ]
)
