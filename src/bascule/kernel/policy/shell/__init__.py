"""Reading a command line before it runs: which programs it names, and what cannot be told.

`text` says what words and commands are, `lexer` and `grammar` take a line apart the way `sh` does, `second` asks
another parser whether it sees the same commands, `assigning` and `fields` follow constant variables, `braces` does what
bash alone does, `options`, `wrappers`, `interpreters` and `git` find the program behind the program, `arguments` looks
behind programs that are not known, `traits` says what a command does, and `reading.read` is the way in.

The reading is a courtesy: it lets a person be asked, and a mistake be told, before anything runs. The wall is the
sandbox, and what is really executed is judged again (`kernel.policy.programs`). So whatever is not understood is never
guessed at: it is noted as opaque. Pure, like all of `kernel.policy`.
"""
