"""What everything stands on: errors, ids, clocks, paths, answers to come, streams, deadlines, safe text.

Imports the standard library only, and nothing of Bascule outside this package. `agreement`, `paths` and `text` are
also for the programs that start with every shell command, so they import little.

    agreement  what the daemon and those who talk to it agree on: port, link version, frame size, what an id is
    errors     what went wrong, by name, with its HTTP status
    ids        handles, ticket ids, tokens
    clock      wall and monotonic time, and how times are written
    paths      where files are, and how private ones are written
    deferred   an answer to come, without the loop
    stream     one stream's bounded buffer
    timers     the one heap of deadlines
    text       text of others, made fit for terminals, previews and logs
"""
