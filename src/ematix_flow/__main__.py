"""`python -m ematix_flow` is the `flow` command."""

from ematix_flow.serve.cli.main import program

if __name__ == "__main__":
    program()
