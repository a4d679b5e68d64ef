"""A supervisor in a process of its own whose runners have no Spark, for tests that stop it: agents, name, log."""

import asyncio
import signal
import sys
from pathlib import Path

from streamhouse.client.http import Http
from streamhouse.clock import Ids, SystemClock
from streamhouse.spark.agents.resources import SupervisorClient
from streamhouse.spark.pipelines.runner_process import OnEvent, RunnerCommand, RunnerProcess, start_runner
from streamhouse.spark.pipelines.supervisor import Supervisor


async def main(agents: str, name: str, log: str) -> None:
    plan = RunnerCommand(
        agents=agents, checkpoints="/nowhere", log=Path(log), module="tests.spark.pipelines.made_up_runner"
    )

    async def start(key: str, on_event: OnEvent) -> RunnerProcess:
        return await start_runner(key, plan, on_event)

    async with Http(agents, timeout_s=2.0) as http:
        of_agents = SupervisorClient(http, name=name, host="here", slots=16)
        supervisor = Supervisor(of_agents, start, clock=SystemClock(), ids=Ids())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, supervisor.stop)
        await supervisor.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
