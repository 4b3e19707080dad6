"""MCP in the daemon: the tools of the bridges, for the stdio program and for `/mcp`.

    tools           all tools, bridge by bridge, and the list that `bascule mcp` is shipped with
    calling         one tool call: its function, its way to the gate, its result
    recent          the one resource
    news            says that there is more to read in it
    link_sessions   sessions whose messages the stdio program passes on over the link
    kept_answers    answers that such a session may be asked for again
    tasks           calls that go on without their client, whose they are, how many, for how long
    task_calls      a tool call as a task
    task_protocol   tasks on the wire, in both eras
    link_tasks      tasks of a session over the link

`/mcp` is streamable HTTP on the official SDK, behind the same gate as every other route. The bearer is an agentToken,
so one token is one agent; `local` hears how to become one.

    mount      what the daemon holds; free of the SDK, which it imports in a thread before the daemon is ready
    door       the SDK's session manager behind our gate
    sessions   those of the 2025 revisions: whose they are, how many, which want to hear news
    delivery   one HTTP request: whether its client is still there, whether the answer went out
    surface    the SDK's server with our tools and our resource
    http_tasks tasks there
    bus        the SDK's bus of events, as one agent hears it
    sdk_log    what the SDK has to say, into the daemon's log

`mcp` alone is the SDK; `bascule.surfaces.mcp` is this package.
"""
