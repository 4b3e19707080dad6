"""`bascule setup`: what other programs must know of Bascule, written into their own files.

command    options, the diff, the question, the writing
clients    which files each agent client reads, and what goes into them
texts      the words: instructions for agents
shell      aliases and completions
completion completions from the argparse parsers
changes    one file: read, edited in memory, compared, replaced
json_text, toml_text, blocks   edits that leave every other byte as it was
record     what was made where there was nothing, so that --undo can take it away again
"""
