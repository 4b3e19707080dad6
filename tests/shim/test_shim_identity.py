"""Which agent the program is: names, tokens, and what it asks of the daemon; driven by hand."""

import pytest

from bascule.local_client.choice import own_door
from bascule.local_client.exits import Refusal
from bascule.programs.mcp_stdio.identity import MAX_NAMESAKES, WORDS, Identity, client_word, invented_name, namesakes


class Script:
    """Runs the generator with these answers, and writes down what was asked."""

    def __init__(self, generator, *answers):
        self.asked = []
        left = list(answers)
        try:
            asked = generator.send(None)
            while True:
                self.asked.append(asked)
                value = left.pop(0)
                asked = generator.throw(value) if isinstance(value, Exception) else generator.send(value)
        except StopIteration:
            return


def refused(code):
    return Refusal(400, {"code": code, "message": code})


@pytest.mark.parametrize(
    ("client", "word"),
    [
        ("claude-code", "claude"),
        ("codex-mcp-client", "codex"),
        ("Gemini CLI", "gemini"),
        ("  é!", "agent"),
        ("", "agent"),
        ("x" * 100, "x" * 20),
    ],
)
def test_a_client_is_called_by_its_first_word(client, word):
    assert client_word(client) == word


def test_the_same_project_gets_the_same_name_again():
    assert invented_name("claude-code", "/home/u/a") == invented_name("claude-code", "/home/u/a")
    names = {invented_name("claude-code", f"/home/u/{number}") for number in range(1000)}
    assert names == {f"claude-{word}" for word in WORDS}


def test_words_are_few_short_and_different():
    assert len(set(WORDS)) == len(WORDS) == 64
    assert all(word.isalpha() and word.islower() and len(word) <= 8 for word in WORDS)


def test_namesakes_are_numbered_and_stay_handles():
    names = list(namesakes("a" * 64))
    assert len(names) == len(set(names)) == MAX_NAMESAKES
    assert all(len(name) <= 64 for name in names)
    assert list(namesakes("otter"))[:3] == ["otter", "otter-2", "otter-3"]


def keep(state, handle, token):
    import os

    from bascule.foundation import paths

    os.makedirs(paths.tokens_dir(state), mode=0o700, exist_ok=True)
    paths.write_private_file(paths.token_file(state, handle), token)


HELLO = {"principal": "x"}


def tokens_and_names(script):
    return [params.get("token", params.get("agentId")) for _, params in script.asked]


def test_a_new_name_is_registered_and_acted_as(state):
    identity = Identity(own_door(state), "otter", "claude", {"cwd": "/"})
    script = Script(identity.introduce(), HELLO, HELLO, {"agentToken": "new"}, HELLO)
    assert [method for method, _ in script.asked] == ["hello", "hello", "agents.register", "hello"]
    assert tokens_and_names(script) == [None, None, "otter", "new"]
    assert all(params["exclusive"] for method, params in script.asked if method == "agents.register")
    assert identity.handle == "otter"


def test_a_stored_token_is_a_way_back_to_the_name(state):
    keep(state, "otter", "kept")
    identity = Identity(own_door(state), "otter", "claude", {})
    script = Script(identity.introduce(), HELLO, HELLO, {"reconnected": True, "unread": 1})
    assert tokens_and_names(script) == [None, "kept", "otter"]


def test_a_stale_token_is_put_aside(state):
    keep(state, "otter", "stale")
    identity = Identity(own_door(state), "otter", "claude", {})
    script = Script(identity.introduce(), HELLO, refused("unauthenticated"), HELLO, {"agentToken": "new"}, HELLO)
    assert tokens_and_names(script) == [None, "stale", None, "otter", "new"]


def test_a_taken_name_leads_to_the_next(state):
    keep(state, "otter", "kept")
    identity = Identity(own_door(state), "otter", "claude", {})
    script = Script(identity.introduce(), HELLO, HELLO, refused("conflict"), HELLO, {"agentToken": "two"}, HELLO)
    # The second hello carries no token: otherwise the new handle would be registered by the old one.
    assert tokens_and_names(script) == [None, "kept", "otter", None, "otter-2", "two"]
    assert identity.handle == "otter-2"


def test_another_refusal_is_not_a_taken_name(state):
    with pytest.raises(Refusal, match="version_mismatch"):
        Script(Identity(own_door(state), "otter", "claude", {}).introduce(), refused("version_mismatch"))


def test_coming_back_uses_the_token_in_memory(state):
    identity = Identity(own_door(state), "otter", "claude", {})
    Script(identity.introduce(), HELLO, HELLO, {"agentToken": "new"}, HELLO)
    script = Script(identity.introduce(), HELLO, HELLO, {"reconnected": True})
    assert tokens_and_names(script) == [None, "new", "otter"]


def test_a_refused_change_of_name_leaves_us_who_we_were(state):
    identity = Identity(own_door(state), "otter", "claude", {"cwd": "/"})
    Script(identity.introduce(), HELLO, HELLO, {"agentToken": "new"}, HELLO)
    generator = identity.become({"agentId": "Jerry", "type": "codex", "metadata": {"a": 1}})
    assert generator.send(None)[1].get("token") is None
    assert generator.send(HELLO)[1]["metadata"] == {"cwd": "/", "a": 1}
    assert generator.throw(refused("conflict"))[1]["token"] == "new"
    with pytest.raises(Refusal, match="conflict"):
        generator.send(HELLO)
    assert (identity.handle, identity.kind, identity.metadata) == ("otter", "claude", {"cwd": "/"})
