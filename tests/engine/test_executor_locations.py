"""Slots handed to Kubernetes and Lambda: what is asked there, what is never shown there, and a refusal that costs no attempt."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config

from ematix_flow.engine.executors import kubernetes
from ematix_flow.engine.executors.aws_lambda import payload
from ematix_flow.engine.executors.base import worker_arguments, worker_environment
from ematix_flow.executors import DispatchError, DispatchHandle, DispatchSpec, LambdaExecutor, from_url
from tests.engine.executing import Cluster
from tests.engine.schedules import ticked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.engine.schedules import Rig

SPEC = DispatchSpec("Orders_Löad.v2", "my_flows", "0123456789abcdef", 60, "postgres://flow@db/log")
SECRET = "hunter2"
HIDDEN = replace(
    SPEC,
    run_log_url=f"postgres://flow:{SECRET}@db/log",
    alerter_urls=(f"slack://hooks.example/{SECRET}", "stdout://"),
    metrics_url=f"otlp://collector:4317?token={SECRET}",
)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    cluster_of_pods = Cluster()
    monkeypatch.setenv(kubernetes.SERVER_VARIABLE, cluster_of_pods.url)
    yield cluster_of_pods
    cluster_of_pods.end()


def k8s(more: str = "") -> Any:
    return from_url(f"k8s://flows?image=registry/flow:1{more}")


def test_a_slot_becomes_a_job_that_kubernetes_takes(cluster: Cluster) -> None:
    handle = k8s("&sa=runner").dispatch(SPEC)
    (_, path, _, job), *_ = cluster.got
    assert path == "/apis/batch/v1/namespaces/flows/jobs"
    assert handle.backend == "k8s"
    assert handle.ref == job["metadata"]["name"]
    assert handle.ref.startswith("flow-orders-l-ad-v2-")
    spec = job["spec"]
    assert (spec["backoffLimit"], spec["ttlSecondsAfterFinished"]) == (0, 3600)
    assert job["metadata"]["labels"] == {
        "ematix-flow/pipeline": "Orders_L-ad.v2",
        "ematix-flow/claim-token-short": "01234567",
    }
    pod = spec["template"]["spec"]
    assert (pod["restartPolicy"], pod["serviceAccountName"]) == ("Never", "runner")
    assert pod["containers"][0]["args"] == [
        "run", "--module", "my_flows", "--claim-token", "0123456789abcdef", "--heartbeat-interval", "20",
        "--lease-seconds", "60", "--run-log-url", "postgres://flow@db/log", "Orders_Löad.v2",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["a" * 200, "-_-", "日本", "UPPER.case", "x" * 49 + "-y", "0"])
def test_every_name_makes_a_job_of_its_own(cluster: Cluster, name: str) -> None:
    refs = {k8s().dispatch(replace(SPEC, pipeline_name=name)).ref for _ in range(2)}
    assert len(refs) == 2
    assert cluster.jobs.keys() == refs


def test_secrets_are_only_named_in_a_job(cluster: Cluster) -> None:
    with pytest.raises(DispatchError, match="EMATIX_FLOW_RUN_LOG_URL holds a secret") as caught:
        k8s().dispatch(HIDDEN)
    assert SECRET not in str(caught.value)
    assert cluster.got == []
    k8s("&secret=flow-secrets").dispatch(replace(HIDDEN, env={"PLAIN": "1"}))
    container = cluster.got[0][3]["spec"]["template"]["spec"]["containers"][0]
    assert SECRET not in json.dumps(cluster.got[0][3])
    names = ("EMATIX_FLOW_ALERTERS", "EMATIX_FLOW_METRICS_URL", "EMATIX_FLOW_RUN_LOG_URL")
    assert container["env"] == [
        {"name": "PLAIN", "value": "1"},
        *({"name": name, "valueFrom": {"secretKeyRef": {"name": "flow-secrets", "key": name}}} for name in names),
    ]


@pytest.mark.parametrize("status", [403, 409, 500, 302])
def test_a_refusal_says_what_the_api_said(cluster: Cluster, status: int) -> None:
    cluster.status = status
    with pytest.raises(DispatchError, match=f"answered {status}: told to answer {status}"):
        k8s().dispatch(SPEC)


def test_an_api_that_does_not_answer_is_not_waited_for(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "SECONDS", 0.05)
    cluster.status = None
    with pytest.raises(DispatchError, match="the Kubernetes API does not answer"):
        k8s().dispatch(SPEC)
    monkeypatch.setenv(kubernetes.SERVER_VARIABLE, "http://127.0.0.1:1")
    with pytest.raises(DispatchError, match="the Kubernetes API does not answer"):
        k8s().dispatch(SPEC)
    monkeypatch.delenv(kubernetes.SERVER_VARIABLE)
    with pytest.raises(DispatchError, match="not in a Kubernetes cluster"):
        k8s().dispatch(SPEC)


def test_a_job_can_be_cancelled_and_one_that_is_gone_is_no_error(cluster: Cluster) -> None:
    executor = k8s()
    handle = executor.dispatch(SPEC)
    executor.cancel(handle)
    executor.cancel(handle)
    assert cluster.jobs == {}
    assert cluster.got[1][:2] == ("DELETE", f"/apis/batch/v1/namespaces/flows/jobs/{handle.ref}")
    assert cluster.got[1][3] == {"propagationPolicy": "Background"}


def lambda_on(cluster: Cluster, qualifier: str | None = None) -> LambdaExecutor:
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "eu-west-1"}
    client = boto3.client("lambda", endpoint_url=cluster.url, config=Config(retries={"total_max_attempts": 1}), **keys)
    return LambdaExecutor("flow-worker", qualifier, client)


def test_a_function_is_called_and_not_waited_for(cluster: Cluster) -> None:
    handle = lambda_on(cluster, "live").dispatch(SPEC)
    assert handle == DispatchHandle("Orders_Löad.v2", "lambda", "request-1")
    method, path, headers, body = cluster.got[0]
    assert (method, path) == ("POST", "/2015-03-31/functions/flow-worker/invocations?Qualifier=live")
    assert headers["X-Amz-Invocation-Type"] == "Event"
    assert body["pipeline_name"] == "Orders_Löad.v2"
    assert (body["claim_token"], body["lease_seconds"]) == ("0123456789abcdef", 60)
    assert body["argv"][:3] == ["run", "--module", "my_flows"]


@pytest.mark.slow
def test_no_secret_is_sent_to_a_function(cluster: Cluster) -> None:
    lambda_on(cluster).dispatch(HIDDEN)
    body = cluster.got[0][3]
    assert SECRET not in json.dumps(body)
    assert (body["run_log_url"], body["alerter_urls"], body["metrics_url"]) == (None, ["stdout://"], None)


@pytest.mark.parametrize(
    "url",
    [
        "discord://4174216298/KEY-of-hook",
        "tgram://123456789:KEY-of-bot/12315544/",
        "pushover://KEY-of-user@token",
        "gotify://host/KEY-of-app",
        "email://KEY-of-account@mail.example?to=a@example.org,b@example.org",
        "odd://[KEY-of-nothing",
    ],
)
def test_no_address_of_an_alerter_is_shown(url: str) -> None:
    spec = replace(SPEC, alerter_urls=("stdout://", url))
    assert "KEY" not in " ".join(worker_arguments(spec))
    assert worker_environment(spec)["EMATIX_FLOW_ALERTERS"] == f"stdout://,{url}"
    assert payload(spec)["alerter_urls"] == ["stdout://"]


def test_what_is_no_secret_stays_in_the_arguments() -> None:
    spec = replace(SPEC, alerter_urls=("stdout://", "${ALERTS}"), metrics_url="prometheus://:9464")
    arguments = worker_arguments(spec)
    assert [arguments[index + 1] for index, name in enumerate(arguments) if name == "--alerter"] == [
        "stdout://",
        "${ALERTS}",
    ]
    assert worker_environment(spec) == {}
    keyed = replace(SPEC, metrics_url="otlp://KEY@collector:4317")
    assert "KEY" not in " ".join(worker_arguments(keyed))
    assert payload(keyed)["metrics_url"] is None


def test_a_function_that_cannot_be_called_is_a_refusal(cluster: Cluster) -> None:
    cluster.status = 403
    with pytest.raises(DispatchError, match="flow-worker could not be called for Orders"):
        lambda_on(cluster).dispatch(SPEC)
    cluster.status = 200
    with pytest.raises(DispatchError, match="answered 200"):
        lambda_on(cluster).dispatch(SPEC)


def test_a_slot_that_could_not_be_handed_over_is_begun_again_and_counts_no_attempt(rig: Rig, cluster: Cluster) -> None:
    rig.add("a")
    rig.add("b")
    scheduler = rig.scheduler(executor=k8s(), module="my_flows", run_log_url="postgres://flow@db/log")
    cluster.status = 500
    ticked(scheduler)
    assert [event.pipeline for event in rig.events_of("dispatch_failed")] == ["a", "b"]
    state = rig.state("a")
    assert (state.slot_status, state.attempt) == ("failed", 0)
    assert rig.ended() == []
    cluster.status = 0
    rig.pass_time(10)
    ticked(scheduler, 2)
    state = rig.state("a")
    assert (state.slot_status, state.attempt) == ("running", 1)
    assert len(cluster.jobs) == 2  # each once: the lease is the worker's by now
    assert rig.skipped() == {}
    assert rig.ran == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("k8s://flows", "needs the image"),
        ("k8s://?image=i", "needs a namespace"),
        ("lambda://", "needs the name of a function"),
        ("k8s://flows?imge=i", "has no parameter 'imge'(.|\n)*image"),
        ("subproces://", "no executor is called(.|\n)*subprocess"),
        ("subprocess", "no executor is called"),
    ],
)
def test_urls_that_name_no_executor_are_refused(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_url(url)


def test_the_project_of_a_scheduler_is_told_wherever_a_slot_runs(cluster: Cluster) -> None:
    spec = replace(SPEC, env={"EMATIX_FLOW_PROJECT": "shop"})
    k8s().dispatch(spec)
    container = cluster.got[0][3]["spec"]["template"]["spec"]["containers"][0]
    assert container["env"] == [{"name": "EMATIX_FLOW_PROJECT", "value": "shop"}]
    assert payload(spec)["argv"][-3:] == ["--project", "shop", "Orders_Löad.v2"]
    assert "--project" not in payload(SPEC)["argv"]
