"""Upkeep: what an agent does for jobs that rewrite a topic outside of it.

Data path   none: HTTP -> **upkeep** -> everything flushed, what there is, what takes its place
Owns        the three of them, in one place
Leaves      the work to `flushing`, `plans` and `replacements`
"""

from streamhouse.broker.ground import Ground
from streamhouse.broker.maintenance.flushing import Flushing
from streamhouse.broker.maintenance.forgetting import Forgetting
from streamhouse.broker.maintenance.plans import MaintenancePlans
from streamhouse.broker.maintenance.replacements import Replacements
from streamhouse.broker.reading.plans import ReadPlans


class Upkeep:
    def __init__(self, ground: Ground, *, plans: ReadPlans, forgetting: Forgetting) -> None:
        doors, catalogue, tenancy = ground.doors, ground.catalogue, ground.succession.current
        self.flushing = Flushing(doors, catalogue=catalogue, cluster=ground.cluster, tenancy=tenancy)
        self.plans = MaintenancePlans(doors, catalogue=catalogue, plans=plans)
        self.replacements = Replacements(
            doors,
            catalogue=catalogue,
            session=lambda: tenancy().session.session_id,
            reader=ground.reader,
            forgetting=forgetting,
        )

    def __repr__(self) -> str:
        return f"<Upkeep {self.plans!r}>"
