"""Pipeline owner: checks with agents before a commit that the pipeline still belongs to this runner.

Data path   a target that agents don't write -> **OwnerCheck** -> an agent's HTTP listener
Owns        what makes a commit come too late: the pipeline was dropped, was started over, or has another owner
Leaves      rejecting commits that start before a new owner's epoch is in the target to the target

If no supervisor takes over a dropped pipeline, no epoch is written to its target: only agents know that it is gone.
"""

from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from streamhouse.client.http import HttpResponse
from streamhouse.errors import AccessDenied, PipelineMoved
from streamhouse.spark.agents.address import AgentAddress
from streamhouse.spark.agents.client import AgentClient, run_on_loop


class _Owner(msgspec.Struct, frozen=True):
    epoch: int


class _Pipeline(msgspec.Struct, frozen=True):
    query_id: str
    owner: _Owner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerCheck:
    """Called right before a commit, on the driver or in a task; raises `PipelineMoved`."""

    agents: AgentAddress
    pipeline: str
    query_id: str
    epoch: int

    def __call__(self) -> None:
        try:
            response = run_on_loop(self._response())
        except AccessDenied:  # agents show a pipeline to its owner, as whom it runs
            raise self._moved("it was dropped, or has another owner now") from None
        if response.status == 404:
            raise self._moved("it was dropped")
        if response.status >= 400:
            return
        now = msgspec.json.decode(response.content, type=_Pipeline)
        if now.query_id != self.query_id:
            raise self._moved("it started over")
        if now.owner is not None and now.owner.epoch != self.epoch:
            raise self._moved(f"its owner has epoch {now.owner.epoch}")

    async def _response(self) -> HttpResponse:
        async with AgentClient(self.agents) as agents:
            return await agents.send("GET", f"/v1/pipelines/{quote(self.pipeline, safe='')}")

    def _moved(self, why: str) -> PipelineMoved:
        return PipelineMoved(self.pipeline, epoch=self.epoch, why=why)
