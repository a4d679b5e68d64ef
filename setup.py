"""What pyproject.toml can't say: man pages, and C extensions that are built where a compiler is, and missed nowhere."""

from glob import glob

from setuptools import Extension, setup

setup(
    data_files=[("share/man/man1", sorted(glob("docs/man/*.1")))],
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
                    "_buffers",
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
    ],
)
