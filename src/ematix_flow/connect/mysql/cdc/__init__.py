"""Changes of MySQL and MariaDB tables as a stream, by the binary log."""
