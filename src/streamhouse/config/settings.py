"""All settings of an agent, in sections. Each has a name, a unit, a default and a description.

Leaves      the sections to the modules beside it; where values come from to `load`
"""

from collections.abc import Mapping

from streamhouse.config.cluster import AgentClientSettings, AgentSettings, ClusterSettings, LeaseSettings
from streamhouse.config.coordination import GroupSettings, SchemaSettings, TransactionSettings
from streamhouse.config.encryption import EncryptionSettings
from streamhouse.config.fields import Section
from streamhouse.config.listeners import GrpcSettings, HttpSettings, KafkaSettings
from streamhouse.config.maintenance import CompactionSettings, IntegritySettings, RetentionSettings
from streamhouse.config.pipelines import (
    ExternalCommitSettings,
    MaintenanceSettings,
    PipelineSettings,
    PlanSettings,
    SqlSettings,
    TableSettings,
    ViewSettings,
)
from streamhouse.config.quotas import QuotaSettings
from streamhouse.config.records import (
    BufferSettings,
    DecoderSettings,
    FetchSettings,
    FlushSettings,
    ProducerSettings,
    RecordSettings,
    TopicSettings,
    WalSettings,
)
from streamhouse.config.security import SecuritySettings
from streamhouse.config.stores import MetadataSettings, StoreSettings
from streamhouse.config.tracing import TracingSettings


class Settings(Section, frozen=True, kw_only=True):
    agent: AgentSettings = AgentSettings()
    kafka: KafkaSettings = KafkaSettings()
    http: HttpSettings = HttpSettings()
    grpc: GrpcSettings = GrpcSettings()
    metadata: MetadataSettings = MetadataSettings()
    store: StoreSettings = StoreSettings()
    topics: TopicSettings = TopicSettings()
    lease: LeaseSettings = LeaseSettings()
    cluster: ClusterSettings = ClusterSettings()
    wal: WalSettings = WalSettings()
    buffer: BufferSettings = BufferSettings()
    flush: FlushSettings = FlushSettings()
    fetch: FetchSettings = FetchSettings()
    retention: RetentionSettings = RetentionSettings()
    integrity: IntegritySettings = IntegritySettings()
    compaction: CompactionSettings = CompactionSettings()
    producers: ProducerSettings = ProducerSettings()
    decoder: DecoderSettings = DecoderSettings()
    records: RecordSettings = RecordSettings()
    peers: AgentClientSettings = AgentClientSettings()
    groups: GroupSettings = GroupSettings()
    schemas: SchemaSettings = SchemaSettings()
    plans: PlanSettings = PlanSettings()
    placing: ExternalCommitSettings = ExternalCommitSettings()
    tables: TableSettings = TableSettings()
    pipelines: PipelineSettings = PipelineSettings()
    transactions: TransactionSettings = TransactionSettings()
    maintenance: MaintenanceSettings = MaintenanceSettings()
    views: ViewSettings = ViewSettings()
    sql: SqlSettings = SqlSettings()
    security: SecuritySettings = SecuritySettings()
    encryption: EncryptionSettings = EncryptionSettings()
    quotas: QuotaSettings = QuotaSettings()
    tracing: TracingSettings = TracingSettings()
    origins: Mapping[str, tuple[str, str]] = {}
    """Kind of source and place of the values that aren't defaults, by the setting's name; for showing them only."""
