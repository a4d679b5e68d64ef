"""Agent process: `streamhouse up` as a child process, and whether it is ready.

URLs are passed in the environment: a command line is visible to every user of the machine, and URLs may hold a
password.
"""

import base64
import json
import ssl
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from streamhouse.config import Address
from streamhouse.dev.processes import ChildProcess, Program, StopSignals

STOP_MARGIN_S: Final = 10.0  # beyond the time that the agent gives itself
REQUEST_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """How requests reach agents: with a user and TLS; without an authority, with neither."""

    ca: Path | None = None
    user: str = ""
    password: str = field(default="", repr=False)

    def open(self, address: Address, path: str) -> bytes:
        """The body of the response. Raises `OSError` for one that is no success."""
        direct: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        headers = {}
        if self.ca is not None:
            context = ssl.create_default_context(cafile=str(self.ca))
            direct.append(urllib.request.HTTPSHandler(context=context))
            pair = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            headers["authorization"] = f"Basic {pair}"
        scheme = "http" if self.ca is None else "https"
        request = urllib.request.Request(f"{scheme}://{address}{path}", headers=headers)
        with urllib.request.build_opener(*direct).open(request, timeout=REQUEST_S) as response:
            body: bytes = response.read()
            return body


NO_LOGIN: Final = Login()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPlan:
    """How one agent is started."""

    number: int
    kafka: Address
    http: Address
    data: Path
    log_path: Path
    settings: Mapping[str, str]
    environment: Mapping[str, str]
    grpc: Address | None = None

    def program(self) -> Program:
        # Addresses come from flags alone: one advertised address for several agents would be one identity for them.
        settings = {
            **self.settings,
            "agent.data": str(self.data),
            "kafka.listen": str(self.kafka),
            "http.listen": str(self.http),
            "grpc.listen": str(self.grpc or ""),
            "kafka.advertise": "",
            "http.advertise": "",
        }
        command = [sys.executable, "-P", "-m", "streamhouse", "up"]  # -P: never a folder of that name in this one
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        return Program(
            name=f"agent {self.number}", command=command, log_path=self.log_path, environment=self.environment
        )


class LocalAgent:
    """One agent: its plan and its process, which may have ended."""

    def __init__(self, plan: AgentPlan, stop_signals: StopSignals, login: Login = NO_LOGIN) -> None:
        self.plan = plan
        self._login = login
        self.child = ChildProcess(plan.program(), stop_signals)
        self.end_reported = False  # whether its end was reported already

    def __repr__(self) -> str:
        return f"<LocalAgent {self.plan.kafka} {self.child!r}>"

    def start(self) -> None:
        self.end_reported = False
        self.child.start()

    def wait_until_ready(self) -> None:
        self.child.wait_until(lambda: is_ready(self.plan.http, self._login), what="become ready")


def node_ids(http: Address, login: Login = NO_LOGIN) -> dict[str, int]:
    """The node ids of the live agents, as `agents list` shows them, by where they serve Kafka; nothing where the
    agent doesn't respond."""
    try:
        agents = json.loads(login.open(http, "/v1/agents"))["agents"]
    except (OSError, ValueError):
        return {}
    return {each["kafka"]: each["node"] for each in agents if each["state"] in ("live", "draining")}


def is_ready(http: Address, login: Login = NO_LOGIN) -> bool:
    try:
        login.open(http, "/health/ready")
    except OSError:
        return False
    return True
