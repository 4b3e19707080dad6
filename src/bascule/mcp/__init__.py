"""`/mcp`: streamable HTTP on the official SDK, inside the daemon, behind the same gate as every other route.

The tools, their words and what they do are those of `bascule.shim`: both surfaces list the same table and run the
same generators, here against dispatch without a socket in between. The bearer is an agentToken, so one token is one
agent; `local` is told how to become one.

    mount      what the daemon holds; free of the SDK, which it imports in a thread before the daemon is ready
    door       the SDK's session manager behind our gate
    sessions   those of the 2025 revisions: whose they are, how many, which want to hear news
    delivery   one HTTP request: whether its client is still there, whether the answer went out
    errand     one tool call: its generator asks, dispatch answers
    news       tells a subscriber that there is more to read
    surface    the SDK's server with our tools and our resource
    sdk_log    what the SDK has to say, into the daemon's log

`mcp` alone is the SDK; `bascule.mcp` is this package.
"""
