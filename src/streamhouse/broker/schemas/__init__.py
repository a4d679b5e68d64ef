"""The schema registry: subjects, versions and ids, compatibility, modes, and the check of produced batches."""

from streamhouse.broker.schemas.registration import Proposal
from streamhouse.broker.schemas.registry import SchemaRegistry
from streamhouse.broker.schemas.subject_config import EffectiveConfig

__all__ = ["EffectiveConfig", "Proposal", "SchemaRegistry"]
