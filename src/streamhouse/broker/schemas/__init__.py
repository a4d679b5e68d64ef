"""The schema registry: subjects, versions and ids, compatibility, modes, and the check of produced batches."""

from streamhouse.broker.schemas.registration import Proposal
from streamhouse.broker.schemas.registry import Schemas
from streamhouse.broker.schemas.subject_config import InForce

__all__ = ["InForce", "Proposal", "Schemas"]
