"""The model catalogue: fetch, verify, repack and import model files."""

from __future__ import annotations

from appliance.models.catalogue import Catalogue, Entry, load_catalogue
from appliance.models.store import ModelInfo, ModelStore
from appliance.models.transfer import Progress

__all__ = ["Catalogue", "Entry", "ModelInfo", "ModelStore", "Progress", "load_catalogue"]
