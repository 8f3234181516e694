"""``appliance backup``; works with or without a running daemon, but for ``restore``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from appliance import config as configuration
from appliance.cli.output import Output, ProgressLine
from appliance.errors import EXIT_DONE
from appliance.units import human_bytes

if TYPE_CHECKING:
    from appliance.ops.backup import Manifest


def create(arguments: Namespace, output: Output) -> int:
    """Take a backup."""
    from appliance.ops import backup

    config = configuration.load(arguments.data)
    with output.progress() as line:
        path, manifest, removed = backup.create(
            config,
            arguments.to or backup.default_folder(config),
            with_documents=not arguments.without_documents,
            keep=arguments.keep,
            report=_reporter(output, line),
        )
    if output.is_json:
        gone = [str(old) for old in removed]
        output.json({"path": str(path), **manifest.as_json(), "removed": gone})
        return EXIT_DONE
    for old in removed:
        output.say("backup_rotated", path=old)
    size = human_bytes(path.stat().st_size)
    output.say("backup_done", path=path, size=size, **_counts(manifest))
    return EXIT_DONE


def list_backups(arguments: Namespace, output: Output) -> int:
    """Print the backups of a folder, newest first."""
    from appliance.ops import backup

    folder = arguments.folder or backup.default_folder(configuration.load(arguments.data))
    found = backup.list_backups(folder)
    if output.is_json:
        rows = [{"path": str(path), "size": path.stat().st_size} for path in found]
        output.json({"folder": str(folder), "backups": rows})
    elif not found:
        output.say("backup_none", path=folder)
    else:
        for path in found:
            output.line(f"{path}  {human_bytes(path.stat().st_size)}")
    return EXIT_DONE


def verify(arguments: Namespace, output: Output) -> int:
    """Check a backup."""
    from appliance.ops import backup

    with output.progress() as line:
        manifest = backup.verify(arguments.file, _reporter(output, line))
    if output.is_json:
        output.json({"path": str(arguments.file), **manifest.as_json()})
    else:
        facts = {"created": manifest.created, "version": manifest.version, **_counts(manifest)}
        output.say("backup_whole", path=arguments.file, **facts)
    return EXIT_DONE


def restore(arguments: Namespace, output: Output) -> int:
    """Put a backup in place."""
    from appliance.ops import backup

    config = configuration.load(arguments.data)
    with output.progress() as line:
        manifest, old = backup.restore(
            arguments.file, config, replace=arguments.replace, report=_reporter(output, line)
        )
    if output.is_json:
        output.json({**manifest.as_json(), "old": str(old) if old else None})
        return EXIT_DONE
    output.say("backup_restored", **_counts(manifest))
    if old:
        output.say("backup_old_kept", path=old)
    return EXIT_DONE


def _counts(manifest: Manifest) -> dict[str, int]:
    return {
        "documents": manifest.n_documents,
        "passages": manifest.n_passages,
        "files": manifest.n_files,
    }


def _reporter(output: Output, line: ProgressLine) -> Callable[[int, int], None]:
    def report(done: int, n_bytes: int) -> None:
        line.show(
            output.label("backup_progress", done=human_bytes(done), size=human_bytes(n_bytes))
        )

    return report
