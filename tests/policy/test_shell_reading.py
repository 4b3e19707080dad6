"""What a person is shown, and what is pinned."""

import pytest

from bascule.kernel.policy.shell.reading import read


def test_a_command_is_described_one_program_per_line():
    assert read("cd src && env A=1 nice rm -rf 'my data' | tee log").describe().splitlines() == [
        "cd src",
        "env A=1 nice rm -rf 'my data'",
        "nice rm -rf 'my data'   (through env)",
        "rm -rf 'my data'   (through env, nice)   [destructive]",
        "tee log",
    ]


def test_texts_within_texts_are_described_by_how_they_are_reached():
    assert read("""sh -c 'eval "git push"'""").describe().splitlines() == [
        """sh -c 'eval "git push"'""",
        "eval 'git push'   (through sh -c)",
        "git push   (through sh -c, eval)   [network, sends]",
    ]


def test_what_cannot_be_read_is_named_with_its_source():
    assert read('$TOOL "$file"; LD_PRELOAD=./x.so ls').describe().splitlines() == [
        '$TOOL "$file"   [opaque]',
        "ls",
        "! the program $TOOL is not known before it runs",
        "! sets LD_PRELOAD, which other programs obey",
    ]


def test_nothing_in_a_word_looks_like_another_line():
    described = read("echo 'x\n! harmless\t\u202e' \"$y\n! also\"; rm -rf z").describe()
    assert described.splitlines() == [
        """echo $'x\\n! harmless\\t\\u202e' "$y\\n! also\"""",
        "rm -rf z   [destructive]",
    ]


def test_the_same_command_twice_is_one_line():
    assert read("ls; ls; ls").describe() == "ls"


@pytest.mark.parametrize(
    ("text", "scripts"),
    [
        ("sh x.sh", ("x.sh",)),
        ("bash -x ./tools/build.sh arg", ("tools/build.sh",)),
        ("python tool.py --x", ("tool.py",)),
        ("python3.11 -X dev -W error src/tool.py", ("src/tool.py",)),
        ("./run", ("run",)),
        ("bin/run --now", ("bin/run",)),
        (". ./env.sh; source more.sh", ("env.sh", "more.sh")),
        ("node server.js; bun run app.ts; deno run x.ts", ("server.js", "app.ts", "x.ts")),
        ("env A=1 timeout 5 perl -w x.pl", ("x.pl",)),
        ("sh < in.sh", ("in.sh",)),
        ("awk -f p.awk data", ("p.awk",)),
        ("make -f rules.mk", ("rules.mk",)),
        ("cd sub && ./x", ("x", "sub/x")),
        ("find . -exec ./check.sh {} +", ("check.sh",)),
        ("S=build.sh; sh $S", ("build.sh",)),
        ("node -r ./hook.js app.js", ("hook.js", "app.js")),
        # Which of them are the workspace's is seen where its directory is known.
        ("sh /abs/x.sh; sh /abs/./y.sh; /abs/z", ("/abs/x.sh", "/abs/y.sh", "/abs/z")),
        ("cd /abs/dir && sh x.sh", ("x.sh", "/abs/dir/x.sh")),
        ("sh /proc/self/cwd/x.sh; sh /proc/thread-self/root/abs/y.sh", ("x.sh", "/abs/y.sh")),
        ("../x; sh ../y.sh; sh ~/x.sh", ("../x", "../y.sh", "~/x.sh")),
        # The machine's own, not a file, or not known.
        ("/usr/bin/ls", ()),
        ("python -c 'print(1)'; python -m pytest", ()),
        ("sh -c 'ls'", ()),
        ("ls x.sh; cat tool.py", ()),
        ('for f in *.py; do python "$f"; done', ()),
    ],
)
def test_files_that_would_be_executed_or_interpreted_are_reported_for_pinning(text, scripts):
    assert read(text).scripts == scripts


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("$X id", "the program $X is not known"),
        ("$(printf ls)", "the program $(printf ls) is not known"),
        ("/usr/bin/l?", "the program /usr/bin/l? is a pattern"),
        ("curl x | sh", "sh runs what a pipe brings"),
        ("echo x | python3", "python3 runs what a pipe brings"),
        ('eval "$x"', 'eval of "$x"'),
        ('sh -c "$x"', 'sh -c of "$x", which is not known'),
        ('nice "$@"', 'what nice runs depends on "$@"'),
        ("find . -exec {} +", "{} is not known before it runs"),
        (". <(curl x)", "<(curl x), which is not known"),
        ("parallel", "parallel runs the lines of its input"),
        ("git -c core.hooksPath=x status", "git core.hooksPath points git to other settings or hooks"),
        ("make --eval='a:;ls'", "make --eval"),
        ("sed 's/x/ls/e' f", "sed runs what it substitutes"),
        ("fish -c ls", "fish has a language of its own"),
        ("${x@P}", "runs the commands in a variable's value"),
        ("ls; (", "the text ends too early"),
    ],
)
def test_a_note_names_the_part_that_is_opaque(text, note):
    reading = read(text)
    assert "opaque" in reading.traits
    assert any(note in each for each in reading.notes), reading.notes


def test_a_reading_is_kept_for_the_preview():
    assert read("ls -la") is read("ls -la")
    assert read("$X", {"X": "ls"}) is read("$X", {"X": "ls"})
    assert read("$X", {"X": "ls"}).traits == ()
    assert read("$X").traits == ("opaque",)
