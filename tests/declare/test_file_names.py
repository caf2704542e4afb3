"""What the name of a file tells, whatever letters it is written in and whatever folder it is in."""

from __future__ import annotations

import pytest

from ematix_flow.declare.connection.file_names import CODECS, codec_from_path, format_from_path, has_tabs


@pytest.mark.parametrize(
    ("path", "file_format", "codec", "tabs"),
    [
        ("orders.csv", "csv", None, False),
        ("UP.CSV.GZ", "csv", "gzip", False),
        ("a.csv.zstd", "csv", "zstd", False),
        ("a.csv.zst", "csv", "zstd", False),
        ("a.TSV.Bz2", "csv", "bz2", True),
        ("x.tsv.csv", "csv", None, False),
        ("y.tsv_dir/a.csv", "csv", None, False),
        ("s3://bucket/gz/a.jsonl.br", "json_lines", "brotli", False),
        ("part.zstd.parquet", "parquet", None, False),
        ("logs.gz.d/a", None, None, False),
        ("tsv", None, None, False),
        ("A/B.PARQUET", "parquet", None, False),
        ("x.pq.zst", "parquet", "zstd", False),
        ("x.json.gz", "json_lines", "gzip", False),
        ("x.orc", "orc", None, False),
        ("x.csv.gz.gz", None, "gzip", False),
        ("x.txt", None, None, False),
    ],
)
def test_the_last_suffixes_count(path: str, file_format: str | None, codec: str | None, tabs: bool) -> None:
    assert (format_from_path(path), codec_from_path(path), has_tabs(path)) == (file_format, codec, tabs)


def test_every_compressed_file_is_one_of_its_format_too() -> None:
    assert {format_from_path(f"a.csv{suffix}") for suffix in CODECS} == {"csv"}
