"""ExchangedServer: a PostgreSQL whose data can be exchanged for a copy, as when a replica that is behind takes over.

Data path   databases -> **exchanged server** -> the server's folder
"""

from streamhouse.dev.postgres import PostgresServer


class ExchangedServer(PostgresServer):
    def copy(self, name: str) -> None:
        """Copy the data as they are now, while the server runs."""
        self.run_tool(
            "pg_basebackup",
            "-D",
            f"{self._seen_as}/{name}",
            "-d",
            self.dsn(),
            "-c",
            "fast",
            "-X",
            "stream",
            "--no-sync",
        )

    def exchange(self, name: str) -> None:
        """End the server, put the folder of this name in the place of the data, and start it."""
        self.kill()
        other, aside = self._folder / name, self._folder / "aside"
        self.data.rename(aside)
        other.rename(self.data)
        aside.rename(other)
        self.start()
