"""Changes to a stopped daemon's store, made under its lock and recorded in its ledger."""

import asyncio
import os

import msgspec

from bascule.admin.records import PERSON_KEY, DaemonFact, PasskeyRecord
from bascule.bridge_list import tables_of
from bascule.broker.records import AgentRecord
from bascule.daemon.lifecycle import check_places, hold_lock
from bascule.desktop.apps import Apps
from bascule.desktop.switch import Switch
from bascule.foundation import paths
from bascule.foundation.clock import SystemClock
from bascule.foundation.ids import is_reserved_handle
from bascule.kernel.call import LOCAL
from bascule.kernel.consent.records import Approval, TimedRule
from bascule.kernel.consent.states import ApprovalState
from bascule.kernel.identity.proof_records import RESET
from bascule.kernel.journal import Journal, Table, Transaction
from bascule.stores.anchor_file import AnchorFile
from bascule.stores.sqlite import SqliteStore


def reset_person(state_dir: str) -> int:
    """Forget the passphrase, every passkey and every agent's token; how many tokens went."""
    check_places(state_dir)
    with hold_lock(state_dir):
        holders = asyncio.run(_reset_person(state_dir))
    for agent_id in holders:
        path = paths.token_file(state_dir, agent_id)
        if os.path.exists(path):
            os.unlink(path)
    return len(holders)


async def _reset_person(state_dir: str) -> list[str]:
    store = SqliteStore(paths.database_file(state_dir), tables=tables_of())
    try:
        anchors = AnchorFile(paths.anchors_file(state_dir))
        journal = Journal(store, SystemClock(), on_anchor=anchors.append)
        facts: Table[DaemonFact] = Table("house", DaemonFact)
        approvals: Table[Approval] = Table("approvals", Approval)
        rules: Table[TimedRule] = Table("rules", TimedRule)
        approvals.rows.update(store.load("approvals", Approval))
        rules.rows.update(store.load("rules", TimedRule))
        agents: Table[AgentRecord] = Table("agents", AgentRecord)
        facts.rows.update(store.load("house", DaemonFact))
        agents.rows.update(store.load("agents", AgentRecord))
        passkeys: Table[PasskeyRecord] = Table("passkeys", PasskeyRecord)
        passkeys.rows.update(store.load("passkeys", PasskeyRecord))
        journal.start()
        tx = Transaction()
        tx.put(facts, PERSON_KEY, None)
        # Of a space's agent nobody has a token, and it could not register again.
        holders = [
            record
            for record in agents.rows.values()
            if record.token_hash is not None and not is_reserved_handle(record.agent_id)
        ]
        for record in holders:
            tx.put(agents, record.agent_id, msgspec.structs.replace(record, token_hash=None))
        # What they signed stays provable, so the rows stay; `ended` is the number of the record that this makes.
        in_use = [each for each in passkeys.rows.values() if each.ended is None]
        for passkey in in_use:
            tx.put(passkeys, passkey.passkey_id, msgspec.structs.replace(passkey, ended=journal.chain.seq + 1))
        # Nothing that the old person allowed holds, and nothing of before is asked of the new one.
        ended = [
            each for each in approvals.rows.values() if each.state in (ApprovalState.PENDING, ApprovalState.APPROVED)
        ]
        for approval in ended:
            tx.put(approvals, approval.approval_id, approval.moved(ApprovalState.EXPIRED))
        for rule_id in list(rules.rows):
            tx.put(rules, rule_id, None)
        # Who enabled the desktop is that person no more; a stop stays until the new one resumes.
        clock = SystemClock()
        Switch(store, clock).disable(tx)
        Apps(store, clock).forget(tx)
        tx.subject = "person"
        tx.details = {
            "process": f"pid {os.getpid()} uid {os.getuid()}",
            "revoked": len(holders),
            "passkeys": len(in_use),
            "approvals_ended": len(ended),
        }
        await journal.commit(tx, LOCAL, RESET)
        journal.anchor("person.reset")
    finally:
        store.close()
    return [record.agent_id for record in holders]
