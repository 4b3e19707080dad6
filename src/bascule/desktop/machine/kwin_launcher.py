"""The program that has KWin's permission, as C: it starts our host, and makes connections for that alone.

KWin gives a permission to the file of the program that connects. If that were the Python interpreter, every Python
program would have it. So this small program connects, and hands the connections to the host that it has started itself.
"""

import json
from collections.abc import Sequence
from typing import Final

from bascule.desktop.kwin import LENDER

_SOURCE: Final = r"""/* Written by `bascule desktop kwin install`: the program that KWin's permission belongs to. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

extern char **environ;
/* The one program that is started here, whatever the arguments are. */
static char *const COMMAND[] = {@COMMAND@};
enum { WORDS = sizeof COMMAND / sizeof *COMMAND };

/* A request is a socket's address, the answer one byte of errno and, with 0, the connection. */
static void lend(int asked) {
    for (;;) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        ssize_t length = recv(asked, address.sun_path, sizeof address.sun_path, 0);
        if (length < 0 && errno == EINTR) continue;
        if (length <= 0) _exit(0);
        int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        socklen_t size = offsetof(struct sockaddr_un, sun_path) + length;
        unsigned char failed = made < 0 || connect(made, (struct sockaddr *)&address, size) ? errno : 0;
        struct iovec word = {&failed, 1};
        union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } beside = {0};
        struct msghdr answer = {.msg_iov = &word, .msg_iovlen = 1};
        if (!failed) {
            answer.msg_control = beside.room;
            answer.msg_controllen = sizeof beside.room;
            beside.head.cmsg_level = SOL_SOCKET;
            beside.head.cmsg_type = SCM_RIGHTS;
            beside.head.cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(&beside.head), &made, sizeof made);
        }
        if (sendmsg(asked, &answer, MSG_NOSIGNAL) < 0) _exit(0);
        if (made >= 0) close(made);
    }
}

int main(int argc, char **argv) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair)) return perror("bascule"), 1;
    pid_t child = fork();
    if (child < 0) return perror("bascule"), 1;
    if (child == 0) {
        /* Nothing of the host's is kept open here; it ends when the host does. */
        if (dup2(pair[1], 0) < 0) _exit(1);
        close_range(1, ~0U, 0);
        signal(SIGINT, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        lend(0);
    }
    close(pair[1]);
    /* Nobody else's code is loaded into the host by way of the environment. */
    for (char **each = environ; *each;) {
        if (strncmp(*each, "LD_", 3) == 0) for (char **rest = each; (*rest = rest[1]); rest++) ;
        else each++;
    }
    char number[16];
    snprintf(number, sizeof number, "%d", pair[0]);
    setenv("@LENDER@", number, 1);
    char **words = calloc(WORDS + argc, sizeof *words);
    if (!words) return perror("bascule"), 1;
    memcpy(words, COMMAND, (WORDS - 1) * sizeof *words);
    for (int each = 1; each < argc; each++) words[WORDS - 2 + each] = argv[each];
    execv(words[0], words);
    return perror(words[0]), 1;
}
"""


def source(command: Sequence[str]) -> str:
    """That starts this command and no other."""
    # JSON's strings are C's, as long as they hold no character beyond ASCII: those are bytes in a path.
    words = [json.dumps(each, ensure_ascii=False) for each in command]
    return _SOURCE.replace("@COMMAND@", ", ".join([*words, "0"])).replace("@LENDER@", LENDER)


def host_command(python: str) -> list[str]:
    """`-I`: no variable and no directory of anybody's adds modules to it."""
    return [python, "-I", "-m", "bascule.cli.start", "desktop-host"]
