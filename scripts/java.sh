#!/usr/bin/env bash
# Make sure that a Java runtime new enough for Spark is there; install one where it is missing.
# Prints nothing when there is nothing to do.
set -euo pipefail

needed=17

# The major version of the Java that Spark would start, or 0.
java_major() {
    local java=java version
    if [ -n "${JAVA_HOME:-}" ]; then
        java="$JAVA_HOME/bin/java"
    fi
    # macOS has a /usr/bin/java that only prints that there is no Java, and fails.
    version=$("$java" -version 2>&1) || {
        printf '0\n'
        return
    }
    version=$(printf '%s\n' "$version" | sed -n 's/.*version "\([0-9][0-9]*\)\(\.[^"]*\)*[^"]*".*/\1/p' | head -n 1)
    printf '%s\n' "${version:-0}"
}

# The command that installs Java with this system's package manager, or nothing.
install_command() {
    local name
    for name in apt-get dnf yum apk zypper pacman brew; do
        command -v "$name" >/dev/null 2>&1 || continue
        case "$name" in
            apt-get) printf 'apt-get install -y --no-install-recommends %s\n' "$(apt_package)" ;;
            dnf | yum) printf '%s install -y java-17-openjdk-headless\n' "$name" ;;
            apk) printf 'apk add --no-cache openjdk17-jre-headless\n' ;;
            zypper) printf 'zypper --non-interactive install java-17-openjdk-headless\n' ;;
            pacman) printf 'pacman -S --noconfirm jre17-openjdk-headless\n' ;;
            brew) printf 'brew install --quiet openjdk@17\n' ;;
        esac
        return
    done
}

# Newer Debian and Ubuntu releases have dropped 17, their default is newer; in older ones the default
# is older. A fresh container knows no packages at all, so root fetches the lists before asking.
apt_package() {
    if [ "$(id -u)" -eq 0 ]; then
        apt-get update -qq >/dev/null 2>&1 || true # installing will report what is wrong
    fi
    if apt-cache show openjdk-17-jre-headless >/dev/null 2>&1; then
        printf 'openjdk-17-jre-headless\n'
    else
        printf 'default-jre-headless\n'
    fi
}

may_install() {
    case "$1" in
        brew*) return 0 ;; # Homebrew refuses to run as root
        *) [ "$(id -u)" -eq 0 ] ;;
    esac
}

install_java() {
    printf 'java: Java %s or newer is missing; running: %s\n' "$needed" "$1" >&2
    # Package managers name their mirrors at length; the log is shown only when they fail.
    local log
    log=$(mktemp)
    # shellcheck disable=SC2086  # the command is built above, word by word
    DEBIAN_FRONTEND=noninteractive $1 >"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        rm -f "$log"
        return 1
    }
    rm -f "$log"
}

give_up() {
    printf 'java: Spark needs Java %s or newer. %s\n' "$needed" "$1" >&2
    exit 1
}

if [ "$(java_major)" -ge "$needed" ]; then
    exit 0
fi
if [ -n "${JAVA_HOME:-}" ]; then
    give_up "JAVA_HOME is set to '$JAVA_HOME', which has none. Hint: point it to a newer one, or unset it."
fi
command=$(install_command)
if [ -z "$command" ]; then
    give_up "Hint: no known package manager here; install a JDK $needed and put 'java' on PATH."
fi
if ! may_install "$command"; then
    give_up "Install it with: sudo $command"
fi
install_java "$command" || give_up "Installing it failed: $command"
if [ "$(java_major)" -lt "$needed" ]; then
    # Homebrew does not put it on PATH, and a default package may be too old.
    give_up "It was installed but 'java' is not on PATH or too old. Hint: set JAVA_HOME to the new one."
fi
