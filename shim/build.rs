//! The library stays loaded once it is: open contexts point to its hooks, and a dlclose would take these away.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
