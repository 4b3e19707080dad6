"""What is open with other nodes ends, visibly, when this one leaves their mesh.

The next mesh may have other machines of the same names, and those must get nothing of it.
"""

import msgspec

from bascule.kernel.journal import Transaction
from bascule.kernel.ports import RemoteMail
from bascule.mesh.state import MeshState

WHY = "this machine has left the mesh"
_replace = msgspec.structs.replace


def end_all(tx: Transaction, state: MeshState, mail: RemoteMail) -> None:
    for item_id in list(state.out.rows):
        tx.put(state.out, item_id, None)
    for ticket_id in list(state.home.rows):
        tx.put(state.home, ticket_id, None)
        if mail.known(ticket_id) is not None:
            mail.refuse(tx, ticket_id, WHY)
    for id_, copy in list(state.copies.rows.items()):
        # It stays, of nobody: in the same mesh, with new keys, the same offer is not taken a second time.
        left = _replace(copy, node="")
        known = mail.known(id_)
        if known is not None and known.status not in ("responded", "cancelled"):
            mail.mirror(tx, id_, "cancelled", late=False, reason=WHY)
            left = _replace(left, refused="unknown", text=WHY)
        tx.put(state.copies, id_, left)
    for name in list(state.peers.rows):
        tx.put(state.peers, name, None)
    for mailbox in list(state.cursors.rows):
        tx.put(state.cursors, mailbox, None)
