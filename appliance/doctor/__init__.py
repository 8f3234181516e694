"""Read-only checks of the box: ``examine`` runs them all in a fixed order; nothing is changed."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from appliance.doctor import box, disk, npu, system
from appliance.doctor.base import Check, Finding, Machine
from appliance.doctor.bundle import write_bundle

__all__ = ["CHECKS", "THOROUGH", "Check", "Finding", "Machine", "examine", "write_bundle"]

_log = logging.getLogger(__name__)

CHECKS: tuple[Check, ...] = (*system.CHECKS, *disk.CHECKS, *npu.CHECKS, *box.CHECKS)
THOROUGH: tuple[Check, ...] = box.THOROUGH
"""Checks that read whole model files; run when asked for."""


def examine(machine: Machine, *, thorough: bool = False) -> Iterator[Finding]:
    """Yield the finding of each check as it is done."""
    for check in (*CHECKS, *(THOROUGH if thorough else ())):
        yield _done(check, machine)


def _done(check: Check, machine: Machine) -> Finding:
    try:
        return check(machine)
    except (OSError, ValueError, LookupError) as error:
        # A check that meets a machine nobody foresaw must not hide the others.
        _log.debug("check %s", check.__name__, exc_info=error)
        facts = {"check": check.__name__.replace("_", " "), "cause": str(error)}
        return Finding(check.__name__, "warn", "doctor_check_failed", facts)
