"""The inbox folder: what changed on disk becomes work for the ingest worker."""

from appliance.frontends.dropfolder.frontend import Inbox

__all__ = ["Inbox"]
