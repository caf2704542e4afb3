#!/bin/sh
# Prints the first Python 3.11+ that can make a virtual environment: $PYTHON if set, else what PATH has.
set -u

usable() {
    "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3 python}; do
    if usable "$candidate"; then
        command -v "$candidate"
        exit 0
    fi
done
echo "No Python 3.11 or newer with the venv module was found (looked for: ${PYTHON:-python3.11 python3.12 python3.13 python3 python})." >&2
echo "Install one, or say which: make setup PYTHON=/path/to/python3" >&2
exit 1
