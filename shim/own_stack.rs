//! A stack of our own: a signal handler's may have a few kilobytes.

use crate::arena;

const BYTES: usize = 1 << 20;
/// The lowest part is not to be touched.
const GUARD: usize = 1 << 16;

/// Calls `work` on a new stack, which is never freed; false if there is no memory for it. `work` does not unwind.
pub fn call(work: extern "C" fn()) -> bool {
    let stack = arena::map(BYTES);
    if stack.is_null() {
        return false;
    }
    // SAFETY: the lowest part of our own mapping.
    unsafe { libc::mprotect(stack.cast(), GUARD, libc::PROT_NONE) };
    let top = stack as usize + BYTES;
    // SAFETY: the register that keeps the old stack is one that `work` preserves; the new one is aligned as a call demands.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!(
            "xchg rsp, r12",
            "call {work}",
            "mov rsp, r12",
            work = in(reg) work,
            inout("r12") top => _,
            clobber_abi("C")
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!(
            "mov x9, sp",
            "mov sp, x20",
            "mov x20, x9",
            "blr {work}",
            "mov sp, x20",
            work = in(reg) work,
            inout("x20") top => _,
            out("x9") _,
            clobber_abi("C")
        );
    }
    true
}
