#!/bin/sh
# Resolves pyproject.toml afresh in an empty environment and writes what came out to constraints.txt.
set -eu

# Held back on purpose: the connectors for Kafka, Avro, Delta and Iceberg were tested with this Spark.
held="pyspark==4.1.3"

root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$("$root/scripts/python.sh")" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check -e "$root[dev]" "$held"
{
    echo "# Tested versions, made by scripts/pins.sh; the ranges are in pyproject.toml."
    "$work/venv/bin/python" -m pip freeze --exclude-editable --exclude pip --exclude setuptools
} >"$work/constraints.txt"
if grep -n ' @ ' "$work/constraints.txt"; then
    echo "a pin names an address instead of a version" >&2
    exit 1
fi
mv "$work/constraints.txt" "$root/constraints.txt"
