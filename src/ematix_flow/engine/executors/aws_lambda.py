"""Has slots run by a Lambda function, which is called and not waited for."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.config.project_name import VARIABLE
from ematix_flow.engine.executors.base import (
    DispatchError,
    DispatchHandle,
    has_secret,
    is_secret_alerter,
    is_secret_sink,
    worker_arguments,
)
from ematix_flow.errors import MissingExtraError

ACCEPTED = 202


if TYPE_CHECKING:
    from ematix_flow.engine.executors.base import DispatchSpec


class LambdaExecutor:
    """Calls a function with what a worker needs to know."""

    backend = "lambda"

    def __init__(self, function: str, qualifier: str | None = None, client: Any = None) -> None:
        self._function, self._qualifier = function, qualifier
        self._client = client

    def dispatch(self, spec: DispatchSpec) -> DispatchHandle:
        """Call the function; an address with a secret is left out, and the function's own environment has it."""
        request: dict[str, Any] = {
            "FunctionName": self._function,
            "InvocationType": "Event",
            "Payload": json.dumps(payload(spec)).encode(),
        }
        if self._qualifier:
            request["Qualifier"] = self._qualifier
        try:
            answer = self._lambda().invoke(**request)
        except _failures() as error:
            message = f"the function {self._function} could not be called for {spec.pipeline_name}: {error}"
            raise DispatchError(message) from None
        if answer["StatusCode"] != ACCEPTED:
            message = f"the function {self._function} answered {answer['StatusCode']} for {spec.pipeline_name}"
            raise DispatchError(message)
        return DispatchHandle(spec.pipeline_name, self.backend, str(answer["ResponseMetadata"]["RequestId"]))

    def cancel(self, handle: DispatchHandle) -> None:
        """Do nothing: a call that was accepted cannot be taken back, and its lease can be."""

    def _lambda(self) -> Any:
        if self._client is None:
            try:
                import boto3
            except ImportError:
                message = "lambda:// needs the client of AWS"
                raise MissingExtraError(message, hint="pip install 'ematix-flow-spark[executor-lambda]'.") from None
            self._client = boto3.client("lambda")
        return self._client


def payload(spec: DispatchSpec) -> dict[str, Any]:
    """Return the payload of the function: the fields of the slot, and the arguments of `flow` that mean the same."""
    fields = asdict(spec)
    if has_secret(spec.run_log_url):
        fields["run_log_url"] = None
    fields["alerter_urls"] = [url for url in spec.alerter_urls if not is_secret_alerter(url)]
    if spec.metrics_url and is_secret_sink(spec.metrics_url):
        fields["metrics_url"] = None
    argv = worker_arguments(spec)
    if VARIABLE in spec.env:  # the environment of a function is the same for all its calls
        argv = [*argv[:-1], "--project", spec.env[VARIABLE], argv[-1]]
    return {**fields, "argv": argv}


def _failures() -> tuple[type[Exception], ...]:
    from botocore.exceptions import BotoCoreError, ClientError

    return (BotoCoreError, ClientError)
