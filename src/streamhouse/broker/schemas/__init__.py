"""The schema registry: subjects, versions and ids, compatibility, modes, and the check of produced batches."""

from .registration import Proposal
from .rules import InForce
from .schemas import Schemas

__all__ = ["InForce", "Proposal", "Schemas"]
