"""A helper module that the pipelines import."""


def label(number: int) -> str:
    return f"no. {number}"
