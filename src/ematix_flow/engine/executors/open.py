"""Chooses an executor by URL; what it does is in the neighbouring modules."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from ematix_flow.errors import DeclareError, did_you_mean

if TYPE_CHECKING:
    from ematix_flow.engine.executors.base import Executor

SCHEMES = ("inprocess", "subprocess", "subprocess+python", "k8s", "lambda")
_PARAMETERS = {"k8s": ("image", "service-account", "sa", "secret"), "lambda": ("qualifier",), "inprocess": ("workers",)}


def from_url(url: str) -> Executor | None:
    """Return the executor of a URL; None for threads of this process, which need none."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or "://" not in url:
        message = f"no executor is called {url!r}"
        raise DeclareError(message, hint=did_you_mean(parts.scheme, SCHEMES))
    parameters = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    known = _PARAMETERS.get(parts.scheme, ())
    for name in parameters:
        if name not in known:
            message = f"{parts.scheme}:// has no parameter {name!r}"
            raise DeclareError(message, hint=did_you_mean(name, known))
    if parts.scheme == "inprocess":
        return None
    if parts.scheme.startswith("subprocess"):
        from ematix_flow.engine.executors.processes import SubprocessExecutor

        return SubprocessExecutor()
    if not parts.netloc:
        message = f"{parts.scheme}:// needs {'a namespace' if parts.scheme == 'k8s' else 'the name of a function'}"
        raise DeclareError(message, hint="k8s://NAMESPACE?image=..., lambda://FUNCTION.")
    if parts.scheme == "k8s":
        from ematix_flow.engine.executors.kubernetes import KubernetesExecutor, checked_image

        account = parameters.get("service-account") or parameters.get("sa")
        return KubernetesExecutor(
            parts.netloc, checked_image(parameters.get("image")), account, parameters.get("secret")
        )
    from ematix_flow.engine.executors.aws_lambda import LambdaExecutor

    return LambdaExecutor(parts.netloc, parameters.get("qualifier"))
