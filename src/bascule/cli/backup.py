"""`bascule backup` and `bascule restore`: the database into one file, and back."""

import argparse
import contextlib
import os
import shutil

from bascule.cli.life import running_pid
from bascule.cli.talk import add_state_dir, ask, state_of
from bascule.foundation import paths
from bascule.foundation.errors import Conflict, InvalidRequest, NotFound, StorageFull
from bascule.programs.helpers.terminal import show


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    backup = commands.add_parser(
        "backup",
        help="copy the database into one file, while the daemon runs or not",
        description="Write agents, tickets, messages, approvals, runs and the ledger into FILE, as they are at one "
        "moment. FILE is made for you alone (mode 0600) and never overwritten: it holds what agents wrote, and what "
        "expires later stays in it. Tokens, the passphrase and the key of digests are not in it (only hashes of the "
        "first two), so that FILE opens no door of this daemon; nor are settings and the checkpoints of workspaces. Of "
        "a machine in a mesh it holds the private keys: see docs/backups.md.",
        epilog="example: bascule backup ~/bascule-$(date +%F).db",
    )
    backup.add_argument("file", metavar="FILE", help="the file to make")
    backup.set_defaults(run=run_backup)
    restore = commands.add_parser(
        "restore",
        help="put a copy of the database back (daemon stopped)",
        description="Check the copy first: its structure, the checksum of every row, every hash of the ledger. Then "
        "put it in the place of the database. What was there is kept in a directory named replaced-TIME beside it, "
        "with its anchors; the ledger of the copy gets a record of the restore. The copy itself is not changed. "
        "A copy from the backups directory, or of an earlier version, can be restored too. Agents, rules, policy and "
        "passphrase are then those of the copy: revoke again what you revoked since. Tokens stay the files they are.",
        epilog="example: bascule down && bascule restore ~/bascule-2026-01-31.db && bascule up -d",
    )
    restore.add_argument("file", metavar="FILE", help="a file made by `bascule backup`")
    restore.set_defaults(run=run_restore)
    for command in (backup, restore):
        add_state_dir(command)


def run_backup(args: argparse.Namespace) -> int:
    state = state_of(args)
    target = os.path.abspath(paths.expand(args.file))
    if os.path.lexists(target):
        raise Conflict(f"{target} exists already", hint="name another file; a backup replaces nothing")
    if not os.path.isdir(os.path.dirname(target)):
        raise NotFound(f"there is no directory {os.path.dirname(target)}", hint="make it, or name another")
    copy = ask(args, "daemon.backup")["path"] if running_pid(state) is not None else _copy_stopped(state)
    try:
        _copy_to(copy, target)
    except OSError as error:
        raise StorageFull(f"{target} cannot be written: {error.strerror}", hint="name another file") from error
    finally:
        # Gone already where a daemon was started meanwhile.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(copy)
    show(f"wrote {target}, {os.stat(target).st_size} bytes; `bascule restore` puts it back")
    return 0


def _copy_stopped(state: str) -> str:
    """No daemon runs: open the store ourselves, under its lock."""
    from bascule.daemon.lifecycle import check_places, hold_lock
    from bascule.stores.sqlite import SqliteStore

    if not os.path.exists(paths.database_file(state)):
        raise NotFound(
            f"there is no database in {state}", hint="no daemon ever ran there; --state-dir names another place"
        )
    check_places(state)
    with hold_lock(state):
        store = SqliteStore(paths.database_file(state))
        try:
            return store.back_up().result()
        finally:
            store.close()


def _copy_to(copy: str, target: str) -> None:
    """On disk under its name, or not there."""
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(copy, "rb") as source, open(descriptor, "wb") as file:
            shutil.copyfileobj(source, file)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(target)
        raise
    paths.sync_dir(os.path.dirname(target))


def run_restore(args: argparse.Namespace) -> int:
    state = state_of(args)
    source = os.path.abspath(paths.expand(args.file))
    if not os.path.isfile(source):
        raise NotFound(f"{source} is not a file", hint="`bascule backup FILE` makes one")
    if os.path.realpath(source) == os.path.realpath(paths.database_file(state)):
        raise InvalidRequest(f"{source} is the database itself", hint="name a file made by `bascule backup`")
    if running_pid(state) is not None:
        raise Conflict("a daemon runs on the database", hint="stop it first: bascule down")
    from bascule.daemon.restoring import restore

    try:
        done = restore(state, source)
    except OSError as error:
        raise StorageFull(
            f"{error.filename or source} cannot be used: {error.strerror}; the database is as it was",
            hint=f"restoring needs as much room as FILE has, in {state}",
        ) from error
    show(f"restored {source}: {done.records} records, the newest of {done.newest}")
    if done.replaced:
        show(f"what was there is in {done.replaced}; delete it when you do not need it")
    return 0
