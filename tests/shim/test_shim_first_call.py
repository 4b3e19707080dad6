"""A call that comes before the name is known."""

from raw_client import CLIENT_INFO, RawClient


def test_a_call_that_comes_with_initialize_acts_under_the_name_this_process_gets(daemon):
    with RawClient(daemon.state, "--no-start", "--agent", "Twin") as first:
        first.initialize()
        first.call("list_agents")
        with RawClient(daemon.state, "--no-start", "--agent", "Twin") as second:
            greeting = second.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=CLIENT_INFO)
            waiting = second.start_call("wait_for_message", waitMs=0)
            listing = second.start_call("list_tickets")
            second.answer_to(greeting)
            for call in (waiting, listing):
                assert not second.answer_to(call)["result"]["isError"]
            assert second.call("list_agents")["structuredContent"]["you"] == "Twin-2"
