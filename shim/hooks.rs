//! What the list of hooks in `lib.rs` becomes: an export and a pool of hooks for each, which all end in the function of
//! the same name in [`crate::control_path`], and typed access to the real functions.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use rdma_sys::{ibv_ah, ibv_context, ibv_cq, ibv_device, ibv_pd, ibv_qp, ibv_srq};

/// The first argument of a call.
pub trait Subject: Copy {
    /// The context that it belongs to, or null.
    ///
    /// # Safety
    /// It is valid, as the call demands.
    unsafe fn context(self) -> *mut ibv_context;

    /// The device that it is, or null.
    fn device(self) -> *mut ibv_device {
        null_mut()
    }
}

impl Subject for *mut ibv_context {
    unsafe fn context(self) -> *mut ibv_context {
        self
    }
}

impl Subject for *mut ibv_device {
    unsafe fn context(self) -> *mut ibv_context {
        null_mut()
    }

    fn device(self) -> *mut ibv_device {
        self
    }
}

impl Subject for c_int {
    unsafe fn context(self) -> *mut ibv_context {
        null_mut()
    }
}

impl Subject for *mut c_void {
    unsafe fn context(self) -> *mut ibv_context {
        null_mut()
    }
}

macro_rules! subjects {
    ($($type:ty),*) => { $(
        impl Subject for *mut $type {
            unsafe fn context(self) -> *mut ibv_context {
                // SAFETY: the caller's promise.
                unsafe { (*self).context }
            }
        }
    )* };
}

subjects!(ibv_pd, ibv_cq, ibv_srq, ibv_qp, ibv_ah);

/// The register of the argument after these.
#[cfg(target_arch = "x86_64")]
macro_rules! register_after {
    ($a:ident) => {
        "rsi"
    };
    ($a:ident $b:ident) => {
        "rdx"
    };
    ($a:ident $b:ident $c:ident) => {
        "rcx"
    };
    ($a:ident $b:ident $c:ident $d:ident) => {
        "r8"
    };
    ($a:ident $b:ident $c:ident $d:ident $e:ident) => {
        "r9"
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! register_after {
    ($a:ident) => {
        "x1"
    };
    ($a:ident $b:ident) => {
        "x2"
    };
    ($a:ident $b:ident $c:ident) => {
        "x3"
    };
    ($a:ident $b:ident $c:ident $d:ident) => {
        "x4"
    };
    ($a:ident $b:ident $c:ident $d:ident $e:ident) => {
        "x5"
    };
}

/// The body of an export: appends the address that the call returns to as an argument, and goes on to `to`.
macro_rules! go_on_with_caller {
    ($to:path, $($arg:ident)*) => {
        #[cfg(target_arch = "x86_64")]
        core::arch::naked_asm!(
            concat!("mov ", $crate::hooks::register_after!($($arg)*), ", [rsp]"),
            "jmp {to}",
            to = sym $to
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::naked_asm!(
            concat!("mov ", $crate::hooks::register_after!($($arg)*), ", x30"),
            "b {to}",
            to = sym $to
        );
    };
}

/// Declares the hooks.
macro_rules! export {
    ($($name:ident($first:ident: $first_type:ty $(, $arg:ident: $type:ty)*) -> $ret:ty;)*) => {
        /// A function that is hooked.
        #[derive(Clone, Copy, PartialEq, Eq)]
        #[allow(non_camel_case_types, reason = "named as the functions are")]
        pub enum Function { $(
            #[doc = concat!("`", stringify!($name), "`.")]
            $name,
        )* }

        impl Function {
            const ALL: &[Function] = &[$(Function::$name),*];
            /// How many there are.
            pub const COUNT: usize = Function::ALL.len();

            /// Its name.
            pub fn name(self) -> &'static CStr {
                match self { $(
                    Function::$name => const {
                        match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => panic!("a name without NUL"),
                        }
                    },
                )* }
            }

            /// The function of this name.
            pub fn named(name: &CStr) -> Option<Function> {
                Function::ALL.iter().copied().find(|f| f.name() == name)
            }

            /// Address of our export.
            pub fn exported(self) -> usize {
                match self { $( Function::$name => exported::$name as *const () as usize, )* }
            }

            /// Address of the hook for the library in this place of the pool.
            pub fn pooled(self, place: usize) -> Option<usize> {
                let hooks: [*const (); library::POOL] = match self { $(
                    Function::$name => [
                        pooled::$name::<0> as *const (), pooled::$name::<1> as *const (),
                        pooled::$name::<2> as *const (), pooled::$name::<3> as *const (),
                        pooled::$name::<4> as *const (), pooled::$name::<5> as *const (),
                        pooled::$name::<6> as *const (), pooled::$name::<7> as *const (),
                    ],
                )* };
                hooks.get(place).map(|hook| *hook as usize)
            }
        }

        impl library::Library { $(
            #[doc = concat!("The real `", stringify!($name), "`.")]
            pub fn $name(&self) -> Option<unsafe extern "C" fn($first_type $(, $type)*) -> $ret> {
                // SAFETY: the address is that of libibverbs's function of this name, whose prototype the type repeats.
                self.get(Function::$name).map(|address| unsafe { core::mem::transmute(address) })
            }
        )* }

        /// What is exported, for programs that are linked with libibverbs.
        mod exported {
            #[allow(clippy::wildcard_imports, reason = "the types of the list")]
            use super::*;
            $(
                /// # Safety
                /// As the function of this name in libibverbs.
                #[unsafe(no_mangle)]
                #[unsafe(naked)]
                pub unsafe extern "C" fn $name($first: $first_type $(, $arg: $type)*) -> $ret {
                    $crate::hooks::go_on_with_caller!(from_caller::$name, $first $($arg)*);
                }
            )*
        }

        /// Where the exports go on. They may be unwound: by the cancellation of a thread that sleeps in the real function.
        mod from_caller {
            #[allow(clippy::wildcard_imports, reason = "the types of the list")]
            use super::*;
            $(
                pub unsafe extern "C-unwind" fn $name($first: $first_type $(, $arg: $type)*, caller: usize) -> $ret {
                    // SAFETY: the program's promise: its arguments are as libibverbs demands.
                    unsafe {
                        let way = linked::way(Function::$name, caller, $first);
                        control_path::$name(way, $first $(, $arg)*)
                    }
                }
            )*
        }

        /// What look-ups get. As above.
        mod pooled {
            #[allow(clippy::wildcard_imports, reason = "the types of the list")]
            use super::*;
            $(
                pub unsafe extern "C-unwind" fn $name<const PLACE: usize>($first: $first_type $(, $arg: $type)*) -> $ret {
                    let way = library::Way { library: library::Library::of_place::<PLACE>(), caller: 0 };
                    // SAFETY: as above.
                    unsafe { control_path::$name(way, $first $(, $arg)*) }
                }
            )*
        }
    };
}

pub(crate) use {export, go_on_with_caller, register_after};
