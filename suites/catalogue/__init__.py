"""The requirement catalogue: every promise of DRA with its level, source, owners and first version."""

from suites.catalogue.loader import load, read
from suites.catalogue.model import (
    AREAS,
    Area,
    Catalogue,
    Deviation,
    Form,
    Level,
    Owner,
    Requirement,
    Scope,
)
from suites.catalogue.sources import Source
from suites.catalogue.version import Bound, Version, VersionRange

__all__ = [
    "AREAS",
    "Area",
    "Bound",
    "Catalogue",
    "Deviation",
    "Form",
    "Level",
    "Owner",
    "Requirement",
    "Scope",
    "Source",
    "Version",
    "VersionRange",
    "load",
    "read",
]
