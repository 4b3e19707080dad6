"""Claude Code and Codex as users run them: they ask, they are asked, they are woken, they come back after a restart."""

import json
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from client_program import DONE, until
from scripted_model import call

pytestmark = pytest.mark.clients
CLIENTS = ("claude", "codex")
WRAP = str(Path(sys.executable).parent / "bridge-wrap")
# What Codex puts before the line one is in.
CURSOR = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"
QUESTION = "What is the capital of France?"


def answers(prompt):
    """Fetch what waits, answer it, stop. Every word of it is read from what the tools say."""
    ticket = re.search(r'"?ticketId"?\W+([0-9a-f-]{36})', prompt)
    if QUESTION in prompt and ticket:
        return call("post_reply", ticketId=ticket[1], payload="Paris")
    if "[bascule]" in prompt or "wait for a message" in prompt:
        return call("wait_for_message")
    return DONE


def trusted_codex(terminal, client, *command):
    """A Codex in a terminal that runs our hooks, with its first turn behind it."""
    screen = terminal(client, *command)
    screen.sees("Trust all|say hello|/review")
    if "Trust all" in screen.shown():
        screen.type("2")
        screen.sees(f"{CURSOR} 2")
        screen.type("Enter")
    screen.sees("/review - review any changes")
    return screen


def submit(screen, words):
    screen.type(words)
    screen.sees(f"{CURSOR} {words}")
    # Keys that come quickly are a paste to Codex, and an Enter among them a new line.
    time.sleep(1)
    screen.type("Enter")


def statuses(client):
    return {each.agent_id: each.status for each in client.agents()}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_asks_another_agent_and_has_the_answer(make_client, model, spock, name):
    client = make_client(name, "--agent", "Kirk")
    other = spock(client.daemon)
    model.script = lambda prompt: (
        call("send_message", agentId="Spock", payload="2 + 2?") if "ask Spock" in prompt else DONE
    )
    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(client.run, "ask Spock what 2 + 2 is")
        message = next(other.messages())
        assert (str(message.from_).removeprefix("agent:"), message.payload) == ("Kirk", "2 + 2?")
        message.reply("four, Captain")
        running.result()
    assert "four, Captain" in model.prompts[-1]


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_is_asked_and_its_answer_arrives(make_client, model, spock, name):
    client = make_client(name, "--agent", "Kirk")
    other = spock(client.daemon)
    model.script = answers
    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(client.run, "wait for a message and answer it")
        until(lambda: running.done() or "Kirk" in statuses(other), "Kirk has registered")
        reply = other.ask("Kirk", QUESTION, timeout=120)
        assert reply.payload == "Paris", model.prompts
        running.result()


def test_an_idle_claude_code_is_woken_by_a_message_and_answers(make_client, model, spock, terminal):
    client = make_client("claude", "--agent", "Kirk")
    other = spock(client.daemon)
    model.script = answers
    screen = terminal(client, client.program)
    until(lambda: "Kirk" in statuses(other), "Kirk has registered")
    screen.type("say hello", "Enter")
    screen.sees(DONE)
    try:
        reply = other.ask("Kirk", QUESTION, timeout=120)
    except Exception as error:
        raise AssertionError(f"{error}\n{screen.shown()}\nthe model heard {model.prompts}") from error
    assert reply.payload == "Paris"
    # Nobody typed: the bell did it.
    assert [prompt for prompt in model.prompts if "[bascule]" in prompt]


def ask_as_task(client, model, other, terminal):
    """Claude Code has asked Spock and rests; the screen, Spock's message, and how much the model had heard by then."""
    model.script = lambda prompt: (
        call("send_message", agentId="Spock", payload="2 + 2?") if "ask Spock" in prompt else DONE
    )
    # Its own mode asks a server that the scripted model is not.
    screen = terminal(client, client.program, "--permission-mode", "default", "--allowedTools", "mcp__agent-bridge")
    until(lambda: "Kirk" in statuses(other), "Kirk has registered")
    screen.type("say hello", "Enter")
    screen.sees(DONE)
    screen.type("ask Spock what 2 + 2 is", "Enter")
    message = next(other.messages())
    # Nobody has answered, and yet the call has: the model has heard of it and ended its turn.
    before = until(lambda: "ask Spock" not in model.prompts[-1] and len(model.prompts), "the call has returned")
    assert "started server-side task" in model.prompts[-1]
    return screen, message, before


def reads_the_reply(model, screen, before):
    try:
        until(lambda: "four, Captain" in "".join(model.prompts[before:]), "the model was woken with the reply")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{screen.shown()}\nthe model heard {model.prompts}") from error


def test_an_idle_claude_code_is_woken_by_the_task_that_its_question_has_become(make_client, model, spock, terminal):
    client = make_client("claude", "--agent", "Kirk")
    screen, message, before = ask_as_task(client, model, spock(client.daemon), terminal)
    message.reply("four, Captain")
    reads_the_reply(model, screen, before)


