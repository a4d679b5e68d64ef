"""What every metadata store must do: written once, subclassed per engine.

A subclass gives the fixture `store` (open, empty, on the `clock` fixture).
"""

from tests.contracts.metadata_changes import ChangeContract
from tests.contracts.metadata_cluster import ClusterContract
from tests.contracts.metadata_groups import GroupContract
from tests.contracts.metadata_identity import IdentityContract
from tests.contracts.metadata_leases import LeaseContract
from tests.contracts.metadata_pipelines import PipelineContract
from tests.contracts.metadata_placing import PlacingContract
from tests.contracts.metadata_producing import ProducingContract
from tests.contracts.metadata_recovery import RecoveryContract
from tests.contracts.metadata_replacements import ReplacementContract
from tests.contracts.metadata_reservations import ReservationContract
from tests.contracts.metadata_schemas import SchemaContract
from tests.contracts.metadata_security import SecurityContract
from tests.contracts.metadata_segments import SegmentContract
from tests.contracts.metadata_settings import SettingsContract
from tests.contracts.metadata_topics import TopicContract
from tests.contracts.metadata_views import ViewContract


class MetadataStoreContract(
    TopicContract,
    SecurityContract,
    SettingsContract,
    LeaseContract,
    SegmentContract,
    ReplacementContract,
    PlacingContract,
    RecoveryContract,
    ClusterContract,
    IdentityContract,
    ChangeContract,
    ReservationContract,
    GroupContract,
    ProducingContract,
    SchemaContract,
    PipelineContract,
    ViewContract,
):
    """All of it; the parts are apart only so that each can be read with coffee."""
