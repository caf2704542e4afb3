from ematix_flow.connections import format_from_path

csv = format_from_path("s3://bucket/year=2026/events.csv.gz")
json_lines = format_from_path("logs.ndjson")
parquet = format_from_path("data.parquet")
