"""Upkeep: what an agent does for jobs that rewrite a topic outside of it.

Data path   none: HTTP -> **upkeep** -> everything flushed, what there is, what takes its place
Owns        the three of them, in one place
Leaves      the work to `flushing`, `plans` and `replacements`
"""

from collections.abc import Callable

from streamhouse.broker.catalogue import Catalogue
from streamhouse.broker.cluster.cluster import Cluster
from streamhouse.broker.doors import Doors
from streamhouse.broker.reading.plans import ReadPlans
from streamhouse.broker.reading.reader import SegmentReader
from streamhouse.broker.tenure import Tenure

from .flushing import Flushing
from .forgetting import Forgetting
from .plans import MaintenancePlans
from .replacements import Replacements


class Upkeep:
    def __init__(
        self,
        doors: Doors,
        *,
        catalogue: Catalogue,
        cluster: Cluster,
        plans: ReadPlans,
        tenancy: Callable[[], Tenure],
        reader: SegmentReader,
        forgetting: Forgetting,
    ) -> None:
        self.flushing = Flushing(doors, catalogue=catalogue, cluster=cluster, tenancy=tenancy)
        self.plans = MaintenancePlans(doors, catalogue=catalogue, plans=plans)
        self.replacements = Replacements(
            doors,
            catalogue=catalogue,
            session=lambda: tenancy().session.session_id,
            reader=reader,
            forgetting=forgetting,
        )

    def __repr__(self) -> str:
        return f"<Upkeep {self.plans!r}>"
