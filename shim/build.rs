//! How the library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // It stays loaded once it is: open contexts point to its hooks, and a dlclose would take these away.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // What it calls by the name of an export is its own, whoever else exports that name.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
