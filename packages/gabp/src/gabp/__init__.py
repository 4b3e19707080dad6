"""GABP (game-agent bridge protocol), both sides of it, without one socket: bytes in, messages out.

msgspec is its only dependency; it imports nothing of Bascule. No I/O, no clock, no logger: the owner of the bytes feeds
them in any cut, and gets the same messages, or one documented error after which the reader stays dead.

    text            letters that nobody sees, escaped
    codec           JSON, strictly: the only caller of msgspec's decoders
    content_length  the frames
    json_schema     whether arguments and results are what their schema says
    envelopes       requests, responses and events
    messages        params and results as the specification has them
    errors, words, attention, kept, schemas, states
                    codes, bounds of what peers say, open problems, large results, schemas, the table of a session
    bridge_session  the side that calls; mod_session: the side that is called; session: what both are
    bridge_file     where a mod that nobody started finds its bridge
"""
