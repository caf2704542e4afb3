"""`python -m ematix_flow` is the `flow` command."""

import sys

from ematix_flow.serve.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
