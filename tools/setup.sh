#!/bin/sh
# What `make` calls before it runs anything: a Python environment in .venv, and Debian packages for tests.
#
#   tools/setup.sh env [dev|bench] [DIR]  make or refresh .venv, or another one; returns in milliseconds when nothing
#                                    changed
#   tools/setup.sh builder           print the environment that builds the wheels, after making it if need be
#   tools/setup.sh packages [long|bench|fresh]  install the Debian packages that tests use, that `make test-long` uses
#                                    besides, that the bench compares with, or that `make fresh` builds its root with
#
# Only sh and the usual small tools: this runs before we know that there is a Python at all.
# PYTHON=/path/to/python chooses the interpreter.
set -eu

# Debian packages that tests use, each with its reason:
#   systemd   systemd-analyze verifies the unit that `bascule service install` writes
#   zsh fish  judge the completions that `bascule setup shell` writes for them
#   procps    ps names the processes around a hook where there is no /proc
#   e2fsprogs mount  make and mount the disk whose power is cut
#   libfiu0   makes the n-th system call of a process fail
#   libfaketime  shows a daemon a wall clock that jumps
#   bubblewrap  the sandbox that commands run in
#   busybox-static  one more way to reach a denied program
#   tmux      shows announcements in its status line
#   chromium  the browser whose pages attack the port in tests/web/test_browser.py, and which shows the console
#   firefox-esr  the other browser whose pages agents read and type into: 76 MB, five seconds to install
#   libatomic1  of the Node that drives it in tests/console
#   xvfb dbus at-spi2-core openbox fonts-dejavu-core  a desktop without a screen: X server, buses, window manager
#   python3-gi gir1.2-gtk-3.0 gir1.2-gtk-4.0 python3-pyqt6 python3-pyqt5  our fixture programs, one per toolkit
#   mousepad gnome-calculator  programs we did not write, GTK 3 and GTK 4
#   sway xwayland  a Wayland session without a screen, with X11 programs in it
#   kwin-wayland libgl1-mesa-dri libegl-mesa0 kwin-style-breeze  another, KDE's, which takes pictures
#             with OpenGL alone, and the title bars that its windows have
#   gcc libc6-dev  make the launcher that has KWin's permission
#   qtwayland5 qt6-wayland gir1.2-gtklayershell-0.1  the fixture programs in it, and a prompt that keeps the keyboard
#   iproute2  `ip` brings up the loopback that real clients are left alone with
#   xdotool   an independent witness of what reached the X server
#   gir1.2-atspi-2.0 python3-dogtail  the usual ways to read a window: the bench is tested with its peers
#   curl      what a command inside a space asks an agent with
#   time      one more way to run a program; dash has no keyword for it
TEST_PACKAGES="systemd zsh fish procps e2fsprogs mount libfiu0 libfaketime bubblewrap busybox-static tmux chromium firefox-esr libatomic1 xvfb dbus at-spi2-core openbox fonts-dejavu-core python3-gi gir1.2-gtk-3.0 gir1.2-gtk-4.0 python3-pyqt6 python3-pyqt5 mousepad gnome-calculator sway xwayland kwin-wayland libgl1-mesa-dri libegl-mesa0 kwin-style-breeze gcc libc6-dev qtwayland5 qt6-wayland gir1.2-gtklayershell-0.1 iproute2 xdotool gir1.2-atspi-2.0 python3-dogtail curl time"
# And `make test-long`:
#   gnome-shell  GNOME without a screen: 121 packages, 90 MB, one and a half minutes to install, so not for every test run
#   libglib2.0-bin  has gsettings, which switches the extension on there
LONG_PACKAGES="gnome-shell libglib2.0-bin"
# And the bench:
#   redis-tools  has the server's program under another name; redis-server would also start a service
#   gir1.2-atspi-2.0 python3-dogtail  the usual ways to read a window, beside ours
#   xvfb and what follows  the desktop and the programs that these windows are of, as in the tests
BENCH_PACKAGES="gir1.2-atspi-2.0 python3-dogtail redis-tools xvfb dbus at-spi2-core openbox fonts-dejavu-core python3-gi gir1.2-gtk-3.0 mousepad gnome-calculator xdotool"
# And `make fresh`:
#   mmdebstrap  builds a minimal Debian in half a minute
FRESH_PACKAGES="mmdebstrap"

cd "$(dirname "$0")/.."
root=$(pwd -P)
venv=${3:-.venv}

say() { printf 'setup: %s\n' "$*"; }
fail() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}
on_terminal() { [ "${CI:-}" != true ] && [ -t 0 ] && [ -t 1 ]; }
is_root() { [ "$(id -u)" = 0 ]; }

# -- Debian packages ------------------------------------------------------------------------------

is_debian() { command -v dpkg-query >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1; }

missing_packages() {
    for package in "$@"; do
        state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || state=absent
        [ "$state" = installed ] || printf '%s ' "$package"
    done
}

# At once where nobody can be asked and nobody's machine is changed behind their back (CI, a container
# that runs as root); else the list is shown first. Returns 1 when they stay missing.
install_packages() {
    why=$1
    shift
    command="apt-get install -y --no-install-recommends $*"
    is_root || command="sudo $command"
    if on_terminal; then
        printf 'setup: %s\n       %s\n       Run it now? [Y/n] ' "$why" "$command"
        read -r answer || answer=n
        case $answer in [Nn]*) return 1 ;; esac
        is_root && as_root="" || as_root="sudo"
    elif is_root; then
        as_root=""
    elif [ "${CI:-}" = true ] && sudo -n true 2>/dev/null; then
        as_root="sudo -n"
    else
        say "$why" "Run: $command" >&2
        return 1
    fi
    say "installing $*"
    export DEBIAN_FRONTEND=noninteractive
    # Unattended upgrades may hold dpkg's lock for a while on a machine that has just started.
    apt="$as_root apt-get -qq -o DPkg::Lock::Timeout=120"
    $apt install -y --no-install-recommends "$@" >/dev/null 2>&1 ||
        { $apt update && $apt install -y --no-install-recommends "$@" >/dev/null; } ||
        return 1
}

