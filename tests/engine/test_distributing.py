from __future__ import annotations

import pytest

from ematix_flow.declare.stream.toml_reader import stream_from_toml
from ematix_flow.engine.spark.distributed import check_distribution
from ematix_flow.errors import UnsupportedError

STREAM = """
pipeline_name = "events"
source_query = "events"
[source]
connection = "kafka"
[target]
connection = "db"
table = { schema = "public", name = "events" }
[transform]
sql = "SELECT id FROM events"
"""

TLS = '[transform.tls]\nca = "ca.pem"\ncert = "client.pem"\nkey = "client.key"\n'


def _check(more: str) -> None:
    check_distribution(stream_from_toml(STREAM + more))


@pytest.mark.parametrize(
    ("peers", "message"),
    [
        ("", 'write master = "spark://host:7077" under [spark]'),
        ('peers = ["http://one:50051", "http://two:50051"]\n', "with peers http://one:50051, http://two:50051, and work"),
        ('peers = ["spark://one:7077"]\n', 'write master = "spark://one:7077" under [spark], and no peers'),
        ('peers = ["sc://one:15002"]\n', 'write remote = "sc://one:15002" under [spark]'),
    ],
)  # fmt: skip
def test_a_stream_that_nothing_distributes_is_refused_with_what_does(peers: str, message: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        _check(f'engine = "distributed"\n{peers}')
    assert message in str(caught.value)
    assert "docs/cluster.md" in str(caught.value)


@pytest.mark.parametrize("variable", ["MASTER", "REMOTE"])
def test_a_cluster_distributes_it_whatever_the_peers_were(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    address = {"MASTER": "spark://one:7077", "REMOTE": "sc://one:15002"}[variable]
    monkeypatch.setenv(f"EMATIX_FLOW_SPARK_{variable}", address)
    _check('engine = "distributed"\npeers = ["http://one:50051"]\n')
    _check('engine = "auto"\npeers = ["http://one:50051"]\n')


def test_tls_between_peers_is_the_encryption_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_SPARK_MASTER", "spark://one:7077")
    with pytest.raises(UnsupportedError, match=r'do not encrypt(.|\n)*"spark.ssl.rpc.enabled"'):
        _check(f'engine = "distributed"\n{TLS}')
    monkeypatch.setenv("EMATIX_FLOW_SPARK_CONF_SPARK__NETWORK__CRYPTO__ENABLED", "true")
    _check(f'engine = "distributed"\n{TLS}')


def test_auto_runs_on_this_machine_and_says_so() -> None:
    with pytest.warns(UserWarning, match="runs on this machine"):
        _check(f'engine = "auto"\npeers = ["http://one:50051"]\n{TLS}')
