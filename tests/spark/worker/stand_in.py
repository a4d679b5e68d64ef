"""A fake SQL worker process: takes the lock, publishes its address, responds to `/health`; no Spark."""

import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from streamhouse.spark.worker.discovery import RuntimeDir, Worker


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.headers["authorization"] == "Bearer secret" else 401)
        self.end_headers()
        self.wfile.write(b'{"busy": 1, "queries": 2}')

    def log_message(self, *_: object) -> None:
        pass


def main(folder: Path, what: str) -> None:
    home = RuntimeDir(folder)
    if what == "fail":
        sys.exit("no luck today")
    with home.alive() as ours:
        if not ours:
            sys.exit("another one lives")
        (folder / f"born-{os.getpid()}").touch()
        server = HTTPServer(("127.0.0.1", 0), Health)
        home.publish(
            Worker(address=f"127.0.0.1:{server.server_port}", token="secret", pid=os.getpid(), log=str(home.log))
        )
        server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
