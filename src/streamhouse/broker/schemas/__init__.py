"""The schema registry: subjects, versions and ids, compatibility, modes, and the check of produced batches."""

from streamhouse.broker.schemas.registration import Proposal
from streamhouse.broker.schemas.rules import InForce
from streamhouse.broker.schemas.schemas import Schemas

__all__ = ["InForce", "Proposal", "Schemas"]
