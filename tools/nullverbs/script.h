/* The scripting interface of nullverbs: what a test program may ask of the software device besides the verbs.
 *
 * Programs find these with dlsym(RTLD_DEFAULT, ...), so that the same binary also runs over another libibverbs.
 * All of them return 0 or an errno value. A QP is named by its number; when several devices have a QP of that
 * number, the first device in list order is meant. Only what says so works in null mode as well.
 */
#ifndef NULLVERBS_SCRIPT_H
#define NULLVERBS_SCRIPT_H

#include <stdint.h>

/* The n-th send WR posted from now on (n = 1: the next one) completes with `status`, signaled or not;
 * the QP goes to ERR and every later WR is flushed. n = 0 is taken as 1. */
int nullverbs_fail_next(uint32_t qp_num, unsigned after_n_wrs, int status, uint32_t vendor_err);

/* The n-th send WR from now on (n = 1: the next one) is refused by post_send with `err`; bad_wr names it,
 * the WRs before it in the same chain are posted. Happens once. */
int nullverbs_fail_post(uint32_t qp_num, unsigned after_n_wrs, int err);

/* on: WRs are accepted but neither executed nor completed, so that the outstanding count grows.
 * off: everything held is executed at once, in post order. ERR and RESET act on held WRs as on any other. */
int nullverbs_hold(uint32_t qp_num, int on);

/* An asynchronous event of the QP's, IBV_EVENT_QP_FATAL and so on; of its send CQ's, if it is IBV_EVENT_CQ_ERR. Nothing else
 * becomes of either. In null mode as well. */
int nullverbs_raise(uint32_t qp_num, int event_type);

/* The access flags (enum ibv_access_flags) that the QP gives its peer. In null mode as well. */
int nullverbs_access(uint32_t qp_num, unsigned *flags);

/* The next QP created, on whichever device, gets this number (EBUSY at creation if it is taken there). In null mode
 * as well. */
int nullverbs_reuse_qpn(uint32_t qpn);

#endif
