"""Settings: values with names, units, defaults and a sentence each, read once at the start.

Owns        `settings` (what there is, in a module for each part of the agent), `load` (where values come from, and
            errors that name the place of a wrong one), `fields` (how sizes, durations and addresses are written)
Leaves      turning settings into components to `agent`

Order of precedence: flags, then environment (`STREAMHOUSE_WAL_FSYNC=always`), then `streamhouse.toml`
(`[wal] fsync = "always"`), then the defaults.
"""

from streamhouse.config.cluster import AgentClientSettings, AgentSettings, ClusterSettings, LeaseSettings
from streamhouse.config.coordination import GroupSettings, SchemaSettings, TransactionSettings
from streamhouse.config.encryption import EncryptionSettings
from streamhouse.config.exposure import anonymous_listeners, check_exposure, exposure_warning
from streamhouse.config.fields import (
    MIB,
    POSTGRES_EXAMPLE,
    Address,
    Section,
    about,
    is_loopback,
    is_postgres,
    parse_address,
    parse_number,
)
from streamhouse.config.listeners import GrpcSettings, HttpSettings, KafkaSettings
from streamhouse.config.load import (
    FLAGS,
    Explained,
    Source,
    describe_settings,
    explain_settings,
    load_settings,
    without_password,
)
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
from streamhouse.config.settings import Settings
from streamhouse.config.stores import MetadataSettings, StoreSettings
from streamhouse.config.tracing import TracingSettings

__all__ = [
    "FLAGS",
    "MIB",
    "POSTGRES_EXAMPLE",
    "Address",
    "AgentClientSettings",
    "AgentSettings",
    "BufferSettings",
    "ClusterSettings",
    "CompactionSettings",
    "DecoderSettings",
    "EncryptionSettings",
    "Explained",
    "ExternalCommitSettings",
    "FetchSettings",
    "FlushSettings",
    "GroupSettings",
    "GrpcSettings",
    "HttpSettings",
    "IntegritySettings",
    "KafkaSettings",
    "LeaseSettings",
    "MaintenanceSettings",
    "MetadataSettings",
    "PipelineSettings",
    "PlanSettings",
    "ProducerSettings",
    "QuotaSettings",
    "RecordSettings",
    "RetentionSettings",
    "SchemaSettings",
    "Section",
    "SecuritySettings",
    "Settings",
    "Source",
    "SqlSettings",
    "StoreSettings",
    "TableSettings",
    "TopicSettings",
    "TracingSettings",
    "TransactionSettings",
    "ViewSettings",
    "WalSettings",
    "about",
    "anonymous_listeners",
    "check_exposure",
    "describe_settings",
    "explain_settings",
    "exposure_warning",
    "is_loopback",
    "is_postgres",
    "load_settings",
    "parse_address",
    "parse_number",
    "without_password",
]
