# Sourced by the other scripts, not run. Afterwards the working directory is the repository's root.
#
#   venv_install SET REQUIREMENT...   the repository's .venv holds callboard, editable, with these requirements
#
# $VENV_BESIDE, without their own requirements, come at the same time; a failure of theirs is left to who needs them.
# The interpreter is $PYTHON, else the first python3 that is 3.11 or later. $CALLBOARD_EXTRAS (say "cuda13") is installed
# in addition. A stamp per SET remembers what was installed; while it fits, nothing is done.

cd "$(dirname "${BASH_SOURCE[0]}")/.."
VENV=.venv
VENV_PYTHON=$VENV/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK=1
# Tests and programs start hundreds of hosts: without stored bytecode each compiles callboard anew, a third of its start.
unset PYTHONDONTWRITEBYTECODE

_is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

_find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
        if _is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
        if [ -n "${PYTHON:-}" ]; then
            echo "PYTHON=$PYTHON is not a Python 3.11 or later" >&2
            return 1
        fi
    done
    echo "no Python 3.11 or later found; set PYTHON to one" >&2
    return 1
}

_make_venv() {
    _is_new_enough "$VENV_PYTHON" && "$VENV_PYTHON" -m pip --version >/dev/null 2>&1 && return
    local python
    python=$(_find_python)
    echo "making $VENV with $("$python" --version)" >&2
    "$python" -m venv --clear "$VENV"
    # Editable installs of a pyproject-only project with extras that name each other need pip 21.3.
    "$VENV_PYTHON" -c 'import pip, sys; sys.exit(int(pip.__version__.split(".")[0]) < 22)' || _pip --upgrade pip
}

_pip() {
    # -qq leaves the errors. What is never imported, most of torch say, need not be compiled: that took half of the time.
    "$VENV_PYTHON" -m pip install -qq --progress-bar off --no-compile "$@"
}

# What an installation depends on: the project file, the interpreter, where the repository lies, and the request.
_fingerprint() {
    "$VENV_PYTHON" - "$@" <<'PY'
import hashlib, os, sys
digest = hashlib.sha256(open("pyproject.toml", "rb").read())
digest.update("\0".join([sys.version, os.getcwd(), os.environ.get("CALLBOARD_EXTRAS", ""), *sys.argv[1:]]).encode())
print(digest.hexdigest())
PY
}

venv_install() {
    local set=$1 wanted
    shift
    # One installer at a time where flock exists; 9 is closed again, so that no child holds the lock.
    if command -v flock >/dev/null; then
        exec 9>.venv.lock
        flock 9
    fi
    _make_venv
    local stamp=$VENV/.installed-$set
    wanted=$(_fingerprint "$@")
    if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
        echo "installing $*${CALLBOARD_EXTRAS:+ with [$CALLBOARD_EXTRAS]} into $VENV" >&2
        # shellcheck disable=SC2086 -- several requirements
        [ -z "${VENV_BESIDE:-}" ] || _pip --no-deps $VENV_BESIDE 2>/dev/null &
        _pip ${VENV_BESIDE:+--no-warn-conflicts} "$@" ${CALLBOARD_EXTRAS:+-e ".[$CALLBOARD_EXTRAS]"}
        wait
        echo "$wanted" >"$stamp"
    fi
    exec 9>&-
}