packages() {
    is_debian || return 0
    if [ "${1:-}" = bench ]; then
        # shellcheck disable=SC2086 # a list of words on purpose
        missing=$(missing_packages $BENCH_PACKAGES)
        # shellcheck disable=SC2086
        [ -z "$missing" ] || install_packages "The bench compares with these Debian packages: $missing" $missing ||
            say "going on without them: the tables say what is not in them"
        return 0
    fi
    if [ "${1:-}" = fresh ]; then
        missing=$(missing_packages $FRESH_PACKAGES)
        # shellcheck disable=SC2086
        [ -z "$missing" ] || install_packages "make fresh builds a throw-away Debian with: $missing" $missing ||
            fail "make fresh needs: $missing"
        return 0
    fi
    wanted=$TEST_PACKAGES
    [ "${1:-}" != long ] || wanted="$TEST_PACKAGES $LONG_PACKAGES"
    # shellcheck disable=SC2086
    missing=$(missing_packages $wanted)
    [ -n "$missing" ] || return 0
    # shellcheck disable=SC2086
    install_packages "Tests use these Debian packages: $missing" $missing && return 0
    [ "${CI:-}" != true ] || fail "could not install: $missing" "In CI nothing may be skipped; put them into the image."
    say "going on without them: the tests that use them are skipped"
}

# -- Python ---------------------------------------------------------------------------------------

# A name on PATH may be a shim without a version behind it, so each candidate is asked to run.
new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
can_make_venvs() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

choose_python() {
    if [ -n "${PYTHON:-}" ]; then
        new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not a Python 3.11 or newer."
        python=$PYTHON
        return
    fi
    python=
    for candidate in python3.11 python3.12 python3.13 python3.14 python3; do
        new_enough "$candidate" || continue
        # One that can make environments by itself is better than one that needs a package first.
        if can_make_venvs "$candidate"; then
            python=$candidate
            return
        fi
        [ -n "$python" ] || python=$candidate
    done
    [ -n "$python" ] || fail \
        "Bascule needs Python 3.11 or newer; here: $(python3 --version 2>&1 || true)" \
        "Install one (Debian 12 and later, Ubuntu 24.04 and later: apt-get install python3 python3-venv)," \
        "or name one that is not on PATH: make up PYTHON=/path/to/python3.11"
}

need_ensurepip() {
    can_make_venvs "$python" && return 0
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    is_debian || fail "$python cannot make virtual environments (no ensurepip)." \
        "Install your system's package for venv and ensurepip, or name another one: make up PYTHON=..."
    install_packages "$python cannot make virtual environments without the Debian package $package." "$package" &&
        can_make_venvs "$python" && return 0
    fail "Still no $package. Install it (apt-get install $package) and run make again."
}

# A checkout that was moved, or a Python that was removed, leaves scripts that point nowhere.
venv_works() {
    grep -qsF "$root/$venv" $venv/bin/activate && new_enough $venv/bin/python &&
        $venv/bin/python -c 'import pip' 2>/dev/null
}

# install WHAT ARGUMENTS...: into $venv, unless $stamp says that $wanted is there.
install() {
    what=$1
    shift
    if [ -x $venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        return 0
    fi
    # Two makes at once would install into each other; the file is only the lock's name.
    if command -v flock >/dev/null 2>&1; then
        exec 9<pyproject.toml
        flock 9
        [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || [ ! -x $venv/bin/python ] || return 0
    fi
    if ! venv_works; then
        choose_python
        need_ensurepip
        say "making $venv with $("$python" --version)"
        "$python" -m venv --clear $venv
    fi
    say "installing $what into $venv"
    $venv/bin/python -m pip --disable-pip-version-check --no-input --quiet --quiet install "$@" ||
        fail "pip could not install; its message is above. Nothing is half done: run make again."
    printf '%s' "$wanted" >"$stamp"
}

environment() {
    extra=${1:-}
    stamp=$venv/.bascule-${extra:-run}
    # The builds read the version from that module.
    wanted="$root $(cat pyproject.toml packages/*/pyproject.toml src/bascule/__init__.py | cksum)"
    # All three of this repository in one command: pip then takes gabp from here and not from an index.
    install "bascule${extra:+ and what $extra needs}" \
        --editable packages/gabp --editable packages/bascule-mod --editable ".${extra:+[$extra]}"
    # Another extra has all that the daemon needs.
    [ "$(cat "$venv/.bascule-run" 2>/dev/null)" = "$wanted" ] || printf '%s' "$wanted" >$venv/.bascule-run
}

# The environment that builds the wheels: the one for development where it is, else one with two packages in it.
builder() {
    [ -e .venv/.bascule-dev ] || {
        venv=.venv-build
        stamp=$venv/.bascule-build
        packages=$(grep -oE '(build|hatchling)==[0-9.]+' pyproject.toml)
        wanted="$root $packages"
        # shellcheck disable=SC2086 # a list of words on purpose
        install "what builds the wheels" $packages >&2
        echo .venv-build
        return
    }
    echo .venv
}

case "${1:-}" in
env) environment "${2:-}" ;;
builder) builder ;;
packages) packages "${2:-}" ;;
*) fail "usage: tools/setup.sh env [dev|bench] [DIR] | builder | packages [bench|fresh]" ;;
esac
