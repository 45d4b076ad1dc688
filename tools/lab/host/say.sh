# How the laboratory speaks: on stderr, so that stdout stays the command's own.

say() { printf 'lab: %s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 125
}

# A wrong command line: what is wrong, and where the right one is written.
refuse() {
    say "$*"
    say "see: tools/lab/lab help"
    exit 2
}
