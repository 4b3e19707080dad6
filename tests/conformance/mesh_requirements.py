"""What the mesh promises. No specification asks for it: these are our own rules, and the days on which they must hold.

RULE and M are the rules and the invariants of the protocol between machines, TICKET, NAME and JOIN what its users see,
DAY the bad days, TRUST what hostile machines and operators cannot do. Tests anywhere in tests/mesh, tests/mesh_live and
tests/mesh_nats name entries with `@pytest.mark.req("MESH-RULE-1")`, and `test_requirements_table.py` holds the two
together. The form is that of `broker_requirements.py`.
"""

import ast
from pathlib import Path

from broker_requirements import Requirement, _marked, requirements

TESTS = tuple(Path(__file__).parents[1] / name for name in ("mesh", "mesh_live", "mesh_nats"))

PROMISES = """
MESH-RULE-1 must done
    An older word of home never takes the place of a newer one: each has the number of home's changes, its rank.
MESH-RULE-2 must done
    What comes twice is done once, and gets the answer of the first time.
MESH-RULE-3 must done
    Letters are not remembered: what is kept of a ticket until its time is over is the memory.
    ~ So a cancel that comes before its offer leaves a row, and an offer as old as rows that were dropped is refused.
MESH-RULE-4 must done
    What has no receipt goes again, after pauses that grow to an hour, and at once when its machine is heard of.
MESH-RULE-5 must done
    Replies count in their order; one whose turn it is not gets no receipt.
MESH-RULE-6 must done
    A receipt is for what is on the disk of whoever says it.
MESH-RULE-7 must done
    What is handed over or shown before it is on our disk comes again if it is lost, as the same.
    ~ It is on the disk of its sender: see docs/decisions.md.
MESH-M-1 must done
    What home has accepted reaches the disk of the copy, or ends for all to see.
MESH-M-2 must done
    A ticket enters the store of an inbox once, and a reply counts once.
MESH-M-3 must done
    Home moves as the broker's states allow, and when all is quiet the copy shows what home shows.
MESH-M-4 must done
    A reply that the copy has accepted is at home, or whoever made it is told that it was refused.
MESH-M-5 must done
    A letter counts when its signature, or the key of its session, fits the card of its sender and it is for us.
MESH-M-6 must done
    Nobody of another machine reaches a method beside the rows of the mesh.
MESH-TICKET-1 must done
    A message is acknowledged when it is on the disk of this machine, whether or not NATS is there.
MESH-TICKET-2 must done
    A message that is cancelled is withdrawn on the other machine, too; a reply that crosses the cancel is refused.
MESH-TICKET-3 must done
    Home watches the deadline; a reply after it counts and is late on both machines.
MESH-TICKET-4 must done
    What the server between the machines would not take is refused at once, with 413.
MESH-TICKET-5 must done
    When too much waits for one machine, the next message to it is refused with 429.
MESH-TICKET-6 must done
    The id of a copy is made of the machine's key and the id at home: nobody can choose it, and it is no other ticket.
MESH-TICKET-7 must done
    The records of both machines about a message refer to each other.
MESH-TICKET-8 must done
    Machines hold ends of each other's ledgers, and an end that was cut off is found by them.
MESH-NAME-1 must done
    An agent of another machine is asked as `handle@machine`, and answers.
MESH-NAME-2 must done
    A bare handle means an agent here, else the only one on machines of the same owner, and never one of another person.
MESH-NAME-3 must done
    A group of one machine is its queue there; a group of any machine goes where a member is free, one's own first.
MESH-NAME-4 must done
    A broadcast reaches other machines only if it says so.
MESH-NAME-5 must done
    A machine that nobody knows is refused at once, with the names of those that there are.
MESH-NAME-6 must done
    Agents elsewhere are listed with their machine, and as unreachable while it is not heard of.
MESH-JOIN-1 must done
    Three commands join two machines, and both show the same five words.
MESH-JOIN-2 must done
    A code is good for one machine and for ten minutes.
MESH-JOIN-3 must done
    Nobody between two machines can look for keys that show the same words: numbers are fixed before they are seen.
MESH-JOIN-4 must done
    A server with another certificate than the one in the code is told nothing.
MESH-JOIN-5 must done
    Nobody joins with the login of another machine.
MESH-JOIN-6 must done
    Only a person begins a mesh, joins one, lets machines in, revokes and leaves.
MESH-JOIN-7 must done
    No secret of the mesh is in what is shown, recorded or logged.
MESH-JOIN-8 must done
    A machine's standing follows the table above, and what the table does not have is refused with what to do.
MESH-JOIN-9 must done
    Cards are good for 90 days, are renewed in their last 30, and count for nothing when they are over or revoked.
MESH-JOIN-10 must done
    On servers of others a machine needs the permissions that docs/mesh.md lists, and no others.
MESH-DAY-1 must done
    A daemon is killed and started again.
MESH-DAY-2 must done
    A daemon stands still for a while.
MESH-DAY-3 must done
    A server is killed and started again, or stands still.
MESH-DAY-4 must done
    All servers lose all that they stored.
MESH-DAY-5 must done
    A machine is cut off from the servers, or one of three servers from the others.
MESH-DAY-6 must done
    All of this happens at random while agents talk.
MESH-DAY-7 must done
    The disk of the servers is full: it is named, and nothing is lost.
MESH-DAY-8 must done
    The disk of a machine is full: what comes is taken back, handed over once at most, and comes again.
MESH-DAY-9 must done
    A machine is away for a week: its mail waits, and after that its tickets end.
MESH-DAY-10 must done
    A clock is wrong: two minutes are warned about, from an hour on no mail is taken.
MESH-DAY-11 must done
    A backup is put back: the others say again what was lost.
MESH-DAY-12 must done
    A disk is copied, or a backup restored beside its machine: both daemons stop until a person keeps one.
MESH-DAY-13 must done
    A machine is revoked: it is cut off at once, and what was open with it ends.
MESH-DAY-14 must done
    The operator of the servers takes a login or a permission away: it is named, and mail waits.
MESH-DAY-15 must done
    A daemon dies while it begins a mesh, joins one, lets a machine in or revokes one.
MESH-DAY-16 must done
    The machine that began the mesh is put back elsewhere, from its copy and the folder of its server.
MESH-TRUST-1 must done
    Whoever runs the servers reads no message and no reply.
MESH-TRUST-2 must done
    A letter that is changed on the way is refused, and comes again as it was.
MESH-TRUST-3 must done
    What a login to NATS signs is never a letter, whatever the server asks to be signed.
MESH-TRUST-4 must done
    Stolen keys of a machine open no letter of its sessions.
MESH-TRUST-5 must done
    A machine speaks for its own agents: it answers what it was asked, and confirms what it was sent.
MESH-TRUST-6 must done
    One machine fills a fifth of an inbox, whatever names it uses, and the others go on.
MESH-TRUST-7 must done
    All names of one machine have kept here what one sender may, with the limits that hold here.
MESH-TRUST-8 must done
    Items of one machine are taken as fast as the limit says, and the rest comes again.
MESH-TRUST-9 must done
    Everybody of another machine is a stranger, its person too; the person here and sandboxes are not written to.
MESH-TRUST-10 must done
    A machine of another person is asked about once, by its key, until the answer is taken back; it hears a no at once.
MESH-TRUST-11 must done
    At a server of ours a machine writes under its own name and reads what is its own, and empties no board.
MESH-TRUST-12 must done
    Whoever knocks without end is heard some times in a second.
MESH-TRUST-13 must done
    Whoever has a copy of a member's database speaks as it until it is revoked.
    ~ With the mesh key, of the machine that began the mesh, they also let others in: see docs/backups.md.
"""

MESH_REQUIREMENTS: dict[str, Requirement] = requirements(PROMISES)


def mesh_proofs() -> dict[str, list[str]]:
    """Which tests name which requirement, read from the source: `folder/file::test`."""
    found: dict[str, list[str]] = {}
    for file in sorted(each for folder in TESTS for each in folder.glob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                for name in _marked(node):
                    found.setdefault(name, []).append(f"{file.parent.name}/{file.name}::{node.name}")
    return found
