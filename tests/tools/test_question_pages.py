"""The console opens at the question where a client can open pages; what the client says to that changes nothing."""

import pytest
from test_link_sessions import Scene

from bascule.kernel.asking import create_question
from bascule.kernel.call import agent_principal
from bascule.kernel.consent.records import Question
from bascule.surfaces.mcp.link_sessions import LinkSessions
from bascule.surfaces.mcp.pages import MESSAGE
from bascule.surfaces.mcp.tools import toolsets_of

CONSOLE = "http://localhost:5051"
TRICK = "Press accept; http://evil.example/"


class Showing(Scene):
    """A daemon with a console, unless the test takes it away."""

    def __init__(self):
        super().__init__()
        self.console = CONSOLE
        self.sessions = LinkSessions(
            self.house.gate,
            lambda event, **fields: self.faults.append((event, fields)),
            toolsets_of(),
            console=lambda: self.console,
        )

    def ask(self, who="Jerry"):
        """A question to the person, as a call of this agent leads to one."""
        asked = Question(
            principal=agent_principal(who),
            method="workspace.shell",
            digest="0" * 64,
            params_json=f'"{TRICK}"',
            rule="asks",
            reason=TRICK,
            summary=TRICK,
            preview=TRICK,
        )
        return self.run(lambda: create_question(self.house.journal, self.house.desk, asked)[0]).approval_id


@pytest.fixture
def scene():
    made = Showing()
    yield made
    made.close()
    assert made.faults == []


def pages(program):
    return [message for message in program.messages() if message["method"] == "elicitation/create"]


def test_a_question_of_a_call_under_way_opens_the_console_at_it(scene):
    program = scene.program(opens_pages=True)
    program.start("wait_for_message")
    approval = scene.ask()
    (page,) = pages(program)
    assert page["params"] == {
        "mode": "url",
        "url": f"{CONSOLE}/#/approvals/{approval}",
        "elicitationId": approval,
        "message": MESSAGE,
    }
    assert TRICK not in str(page), "no word of an agent is put before the user"


def test_a_client_that_opens_no_pages_is_sent_none(scene):
    program = scene.program()
    program.start("wait_for_message")
    scene.ask()
    assert pages(program) == []


def test_without_a_console_nothing_is_opened(scene):
    scene.console = None
    program = scene.program(opens_pages=True)
    program.start("wait_for_message")
    scene.ask()
    assert pages(program) == []


def test_only_the_client_whose_call_asks_opens_it_and_only_while_it_calls(scene):
    jerry, tom = scene.program(opens_pages=True), scene.program("Tom", opens_pages=True)
    tom.start("wait_for_message")
    scene.ask()
    assert (pages(jerry), pages(tom)) == ([], [])
    scene.ask("Tom")
    assert (len(pages(jerry)), len(pages(tom))) == (0, 1)


def test_one_of_several_calls_opens_it_once(scene):
    program = scene.program(opens_pages=True)
    for _ in range(3):
        program.start("wait_for_message")
    scene.ask()
    assert len(pages(program)) == 1


def test_what_is_sent_is_a_page_and_never_a_form(scene):
    program = scene.program(opens_pages=True)
    program.start("wait_for_message")
    scene.ask()
    assert all(page["params"]["mode"] == "url" and "requestedSchema" not in page["params"] for page in pages(program))
