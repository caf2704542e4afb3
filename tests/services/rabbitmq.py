"""A RabbitMQ broker for tests; its password must never be seen in an output."""

from __future__ import annotations

import signal
import uuid
from typing import Any

from tests.services.programs import rabbitmq_server
from tests.services.server import Server, free_port

USER = "flow"
PASSWORD = "canary-mq-3N8d"
# The register of Erlang's nodes is a program of its own, which otherwise stays behind.
_START = 'epmd -port "$ERL_EPMD_PORT" & exec "$1"'


class RabbitMQServer(Server):
    """RabbitMQ with queues that outlive it."""

    name = "rabbitmq"
    account = "rabbitmq"
    stop_signal = signal.SIGTERM
    grouped = True

    def __init__(self, *, durable: bool = False) -> None:
        super().__init__(durable=durable)
        self._register_port = free_port()
        self._node_port = free_port()
        self._node = f"t{self.port}@localhost"  # its data has the name in it, the port may still change

    @property
    def url(self) -> str:
        """Return the address with the login."""
        return f"amqp://{USER}:{PASSWORD}@127.0.0.1:{self.port}/%2F"

    def channel(self) -> Any:
        """Return a channel on a connection of its own, which belongs to the caller."""
        import pika

        return pika.BlockingConnection(pika.URLParameters(f"{self.url}?heartbeat=0&socket_timeout=5")).channel()

    def create_queue(self, **arguments: Any) -> str:
        """Make an empty queue that outlives the broker and return its name."""
        name = f"t-{uuid.uuid4().hex[:16]}"
        channel = self.channel()
        channel.queue_declare(name, durable=True, arguments=arguments)
        channel.connection.close()
        return name

    def check(self) -> None:
        """Ask whether the broker lets us in."""
        from pika.exceptions import AMQPError

        try:
            self.channel().connection.close()
        except AMQPError as error:
            raise ConnectionError(str(error)) from error

    def initialise(self) -> None:
        """Make sure that the broker is installed, and write its settings."""
        rabbitmq_server()
        self.run(["mkdir", self.data])  # as the user whose folder it is

    def command(self) -> list[str]:
        """Return the command line."""
        settings = {
            "listeners.tcp.local": f"127.0.0.1:{self.port}",
            "default_user": USER,
            "default_pass": PASSWORD,
            "vm_memory_high_watermark.absolute": "256MB",
            "disk_free_limit.absolute": "1MB",
            "log.console.level": "warning",
        }
        file = self.folder / "rabbitmq.conf"
        file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()), "utf-8")
        file.chmod(0o644)
        return ["sh", "-c", _START, "rabbitmq", str(rabbitmq_server())]

    def environment(self) -> dict[str, str]:
        """Return the variables that the broker reads: everything below its own folder."""
        return {
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_MNESIA_BASE": str(self.data),
            "RABBITMQ_LOG_BASE": str(self.folder),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._register_port),
            # One core, and no spinning while there is nothing to do.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none"
            " -kernel inet_dist_use_interface {127,0,0,1}",
        }