def test_an_idle_claude_code_is_woken_by_the_reply_though_the_daemon_was_restarted(make_client, model, spock, terminal):
    """It asks for its task over and over, and an error for an answer would leave its model asleep."""
    client = make_client("claude", "--agent", "Kirk")
    file = client.home / ".claude.json"
    settings = json.loads(file.read_text())
    # Else it starts a daemon of its own when ours is killed.
    settings["mcpServers"]["agent-bridge"]["args"].append("--no-start")
    file.write_text(json.dumps(settings))
    screen, message, before = ask_as_task(client, model, spock(client.daemon), terminal)
    client.daemon.kill()
    client.daemon.start()
    message.reply("four, Captain")
    reads_the_reply(model, screen, before)


def test_claude_code_has_our_prompts_and_its_form_answers_the_agent_and_nobody_else(make_client, model, terminal):
    client = make_client("claude", "--agent", "Kirk")
    model.script = lambda prompt: call("ask_person", question="Which branch?") if "ask me" in prompt else DONE
    screen = terminal(client, client.program, "--permission-mode", "default", "--allowedTools", "mcp__agent-bridge")
    screen.sees("shortcuts|mode")
    screen.type("say hello", "Enter")
    screen.sees(DONE)
    screen.type("/agent-bridge:inbox", "Enter")
    until(lambda: "Fetch what other agents have written to you: no unread" in model.prompts[-1], "the prompt")
    screen.type("ask me which branch", "Enter")
    screen.sees("Your agent Kirk asks, and an answer approves nothing")
    screen.type("main", "Enter")

    def answer():
        # A key that comes too soon after the last one is not taken.
        if "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT} Accept" in screen.shown():
            time.sleep(1)
            screen.type("Enter")
        return next((each for each in model.prompts if "via" in each and "main" in each), None)

    found = until(answer, "the answer")
    assert '"via":"form"' in found.replace(" ", "")
    assert '"from"' not in found


def test_after_a_restart_a_client_that_lives_is_online_and_one_that_ended_is_not(make_client, model, spock, terminal):
    client = make_client("claude", "--agent", "Ended")
    other = spock(client.daemon)
    client.run("say hello")
    assert statuses(other)["Ended"] == "offline"
    client.setup("--agent", "Living")
    terminal(client, client.program)
    until(lambda: statuses(other).get("Living") == "online", "the second session has registered")
    client.daemon.kill()
    client.daemon.start()
    until(lambda: statuses(other)["Living"] == "online", "the living one is back")
    # The daemon has seen it end, and forgot with the restart; what it does not know it does not say.
    assert statuses(other)["Ended"] in ("unknown", "offline")


def test_a_wrapped_codex_answers_as_its_wrapper_though_another_session_runs_its_background_server(
    make_client, model, spock, terminal
):
    client = make_client("codex")
    other = spock(client.daemon)
    model.script = answers
    # It starts the process that MCP servers of later sessions would come from.
    trusted_codex(terminal, client, client.program)
    until(lambda: any(name.startswith("codex-") for name in statuses(other)), "the first session has registered")
    wrapped = [WRAP, "--agent", "Jerry", "--state-dir", client.daemon.state_dir, "--", client.program]
    screen = trusted_codex(terminal, client, *wrapped)
    until(lambda: "pid" in metadata(other, "Jerry"), "the program of the wrapped session is Jerry")
    submit(screen, "say hello")
    screen.sees(DONE)
    reply = other.ask("Jerry", QUESTION, timeout=120)
    assert reply.payload == "Paris", (screen.shown(), model.prompts)
    assert "Jerry-2" not in statuses(other)


def metadata(client, name):
    return next((each.metadata for each in client.agents() if each.agent_id == name), {})


def test_two_codex_sessions_in_one_directory_are_each_woken_by_their_own_messages(make_client, model, spock, terminal):
    client = make_client("codex")
    other = spock(client.daemon)
    model.script = lambda prompt: call("co_workers") if "who is there" in prompt else answers(prompt)
    screens = [trusted_codex(terminal, client, client.program) for _ in range(2)]
    until(lambda: sum(name.startswith("codex-") for name in statuses(other)) == 2, "both have registered")
    for screen in screens:
        submit(screen, "who is there")
        screen.sees(DONE)
    names = [name for name in statuses(other) if name.startswith("codex-")]
    assert len({metadata(other, name).get("clientSession") for name in names} - {None}) == 2
    for name in names:
        # Nobody types: the hook at the end of the turn waits for this agent's messages.
        reply = other.ask(name, QUESTION, timeout=60)
        assert reply.payload == "Paris", ([each.shown() for each in screens], model.prompts)
