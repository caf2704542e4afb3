#!/bin/sh
# Prints the home of a Java that Spark can use (17 or newer). Installs one where it may: as root with apt-get.
# Elsewhere it prints the one command to run and exits 1. It changes nothing else.
set -u

# major HOME: the major version of the Java in HOME, or nothing when it does not run.
major() {
    "$1/bin/java" -version 2>&1 | sed -n 's/.*version "\([0-9][0-9]*\).*/\1/p' | head -n 1
}

# home PROGRAM: the Java home behind a `java` on PATH, links followed by Java itself.
home() {
    "$1" -XshowSettings:properties -version 2>&1 | sed -n 's/^ *java\.home = //p' | head -n 1
}

candidates() {
    [ -n "${JAVA_HOME:-}" ] && echo "$JAVA_HOME"
    command -v java >/dev/null 2>&1 && home java
    for found in /usr/lib/jvm/*17* /usr/lib/jvm/*21* /usr/lib/jvm/* /opt/homebrew/opt/openjdk@17 /usr/local/opt/openjdk@17; do
        [ -x "$found/bin/java" ] && echo "$found"
    done
    return 0
}

find_java() {
    candidates | while read -r candidate; do
        version=$(major "$candidate")
        if [ -n "$version" ] && [ "$version" -ge 17 ]; then
            echo "$candidate"
            break
        fi
    done
}

install_java() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 || return 1
    for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
        apt-get install -y -qq --no-install-recommends "$package" >&2 && return 0
    done
    return 1
}

command_for_this_platform() {
    if [ "$(uname -s)" = Darwin ]; then echo "brew install openjdk@17"
    elif command -v apt-get >/dev/null 2>&1; then echo "sudo apt-get install -y openjdk-17-jre-headless"
    elif command -v dnf >/dev/null 2>&1; then echo "sudo dnf install -y java-17-openjdk-headless"
    elif command -v apk >/dev/null 2>&1; then echo "sudo apk add openjdk17-jre-headless"
    elif command -v pacman >/dev/null 2>&1; then echo "sudo pacman -S jre17-openjdk-headless"
    elif command -v zypper >/dev/null 2>&1; then echo "sudo zypper install java-17-openjdk-headless"
    else echo "install any Java 17 and set JAVA_HOME to its folder"
    fi
}

java_home=$(find_java)
if [ -z "$java_home" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Java 17 is missing; installing it with apt-get ..." >&2
    install_java && java_home=$(find_java)
fi
if [ -z "$java_home" ]; then
    echo "Spark needs Java 17 or newer and none was found (JAVA_HOME, PATH). Run this, then try again:" >&2
    echo "    $(command_for_this_platform)" >&2
    exit 1
fi
echo "$java_home"
