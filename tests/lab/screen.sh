# shellcheck shell=bash
# Sourced inside the laboratory: what trtop draws in the tmux session $session.

screen() { tmux capture-pane -p -t "${session:?}"; }

# until_screen PATTERN: waits for the pattern to come up, $screen_tries quarters of a second.
until_screen() {
    for _ in $(seq "${screen_tries:?}"); do
        screen | grep -qE "$1" && return 0
        sleep 0.25
    done
    echo "# the screen, in which '$1' did not come up:"
    screen | sed 's/^/# /'
    return 1
}
