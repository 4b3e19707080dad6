"""Commands that nobody writes: whatever made a reader of ours, or of others, take more time than it has characters."""

import itertools
import random

# The largest params that are read at once; longer ones stay raw bytes.
MOST_CHARS = 64 * 1024
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def names(count):
    found = ("".join(letters) for size in (2, 3, 4) for letters in itertools.product(_LETTERS, repeat=size))
    return list(itertools.islice(found, count))


def many_places(changes, paths, change="cd"):
    """The command that held the daemon for half a minute: each path was looked at from each place."""
    return ";".join(f"{change} {name}" for name in names(changes)) + ";tee " + " ".join(names(paths))


def nested(begin, end, depth, inside="ls"):
    return begin * depth + inside + end * depth


def repeated(piece, length):
    return (piece * (length // len(piece) + 1))[:length]


PIECES = [
    "a;", ":;", "a ", "ls a b|", "ls a b;", "ls a b&&", '"a"', "'a'", "''", '""', "$x ", "${x} ", '"$x"', "$(ls) ",
    "`ls` ", "$((1)) ", "$((", "((", "(", "$(", "{", "{a,b}", "{a,", "{1..9}", "*", "*?[a]", "[", "\\\n", "\\a",
    "\\", "<(ls) ", ">(ls) ", ">x ", "2>&1 ", "<<E\n", "<<E\nE\n", "<<<x ", "cat <<E\nx\nE\n", "x=$x ", "x=a;",
    "x=(a b);", "x+=a ", "a[", "a[1]=b ", "9", "-a", "-", "--a=b ", "=", "a=b=", "@", "/", "/..", "../", "~", "~/",
    "é", "\ud800", "\x00", "\t", "\n", "#", "#a\n", "!", "! ", "time ", "coproc ", "if a;then b;fi;", "if ",
    "while ", "for i in a b;do $i;done;", "for i in {a,b};do ", "case a in b)c;;esac;", "case a in ", "[[ a ]];",
    "[[ a || ", "f(){ f;};f;", "f(){ ", "function f ", "eval ", "eval 'a';", "sh -c '", "sh -c a;", "sh x.sh;",
    "cd a;sh b;", "cd a;", "env ", "env a=b ", "nice ", "sudo ", "xargs ", "setarch a ", "mise x -- ",
    "find . -exec ", "find a b c d -exec sh {} \\; ", "git -c alias.a=!git ", "git ", "alias a=a\n",
    "alias a='a a';a;", "sed s/a/b/;", "s|", "sed 's", "awk '/", 'awk \'"', 'awk \'{system("ls")}\';', "rm ",
    "rm -rf x;", "foo rm ", "foo rm -a ", "tmux rm -r ", "python3 -c 'import a';", "import a,", "make -C a;",
    "-o /a ", "--output=~ ", "{~,x} ", "$'\\x41'", "$'", '$"', "trap a 0;", "export a=$a;", "read a;",
    "declare a=$b;", "cat a|sh;",
]  # fmt: skip


def _shapes():
    for depth in (5, 9, 15, 39):
        yield nested("( ", " )", depth)
        yield nested("(( $( ", " ) ))", depth)
        yield nested("$(( $( ", " ) ))", depth)
        yield nested('"$(', ')"', depth)
        yield nested("${x:-", "}", depth)
        yield nested("{a,", "}", depth)
        yield nested("f(){ ", ";}", depth)
        yield nested("if ", ";then :;fi", depth)
        yield nested("setarch x ", "", depth)
    yield many_places(300, 500)
    yield many_places(150, 200)
    yield many_places(500, 2_500)
    yield many_places(2_000, 1)
    yield many_places(1, 12_000)
    yield "cd d; sh s.sh;" * 1_000
    yield ";".join(f"cd d{number}; sh s{number}.sh" for number in range(1_000))
    yield ";".join(f"cd d{number}; cp a{number} b{number} c" for number in range(1_000))
    yield "".join(f"v{number}=$v{number + 1}$v{number + 1};" for number in range(500)) + "$v0"
    yield "".join(f"v{number}=a;" for number in range(2_000)) + " ".join(f"$v{number}" for number in range(2_000))
    yield "x=a;x=b;x=c;x=d;" + "cp $x$x " * 900
    yield "x=a;x=b;" * 500 + "rm $x;" * 500
    yield "".join(f"f{number}(){{ f{number + 1}; f{number + 1}; }};" for number in range(500)) + "f0"
    yield "".join(f"alias a{number}='a{number + 1} a{number + 1}'\n" for number in range(200)) + "a0"
    yield "eval " * 2_000 + "ls"
    yield "eval '" + "eval x;" * 5_000 + "'"
    yield "rm -rf " + " ".join(names(10_000))
    yield "rm -" + "v" * 30_000
    yield "foo -" + "ab" * 15_000
    yield "cat " + "a=" * 20_000
    yield "tee " + "../" * 10_000
    # Names that file systems may compare otherwise are looked at twice, as long ones are at each of their steps.
    yield "tee " + " ".join(f"\u00e9{name}" for name in names(600))
    yield ";".join(f"ls >\u00e9{name}" for name in names(1_000))
    yield "tee '" + "' '".join(f"{name}/a. /b. " for name in names(800)) + "'"
    yield "tee " + "\u00e9/" * 15_000
    yield "tee " + " ".join("\u00e9/" * 2_000 for _ in range(15))
    yield "tee " + " ".join("../" * 500 for _ in range(20))
    yield "cd " + "../" * 1_000 + ";" + "tee a;" * 1_000
    yield "sed 's" + "".join(chr(0x100 + number) + "s" for number in range(3_000)) + "' f"
    yield "sed '" + "s|" * 4_000 + "' f"
    yield "awk '/" + "\\/" * 4_000 + "' f"
    yield "awk '\"" + '\\"' * 4_000 + "' f"
    yield "awk '" + 'system("ls") ' * 500 + "' f"
    yield "python3 -c '" + "import a\n" * 3_000 + "'"
    yield "python3 -c '" + "unlink " * 5_000 + "'"
    yield "foo '" + "find " * 6_000 + "'"
    yield "foo '" + "rm -a " * 5_000 + "'"
    yield "foo '" + "dd " * 10_000 + "'"
    yield "foo " + "rm -a " * 5_000
    yield "foo <<'E'\n" + "rm -a find dd \n" * 4_000 + "E\n"
    yield "cat <<'E'\n" + "a\n" * 30_000 + "E\n"
    yield "cat <<E\n" + "$a\n" * 15_000 + "E\n"
    yield "cat <<E\n" + "$(ls)\n" * 8_000 + "E\n"
    yield "sh <<'E'\n" + "ls a;\n" * 8_000 + "E\n"
    yield "sh -c '" + "ls a;" * 6_000 + "'"
    yield "bash -c '" * 6 + "ls" + "'" * 6
    yield "git -c alias.a='!git -c alias.b=!ls b' a;" * 400
    yield "find " + " ".join(names(500)) + " -exec cp {} {} \\;" * 200
    yield "x=" + "a" * 30_000 + ";" + "ls $x;" * 500
    yield ("{a,b}" * 12 + " ") * 100
    yield "echo " + "{" * 20_000 + "," + "}" * 20_000
    yield "echo " + "{,}" * 10_000
    yield "for i in " + "{a,b}{c,d} " * 2_000 + ";do rm $i;done"
    yield "ls " + " ".join(f"{name}=$({name})" for name in names(2_000))
    yield "a " * 2_000 + "sudo id"
    yield "9" * 60_000 + "> x"
    yield "((" + ")" * 30_000
    yield "[[ x =~ " + "(" * 30_000


def fixed():
    """Every shape, and each piece repeated to what a command may hold, to what is read, and over it."""
    yield from _shapes()
    for piece in PIECES:
        for length in (4_096, 16_384, 32_000):
            yield repeated(piece, length)
        yield "ls " + repeated(piece, MOST_CHARS)


def mixed(chance: random.Random):
    """Pieces in any order, again and again."""
    pieces = chance.choices(PIECES, k=chance.randint(1, 12))
    return repeated("".join(pieces), chance.choice((500, 2_000, 4_096, 10_000, 30_000, MOST_CHARS)))
