//! With more than one path asked for, QPs get engines and CQs pass them, by `ibv_wr_*` and `ibv_start_poll` too. Without a
//! peer nothing is split; the program and the counts are what they are without.

use crate::exact::{alike, exact};
use telereduce_tests::Truth;
use telereduce_tests::compare::assert_exact;

const PATHS: &[(&str, &str)] = &[("TELEREDUCE_PATHS", "4")];

macro_rules! exact {
    ($($test:ident: $program:literal;)*) => { $(
        #[test]
        fn $test() {
            exact($program, PATHS);
        }
    )* };
}

exact! {
    batches_aborted_and_refused_and_completions_one_by_one: "extended";
    extended_cqs_polled_by_the_plain_call: "extended --plain";
    cqs_that_were_asked_for_nothing: "extended --bare";
    a_child_goes_on_with_extended_objects: "extended_fork";
    plain_objects: "basic";
    hardly_any_signaled: "basic --signal-every 97 --writes 2000";
    large_messages: "basic --size 1048576";
    a_queue_that_is_often_full: "full";
    partly_accepted_chains: "partial";
    reset_with_work_outstanding: "reset";
    reused_qp_numbers: "qpn_reuse";
    work_left_at_exit: "unpolled";
    a_thread_that_is_being_cancelled: "cancel";
    one_cq_for_all_and_equal_ids: "shared_cq";
    completion_channels: "events";
}

#[test]
fn a_qp_that_can_do_more_than_plain_posts_gets_no_engine() {
    let (o, s) = alike("extended_ops", PATHS);
    assert_exact(&Truth::parse(o.stdout.lines()), &s);
}

/// Whoever waits in the wrong order hangs.
#[test]
fn many_threads_build_post_and_poll_at_once() {
    for program in ["extended_threads", "extended_threads --threads 8 --count 1000"] {
        exact(program, PATHS);
    }
}
