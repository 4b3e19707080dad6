"""What agents do in these tests, in a word each."""

JERRY = "agent:Jerry"
SPOCK = "agent:Spock"


def send(house, ticket_id=None, payload="hi", *, by="local", to="Jerry", **params):
    """The id of the ticket."""
    if ticket_id is not None:
        params["ticketId"] = ticket_id
    return house.call(by, "messages.send", {"agentId": to, "payload": payload, **params})["ticketId"]


def take(house, agent_id="Jerry", *, count=1):
    """What a poll that does not wait gets."""
    params = {"agentId": agent_id, "waitMs": 0, "max": count}
    taken = house.call(f"agent:{agent_id}", "inbox.take", params)
    return taken["messages"] if taken else []


def take_ids(house, agent_id="Jerry", *, count=32):
    return [message["ticketId"] for message in take(house, agent_id, count=count)]


def poll(house, agent_id="Jerry", *, wait_ms=25_000, count=1):
    """A poll that waits, held open."""
    params = {"agentId": agent_id, "waitMs": wait_ms, "max": count}
    return house.begin(f"agent:{agent_id}", "inbox.take", params)


def ids_of(taken):
    return [message["ticketId"] for message in taken["messages"]]


def ack(house, *ticket_ids, agent_id="Jerry"):
    params = {"agentId": agent_id, "ticketIds": list(ticket_ids)}
    return house.call(f"agent:{agent_id}", "inbox.ack", params)


def reply(house, ticket_id, payload="answer", *, by=JERRY, **params):
    return house.call(by, "replies.post", {"ticketId": ticket_id, "payload": payload, **params})


def wait(house, ticket_id, *, by="local", wait_ms=25_000):
    return house.begin(by, "replies.wait", {"ticketId": ticket_id, "waitMs": wait_ms})


def answer(house, ticket_id, *, by="local"):
    """What a wait for the reply says now, without waiting."""
    return house.call(by, "replies.wait", {"ticketId": ticket_id, "waitMs": 0})


def cancel(house, ticket_id, *, by="local", **params):
    return house.call(by, "tickets.cancel", {"ticketId": ticket_id, **params})


def show(house, ticket_id, *, by="person"):
    return house.call(by, "tickets.show", {"ticketId": ticket_id})


def status_of(house, agent_id="Jerry"):
    return {each["agentId"]: each["status"] for each in house.call("local", "agents.list")}[agent_id]


def events_named(house, name):
    return [event for event in house.events() if event["event"] == name]
