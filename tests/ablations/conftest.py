"""What tests of several folders here share."""

from __future__ import annotations

from tests.ablations.postgresql import postgresql

__all__ = ["postgresql"]
