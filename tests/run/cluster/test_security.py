"""Clusters that want a secret and encrypt: RPC by TLS or by Spark's own cipher, pages by TLS; no secret is in a process list."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from tests.crash.harness import wait_until
from tests.services.certificates import write_certificates
from tests.services.server import free_port
from tests.services.standalone import Standalone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.run.cluster.conftest import Project

pytestmark = [
    pytest.mark.deep,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(600),
]

SECRET = "canary-cluster-4f81c0"
PASSWORD = "canary-store-77ab"


def _stores(folder: Path) -> None:
    """Write the key of the server and the authority that signed it as Java wants them."""
    write_certificates(folder)
    lock = serialization.BestAvailableEncryption(PASSWORD.encode())
    authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    key = serialization.load_pem_private_key((folder / "server.key").read_bytes(), None)
    own = x509.load_pem_x509_certificate((folder / "server.pem").read_bytes())
    (folder / "keys.p12").write_bytes(pkcs12.serialize_key_and_certificates(b"server", key, own, [authority], lock))  # type: ignore[arg-type]
    trusted = [pkcs12.PKCS12Certificate(authority, b"ca")]
    (folder / "trust.p12").write_bytes(pkcs12.serialize_java_truststore(trusted, lock))


def _conf(folder: Path) -> dict[str, str]:
    """Return the settings of everybody; passwords are read from the environment where they are used."""
    tls = {
        "enabled": "true",
        "keyStore": str(folder / "keys.p12"),
        "keyStoreType": "PKCS12",
        "keyStorePassword": "${env:STORE_PASSWORD}",
        "keyPassword": "${env:STORE_PASSWORD}",
        "trustStore": str(folder / "trust.p12"),
        "trustStoreType": "PKCS12",
        "trustStorePassword": "${env:STORE_PASSWORD}",
        "protocol": "TLSv1.3",
    }
    return {
        "spark.authenticate": "true",
        "spark.authenticate.secret.file": str(folder / "secret"),
        "spark.network.crypto.enabled": "true",
        "spark.io.encryption.enabled": "true",
        **{f"spark.ssl.rpc.{name}": value for name, value in tls.items()},
    }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Standalone, dict[str, str]]]:
    """Return a cluster that wants a secret, and the variables of a driver that knows it."""
    cluster = Standalone(workers=1)
    _stores(cluster.home / "tls")
    (cluster.home / "tls" / "secret").touch(mode=0o600)
    (cluster.home / "tls" / "secret").write_text(SECRET)
    conf = _conf(cluster.home / "tls")
    pages = {key.replace(".rpc.", ".standalone."): value for key, value in conf.items() if ".ssl." in key}
    cluster.secure(conf | pages | {"spark.authenticate.secret": SECRET}, {"STORE_PASSWORD": PASSWORD})
    settings = cluster.settings() | {"STORE_PASSWORD": PASSWORD}
    settings |= {f"EMATIX_FLOW_SPARK_CONF_{key.replace('.', '__')}": value for key, value in conf.items()}
    try:
        cluster.start()
        yield cluster, settings
    finally:
        cluster.close()


def test_a_load_runs_encrypted_and_no_process_list_has_a_secret(
    secured: tuple[Standalone, dict[str, str]], project: Project
) -> None:
    _, settings = secured
    recorded, over = set(), threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            completed = subprocess.run(["ps", "-A", "-ww", "-o", "args="], capture_output=True, text=True, check=False)
            recorded.update(completed.stdout.splitlines())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        done = project.drive(settings, "database")["database"]
    finally:
        over.set()
        watcher.join()
    assert done.get("rows_inserted") == 1000, done
    assert project.rows("SELECT count(DISTINCT id) FROM orders") == [(1000,)]
    executors = [line for line in recorded if "CoarseGrainedExecutorBackend" in line]
    assert executors
    assert any("-Dspark.ssl.rpc.enabled=true" in line for line in executors)
    assert not [line for line in recorded if SECRET in line or PASSWORD in line]


def _trusting(cluster: Standalone) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(cluster.home / "tls" / "ca.pem"))


def test_the_rpc_of_the_master_speaks_tls(secured: tuple[Standalone, dict[str, str]]) -> None:
    cluster, _ = secured
    context = _trusting(cluster)
    with (
        socket.create_connection(("127.0.0.1", cluster.master.port), 5) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as encrypted,
    ):
        assert encrypted.version() == "TLSv1.3"


def test_pages_of_master_worker_and_driver_speak_tls(
    secured: tuple[Standalone, dict[str, str]], project: Project
) -> None:
    cluster, settings = secured

    def read(url: str) -> str:
        with urlopen(url, timeout=5, context=_trusting(cluster)) as page:  # noqa: S310 - of a server of ours
            return str(page.read().decode())

    for server, title in ((cluster.master, "Spark Master at"), (cluster.workers[0], "Spark Worker at")):
        log, pattern = server.folder / "log", re.compile(r"WebUI to \S+ and started at (https://\S+)")
        wait_until(lambda log=log, pattern=pattern: pattern.search(log.read_text()))
        (url,) = pattern.findall(log.read_text())
        assert title in read(url)
    port = free_port()
    pages = {key.replace("ssl__rpc", "ssl__ui"): value for key, value in settings.items() if "ssl__rpc" in key}
    given = {"spark__ui__enabled": "true", "spark__ui__port": str(free_port()), "spark__ssl__ui__port": str(port)}
    pages |= {f"EMATIX_FLOW_SPARK_CONF_{key}": value for key, value in given.items()}
    with ThreadPoolExecutor(1) as pool:
        load, page_text = pool.submit(project.drive, settings | pages, "database"), ""
        while "Spark Jobs" not in page_text and not load.done():
            with suppress(OSError):
                page_text = read(f"https://127.0.0.1:{port}/jobs/")
    assert load.result()["database"].get("rows_inserted") == 1000
    assert "Spark Jobs" in page_text


class Tap:
    """Passes on what clients say to a server, and keeps it."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.heard = bytearray()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server))
                for one, other, buffer in ((client, server, self.heard), (server, client, bytearray())):
                    threading.Thread(target=self._pass_on, args=(one, other, buffer), daemon=True).start()

    @staticmethod
    def _pass_on(one: socket.socket, other: socket.socket, buffer: bytearray) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                buffer += data
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Take no more clients."""
        self._listener.close()


@pytest.mark.parametrize("crypto", [True, False])
def test_the_cipher_of_spark_hides_what_a_driver_says(crypto: bool, project: Project) -> None:
    cluster = Standalone(workers=1)
    (cluster.home / "secret").touch(mode=0o600)
    (cluster.home / "secret").write_text(SECRET)
    conf = {"spark.authenticate": "true", "spark.network.crypto.enabled": str(crypto).lower()}
    cluster.secure(conf | {"spark.authenticate.secret": SECRET}, {})
    conf |= {"spark.authenticate.secret.file": str(cluster.home / "secret")}
    try:
        cluster.start()
        tap = Tap(cluster.master.port)
        settings = cluster.settings() | {"EMATIX_FLOW_SPARK_MASTER": f"spark://127.0.0.1:{tap.port}"}
        settings |= {f"EMATIX_FLOW_SPARK_CONF_{key.replace('.', '__')}": value for key, value in conf.items()}
        done = project.drive(settings, "database")["database"]
        tap.close()
    finally:
        cluster.close()
    assert done.get("rows_inserted") == 1000, done
    assert (b"RegisterApplication" in tap.heard) is not crypto
    assert len(tap.heard) > 1000
    assert SECRET.encode() not in tap.heard


def test_a_driver_with_another_secret_is_refused_and_told(
    secured: tuple[Standalone, dict[str, str]], project: Project, tmp_path: Path
) -> None:
    _, settings = secured
    (tmp_path / "wrong").write_text("another")
    wrong = settings | {"EMATIX_FLOW_SPARK_CONF_spark__authenticate__secret__file": str(tmp_path / "wrong")}
    done = project.drive(wrong, "database")["database"]
    assert "did not take this application" in done["text"]
    assert project.rows("SELECT count(*) FROM pg_tables WHERE tablename = 'orders'") in ([(0,)], [(1,)])
